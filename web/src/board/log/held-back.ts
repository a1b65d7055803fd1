import { useCallback, useEffect, useState } from "react";

import type { Entry } from "../types";
import { newestFirst } from "./order";

interface HeldBack {
  shown: readonly Entry[];
  /** How many came since one began to read further down, or opened one. */
  waiting: number;
  show: () => void;
  onOpen: (id: string, open: boolean) => void;
}

const NEAR_THE_TOP = 120;

/** Newest first, what arrives while one is reading waits for a word, so that nothing moves under one's eyes. */
export function useHeldBack(rows: readonly Entry[]): HeldBack {
  const [away, setAway] = useState(false);
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [mark, setMark] = useState<Entry | null>(null);
  const reading = away || opened.size > 0;
  const newest = rows[0] ?? null;

  // The mark is set when reading begins, and goes when it ends.
  if (reading && mark === null && newest !== null) setMark(newest);
  if (!reading && mark !== null) setMark(null);

  useEffect(() => {
    const look = (): void => setAway(scrollY > NEAR_THE_TOP);
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);

  const onOpen = useCallback((id: string, open: boolean) => {
    setOpened((before) => {
      const next = new Set(before);
      if (open) next.add(id);
      else next.delete(id);
      return next;
    });
  }, []);

  const shown = mark === null ? rows : rows.filter((row) => newestFirst(row, mark) >= 0);
  return {
    shown,
    waiting: rows.length - shown.length,
    show: () => {
      setMark(newest);
      scrollTo({ top: 0 });
    },
    onOpen,
  };
}
