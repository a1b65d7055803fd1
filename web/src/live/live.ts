/**
 * The one live connection of a page: changes come in here and are handed to whoever subscribed.
 *
 * It resumes behind the last event it saw, so that nothing is missed while it was down. Where that is not
 * possible (a first connection, or too long ago) `state.generation` grows: what was loaded before is to be
 * loaded anew.
 */
import { serverEvents, type ServerEvent } from "./sse";

export interface Change {
  seq: number;
  /** Such as `approval.requested`; the part before the dot says what `data` is. */
  type: string;
  entityId: string;
  data: unknown;
  eventTs: string;
}

export interface LiveState {
  status: "idle" | "connecting" | "open" | "down";
  generation: number;
}

type Handler = (change: Change) => void;

const SILENCE_MS = 70_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

class Live {
  private state: LiveState = { status: "idle", generation: 0 };
  private readonly watchers = new Set<() => void>();
  private readonly handlers = new Set<[string, Handler]>();
  private running: AbortController | null = null;
  private lastId: string | null = null;
  private failures = 0;
  private retry: () => void = () => undefined;
  private clockOffset = 0;
  private loggedOut: () => void = () => undefined;

  /** Connect, and stay connected until `stop`. */
  start(loggedOut: () => void): void {
    if (this.running !== null) return;
    this.loggedOut = loggedOut;
    this.running = new AbortController();
    addEventListener("online", this.tryNow);
    void this.run(this.running.signal);
  }

  stop(): void {
    this.running?.abort();
    this.running = null;
    this.lastId = null;
    removeEventListener("online", this.tryNow);
    this.set({ status: "idle" });
  }

  readonly tryNow = (): void => this.retry();

  readonly current = (): LiveState => this.state;

  readonly watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  /** Hear of changes whose type begins so, such as `approval.` or `topic.upserted`. */
  on(prefix: string, handler: Handler): () => void {
    const entry: [string, Handler] = [prefix, handler];
    this.handlers.add(entry);
    return () => this.handlers.delete(entry);
  }

  /** The gateway's time now, in milliseconds: this machine's clock may be wrong. */
  now(): number {
    return Date.now() + this.clockOffset;
  }

  private async run(stopped: AbortSignal): Promise<void> {
    for (;;) {
      const ended = await this.connect(stopped).catch(() => "broken" as const);
      if (stopped.aborted) return;
      if (ended === "out") {
        this.loggedOut();
        return;
      }
      this.set({ status: "down" });
      await this.pause(stopped);
    }
  }

  private async connect(stopped: AbortSignal): Promise<"out" | "broken"> {
    const attempt = new AbortController();
    const silence = new Watchdog(SILENCE_MS, () => attempt.abort());
    if (this.state.status !== "down") this.set({ status: "connecting" });
    try {
      const response = await fetch("/api/stream", {
        credentials: "same-origin",
        headers: this.lastId === null ? {} : { "Last-Event-ID": this.lastId },
        signal: AbortSignal.any([stopped, attempt.signal]),
      });
      if (!response.ok || response.body === null) return response.status === 401 ? "out" : "broken";
      for await (const event of serverEvents(response.body)) {
        silence.heard();
        if (this.take(event) === "out") return "out";
      }
      return "broken";
    } finally {
      silence.stop();
    }
  }

  private take(event: ServerEvent): "out" | "on" {
    const change = JSON.parse(event.data) as Change;
    if (event.event === "ready") this.ready(change.eventTs);
    else if (change.type === "stream.ended") return "out";
    else if (change.type === "stream.reset") this.renew();
    else if (!change.type.startsWith("stream.")) this.hand(change);
    if (event.id !== null) this.lastId = event.id;
    return "on";
  }

  private ready(eventTs: string): void {
    this.failures = 0;
    this.clockOffset = Date.parse(eventTs) - Date.now();
    this.set({ status: "open" });
    if (this.lastId === null) this.renew();
  }

  private renew(): void {
    this.set({ generation: this.state.generation + 1 });
  }

  private hand(change: Change): void {
    for (const [prefix, handler] of [...this.handlers]) {
      if (change.type.startsWith(prefix)) handler(change);
    }
  }

  private pause(stopped: AbortSignal): Promise<void> {
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.failures);
    this.failures += 1;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, longest * (0.5 + Math.random() / 2));
      this.retry = () => {
        clearTimeout(timer);
        resolve();
      };
      stopped.addEventListener("abort", this.retry, { once: true });
    });
  }

  private set(some: Partial<LiveState>): void {
    this.state = { ...this.state, ...some };
    for (const watcher of [...this.watchers]) watcher();
  }
}

/** Barks once nothing was heard for a while: a connection can be dead without saying so. */
class Watchdog {
  private timer: ReturnType<typeof setTimeout>;

  constructor(
    private readonly patience: number,
    private readonly bark: () => void,
  ) {
    this.timer = setTimeout(bark, patience);
  }

  heard(): void {
    this.stop();
    this.timer = setTimeout(this.bark, this.patience);
  }

  stop(): void {
    clearTimeout(this.timer);
  }
}

export const live = new Live();
