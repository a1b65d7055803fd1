/**
 * Text exactly as it is, for one who has to judge it: what would be invisible, or would move other text about,
 * is shown by its code, and letters that may pass for others are marked.
 */
import type { ReactNode } from "react";

// Controls, format and bidi marks, blanks but the space, what no font shows, unassigned and private codes.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\p{DI}\u2800]/u;
const PIECES = /(\r?\n|\t|[^\x20-\x7e])/u;
// Lines, tabs and the joiners of scripts and emoji are as they should be in long text.
const HIDDEN_PIECES = /((?!\n|\t|\u200c|\u200d)[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0])/u;

const NAMES: Record<string, string> = {
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

/** A block of such text. */
export function Verbatim({ text, label }: { text: string; label: string }) {
  return (
    <pre className="verbatim" dir="ltr" aria-label={label} tabIndex={0}>
      <code>
        <Exact text={text} />
      </code>
    </pre>
  );
}

/** Such text within a line. */
export function Exact({ text }: { text: string }) {
  return <bdi>{text.split(PIECES).map((piece, index) => (index % 2 === 0 ? piece : marked(piece, index)))}</bdi>;
}

/** Long text to be read rather than judged: letters are left alone, what is hidden is shown. */
export function Plain({ text, label }: { text: string; label: string }) {
  return (
    <pre className="verbatim output" aria-label={label} tabIndex={0}>
      {readable(text)}
    </pre>
  );
}

/** What somebody said or named, within a line or a paragraph: the same care, and it turns no other text around. */
export function Told({ text }: { text: string }) {
  return <bdi>{readable(text.replaceAll("\r\n", "\n"))}</bdi>;
}

/** Our own words, with what they quote as code. */
export function Quoted({ text }: { text: string }) {
  return text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part));
}

/** Whether a text has anything that does not look like what it is. */
export function isStrange(text: string): boolean {
  return /[^\x20-\x7e\n\t]/u.test(text);
}

function readable(text: string): ReactNode[] {
  return text.split(HIDDEN_PIECES).map((piece, index) => (index % 2 === 0 ? piece : marked(piece, index)));
}

function marked(piece: string, key: number): ReactNode {
  if (piece === "\n") return <Mark key={key} name="↵" title="a new line" after={"\n"} />;
  if (piece === "\r\n") return <Mark key={key} name="CR ↵" title="a new line" after={"\n"} />;
  if (piece === "\t") return <Mark key={key} name="⇥" title="a tab" />;
  if (HIDDEN.test(piece)) return <Mark key={key} name={NAMES[piece] ?? code(piece)} title={code(piece)} />;
  return (
    <bdi key={key} className="strange" title={code(piece)}>
      {piece}
    </bdi>
  );
}

function Mark({ name, title, after }: { name: string; title: string; after?: string }) {
  return (
    <>
      <span className="mark" title={title}>
        {name}
      </span>
      {after}
    </>
  );
}

function code(char: string): string {
  return `U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}
