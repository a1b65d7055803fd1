import { useState } from "react";

import type { Page } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import { useLoaded } from "../live/loaded";

export interface Paged<T> {
  rows: T[] | undefined;
  problem: Problem | undefined;
  /** Whether there is more behind what is shown. */
  more: boolean;
  readOn: () => Promise<void>;
  /** Read the first page anew; what was read on is let go. */
  reload: () => void;
}

interface Rest<T> {
  after: Page<T>;
  rows: T[];
  next: string | null;
}

/** A list read page by page, each added below. `load` gets the cursor of the page, empty for the first. */
export function usePaged<T>(
  key: string,
  load: (cursor: string, signal?: AbortSignal) => Promise<Page<T>>,
): Paged<T> {
  const first = useLoaded(key, (signal) => load("", signal));
  const [rest, setRest] = useState<Rest<T>>();
  const [problem, setProblem] = useState<Problem>();
  const page = first.value;
  const own = rest !== undefined && rest.after === page ? rest : undefined;
  const next = own === undefined ? (page?.next ?? null) : own.next;

  async function readOn(): Promise<void> {
    if (page === undefined || next === null) return;
    try {
      const read = await load(next);
      setRest({ after: page, rows: [...(own?.rows ?? []), ...read.rows], next: read.next });
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
    }
  }

  return {
    rows: page === undefined ? undefined : [...page.rows, ...(own?.rows ?? [])],
    problem: problem ?? first.problem,
    more: next !== null,
    readOn,
    reload: first.reload,
  };
}
