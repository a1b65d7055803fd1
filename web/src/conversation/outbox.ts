/**
 * What was written and has not reached the gateway: kept in this browser, shown in its conversation, and sent when
 * the gateway is back. Each has a key of its own, so that one that arrived after all is not said twice.
 */
import { useSyncExternalStore } from "react";

import { api } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import { live } from "../live/live";

/** A file that goes along; one with a type is a picture that the model is to see. */
export interface Enclosure {
  mimeType: string;
  data: string;
  name: string;
}

export interface Parcel {
  id: string;
  sessionKey: string;
  text: string;
  enclosed: readonly Enclosure[];
  agentId: string | null;
  model: string | null;
  mode: "queue" | "steer" | "interrupt" | null;
  at: string;
  state: "sending" | "waiting" | "refused";
  problem: string | null;
}

const KEY = "holdfast.outbox";
const watchers = new Set<() => void>();
const asked = new Set<string>();
let parcels: readonly Parcel[] = read();

export function useOutbox(sessionKey: string): readonly Parcel[] {
  const all = useSyncExternalStore(watch, () => parcels);
  return all.filter((parcel) => parcel.sessionKey === sessionKey);
}

/** How many wait in all, for the banner. */
export function useWaiting(): number {
  return useSyncExternalStore(watch, () => parcels).filter((parcel) => parcel.state !== "refused").length;
}

/** Whether a turn was asked for in this tab. */
export function isMine(turnId: string): boolean {
  return asked.has(turnId);
}

export type Draft = Pick<Parcel, "sessionKey" | "text" | "enclosed" | "agentId" | "model" | "mode">;

/** Send it now, or as soon as it can be. */
export async function send(draft: Draft): Promise<void> {
  const parcel: Parcel = { ...draft, id: newId(), at: new Date().toISOString(), state: "sending", problem: null };
  set([...parcels, parcel]);
  await attempt(parcel);
}

export function takeBack(id: string): void {
  set(parcels.filter((parcel) => parcel.id !== id));
}

/** Nothing of one person's is left for the next who logs in here. */
export function forgetOutbox(): void {
  set([]);
}

export async function again(id: string): Promise<void> {
  const parcel = parcels.find((one) => one.id === id);
  if (parcel !== undefined) await attempt(parcel);
}

/** An id that no other has; `randomUUID` is only there over HTTPS and on this machine. */
export function newId(): string {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function attempt(parcel: Parcel): Promise<void> {
  change(parcel.id, { state: "sending", problem: null });
  try {
    const { runId } = await api.post(
      "/api/agent",
      {
        message: parcel.text,
        sessionKey: parcel.sessionKey,
        images: parcel.enclosed.filter((one) => one.mimeType !== "").map(({ mimeType, data }) => ({ mimeType, data })),
        files: parcel.enclosed.filter((one) => one.mimeType === "").map(({ name, data }) => ({ name, data })),
        ...(parcel.agentId === null ? {} : { agentId: parcel.agentId }),
        ...(parcel.model === null ? {} : { model: parcel.model }),
        ...(parcel.mode === null ? {} : { mode: parcel.mode }),
      },
      { headers: { "X-Idempotency-Key": parcel.id } },
    );
    asked.add(runId);
    set(parcels.filter((one) => one.id !== parcel.id));
  } catch (error) {
    const problem = asProblem(error);
    change(parcel.id, isPassing(problem) ? { state: "waiting" } : { state: "refused", problem: words(problem) });
  }
}

/** Whether it is worth to send it again by itself. */
function isPassing(problem: Problem): boolean {
  return problem.status === 0 || problem.status === 503 || problem.status === 429;
}

function words(problem: Problem): string {
  return problem.hint === "" ? problem.message : `${problem.message}. ${problem.hint}`;
}

function change(id: string, some: Partial<Parcel>): void {
  set(parcels.map((parcel) => (parcel.id === id ? { ...parcel, ...some } : parcel)));
}

function set(next: readonly Parcel[]): void {
  parcels = next;
  if (!keep(parcels)) keep(parcels.map(withoutFiles));
  for (const watcher of [...watchers]) watcher();
}

function keep(what: readonly Parcel[]): boolean {
  try {
    localStorage.setItem(KEY, JSON.stringify(what));
    return true;
  } catch {
    return false;
  }
}

/** Where there is no room to keep files beyond this page, the words are kept; from this page all of it is sent. */
function withoutFiles(parcel: Parcel): Parcel {
  if (parcel.enclosed.length === 0) return parcel;
  const names = parcel.enclosed.map((one) => one.name).join(", ");
  return { ...parcel, enclosed: [], state: "refused", problem: `There was no room to keep ${names}. Write it anew with the files.` };
}

function read(): readonly Parcel[] {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]") as (Parcel & { images?: Enclosure[] })[];
    return kept.map(({ images = [], ...parcel }) => ({
      ...parcel,
      // An earlier build of the pages kept pictures alone, as `images`.
      enclosed: (parcel.enclosed as Parcel["enclosed"] | undefined) ?? images,
      state: parcel.state === "sending" ? "waiting" : parcel.state,
    }));
  } catch {
    return [];
  }
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** The oldest first, one after another: what was said first stays first. */
let flushing = false;
async function flush(): Promise<void> {
  if (flushing) return;
  flushing = true;
  try {
    for (const parcel of parcels.filter((one) => one.state === "waiting")) {
      if (live.current().status !== "open") return;
      await attempt(parcel);
    }
  } finally {
    flushing = false;
  }
}

live.watch(() => {
  if (live.current().status === "open") void flush();
});

addEventListener("storage", (event) => {
  if (event.key !== KEY) return;
  parcels = read();
  for (const watcher of [...watchers]) watcher();
});
