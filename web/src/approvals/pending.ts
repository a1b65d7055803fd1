/** What waits for a decision, and what was decided while one looked: one list for the badge and the page. */
import { useSyncExternalStore } from "react";

import { getPage } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { Approval } from "../api/types";
import { live, type Change } from "../live/live";

export interface Pending {
  /** Oldest first, so that what arrives moves nothing. Those decided lately stay a moment, to be told of. */
  rows: Approval[];
  more: boolean;
  loaded: boolean;
  problem?: Problem;
}

const STAYS_MS = 4_000;
const MOST = 100;

const watchers = new Set<() => void>();
const NONE: Pending = { rows: [], more: false, loaded: false };
let state = NONE;
let generation = -1;
let heardMeanwhile: Approval[] = [];

export function usePending(): Pending {
  return useSyncExternalStore(watch, () => state);
}

/** Take in how an approval stands; one that waits no longer leaves after a moment. */
export function take(approval: Approval): void {
  const known = state.rows.some((row) => row.id === approval.id);
  if (approval.status === "pending" && !known) set({ rows: [...state.rows, approval] });
  else if (known) {
    set({ rows: state.rows.map((row) => (row.id === approval.id ? approval : row)) });
    if (approval.status !== "pending") setTimeout(() => drop(approval.id), STAYS_MS);
  }
}

/** Ask how an approval stands, where what we know of it proved wrong. */
export async function refresh(id: string): Promise<void> {
  const page = await getPage<Approval>("/api/approvals", { status: "all", limit: MOST });
  const found = page.rows.find((row) => row.id === id);
  if (found !== undefined) take(found);
}

async function load(): Promise<void> {
  heardMeanwhile = [];
  try {
    const page = await getPage<Approval>("/api/approvals", { status: "pending", limit: MOST });
    const decided = state.rows.filter((row) => row.status !== "pending");
    set({ rows: [...decided, ...page.rows.reverse()], more: page.next !== null, loaded: true });
    heardMeanwhile.forEach(take);
  } catch (error) {
    set({ problem: asProblem(error) });
  }
}

function drop(id: string): void {
  if (state.more) void load();
  set({ rows: state.rows.filter((row) => row.id !== id || row.status === "pending") });
}

function set(some: Partial<Pending>): void {
  state = { rows: state.rows, more: state.more, loaded: state.loaded, ...some };
  for (const watcher of [...watchers]) watcher();
}

function heard(change: Change): void {
  if (change.type === "approval.requested" || change.type === "approval.decided") {
    if (change.data === null) return;
    heardMeanwhile.push(change.data as Approval);
    take(change.data as Approval);
  }
}

/** Loads once the live connection stands, and again whenever it had to begin over. */
function follow(): void {
  const now = live.current();
  if (now.status === "idle") {
    generation = -1;
    state = NONE;
  }
  if (now.generation === generation || now.status !== "open") return;
  generation = now.generation;
  void load();
}

function watch(watcher: () => void): () => void {
  if (watchers.size === 0) {
    stopFollowing = begin();
  }
  watchers.add(watcher);
  return () => {
    watchers.delete(watcher);
    if (watchers.size === 0) stopFollowing();
  };
}

let stopFollowing: () => void = () => undefined;

function begin(): () => void {
  const unwatch = live.watch(follow);
  const off = live.on("approval.", heard);
  generation = -1;
  follow();
  return () => {
    unwatch();
    off();
  };
}
