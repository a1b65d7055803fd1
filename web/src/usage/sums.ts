/** What was used, added up. Decisions only. */
import type { SpentOut } from "../api/schema";

export type By = "day" | "agentId" | "model";
export type Sum = Omit<SpentOut, By>;

const COLUMNS: readonly (keyof SpentOut)[] = [
  "day",
  "agentId",
  "model",
  "turns",
  "failed",
  "inputTokens",
  "outputTokens",
  "cacheReadTokens",
  "cost",
  "seconds",
];

export function added(rows: readonly SpentOut[]): Sum {
  const sum = (of: (row: SpentOut) => number): number => rows.reduce((total, row) => total + of(row), 0);
  return {
    turns: sum((row) => row.turns),
    failed: sum((row) => row.failed),
    inputTokens: sum((row) => row.inputTokens),
    outputTokens: sum((row) => row.outputTokens),
    cacheReadTokens: sum((row) => row.cacheReadTokens),
    seconds: sum((row) => row.seconds),
    cost: rows.every((row) => row.cost === null) ? null : sum((row) => row.cost ?? 0),
  };
}

/** The four numbers that say most. */
export function spent(rows: readonly SpentOut[]): (readonly [string, string])[] {
  const { cost, turns, inputTokens, outputTokens, cacheReadTokens } = added(rows);
  return [
    ["Cost", cost === null ? "not known" : `$${cost.toFixed(2)}`],
    ["Answers", turns.toLocaleString()],
    ["Tokens", (inputTokens + outputTokens).toLocaleString()],
    ["From cache", inputTokens === 0 ? "0 %" : `${Math.round((100 * cacheReadTokens) / inputTokens)} %`],
  ];
}

/** By day, newest first; by anything else, the most first. */
export function grouped(rows: readonly SpentOut[], by: By): (readonly [string, Sum])[] {
  const groups = [...Map.groupBy(rows, (row) => row[by])].map(([name, some]) => [name, added(some)] as const);
  return groups.sort(([a, x], [b, y]) =>
    by === "day" ? (a < b ? 1 : -1) : y.inputTokens + y.outputTokens - x.inputTokens - x.outputTokens,
  );
}

/** A table for a spreadsheet; what one would take for a formula is text. */
export function csv(rows: readonly SpentOut[]): string {
  const lines = rows.map((row) => COLUMNS.map((name) => cell(row[name])).join(","));
  return [COLUMNS.join(","), ...lines].join("\r\n");
}

function cell(value: string | number | null): string {
  if (value === null) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
