/** Searching while one types: a short pause first, the earlier question called off, patience where it is busy. */
import { useEffect, useState } from "react";

import { get } from "../../api/client";
import { asProblem, type Problem } from "../../api/problem";
import type { SearchOut } from "../../api/schema";

export interface Searched {
  found: SearchOut | undefined;
  /** What is found belongs to an earlier question, or nothing was found yet. */
  searching: boolean;
  problem: Problem | undefined;
}

const PAUSE_MS = 140;
const RETRY_MS = 1000;
const LIMITS = { limitTopics: 6, limitTasks: 6, limitLogs: 12 };

export function useSearch(text: string): Searched {
  const q = text.trim();
  const [found, setFound] = useState<SearchOut>();
  const [failed, setFailed] = useState<{ q: string; problem: Problem }>();

  useEffect(() => {
    if (q === "") return;
    const leaving = new AbortController();
    soon(PAUSE_MS, leaving.signal)
      .then(() => search(q, leaving.signal))
      .then(
        (answer) => leaving.signal.aborted || setFound({ ...answer, q }),
        (error: unknown) => leaving.signal.aborted || setFailed({ q, problem: asProblem(error) }),
      );
    return () => leaving.abort();
  }, [q]);

  const problem = failed?.q === q && found?.q !== q ? failed.problem : undefined;
  if (q === "") return { found: undefined, searching: false, problem: undefined };
  return { found, searching: found?.q !== q && problem === undefined, problem };
}

async function search(q: string, signal: AbortSignal): Promise<SearchOut> {
  for (;;) {
    try {
      return await get<SearchOut>("/api/search", { q, ...LIMITS }, signal);
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status !== 429) throw error;
      await soon(problem.retryAfterMs ?? RETRY_MS, signal);
    }
  }
}

function soon(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("called off", "AbortError"));
    });
  });
}
