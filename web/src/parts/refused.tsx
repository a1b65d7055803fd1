import type { Problem } from "../api/problem";
import { Trouble } from "./states";

/** Why an edit was taken back; nothing where none was. */
export function Refused({ problem, excuse }: { problem: Problem | undefined; excuse: () => void }) {
  if (problem === undefined) return null;
  return (
    <Trouble problem={problem}>
      <button type="button" className="plain" onClick={excuse}>
        All right
      </button>
    </Trouble>
  );
}
