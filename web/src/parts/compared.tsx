/** Two texts compared line by line. Loaded with the library that compares. */
import { diffLines } from "diff";
import { useMemo } from "react";

import { Told } from "./verbatim";

const AROUND = 2;

export default function Compared({ before, after, label }: { before: string; after: string; label: string }) {
  const parts = useMemo(() => diffLines(before, after), [before, after]);
  if (before === after) return <p className="quiet">Both are the same.</p>;
  return (
    <pre className="verbatim diff" aria-label={label} tabIndex={0}>
      {parts.map((part, index) => (
        <span key={index} className={part.added ? "added" : part.removed ? "removed" : "same"}>
          {part.added || part.removed ? (
            <>
              <span className="spoken">{part.added ? "added: " : "removed: "}</span>
              <Told text={prefixed(part.value, part.added ? "+ " : "− ")} />
            </>
          ) : (
            <Told text={shortened(part.value, index === 0, index === parts.length - 1)} />
          )}
        </span>
      ))}
    </pre>
  );
}

/** Of a long stretch that is the same, only its ends. */
function shortened(text: string, first: boolean, last: boolean): string {
  const lines = text.split("\n");
  if (lines.length <= 2 * AROUND + 2) return text;
  const head = first ? [] : lines.slice(0, AROUND);
  const tail = last ? [] : lines.slice(-AROUND - 1);
  return [...head, `  … ${lines.length - head.length - tail.length} lines the same …`, ...tail].join("\n");
}

function prefixed(text: string, sign: string): string {
  const ends = text.endsWith("\n");
  const lines = (ends ? text.slice(0, -1) : text).split("\n").map((line) => sign + line);
  return `${lines.join("\n")}\n`;
}
