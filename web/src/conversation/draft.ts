/**
 * What was begun in a place and not sent yet: kept in this browser at every word, and by the gateway after a pause,
 * to be finished on another device.
 */
import { useEffect, useEffectEvent, useRef, useState } from "react";

import { api } from "../api/client";
import { useChanges } from "../live/hooks";
import type { Enclosure } from "./outbox";

export interface Draft {
  text: string;
  write: (text: string) => void;
}

const PREFIX = "holdfast.draft.";
const PAUSE_MS = 700;
const MOST = 500;
const LONGEST = 50_000;

/** The draft of a key; the gateway keeps it only where the login may keep any. */
export function useDraft(key: string, mayKeep: boolean): Draft {
  const [text, setText] = useState(() => kept(key));
  // What the gateway has, as far as we know: a text that differs from it is being written here.
  const told = useRef("");
  const written = useRef(text);

  function take(value: string): void {
    const isOurs = written.current !== told.current;
    told.current = value;
    if (isOurs) return;
    written.current = value;
    keepHere(key, value);
    setText(value);
  }
  const found = useEffectEvent(take);

  useChanges("draft.", (change) => {
    if (change.entityId === key) take((change.data as { value: string } | null)?.value ?? "");
  });

  useEffect(() => {
    if (!mayKeep) return;
    const leaving = new AbortController();
    api.get("/api/drafts", { query: { limit: MOST }, signal: leaving.signal }).then(
      (drafts) => found(drafts.find((draft) => draft.key === key)?.value ?? ""),
      () => undefined, // without its draft a place has what this browser kept
    );
    return () => leaving.abort();
  }, [key, mayKeep]);

  const keep = useEffectEvent(() => {
    if (!mayKeep || written.current === told.current || written.current.length > LONGEST) return;
    const value = written.current;
    api.post("/api/drafts", { key, value }).then(
      () => {
        told.current = value;
      },
      () => undefined, // it is kept here; the next word tries again
    );
  });

  useEffect(() => {
    const timer = setTimeout(keep, text === "" ? 0 : PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);

  useEffect(() => () => keep(), []);

  return {
    text,
    write: (next) => {
      written.current = next;
      keepHere(key, next);
      setText(next);
    },
  };
}

/** What is to stand in the field of a place that is about to be opened: words, and files until they are taken over there. */
export function beginDraft(key: string, text: string, enclosed: readonly Enclosure[]): void {
  keepHere(key, text);
  begun.set(key, enclosed);
}

const begun = new Map<string, readonly Enclosure[]>();

export function begunWith(key: string): readonly Enclosure[] {
  return begun.get(key) ?? [];
}

export function tookOver(key: string): void {
  begun.delete(key);
}

/** Forget what this browser kept: another may log in here. */
export function forgetDrafts(): void {
  begun.clear();
  for (const name of Object.keys(localStorage)) if (name.startsWith(PREFIX)) localStorage.removeItem(name);
}

function kept(key: string): string {
  return localStorage.getItem(PREFIX + key) ?? "";
}

function keepHere(key: string, value: string): void {
  try {
    if (value === "") localStorage.removeItem(PREFIX + key);
    else localStorage.setItem(PREFIX + key, value);
  } catch {
    // A browser that keeps nothing still has the text in its field.
  }
}
