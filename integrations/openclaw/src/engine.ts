/**
 * Holdfast in OpenClaw's engine slot. History is Holdfast's to choose, OpenClaw adds the running turn itself.
 * Nothing here throws, and no turn waits longer for it than it may: without Holdfast the newest turns are shown.
 */
import { type Client, type Json, reason, Refused } from "./client.ts";
import type { Config } from "./config.ts";
import type { Logger, Message } from "./host.ts";
import { named, type Queue } from "./queue.ts";
import { fromShown, hash, keyOf, newest, promptTokens, type Shown, textOf, tokensOf, toSentAll } from "./transcript.ts";

export const ENGINE_ID = "holdfast";
const UNKNOWN_BUDGET = 100_000;
const COMPACT_MS = 170_000;
const MOST_SESSIONS = 500;
/** One reset is told by two hooks. */
const SAME_RESET_MS = 1_000;

interface Assembled {
  messages: Message[];
  estimatedTokens: number;
  systemPromptAddition?: string;
}

/** One turn as the engine sees it: how long it has waited for us, and the least room that it was given. */
class Turn {
  spentMs = 0;
  budget = Number.POSITIVE_INFINITY;
  /** What was made for the model and is no message of the host's; it comes back with the next call. */
  readonly made = new Set<string>();
}

interface SessionParams {
  sessionId: string;
  sessionKey?: string;
}

type AssembleParams = SessionParams & {
  messages: Message[];
  tokenBudget?: number;
  availableTools?: Iterable<string>;
  citationsMode?: string;
  model?: string;
  prompt?: string;
};

type CompactParams = SessionParams & {
  tokenBudget?: number;
  force?: boolean;
  currentTokenCount?: number;
  customInstructions?: string;
  abortSignal?: AbortSignal;
};

export interface Parts {
  config: Config;
  client: Client;
  queue: Queue;
  log: Logger;
}

export class Engine {
  /** `runtimeContext` is not among what the host may hand us: it holds its whole config, with every key. */
  readonly info = {
    id: ENGINE_ID,
    name: "Holdfast",
    ownsCompaction: true,
    acceptedHostParams: ["sessionKey", "prompt"],
    transcriptSemantics: {
      currentTurnFence: "before-current-turn-entry-v1",
      turnAdvancementIdempotency: "atomic-idempotent-v1",
    },
  };

  private readonly parts: Parts;
  private readonly turns = new Map<string, Turn>();
  private readonly resets = new Map<string, number>();
  private quiet = false;

  constructor(parts: Parts) {
    this.parts = parts;
    parts.queue.onAfterTurn = (lane, answer) => {
      if (answer["compactionDue"] === true) void this.compactSoon(lane, Number(answer["window"]));
    };
  }

  isIgnored(sessionKey: string | undefined): boolean {
    return sessionKey === undefined || this.parts.config.ignoreSessionPrefixes.some((one) => sessionKey.startsWith(one));
  }

  async bootstrap(params: SessionParams): Promise<{ bootstrapped: boolean; reason?: string }> {
    const lane = this.lane(params);
    if (lane === null) return { bootstrapped: false, reason: "the session is ignored" };
    this.turns.delete(lane);
    try {
      await this.within(lane, (ms) =>
        this.parts.client.call("POST", "/api/engine/bootstrap", { sessionKey: lane }, { timeoutMs: ms }),
      );
      return { bootstrapped: true };
    } catch (error) {
      return { bootstrapped: false, reason: this.told(error) };
    }
  }

  async assemble(params: AssembleParams): Promise<Assembled> {
    const lane = this.lane(params);
    if (lane === null) return plain(params.messages);
    const turn = this.turn(lane);
    turn.budget = Math.min(turn.budget, params.tokenBudget ?? UNKNOWN_BUDGET);
    try {
      this.learn(lane, params.messages, turn);
      return await this.assembled(lane, turn, params);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return plain(params.messages);
      this.told(error);
      return plain(newest(params.messages, turn.budget));
    }
  }

  private async assembled(lane: string, turn: Turn, params: AssembleParams): Promise<Assembled> {
    const { client, queue } = this.parts;
    await this.within(lane, (ms) => queue.flush(lane, ms));
    const ask = {
      sessionKey: lane,
      tokenBudget: Math.max(1, Math.floor(turn.budget)),
      availableTools: [...(params.availableTools ?? [])].slice(0, 1_000),
      model: params.model ?? "",
      prompt: params.prompt ?? null,
      ...(["auto", "on", "off"].includes(params.citationsMode ?? "") ? { citationsMode: params.citationsMode } : {}),
    };
    const answer = await this.within(lane, (ms) =>
      client.call<{ messages: Shown[]; estimatedTokens: number; systemPromptAddition: string | null }>(
        "POST",
        "/api/engine/assemble",
        ask,
        { timeoutMs: ms },
      ),
    );
    this.quiet = false;
    const { messages, made } = fromShown(answer.messages, params.messages);
    for (const message of made) turn.made.add(mark(message));
    const addition = answer.systemPromptAddition;
    return { messages, estimatedTokens: answer.estimatedTokens, ...(addition ? { systemPromptAddition: addition } : {}) };
  }

  /** The accepted turn is on disk before we say so; Holdfast has it then, or as soon as it is there. */
  async commitTurn(params: SessionParams & { advancementKey: string; messages: Message[] }): Promise<{ status: string }> {
    const lane = this.lane(params);
    if (lane === null) return { status: "committed" };
    const { queue } = this.parts;
    const turn = this.turn(lane);
    const status = queue.commit(lane, params.advancementKey, toSentAll(params.messages));
    await this.within(lane, (ms) => queue.flush(lane, ms)).catch((error: unknown) => this.told(error));
    if (status === "committed") this.afterwards(lane, params.advancementKey, params.messages, turn.budget);
    this.turns.delete(lane);
    return { status };
  }

  async ingest(params: SessionParams & { message: Message }): Promise<{ ingested: boolean }> {
    const { ingestedCount } = await this.ingestBatch({ ...params, messages: [params.message] });
    return { ingested: ingestedCount > 0 };
  }

  /** Hosts without durable turns bring messages so. */
  async ingestBatch(params: SessionParams & { messages: Message[] }): Promise<{ ingestedCount: number }> {
    const lane = this.lane(params);
    if (lane === null) return { ingestedCount: 0 };
    return Promise.resolve({ ingestedCount: this.learn(lane, params.messages, this.turn(lane)) });
  }

  async afterTurn(params: SessionParams & { messages: Message[]; tokenBudget?: number }): Promise<void> {
    const lane = this.lane(params);
    if (lane === null) return;
    this.learn(lane, params.messages, this.turn(lane));
    const last = params.messages.at(-1);
    this.afterwards(lane, `after-${last?.timestamp ?? Date.now()}`, params.messages, params.tokenBudget);
    this.turns.delete(lane);
    return Promise.resolve();
  }

  async compact(params: CompactParams): Promise<Json> {
    const lane = this.lane(params);
    const ask = {
      tokenBudget: params.tokenBudget ?? UNKNOWN_BUDGET,
      force: params.force === true,
      reason: params.force === true ? "manual" : "overflow",
      ...(params.currentTokenCount ? { currentTokenCount: Math.floor(params.currentTokenCount) } : {}),
      ...(params.customInstructions ? { instructions: params.customInstructions.slice(0, 10_000) } : {}),
    };
    if (lane === null) return { ok: false, compacted: false, reason: "the session is ignored" };
    return this.compactNow(lane, ask, params.abortSignal);
  }

  async prepareSubagentSpawn(params: {
    parentSessionKey: string;
    childSessionKey: string;
    contextMode?: string;
    ttlMs?: number;
  }): Promise<{ rollback(): void } | undefined> {
    const { parentSessionKey, childSessionKey, contextMode, ttlMs } = params;
    if (this.isIgnored(parentSessionKey) || this.isIgnored(childSessionKey)) return undefined;
    const body = {
      parentSessionKey,
      childSessionKey,
      contextMode: contextMode === "fork" ? "fork" : "isolated",
      ...(ttlMs && ttlMs > 0 ? { ttlMs: Math.floor(ttlMs) } : {}),
    };
    const { queue } = this.parts;
    queue.add(parentSessionKey, "spawn", `spawn:${childSessionKey}`, body);
    const flushed = this.within(parentSessionKey, (ms) => queue.flush(parentSessionKey, ms));
    await flushed.catch((error: unknown) => this.told(error));
    return { rollback: () => this.ended(childSessionKey, "deleted") };
  }

  async onSubagentEnded(params: { childSessionKey: string; reason?: string }): Promise<void> {
    if (!this.isIgnored(params.childSessionKey)) this.ended(params.childSessionKey, params.reason ?? "completed");
    return Promise.resolve();
  }

  async dispose(): Promise<void> {
    return Promise.resolve();
  }

  /** A turn that is not committed is over too: the next one has its own time. */
  turnFailed(lane: string): void {
    this.turns.delete(lane);
  }

  /** A new conversation under the same key begins for Holdfast too, behind all that was said before. */
  reset(lane: string): void {
    const since = Date.now() - (this.resets.get(lane) ?? 0);
    this.parts.queue.release(lane);
    if (since < SAME_RESET_MS) return;
    this.resets.set(lane, Date.now());
    this.parts.queue.add(lane, "reset", `reset:${lane}:${Date.now()}`, {});
    this.turns.delete(lane);
  }

  private ended(childSessionKey: string, why: string): void {
    const known = ["completed", "deleted", "swept", "released"].includes(why) ? why : "completed";
    const body = { childSessionKey, reason: known };
    this.parts.queue.add(childSessionKey, "ended", `ended:${childSessionKey}:${Date.now()}`, body);
  }

  /** What the host has and Holdfast was not told yet: from before the plugin, or of a turn that failed. */
  private learn(lane: string, messages: Message[], turn: Turn): number {
    const { queue } = this.parts;
    const theirs = messages.filter((message) => !turn.made.has(mark(message)));
    return toSentAll(theirs).filter((one) => queue.add(lane, "message", named(lane, one), one)).length;
  }

  private afterwards(lane: string, turnId: string, messages: Message[], budget: number | undefined): void {
    const window = budget !== undefined && Number.isFinite(budget) ? Math.floor(budget) : UNKNOWN_BUDGET;
    const body = { turnId, tokenBudget: window, promptTokens: promptTokens(messages) };
    this.parts.queue.add(lane, "after", `after:${lane}:${turnId}`, body);
  }

  private async compactSoon(lane: string, window: number): Promise<void> {
    const done = await this.compactNow(lane, { tokenBudget: window, reason: "threshold" });
    if (done["ok"] !== true) this.parts.log.warn(`holdfast: ${lane} could not be compacted: ${String(done["reason"])}`);
  }

  private async compactNow(lane: string, ask: Json, signal?: AbortSignal): Promise<Json> {
    const { client, queue } = this.parts;
    try {
      await queue.flush(lane, this.parts.config.timeoutMs);
      const done = await client.call<Json>(
        "POST",
        "/api/engine/compact",
        { sessionKey: lane, ...ask },
        { timeoutMs: COMPACT_MS, signal, patient: true },
      );
      const found = done["result"] as Json;
      const result = { tokensBefore: found["tokensBefore"] ?? 0, tokensAfter: found["tokensAfter"], details: found };
      return { ok: done["ok"], compacted: done["compacted"], reason: done["reason"], result };
    } catch (error) {
      return { ok: false, compacted: false, reason: this.told(error) };
    }
  }

  /** Waits for an answer within what is left of the turn's time, and counts it. */
  private async within<T>(lane: string, work: (ms: number) => Promise<T>): Promise<T> {
    const turn = this.turn(lane);
    const left = Math.min(this.parts.config.timeoutMs, this.parts.config.turnBudgetMs - turn.spentMs);
    if (left <= 0) throw new Error("this turn has waited long enough");
    const start = performance.now();
    try {
      return await work(left);
    } finally {
      turn.spentMs += performance.now() - start;
    }
  }

  private turn(lane: string): Turn {
    const known = this.turns.get(lane) ?? new Turn();
    this.turns.delete(lane);
    this.turns.set(lane, known);
    if (this.turns.size > MOST_SESSIONS) this.turns.delete(this.turns.keys().next().value!);
    return known;
  }

  private lane(params: SessionParams): string | null {
    return this.isIgnored(params.sessionKey) ? null : params.sessionKey!;
  }

  private told(error: unknown): string {
    if (!this.quiet) this.parts.log.warn(`holdfast: OpenClaw goes on without it: ${reason(error)}`);
    this.quiet = true;
    return reason(error);
  }
}

function mark(message: Message): string {
  return hash(keyOf(message) + textOf(message));
}

function plain(messages: Message[]): Assembled {
  return { messages, estimatedTokens: messages.reduce((sum, message) => sum + tokensOf(message), 0) };
}
