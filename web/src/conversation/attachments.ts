/** Files that go along with a message: pictures for the model to see, short texts within its words, all else as files. */
import type { Spoken } from "../api/types";
import type { Enclosure } from "./outbox";

export interface Attached {
  enclosed: Enclosure[];
  /** Texts of files, each in a fence under its name. */
  texts: { name: string; text: string }[];
  refused: string[];
}

/** What one request can carry: a file of ten megabytes is a third longer there. */
const MOST_TOGETHER = 11_500_000;
const MOST_TEXT = 100_000;
const MOST_PICTURE = 8_000_000;
const TEXTUAL = /^(text\/|application\/(json|xml|yaml|x-yaml|toml|javascript|x-sh|sql))/;
const BY_NAME = /\.(md|txt|csv|json5?|ya?ml|toml|py|ts|tsx|js|jsx|rs|go|java|c|h|cpp|sh|sql|log|ini|cfg|html|css|xml)$/i;

export interface Limits {
  maxBytes: number;
  maxFiles: number;
}

/** What these files are to a message that others go along with already; each that cannot go says why. What a file is, its bytes say. */
export async function attached(files: readonly File[], along: readonly Enclosure[], limits: Limits): Promise<Attached> {
  const found: Attached = { enclosed: [], texts: [], refused: [] };
  for (const file of files) {
    const name = file.name === "" ? "pasted" : file.name;
    const text = (TEXTUAL.test(file.type) || BY_NAME.test(name)) && file.size <= MOST_TEXT ? await textOf(file) : null;
    if (text !== null) {
      found.texts.push({ name, text });
      continue;
    }
    const picture = file.size <= MOST_PICTURE ? await pictureType(file) : "";
    const why = refusal(file.size, picture === "" ? limits.maxBytes : MOST_PICTURE, [...along, ...found.enclosed], limits.maxFiles);
    if (why !== null) found.refused.push(`${name}: ${why}`);
    else found.enclosed.push({ mimeType: picture, data: await base64(file), name });
  }
  return found;
}

/** What it says, if it says something and is text to the last byte. */
async function textOf(file: File): Promise<string | null> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text === "" || text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

const SIGNS: readonly [string, RegExp][] = [
  ["image/png", /^\x89PNG\r\n/],
  ["image/jpeg", /^\xff\xd8\xff/],
  ["image/gif", /^GIF8[79]a/],
  ["image/webp", /^RIFF[\s\S]{4}WEBP/],
];

/** The kind of a picture that a model can be shown; "" for any other file. */
async function pictureType(file: File): Promise<string> {
  const head = String.fromCharCode(...new Uint8Array(await file.slice(0, 12).arrayBuffer()));
  return SIGNS.find(([, sign]) => sign.test(head))?.[0] ?? "";
}

/** Why a file of this size cannot go along with those, in a person's words. */
export function refusal(size: number, most: number, along: readonly Enclosure[], mostFiles: number): string | null {
  if (size === 0) return "the file is empty.";
  if (size > most) return `a file may have ${megabytes(most)}, this one has ${megabytes(size)}.`;
  if (along.length >= mostFiles) return `${mostFiles} files go with one message. Send it with the next.`;
  const together = along.reduce((sum, one) => sum + (one.data.length * 3) / 4, size);
  return together > MOST_TOGETHER ? `together the files of one message may have ${megabytes(MOST_TOGETHER)}. Send it with the next.` : null;
}

function megabytes(bytes: number): string {
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** The message with the texts of files behind its words. */
export function withTexts(words: string, texts: Attached["texts"]): string {
  return [words, ...texts.map(({ name, text }) => `${name}:\n${fence(text)}\n${text}\n${fence(text)}`)]
    .filter((part) => part !== "")
    .join("\n\n");
}

/** A fence that is longer than any within. */
function fence(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map((found) => found[0].length));
  return "`".repeat(longest + 1);
}

/** What a person wrote, without the lines by which the model is told of files: those stand below as what they are. */
export function wordsOf(entry: Pick<Spoken, "content" | "files">): string {
  return entry.files.reduce((text, { fileName }) => {
    const told = new RegExp(`^\\[file: ${escaped(fileName)}, [^\\n]*\\](\\n\u0060{3}\\n[\\s\\S]*?\\n\u0060{3}$)?\\n?`, "m");
    return text.replace(told, "");
  }, entry.content).trimEnd();
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

export async function base64(file: Blob): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let start = 0; start < bytes.length; start += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(text);
}
