import { useCallback, useEffect, useEffectEvent, useState } from "react";

import { asProblem, type Problem } from "../api/problem";
import { useLiveState } from "./hooks";

export interface Loaded<T> {
  value: T | undefined;
  problem: Problem | undefined;
  loading: boolean;
  /** Load again; what is shown stays until the new value is there. */
  reload: () => void;
}

interface Held<T> {
  key: string;
  value: T | undefined;
  problem: Problem | undefined;
}

/**
 * What `load` gives for `key`: loaded once the live connection stands (what changes after that is heard), anew
 * when it had to begin over, and when `key` changes.
 */
export function useLoaded<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const { status, generation } = useLiveState();
  const [held, setHeld] = useState<Held<T>>();
  const [asked, setAsked] = useState(0);
  const fetched = useEffectEvent(load);
  const waits = generation === 0 && status !== "down";

  useEffect(() => {
    if (waits) return;
    const leaving = new AbortController();
    fetched(leaving.signal).then(
      (value) => leaving.signal.aborted || setHeld({ key, value, problem: undefined }),
      (error: unknown) => {
        if (leaving.signal.aborted) return;
        const problem = asProblem(error);
        setHeld((old) => ({ key, value: old?.key === key ? old.value : undefined, problem }));
      },
    );
    return () => leaving.abort();
  }, [key, generation, waits, asked]);

  const reload = useCallback(() => setAsked((count) => count + 1), []);
  const own = held?.key === key ? held : undefined;
  return { value: own?.value, problem: own?.problem, loading: own === undefined, reload };
}
