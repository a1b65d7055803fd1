/**
 * Text exactly as it is, for one who has to judge it: what would be invisible, or would move other text about,
 * is shown by its code, and letters that may pass for others are marked.
 */
import { Fragment, type ReactNode } from "react";

// Controls, format and bidi marks, blanks but the space, what no font shows, unassigned and private codes.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\p{DI}\u2800]/u;
const STRANGE = /[^\x20-\x7e]/u;
const PIECES = /(\r?\n|\t|[^\x20-\x7e])/u;

export const NAMES: Record<string, string> = {
  "\0": "NUL",
  "\u001b": "ESC",
  "\r": "CR",
  "\u00a0": "NBSP",
  "\u200b": "ZWSP",
  "\u200c": "ZWNJ",
  "\u200d": "ZWJ",
  "\u200e": "LRM",
  "\u200f": "RLM",
  "\u202a": "LRE",
  "\u202b": "RLE",
  "\u202c": "PDF",
  "\u202d": "LRO",
  "\u202e": "RLO",
  "\u2066": "LRI",
  "\u2067": "RLI",
  "\u2068": "FSI",
  "\u2069": "PDI",
  "\ufeff": "BOM",
};

export function Verbatim({ text, label }: { text: string; label: string }) {
  return (
    <pre className="verbatim" dir="ltr" aria-label={label} tabIndex={0}>
      <code>{text.split(PIECES).map((piece, index) => shown(piece, index))}</code>
    </pre>
  );
}

/** Whether a text has anything that does not look like what it is. */
export function isStrange(text: string): boolean {
  return STRANGE.test(text.replace(/[\n\t]/g, ""));
}

function shown(piece: string, key: number): ReactNode {
  if (piece === "\n") return <Mark key={key} name="↵" title="a new line" after={"\n"} />;
  if (piece === "\r\n") return <Mark key={key} name="CR ↵" title="a new line" after={"\n"} />;
  if (piece === "\t") return <Mark key={key} name="⇥" title="a tab" />;
  if (HIDDEN.test(piece)) return <Mark key={key} name={NAMES[piece] ?? code(piece)} title={code(piece)} />;
  if (STRANGE.test(piece)) {
    return (
      <bdi key={key} className="strange" title={code(piece)}>
        {piece}
      </bdi>
    );
  }
  return <Fragment key={key}>{piece}</Fragment>;
}

export function Mark({ name, title, after }: { name: string; title: string; after?: string }) {
  return (
    <>
      <span className="mark" title={title}>
        {name}
      </span>
      {after}
    </>
  );
}

/** The code of a character, as `U+202E`. */
export function code(char: string): string {
  return `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}
