/**
 * The board's log of what happens in OpenClaw, and the continuity block before each turn. With Holdfast in the
 * engine slot, its commits are the log; here is then only what no commit brings: turns that failed or were cut off.
 */
import { type Client, reason } from "./client.ts";
import type { Config } from "./config.ts";
import type { Api, Event, Logger, Message } from "./host.ts";
import type { Engine } from "./engine.ts";
import { named, type Queue } from "./queue.ts";
import { hash, keyOf, textOf, toSent } from "./transcript.ts";

const SAME_MS = 10 * 60_000;
const UNCOMMITTED_MS = 5_000;
const MOST_ACTION_CHARS = 8_000;
const MOST_BLOCKS = 100;
const BOARD = /^(?:agent:[^:]+:)?clawboard:(topic|task):([^:|]+)(?::([^:|]+))?/;
const BLOCK = /\[(?:CLAWBOARD|HOLDFAST)_CONTEXT_BEGIN\][\s\S]*?\[(?:CLAWBOARD|HOLDFAST)_CONTEXT_END\]\s*/g;
const NOISE = /^\s*(?:HEARTBEAT_OK|NO_REPLY)\s*$|^\s*\[Subagent Context\]|<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>/;

interface Scope {
  boardScopeTopicId?: string;
  boardScopeTaskId?: string;
}

/** What came in, what a transcript has of the user, and what went out: the same words may pass all three. */
type Way = "in" | "user" | "out";

interface Arrived {
  text: string;
  at: number;
  source: Event;
}

export class BoardLogger {
  private readonly config: Config;
  private readonly queue: Queue;
  private readonly engine: Engine;
  private readonly client: Client;
  private readonly log: Logger;
  /** Whether Holdfast holds the engine slot, so that transcripts come from there. */
  private readonly engineWrites: boolean;
  private readonly written = new Set<string>();
  private readonly blocks = new Map<string, string>();
  private readonly moments = new Map<string, string[]>();

  constructor(
    parts: { config: Config; queue: Queue; client: Client; log: Logger },
    engine: Engine,
    engineWrites: boolean,
  ) {
    this.config = parts.config;
    this.queue = parts.queue;
    this.client = parts.client;
    this.log = parts.log;
    this.engine = engine;
    this.engineWrites = engineWrites;
  }

  register(api: Api): void {
    const guarded = (work: (event: Event, context: Event) => void) => (event: Event, context: Event) => {
      try {
        work(event, context ?? {});
      } catch (error) {
        this.log.warn(`holdfast: a message was not logged: ${reason(error)}`);
      }
    };
    api.on("before_message_write", guarded((event, context) => this.onWrite(event, context)));
    api.on("agent_end", guarded((event, context) => this.onEnd(event, context)));
    for (const hook of ["before_reset", "session_end"]) {
      api.on(hook, guarded((event, context) => this.onSessionEnd(hook, event, context)));
    }
    if (this.config.parts.logger && !this.engineWrites) {
      api.on("message_received", guarded((event, context) => this.onReceived(event, context)));
      api.on("message_sending", guarded((event, context) => this.onSending(event, context)));
      api.on("before_tool_call", guarded((event, context) => this.onTool("call", event, context)));
      api.on("after_tool_call", guarded((event, context) => this.onTool("result", event, context)));
      api.on("subagent_spawned", guarded((event, context) => this.onSpawned(event, context)));
    }
    if (this.config.contextAugment) {
      api.on("before_prompt_build", (event, context) => this.continuity(event, context ?? {}), {
        timeoutMs: this.config.contextFetchTimeoutMs + 500,
      });
    }
  }

  /** Every message that enters a transcript passes here, from whatever surface; some pass twice. */
  private onWrite(event: Event, context: Event): void {
    const message = event["message"] as Message;
    const key = sessionKey(event, context);
    const sent = toSent(message, keyOf(message, this.nth(key ?? "", message)));
    if (sent === null || key === undefined || this.engine.isIgnored(key)) return;
    this.written.add(key);
    if (this.engineWrites) {
      this.queue.add(key, "message", named(key, sent), sent, true);
    } else if (this.config.parts.logger && message.role !== "toolResult") {
      this.logSaid(key, message, context);
    }
  }

  /** Which of the results of one moment this is: calls that ran at once may end at once. */
  private nth(key: string, message: Message): number {
    if (message.role !== "toolResult") return 0;
    const moment = `${key}:${keyOf(message)}`;
    const ids = this.moments.get(moment) ?? [];
    const id = message.toolCallId ?? "";
    if (!ids.includes(id)) ids.push(id);
    this.moments.delete(moment);
    this.moments.set(moment, ids);
    if (this.moments.size > MOST_BLOCKS) this.moments.delete(this.moments.keys().next().value!);
    return ids.indexOf(id);
  }

  private logSaid(key: string, message: Message, context: Event): void {
    const text = clean(textOf(message));
    if (text === "" || NOISE.test(text)) return;
    const isUser = message.role === "user";
    const name = `write:${key}:${keyOf(message)}`;
    if ((isUser && isBoard(key)) || this.queue.isTold(rowKey(name))) return;
    if (isUser && this.wasReceived(key, text)) {
      this.queue.settle(rowKey(name));
      return;
    }
    this.remember(isUser ? "user" : "out", key, text);
    const agentId = isUser ? "user" : String(context["agentId"] ?? "assistant");
    this.row(key, name, {
      content: text,
      agentId,
      source: { channel: "openclaw", ...this.scope(key) },
      ...(message.timestamp ? { createdAt: message.timestamp } : {}),
    });
  }

  private onReceived(event: Event, context: Event): void {
    const key = effectiveKey(event, context);
    const text = clean(String(event["content"] ?? ""));
    if (this.engine.isIgnored(key) || isBoard(key) || text === "" || NOISE.test(text)) return;
    const messageId = String(event["messageId"] ?? `${event["timestamp"] ?? Date.now()}`);
    const channel = String(context["channelId"] ?? "openclaw");
    if (this.recent("user", key).some((one) => one.text.includes(text))) return;
    this.remember("in", key, text);
    this.row(key, `in:${channel}:${key}:${messageId}:${hash(text)}`, {
      content: text,
      agentId: "user",
      ...(event["from"] ? { agentLabel: String(event["from"]).slice(0, 200) } : {}),
      source: { channel, messageId, ...this.scope(key) },
      ...(typeof event["timestamp"] === "number" ? { createdAt: event["timestamp"] } : {}),
    });
  }

  /** What goes out and is in no transcript, such as words sent by a tool. */
  private onSending(event: Event, context: Event): void {
    const key = effectiveKey(event, context);
    const text = clean(String(event["content"] ?? ""));
    if (this.engine.isIgnored(key) || text === "" || NOISE.test(text)) return;
    if (this.recent("out", key).some((one) => one.text.includes(text) || text.includes(one.text))) return;
    this.remember("out", key, text);
    this.row(key, `out:${key}:${hash(text)}:${Math.floor(Date.now() / SAME_MS)}`, {
      content: text,
      agentId: String(context["agentId"] ?? key.split(":")[1] ?? "assistant"),
      source: { channel: String(context["channelId"] ?? "openclaw"), ...this.scope(key) },
    });
  }

  private onTool(what: "call" | "result", event: Event, context: Event): void {
    const key = effectiveKey(event, context);
    const tool = String(event["toolName"] ?? "unknown");
    if (this.engine.isIgnored(key)) return;
    const failed = what === "result" && event["error"] !== undefined;
    const shown = what === "call" ? event["params"] : failed ? event["error"] : event["result"];
    const name = failed ? "error" : what;
    this.row(key, `tool:${key}:${String(event["toolCallId"] ?? Date.now())}:${what}`, {
      type: "action",
      content: `Tool ${name}: ${tool}\n${JSON.stringify(shown ?? null).slice(0, MOST_ACTION_CHARS)}`,
      agentId: String(context["agentId"] ?? "assistant"),
      source: { channel: String(context["channelId"] ?? "openclaw"), toolName: tool, ...this.scope(key) },
    });
    if (what === "result" && tool === "sessions_spawn") this.linkSpawned(key, event["result"]);
  }

  private onSpawned(event: Event, context: Event): void {
    const parent = context["requesterSessionKey"];
    const child = event["childSessionKey"] ?? context["childSessionKey"];
    if (typeof parent === "string" && typeof child === "string") this.link(parent, child);
  }

  private linkSpawned(parent: string, result: unknown): void {
    const child = /"childSessionKey"\s*:\s*"([^"]+)"/.exec(JSON.stringify(result ?? "").replaceAll("\\", ""))?.[1];
    if (child !== undefined) this.link(parent, child);
  }

  /** A child has its parent's place on the board, and no other way leads to one. */
  private link(parent: string, child: string): void {
    const scope = this.scope(parent);
    if (scope.boardScopeTopicId !== undefined) this.queue.remember("link", child, scope);
  }

  private onEnd(event: Event, context: Event): void {
    const key = sessionKey(event, context);
    if (key === undefined || this.engine.isIgnored(key)) return;
    if (this.engineWrites) {
      if (event["success"] === false) this.engine.turnFailed(key);
      setTimeout(() => this.queue.release(key), UNCOMMITTED_MS).unref();
    } else if (this.config.parts.logger && !this.written.delete(key)) {
      const messages = Array.isArray(event["messages"]) ? (event["messages"] as Message[]) : [];
      const start = messages.findLastIndex((message) => message.role === "user");
      for (const one of messages.slice(Math.max(start, 0))) {
        if (one.role !== "toolResult") this.logSaid(key, one, context);
      }
    }
  }

  private onSessionEnd(hook: string, event: Event, context: Event): void {
    const key = sessionKey(event, context);
    const why = hook === "before_reset" ? "reset" : String(event["reason"] ?? "");
    if (key === undefined || !this.engineWrites || this.engine.isIgnored(key)) return;
    if (["new", "reset", "idle", "daily"].includes(why)) this.engine.reset(key);
    else this.queue.release(key);
  }

  /** The block that goes before the prompt; the last one of the session if none comes in time. */
  private async continuity(event: Event, context: Event): Promise<{ prependContext: string } | undefined> {
    const key = sessionKey(event, context);
    if (key === undefined || this.engine.isIgnored(key)) return undefined;
    const { config } = this;
    try {
      const found = await this.client.get<{ block?: string }>(
        "/api/context",
        {
          q: clean(String(event["prompt"] ?? "")).slice(0, 4_000),
          sessionKey: key,
          mode: config.contextMode,
          maxChars: config.contextMaxChars,
          workingSetLimit: config.contextTopicLimit + config.contextTaskLimit,
          timelineLimit: config.contextLogLimit,
        },
        { timeoutMs: config.contextFetchTimeoutMs },
      );
      this.blocks.delete(key);
      this.blocks.set(key, found.block ?? "");
      if (this.blocks.size > MOST_BLOCKS) this.blocks.delete(this.blocks.keys().next().value!);
    } catch (error) {
      if (!this.blocks.has(key)) this.log.info(`holdfast: a turn begins without continuity: ${reason(error)}`);
    }
    const block = this.blocks.get(key) ?? "";
    return block === "" ? undefined : { prependContext: block };
  }

  private row(key: string, name: string, body: { source: Event } & Event): void {
    const source = { ...body.source, sessionKey: key };
    const idempotencyKey = rowKey(name);
    this.queue.add(key, "log", idempotencyKey, { createdAt: Date.now(), ...body, source, idempotencyKey });
  }

  private scope(key: string): Scope {
    const [, kind, topicId, taskId] = BOARD.exec(key) ?? [];
    if (topicId === undefined) return this.queue.recall<Scope>("link", key) ?? {};
    return { boardScopeTopicId: topicId, ...(kind === "task" && taskId ? { boardScopeTaskId: taskId } : {}) };
  }

  /** Whether all that a transcript's message says came in and was logged; turns may gather several messages. */
  private wasReceived(key: string, text: string): boolean {
    const all = this.recent("in", key);
    const used = all.filter((one) => text.includes(one.text));
    if (used.length === 0) return false;
    this.queue.remember("in", key, all.filter((one) => !used.includes(one)));
    return true;
  }

  private remember(way: Way, key: string, text: string): void {
    const kept = [...this.recent(way, key).slice(-19), { text: text.slice(0, 20_000), at: Date.now(), source: {} }];
    this.queue.remember(way, key, kept);
  }

  private recent(way: Way, key: string): Arrived[] {
    const found = this.queue.recall<Arrived[]>(way, key) ?? [];
    return found.filter((one) => one.at > Date.now() - SAME_MS);
  }
}

function rowKey(name: string): string {
  return `openclaw:${hash(name)}`;
}

export function isBoard(key: string): boolean {
  return BOARD.test(key);
}

/** Words without what was put around them: a block that we gave is not said again to us. */
export function clean(text: string): string {
  return text.replaceAll(BLOCK, "").trim();
}

function sessionKey(event: Event, context: Event): string | undefined {
  const found = context["sessionKey"] ?? event["sessionKey"];
  return typeof found === "string" && found !== "" ? found : undefined;
}

/** The host's key; without one the conversation with its thread, and at last the whole channel. */
export function effectiveKey(event: Event, context: Event): string {
  const own = sessionKey(event, context);
  if (own !== undefined) return own;
  const thread = event["threadId"] ?? context["threadId"];
  const tail = thread === undefined || thread === null ? "" : `|thread:${String(thread)}`;
  const conversation = context["conversationId"] ?? event["conversationId"];
  return conversation ? `${String(conversation)}${tail}` : `channel:${String(context["channelId"] ?? "unknown")}${tail}`;
}
