/** Files that go along with a message: pictures as they are, short texts within its words. */
import type { Picture } from "./outbox";

export interface Attached {
  pictures: Picture[];
  /** Texts of files, each in a fence under its name. */
  texts: { name: string; text: string }[];
  refused: string[];
}

const MOST_TEXT = 100_000;
const MOST_PICTURE = 8_000_000;
const TEXTUAL = /^(text\/|application\/(json|xml|yaml|x-yaml|toml|javascript|x-sh|sql))/;
const BY_NAME = /\.(md|txt|csv|json5?|ya?ml|toml|py|ts|tsx|js|jsx|rs|go|java|c|h|cpp|sh|sql|log|ini|cfg|html|css|xml)$/i;

export async function attached(files: readonly File[]): Promise<Attached> {
  const found: Attached = { pictures: [], texts: [], refused: [] };
  for (const file of files) {
    const name = file.name === "" ? "pasted" : file.name;
    if (file.type.startsWith("image/") && file.size <= MOST_PICTURE) {
      found.pictures.push({ mimeType: file.type, data: await base64(file), name });
    } else if ((TEXTUAL.test(file.type) || BY_NAME.test(name)) && file.size <= MOST_TEXT) {
      found.texts.push({ name, text: await file.text() });
    } else {
      found.refused.push(`${name}: pictures up to 8 MB and texts up to 100 kB can go along.`);
    }
  }
  return found;
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

async function base64(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let start = 0; start < bytes.length; start += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(text);
}
