/**
 * One live connection for all tabs of a browser, which keeps no more than six to a host. The tab that holds the
 * lock has it and hands on what it hears; when it closes, another takes over where all had come to.
 *
 * Locks are there on this machine and over HTTPS; elsewhere each tab has a connection of its own.
 */
import type { ServerEvent } from "./sse";

export type Told =
  | { kind: "hello" }
  | { kind: "state"; status: "connecting" | "open" | "down"; lastId: string | null; clockOffset: number }
  | { kind: "event"; event: ServerEvent }
  | { kind: "retry" }
  | { kind: "out" };

export class Tabs {
  private readonly channel: BroadcastChannel | null;
  leads = false;

  /** Tabs that are logged in as the same `name` share; `hear` gets what the others say. */
  constructor(
    private readonly name: string,
    hear: (told: Told) => void,
  ) {
    this.channel = isShared() ? new BroadcastChannel(this.key) : null;
    if (this.channel !== null) this.channel.onmessage = (message) => hear(message.data as Told);
  }

  /** Run `work` once it is this tab's turn; until then the one that leads is asked how things stand. */
  async lead(stopped: AbortSignal, work: () => Promise<void>): Promise<void> {
    const led = (): Promise<void> => {
      this.leads = true;
      return work();
    };
    if (this.channel === null) return led();
    this.tell({ kind: "hello" });
    await navigator.locks.request(this.key, { signal: stopped }, led).catch(() => undefined);
  }

  tell(told: Told): void {
    this.channel?.postMessage(told);
  }

  close(): void {
    this.channel?.close();
  }

  private get key(): string {
    return `holdfast-live ${this.name}`;
  }
}

function isShared(): boolean {
  return "locks" in navigator && "BroadcastChannel" in globalThis;
}
