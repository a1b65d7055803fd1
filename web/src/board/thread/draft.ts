/** What was begun in a place and not sent yet: kept by the gateway, to be finished here or on another device. */
import { useEffect, useEffectEvent, useRef, useState } from "react";

import { get, post } from "../../api/client";
import { useChanges } from "../../live/hooks";

interface Kept {
  key: string;
  value: string;
}

export interface Draft {
  text: string;
  write: (text: string) => void;
}

const PAUSE_MS = 700;
const MOST = 500;
const LONGEST = 50_000;

/** The draft of a key; it is kept only where the login may keep any. */
export function useDraft(key: string, mayKeep: boolean): Draft {
  const [text, setText] = useState("");
  // What the gateway has, as far as we know: a text that differs from it is being written here.
  const kept = useRef("");
  const written = useRef("");

  function take(value: string): void {
    const isOurs = written.current !== kept.current;
    kept.current = value;
    if (isOurs) return;
    written.current = value;
    setText(value);
  }

  useChanges("draft.", (change) => {
    if (change.entityId === key) take((change.data as Kept | null)?.value ?? "");
  });

  useEffect(() => {
    if (!mayKeep) return;
    const leaving = new AbortController();
    get<Kept[]>("/api/drafts", { limit: MOST }, leaving.signal).then(
      (drafts) => take(drafts.find((draft) => draft.key === key)?.value ?? ""),
      () => undefined, // without its draft a place is merely empty
    );
    return () => leaving.abort();
  }, [key, mayKeep]);

  const keep = useEffectEvent(() => {
    if (!mayKeep || written.current === kept.current || written.current.length > LONGEST) return;
    kept.current = written.current;
    // One that could not be kept is still in the field; the next word tries again.
    post("/api/drafts", { key, value: written.current }).catch(() => undefined);
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
      setText(next);
    },
  };
}
