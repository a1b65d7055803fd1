/**
 * What a turn is saying right now. Its words are no part of the log until a round of it ends; until then they come
 * from the run's own stream, which is taken up again behind the last event when it breaks off.
 */
import { useEffect, useState } from "react";

import { useLiveState } from "../live/hooks";
import { serverEvents } from "../live/sse";

export interface LiveTool {
  callId: string;
  name: string;
  text: string;
  progress: string;
  state: "announced" | "running" | "done" | "failed";
  startedAt: number;
  endedAt: number | null;
}

export interface Run {
  id: string;
  thinking: string;
  /** What was said so far in this round. */
  text: string;
  tools: readonly LiveTool[];
  /** Why the model is asked once more. */
  restarted: string | null;
  lastId: string | null;
  ended: boolean;
}

interface RunEvent {
  stream?: "lifecycle" | "assistant" | "tool";
  data?: Record<string, unknown>;
  joined?: boolean;
  ts?: number;
}

export const begun = (id: string): Run => ({
  id,
  thinking: "",
  text: "",
  tools: [],
  restarted: null,
  lastId: null,
  ended: false,
});

const PAUSE_MS = 1000;

/** The run of a turn that goes on; null for none. */
export function useRun(turnId: string | null): Run | null {
  const [run, setRun] = useState<Run | null>(null);
  const { status } = useLiveState();
  const [attempt, setAttempt] = useState(0);

  useEffect(() => {
    if (turnId === null || status === "down") return;
    const leaving = new AbortController();
    let waiting: RunEvent[] = [];
    let lastId: string | null = null;
    let frame = 0;
    const draw = (): void => {
      frame = 0;
      const events = waiting;
      const id = lastId;
      waiting = [];
      setRun((now) => ({ ...events.reduce(told, now?.id === turnId ? now : begun(turnId)), lastId: id }));
    };
    const hear = (event: RunEvent, id: string | null): void => {
      waiting.push(event);
      lastId = id ?? lastId;
      // One drawing for all that came since the last: words may come faster than a screen shows.
      if (frame === 0) frame = requestAnimationFrame(draw);
    };
    const before = run?.id === turnId ? run.lastId : null;
    listen(turnId, before, leaving.signal, hear)
      .catch(() => undefined)
      .finally(() => {
        if (!leaving.signal.aborted) setTimeout(() => setAttempt((count) => count + 1), PAUSE_MS);
      });
    return () => {
      leaving.abort();
      cancelAnimationFrame(frame);
      if (waiting.length > 0) draw();
    };
    // The run itself changes with every word; only its id, and a broken stream, begin another.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [turnId, status, attempt]);

  return turnId !== null && run?.id === turnId ? run : turnId === null ? null : begun(turnId);
}

/** The run with one more event of its stream. */
export function told(run: Run, event: RunEvent): Run {
  const data = event.data ?? {};
  const at = event.ts ?? 0;
  switch (event.stream) {
    case "assistant":
      return spoken(run, data, event.joined === true);
    case "tool":
      return used(run, data, at);
    case "lifecycle":
      if (data.phase === "restarted") {
        return { ...run, text: "", thinking: "", restarted: typeof data.reason === "string" ? data.reason : "again" };
      }
      return data.phase === "end" || data.phase === "error" ? { ...run, ended: true } : run;
    default:
      return run;
  }
}

function spoken(run: Run, data: Record<string, unknown>, joined: boolean): Run {
  if (data.kind === "message") {
    // A whole round: it is in the log in a moment. Its words stay until then, unless another begins.
    return { ...run, text: typeof data.text === "string" ? data.text : run.text };
  }
  const delta = typeof data.delta === "string" ? data.delta : "";
  const name = data.kind === "thinking" ? "thinking" : "text";
  // A new round begins with its first word after a tool came back.
  const fresh = run.tools.length > 0 && run.tools.every((tool) => tool.endedAt !== null);
  const base = fresh ? { ...run, text: "", thinking: "", tools: [] } : run;
  return { ...base, restarted: null, [name]: joined ? delta : base[name] + delta };
}

function used(run: Run, data: Record<string, unknown>, at: number): Run {
  const callId = text(data.callId);
  const known = run.tools.find((tool) => tool.callId === callId);
  const words = text(data.text);
  const before: LiveTool = known ?? {
    callId,
    name: text(data.name),
    text: "",
    progress: "",
    state: "announced",
    startedAt: at,
    endedAt: null,
  };
  const next = ((): LiveTool => {
    switch (data.phase) {
      case "start":
        return { ...before, state: "running", text: words, startedAt: at };
      case "progress":
        return { ...before, state: "running", progress: words };
      case "end":
        return { ...before, state: data.isError === true ? "failed" : "done", endedAt: at };
      default:
        return before;
    }
  })();
  const tools = known === undefined ? [...run.tools, next] : run.tools.map((tool) => (tool === known ? next : tool));
  return { ...run, tools };
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

async function listen(
  id: string,
  after: string | null,
  signal: AbortSignal,
  hear: (event: RunEvent, id: string | null) => void,
): Promise<void> {
  const response = await fetch(`/api/agent/${encodeURIComponent(id)}/events`, {
    credentials: "same-origin",
    headers: after === null ? {} : { "Last-Event-ID": after },
    signal,
  });
  if (!response.ok || response.body === null) return;
  for await (const event of serverEvents(response.body)) hear(JSON.parse(event.data) as RunEvent, event.id);
}
