/** How the parts of a window are shown. */
import type { SectionOut } from "../api/schema";

const COLOURS: Record<string, string> = {
  tools: "var(--c-tools)",
  system: "var(--c-system)",
  summary: "var(--c-summary)",
  history: "var(--c-history)",
  carrier: "var(--c-carrier)",
  input: "var(--c-input)",
  pending: "var(--c-pending)",
};

export function colourOf(section: Pick<SectionOut, "place">): string {
  return COLOURS[section.place] ?? "var(--line-strong)";
}

export function share(part: number, whole: number): string {
  return whole <= 0 ? "0 %" : `${Math.round((100 * part) / whole)} %`;
}
