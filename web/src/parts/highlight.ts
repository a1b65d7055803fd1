/** The highlighter and its common languages: a piece of its own, loaded with the first code that has a language. */
import { common, createLowlight } from "lowlight";

const lowlight = createLowlight(common);

interface Node {
  type: string;
  value?: string;
  properties?: { className?: string[] };
  children?: Node[];
}

/** The text in pieces with the classes of their kinds; null for a language that is not known. */
export function coloured(language: string, text: string): Node[] | null {
  if (!lowlight.registered(language)) return null;
  return lowlight.highlight(language, text).children as Node[];
}
