import { wordFor } from "../statuses";
import type { Entry } from "../types";

/** What kind of entry it is and whether it was sorted, as far as that is worth a word. */
export function EntryState({ entry }: { entry: Entry }) {
  return (
    <>
      {entry.type !== "conversation" && <span className={`tag type-${entry.type}`}>{wordFor(entry.type)}</span>}
      {entry.classificationStatus !== "classified" && (
        <span
          className={`tag ${entry.classificationStatus}`}
          title={entry.classificationCode ?? undefined}
        >
          {wordFor(entry.classificationStatus)}
        </span>
      )}
    </>
  );
}
