/** What a text says, without the marks of markdown: for a line that only hints at it. */
export function gist(text: string): string {
  return calls(text)
    .replace(/^\s*(```|~~~).*$/gm, "")
    .replace(/^\s*\|?(\s*:?-{3,}:?\s*\|?)+\s*$/gm, "")
    .replace(/^\s*(#{1,6}|>|[-*+](?:\s+\[[ xX]\])?)\s+/gm, "")
    .replace(/!?\[([^\]\n]*)\]\([^()\s]*\)/g, "$1")
    .replace(/(\*\*|__)(?=\S)(.+?)(?<=\S)\1/g, "$2")
    .replace(/(?<![\w*])\*(?=\S)([^*\n]+?)(?<=\S)\*(?![\w*])/g, "$1")
    .replace(/`+([^`\n]+)`+/g, "$1")
    .replace(/\s+/g, " ")
    .trim();
}

/** Words of the runtime to an agent, without the marks before them that are for models; a standing task by its name. */
export function withoutMarks(text: string): string {
  return text.replace(/^\[cron:([^\]\n]+)\] /, "$1: ").replace(/^(\[[a-z]+:[a-z0-9:-]+\]\s*)+/, "");
}

/** A call of a tool as the log has it, by its name and the first thing that it was given. */
function calls(text: string): string {
  return text.replace(/^Tool call: (\S+) (\{.*\})$/gm, (whole, name: string, given: string) => {
    try {
      const first: unknown = Object.values(JSON.parse(given) as Record<string, unknown>)[0];
      return typeof first === "string" || typeof first === "number" ? `${name}: ${first}` : name;
    } catch {
      return whole;
    }
  });
}

const FROM_THE_RIGHT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;

/** Which way a text runs, by its first letter. `dir="auto"` does not look into `<bdi>`, where all of our text stands. */
export function directionOf(text: string): "ltr" | "rtl" {
  return FROM_THE_RIGHT.test(/\p{L}/u.exec(text)?.[0] ?? "") ? "rtl" : "ltr";
}

const PROGRAMS = [
  ["Edg", "Edge"],
  ["OPR", "Opera"],
  ["SamsungBrowser", "Samsung Internet"],
  ["Firefox", "Firefox"],
  ["FxiOS", "Firefox"],
  ["CriOS", "Chrome"],
  ["HeadlessChrome", "Chrome without a window"],
  ["Chrome", "Chrome"],
  ["Version", "Safari"],
] as const;

const SYSTEMS = [
  ["iPhone", "an iPhone"],
  ["iPad", "an iPad"],
  ["Android", "Android"],
  ["Windows", "Windows"],
  ["CrOS", "ChromeOS"],
  ["Mac OS X", "a Mac"],
  ["Linux", "Linux"],
] as const;

/** Which browser, and on what, as a person would say it; what is unknown says what it says of itself. */
export function browserOf(program: string): string {
  const browser = PROGRAMS.find(([mark]) => program.includes(`${mark}/`));
  const system = SYSTEMS.find(([mark]) => program.includes(mark));
  if (browser === undefined || system === undefined) return program.slice(0, 80);
  const version = new RegExp(`${browser[0]}/(\\d+)`).exec(program)?.[1];
  return `${browser[1]}${version === undefined ? "" : ` ${version}`} on ${system[1]}`;
}
