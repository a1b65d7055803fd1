/** Where the words of a question stand in a text. */
import { gist } from "../parts/gist";

export interface Piece {
  text: string;
  hit: boolean;
}

const FEWEST = 2;

/** The text in pieces; those that begin with a word of the query are hits. Joined, they are the text. */
export function pieces(text: string, query: string): Piece[] {
  const words = [...new Set(query.match(/[\p{L}\p{N}]+/gu) ?? [])].filter((word) => word.length >= FEWEST);
  if (words.length === 0) return text === "" ? [] : [{ text, hit: false }];
  const longest = words.toSorted((a, b) => b.length - a.length);
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${longest.join("|")})`, "giu");
  const found: Piece[] = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) found.push({ text: text.slice(end, match.index), hit: false });
    end = match.index + match[0].length;
    found.push({ text: match[0], hit: true });
  }
  if (end < text.length) found.push({ text: text.slice(end), hit: false });
  return found;
}

const AROUND = 60;
// What a cut through the middle of a character leaves.
const HALVES = /^[\udc00-\udfff]|[\ud800-\udbff]$/g;

/** A short part of a long text around the first hit, on one line and without the marks of markdown. */
export function excerpt(text: string, query: string, most = 200): string {
  const line = gist(text);
  if (line.length <= most) return line;
  let at = 0;
  for (const piece of pieces(line, query)) {
    if (piece.hit) break;
    at += piece.text.length;
  }
  const start = at >= line.length ? 0 : Math.max(0, Math.min(at - AROUND, line.length - most));
  const end = start + most;
  const part = line.slice(start, end).replace(HALVES, "").trim();
  return `${start > 0 ? "…" : ""}${part}${end < line.length ? "…" : ""}`;
}
