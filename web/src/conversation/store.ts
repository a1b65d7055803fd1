/**
 * What was said in one place (a session, a topic, a task), newest page first, older on demand.
 *
 * A change that concerns it has the newest page read again and laid over what is known: entries are told with
 * their steps only there.
 */
import { useMemo, useSyncExternalStore } from "react";

import { api } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { Spoken, Turn } from "../api/types";
import { live, type Change } from "../live/live";

export interface Place {
  sessionKey?: string;
  topicId?: string;
  taskId?: string;
}

export interface Said {
  /** Oldest first. */
  entries: readonly Spoken[];
  turns: ReadonlyMap<string, Turn>;
  loaded: boolean;
  more: boolean;
  reading: boolean;
  /** The last that came stands before what was known, and must not push it down. */
  before: boolean;
  problem: Problem | undefined;
  /** It was jumped to a day: what is newer is not shown until one goes back. */
  until: string | null;
}

const PAGE = 60;
const PAUSE_MS = 150;
const NONE: Said = {
  entries: [],
  turns: new Map(),
  loaded: false,
  more: false,
  reading: false,
  before: false,
  problem: undefined,
  until: null,
};

export class Conversation {
  private said: Said = NONE;
  private cursor: string | null = null;
  private readonly watchers = new Set<() => void>();
  private generation = -1;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stop: () => void = () => undefined;

  constructor(private readonly place: Place) {}

  readonly current = (): Said => this.said;

  readonly watch = (watcher: () => void): (() => void) => {
    if (this.watchers.size === 0) this.stop = this.begin();
    this.watchers.add(watcher);
    return () => {
      this.watchers.delete(watcher);
      if (this.watchers.size === 0) this.stop();
    };
  };

  /** Read the page behind the last one. */
  readonly older = async (): Promise<void> => {
    if (this.cursor === null || this.said.reading) return;
    await this.read({ cursor: this.cursor });
  };

  /** Show what was said until a day, or what is newest for null. */
  readonly jump = async (until: string | null): Promise<void> => {
    this.cursor = null;
    this.set({ ...NONE, until, turns: this.said.turns });
    await this.read({});
  };

  readonly refresh = (): void => {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      if (this.said.until === null) void this.read({});
    }, PAUSE_MS);
  };

  /** Take in how a turn stands. */
  takeTurn(turn: Turn): void {
    this.set({ turns: new Map([...this.said.turns, [turn.turnId, turn]]) });
  }

  private async read(more: { cursor?: string }): Promise<void> {
    const isOlder = more.cursor !== undefined;
    const { until } = this.said;
    this.set({ reading: true });
    try {
      const query = { ...this.place, limit: PAGE, ...more, ...(isOlder || until === null ? {} : { before: until }) };
      const found = await api.get("/api/conversation", { query });
      if (this.said.until !== until) return;
      // What was missed may be more than a page: then what is known does not join on, and is let go.
      const known = isOlder || joins(this.said.entries, found.entries, found.next) ? this.said.entries : [];
      if (isOlder || known.length === 0) this.cursor = found.next;
      this.set({
        entries: merged(known, found.entries),
        turns: new Map([...this.said.turns, ...found.turns.map((turn) => [turn.turnId, turn] as const)]),
        loaded: true,
        before: isOlder,
        more: this.cursor !== null,
        problem: undefined,
      });
    } catch (error) {
      this.set({ problem: asProblem(error) });
    } finally {
      this.set({ reading: false });
    }
  }

  private begin(): () => void {
    const unwatch = live.watch(() => this.follow());
    const off = live.on("", (change) => this.hear(change));
    this.generation = -1;
    this.follow();
    return () => {
      unwatch();
      off();
      clearTimeout(this.timer);
      this.timer = undefined;
    };
  }

  private hear(change: Change): void {
    const { sessionKey, topicId } = this.place;
    if (change.type.startsWith("log.")) {
      const entry = change.data as { id?: string; topicId?: string | null; source?: { sessionKey?: string } } | null;
      if (change.type.endsWith(".deleted")) {
        this.set({ entries: this.said.entries.filter((one) => one.id !== change.entityId) });
      }
      const ours = topicId === undefined ? entry?.source?.sessionKey === sessionKey : entry?.topicId === topicId;
      if (ours || this.said.entries.some((one) => one.id === change.entityId)) this.refresh();
    } else if (change.type.startsWith("turn.") && change.data !== null) {
      const turn = change.data as Turn;
      const known = this.said.turns.has(turn.turnId);
      if (known || turn.sessionKey === sessionKey) {
        // How a turn ended is read together with what it left, so that its words never vanish in between.
        if (turn.endedAt === null || this.said.until !== null) this.takeTurn(turn);
        this.refresh();
      }
    }
  }

  private follow(): void {
    const { status, generation } = live.current();
    if (status === "idle" || (generation === 0 && status !== "down")) return;
    const back = status === "open" && this.said.problem !== undefined;
    if (generation === this.generation && !back) return;
    this.generation = generation;
    void this.read({});
  }

  private set(some: Partial<Said>): void {
    this.said = { ...this.said, ...some };
    for (const watcher of [...this.watchers]) watcher();
  }
}

/** Two lists of entries as one, oldest first; of two states of one entry the newer stays. */
export function merged(known: readonly Spoken[], read: readonly Spoken[]): Spoken[] {
  const all = new Map(known.map((entry) => [entry.id, entry]));
  for (const entry of read) {
    const old = all.get(entry.id);
    if (old === undefined || old.updatedAt <= entry.updatedAt) all.set(entry.id, entry);
  }
  return [...all.values()].sort((a, b) => (a.createdAt === b.createdAt ? compare(a.id, b.id) : compare(a.createdAt, b.createdAt)));
}

function joins(known: readonly Spoken[], read: readonly Spoken[], next: string | null): boolean {
  return next === null || known.length === 0 || read.some((entry) => known.some((one) => one.id === entry.id));
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

export function useConversation(place: Place): { conversation: Conversation; said: Said } {
  const key = JSON.stringify(place);
  const conversation = useMemo(() => new Conversation(JSON.parse(key) as Place), [key]);
  return { conversation, said: useSyncExternalStore(conversation.watch, conversation.current) };
}
