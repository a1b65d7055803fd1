/** Whether the gateway answers at all: one that is frozen takes every request and says nothing. */
import { useSyncExternalStore } from "react";

const SLOW_MS = 4_000;
const PROBE_MS = 3_000;
const watchers = new Set<() => void>();
let frozen = false;
let probing = false;

export function useFrozen(): boolean {
  return useSyncExternalStore(watch, () => frozen);
}

/** A request that is long without an answer is a reason to ask whether anything is answered. */
export async function watched<T>(asked: Promise<T>): Promise<T> {
  const timer = setTimeout(() => void probe(), SLOW_MS);
  try {
    const answer = await asked;
    set(false);
    return answer;
  } finally {
    clearTimeout(timer);
  }
}

async function probe(): Promise<void> {
  if (probing) return;
  probing = true;
  try {
    do set(!(await answers()));
    while (frozen);
  } finally {
    probing = false;
  }
}

/** Whether the smallest question is answered in time; where nothing is there to answer, nothing is frozen. */
async function answers(): Promise<boolean> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), PROBE_MS);
  try {
    await fetch("/healthz", { signal: limit.signal, cache: "no-store" });
    return true;
  } catch {
    return !limit.signal.aborted;
  } finally {
    clearTimeout(timer);
  }
}

function set(now: boolean): void {
  if (now === frozen) return;
  frozen = now;
  for (const watcher of [...watchers]) watcher();
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}
