/**
 * What pages ask the gateway for: kept while it is shown, asked again when a change says that it may be another,
 * when the live connection had to begin over, and when the gateway is back after it could not be reached.
 */
import { type Query, QueryClient, useQuery, type UseQueryResult } from "@tanstack/react-query";

import { api, type AnswerOf, type Params, type PathOf } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import { live } from "./live";

declare module "@tanstack/react-query" {
  interface Register {
    defaultError: Problem;
    queryMeta: { live: readonly string[] };
  }
}

const PAUSE_MS = 250;
const MOST_TRIES = 2;

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: Infinity,
      networkMode: "always",
      refetchOnWindowFocus: false,
      refetchOnReconnect: false,
      retry: (count, problem) => count < MOST_TRIES && (problem.status === 429 || problem.status === 503),
      retryDelay: (count, problem) => problem.retryAfterMs ?? 300 * 2 ** count,
    },
  },
});

interface Options {
  /** Changes whose types begin so make the answer stale. */
  live?: readonly string[];
  enabled?: boolean;
}

/** The answer of a path, up to date for as long as the component is there. */
export function useApi<P extends PathOf<"get">>(
  path: P,
  params: Omit<Params<P>, "signal"> = {},
  options: Options = {},
): UseQueryResult<AnswerOf<P>> {
  return useQuery<AnswerOf<P>>({
    queryKey: [path, params],
    queryFn: ({ signal }) => answered(api.get(path, { ...params, signal })),
    meta: { live: options.live ?? [] },
    enabled: options.enabled ?? true,
  });
}

async function answered<T>(asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (error) {
    throw asProblem(error);
  }
}

/** Have what was answered from these paths, or is chosen, asked for anew. */
export async function askAgain(which: readonly string[] | ((query: Query) => boolean) = () => true): Promise<void> {
  const isStale = typeof which === "function" ? which : ({ queryKey }: Query) => which.some((path) => path === queryKey[0]);
  // A first answer that is on its way may have been made before the change, and is not asked for twice by itself.
  await queries.cancelQueries({ predicate: (query) => query.state.data === undefined && isStale(query) });
  await queries.invalidateQueries({ predicate: (query) => isStale(query) });
}

/** Ask again for what a change touched, all at once where many come together. */
const touched = new Set<string>();
let timer: ReturnType<typeof setTimeout> | undefined;

live.on("", (change) => {
  touched.add(change.type);
  timer ??= setTimeout(() => {
    timer = undefined;
    const types = [...touched];
    touched.clear();
    const isTouched = ({ meta }: Query): boolean =>
      meta?.live.some((prefix) => types.some((type) => type.startsWith(prefix))) ?? false;
    const isFirst = ({ state }: Query): boolean => state.data === undefined && state.fetchStatus === "fetching";
    for (const query of queries.getQueryCache().findAll({ predicate: isTouched })) {
      if (isFirst(query)) onceMore(query);
      else void queries.invalidateQueries({ predicate: (other) => other === query });
    }
  }, PAUSE_MS);
});

/** A first answer is waited for: given up at each change, a slow one would never come where much goes on. */
const awaited = new Set<Query>();

function onceMore(query: Query): void {
  if (awaited.has(query)) return;
  awaited.add(query);
  const ask = (): void => {
    awaited.delete(query);
    void queries.invalidateQueries({ predicate: (other) => other === query });
  };
  void query.promise?.then(ask, ask);
}

let before = live.current();

live.watch(() => {
  const now = live.current();
  const was = before;
  before = now;
  if (now.status === "idle" && was.status !== "idle") queries.clear();
  else if (now.generation !== was.generation) void askAgain();
  else if (now.status === "open" && was.status !== "open") {
    void askAgain((query) => query.state.status === "error");
  }
});
