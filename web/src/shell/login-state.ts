/** Who is logged in, as the gateway says; the cookie itself is out of any page's reach. */
import { useSyncExternalStore } from "react";

import { get, JOIN, LOGIN, post, whenLoggedOut } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { Who } from "../api/types";
import { forgetDrafts } from "../conversation/draft";
import { forgetOutbox } from "../conversation/outbox";
import { live } from "../live/live";

export type LoginState =
  | { is: "asking" }
  | { is: "out"; problem?: Problem }
  /** The gateway cannot be reached, so that nobody knows. */
  | { is: "away" }
  | { is: "in"; who: Who };

const FRAGMENT = "#code=";
const LAST = "holdfast.who";
const AGAIN_MS = 3_000;
const watchers = new Set<() => void>();
let state: LoginState = { is: "asking" };

export function useLogin(): LoginState {
  return useSyncExternalStore(watch, () => state);
}

/** Who is logged in, for what is only shown to those who are. */
export function useLoggedIn(): Who {
  const now = useLogin();
  if (now.is !== "in") throw new Error("nobody is logged in");
  return now.who;
}

/** Find out who is there; a login link in the address is used first, and taken out of it at once. */
export async function begin(): Promise<void> {
  whenLoggedOut(out);
  const code = location.hash.startsWith(FRAGMENT) ? location.hash.slice(FRAGMENT.length) : null;
  try {
    if (code !== null) {
      history.replaceState(null, "", location.pathname + location.search);
      await post(LOGIN, { code });
    }
    await welcome();
  } catch (error) {
    const problem = asProblem(error);
    if (problem.status === 0 || problem.status === 503) {
      // A code that was not redeemed is still good.
      if (code !== null) history.replaceState(null, "", location.pathname + location.search + FRAGMENT + code);
      set({ is: "away" });
      setTimeout(() => void begin(), AGAIN_MS);
      return;
    }
    set(code === null && problem.status === 401 ? { is: "out" } : { is: "out", problem });
  }
}

export async function logIn(by: { token: string } | { login: string; password: string }): Promise<void> {
  await post(LOGIN, by);
  await welcome();
}

/** Come in by an invitation; its code leaves the address at once. */
export async function join(by: { code: string; login: string; name: string | null; password: string }): Promise<void> {
  await post(JOIN, by);
  history.replaceState(null, "", "/");
  await welcome();
}

export async function logOut(): Promise<void> {
  await post("/api/logout");
  live.sayGoodbye();
  forgetDrafts();
  forgetOutbox();
  out();
}

async function welcome(): Promise<void> {
  const who = await get<Who>("/api/whoami");
  forgetOthers(who.userId ?? `token:${who.name}`);
  live.start(who.name, out);
  set({ is: "in", who });
}

/** What somebody wrote whose login ended by itself is neither shown nor sent in the name of the next. */
function forgetOthers(id: string): void {
  const before = localStorage.getItem(LAST);
  if (before !== null && before !== id) {
    forgetDrafts();
    forgetOutbox();
  }
  localStorage.setItem(LAST, id);
}

function out(): void {
  live.stop();
  if (state.is !== "out") set({ is: "out" });
}

function set(next: LoginState): void {
  state = next;
  for (const watcher of [...watchers]) watcher();
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}
