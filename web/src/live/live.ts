/**
 * The one live connection: changes come in here and are handed to whoever subscribed.
 *
 * It resumes behind the last event it saw, so that nothing is missed while it was down. Where that is not
 * possible (a first connection, or too long ago) `state.generation` grows: what was loaded before is to be
 * loaded anew.
 */
import { serverEvents, type ServerEvent } from "./sse";
import { Tabs, type Told } from "./tabs";

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
  private tabs: Tabs | null = null;
  private lastId: string | null = null;
  private failures = 0;
  private retry: () => void = () => undefined;
  private clockOffset = 0;
  private loggedOut: () => void = () => undefined;

  /** Connect as `name`, and stay connected until `stop`. */
  start(name: string, loggedOut: () => void): void {
    if (this.running !== null) return;
    const running = new AbortController();
    this.running = running;
    this.loggedOut = loggedOut;
    this.tabs = new Tabs(name, (told) => this.hear(told));
    this.set({ status: "connecting" });
    addEventListener("online", this.tryNow);
    void this.tabs.lead(running.signal, () => this.run(running.signal));
  }

  stop(): void {
    this.running?.abort();
    this.running = null;
    this.tabs?.close();
    this.tabs = null;
    this.lastId = null;
    removeEventListener("online", this.tryNow);
    this.set({ status: "idle" });
  }

  /** Let the other tabs know that nobody is logged in any more. */
  sayGoodbye(): void {
    this.tabs?.tell({ kind: "out" });
  }

  readonly tryNow = (): void => {
    this.retry();
    this.tabs?.tell({ kind: "retry" });
  };

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
    try {
      const response = await fetch("/api/stream", {
        credentials: "same-origin",
        headers: this.lastId === null ? {} : { "Last-Event-ID": this.lastId },
        signal: AbortSignal.any([stopped, attempt.signal]),
      });
      if (!response.ok || response.body === null) return response.status === 401 ? "out" : "broken";
      for await (const event of serverEvents(response.body)) {
        silence.heard();
        this.tabs?.tell({ kind: "event", event });
        if (this.take(event) === "out") return "out";
      }
      return "broken";
    } finally {
      silence.stop();
    }
  }

  /** What another tab says: the one that leads hands on what it hears. */
  private hear(told: Told): void {
    if (told.kind === "out") this.loggedOut();
    else if (told.kind === "hello") this.tellState();
    else if (told.kind === "retry") this.retry();
    else if (this.tabs?.leads === true) return;
    else if (told.kind === "event") {
      if (this.take(told.event) === "out") this.loggedOut();
    } else {
      this.clockOffset = told.clockOffset;
      const first = this.lastId === null && told.status === "open";
      if (first) this.lastId = told.lastId;
      this.set({ status: told.status });
      if (first) this.renew();
    }
  }

  private tellState(): void {
    const { status } = this.state;
    if (this.tabs?.leads !== true || status === "idle") return;
    this.tabs.tell({ kind: "state", status, lastId: this.lastId, clockOffset: this.clockOffset });
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
    const changed = some.status !== undefined && some.status !== this.state.status;
    this.state = { ...this.state, ...some };
    if (changed) this.tellState();
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
