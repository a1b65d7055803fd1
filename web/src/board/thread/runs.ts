/**
 * What an agent is saying in a session right now. That a turn begins is heard on the page's live connection; its
 * words, which are no part of the log until it ends, come from the run's own stream for as long as it lasts.
 */
import { useEffect, useRef, useState } from "react";

import { get } from "../../api/client";
import { useChanges, useLiveState } from "../../live/hooks";
import { serverEvents } from "../../live/sse";

interface Turn {
  turnId: string;
  sessionKey: string;
  status: "accepted" | "running" | "committed" | "failed" | "cancelled" | "interrupted";
  error: string | null;
}

export interface Run {
  id: string;
  /** What was said so far in this message of it. */
  text: string;
  /** The tool that it is using. */
  tool: string | null;
  error: string | null;
}

interface RunEvent {
  stream?: "lifecycle" | "assistant" | "tool";
  data?: { kind?: string; delta?: string; phase?: string; name?: string };
  joined?: boolean;
}

const GOES_ON = new Set<Turn["status"]>(["accepted", "running"]);

/**
 * The run that goes on in the session, if any; the last one's error until the next begins. A session that was
 * never used is not asked for what goes on in it.
 */
export function useRun(sessionKey: string, isUsed: boolean): Run | null {
  const [run, setRun] = useState<Run | null>(null);
  // An answer to `latest` may be older than what was heard live meanwhile.
  const ended = useRef(new Set<string>());
  const { generation } = useLiveState();
  const id = run?.error === null ? run.id : null;

  function begin(turn: Turn): void {
    if (turn.sessionKey !== sessionKey) return;
    if (GOES_ON.has(turn.status)) {
      setRun((now) => (now?.id === turn.turnId ? now : { id: turn.turnId, text: "", tool: null, error: null }));
    } else {
      ended.current.add(turn.turnId);
      const error = turn.status === "committed" ? null : (turn.error ?? `The run was ${turn.status}.`);
      setRun((now) => (now?.id !== turn.turnId ? now : error === null ? null : { ...now, error }));
    }
  }

  useChanges("turn.", (change) => {
    if (change.data !== null) begin(change.data as Turn);
  });

  useEffect(() => {
    if (!isUsed) return;
    const leaving = new AbortController();
    latest(sessionKey, leaving.signal).then(
      (turn) => {
        if (turn === undefined || !GOES_ON.has(turn.status) || ended.current.has(turn.turnId)) return;
        setRun((now) => now ?? { id: turn.turnId, text: "", tool: null, error: null });
      },
      // Whoever may not see sessions sees no runs either.
      () => undefined,
    );
    return () => leaving.abort();
  }, [sessionKey, isUsed, generation]);

  useEffect(() => {
    if (id === null) return;
    const leaving = new AbortController();
    const tell = (event: RunEvent): void => setRun((now) => (now?.id === id ? told(now, event) : now));
    listen(id, leaving.signal, tell).catch(() => undefined);
    return () => leaving.abort();
  }, [id]);

  return run;
}

/** The run with one more event of its stream. */
export function told(run: Run, event: RunEvent): Run {
  const data = event.data ?? {};
  switch (event.stream) {
    case "assistant":
      if (data.kind !== "text" || data.delta === undefined) return run;
      return { ...run, text: event.joined === true ? data.delta : run.text + data.delta, tool: null };
    case "tool":
      if (data.phase === "start") return { ...run, text: "", tool: data.name ?? null };
      return data.phase === "end" ? { ...run, tool: null } : run;
    case "lifecycle":
      return data.phase === "restarted" ? { ...run, text: "", tool: null } : run;
    default:
      return run;
  }
}

async function latest(sessionKey: string, signal: AbortSignal): Promise<Turn | undefined> {
  const found = await get<Turn[]>(`/api/sessions/${encodeURIComponent(sessionKey)}/turns`, { limit: 1 }, signal);
  return found[0];
}

async function listen(id: string, signal: AbortSignal, tell: (event: RunEvent) => void): Promise<void> {
  const response = await fetch(`/api/agent/${encodeURIComponent(id)}/events`, { credentials: "same-origin", signal });
  if (!response.ok || response.body === null) return;
  for await (const event of serverEvents(response.body)) tell(JSON.parse(event.data) as RunEvent);
}
