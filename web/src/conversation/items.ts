/** A conversation as it is shown: days, turns with their steps, and what stands by itself. Decisions only. */
import type { Spoken, Turn } from "../api/types";

export interface Call {
  callId: string;
  name: string;
  arguments: Record<string, unknown>;
}

export type Step =
  | { kind: "asked"; key: string; entry: Spoken }
  | { kind: "thinking"; key: string; text: string }
  | { kind: "tool"; key: string; call: Call; entry: Spoken; result: Spoken | null }
  | { kind: "said"; key: string; entry: Spoken };

export type Item =
  | { kind: "day"; key: string; day: string }
  | { kind: "turn"; key: string; turn: Turn | null; steps: Step[]; at: string }
  | { kind: "entry"; key: string; entry: Spoken };

/** Entries, oldest first, as items. Entries of a turn stand together, at the place of its first. */
export function itemsOf(entries: readonly Spoken[], turns: ReadonlyMap<string, Turn>): Item[] {
  const items: Item[] = [];
  const groups = new Map<string, Spoken[]>();
  for (const entry of entries) {
    const id = entry.turnId;
    const group = id === null ? undefined : groups.get(id);
    if (group !== undefined) group.push(entry);
    else {
      const day = dayOf(entry.createdAt);
      if (day !== lastDay(items)) items.push({ kind: "day", key: `day ${day}`, day });
      if (id === null || !isSpoken(entry)) items.push({ kind: "entry", key: entry.id, entry });
      else {
        const own = [entry];
        groups.set(id, own);
        items.push({ kind: "turn", key: id, turn: turns.get(id) ?? null, steps: [], at: entry.createdAt });
      }
    }
  }
  return items.map((item) => (item.kind === "turn" ? { ...item, steps: stepsOf(groups.get(item.key) ?? []) } : item));
}

/** The day of a moment where the reader is, as `2026-11-18`. */
export function dayOf(at: string | number): string {
  const day = new Date(at);
  return [day.getFullYear(), day.getMonth() + 1, day.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
}

/** What a turn did, in order; each call of a tool with what came of it. */
export function stepsOf(entries: readonly Spoken[]): Step[] {
  const results = new Map(entries.flatMap((entry) => (entry.result === null ? [] : [[entry.result.callId, entry]])));
  return entries.flatMap((entry): Step[] => {
    // An event of the turn, such as that it failed, is told by how the turn ended.
    if (entry.result !== null || !isSpoken(entry)) return [];
    if (entry.role === "user") return [{ kind: "asked", key: entry.id, entry }];
    const found: Step[] = [];
    if (entry.thinking !== null) found.push({ kind: "thinking", key: `${entry.id} thinking`, text: entry.thinking });
    if (entry.content.trim() !== "" || entry.calls.length === 0) found.push({ kind: "said", key: entry.id, entry });
    for (const call of entry.calls) {
      found.push({ kind: "tool", key: `${entry.id} ${call.callId}`, call, entry, result: results.get(call.callId) ?? null });
    }
    return found;
  });
}

/** The argument that says most of a call: a command, a path, a question. */
export function gist(call: Call): string {
  for (const name of ["command", "path", "query", "q", "url", "message", "task", "text", "name"]) {
    const value = call.arguments[name];
    if (typeof value === "string" && value !== "") return value;
  }
  const first = Object.values(call.arguments).find((value) => typeof value === "string" || typeof value === "number");
  return first === undefined ? "" : String(first);
}

/** How long something took, in words. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes} min ${Math.round((ms % 60_000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function isSpoken(entry: Spoken): boolean {
  return entry.role === "user" || entry.role === "assistant" || entry.result !== null;
}

function lastDay(items: readonly Item[]): string {
  const last = items.findLast((item) => item.kind === "day");
  return last?.kind === "day" ? last.day : "";
}
