/** OpenClaw's messages and ours: one name for each, the way there and the way back. All of it is pure. */
import { createHash } from "node:crypto";

import type { Block, Message } from "./host.ts";

/** A message as Holdfast's engine takes it. `key` names it: whatever brings it again, it is one message. */
export interface Sent {
  role: "user" | "assistant" | "toolResult";
  content: string;
  key: string;
  at?: number;
  toolCalls?: { id: string; name: string; arguments: Record<string, unknown> }[];
  toolCallId?: string;
  toolName?: string;
  isError?: boolean;
  trust?: string;
}

/** A message as Holdfast's engine gives it back; an empty `form` says that it is whole. */
export interface Shown {
  role: string;
  content: string;
  key?: string | null;
  form?: string | null;
  toolCalls?: { id: string; name: string; arguments: Record<string, unknown> }[];
  toolCallId?: string;
  toolName?: string;
  isError?: boolean;
}

const MOST_CHARS = 400_000;
const MOST_ID = 200;
const SPOKEN = new Set(["user", "assistant", "toolResult"]);

/**
 * The names of messages: who spoke, when, and which of several at that moment. What is said is no part of it, nor are
 * ids of calls: hosts shorten old results, drop old pictures, and write ids as each provider likes them.
 */
export function keysOf(messages: Message[]): string[] {
  const count = new Map<string, number>();
  return messages.map((message) => {
    const key = keyOf(message);
    const nth = count.get(key) ?? 0;
    count.set(key, nth + 1);
    return keyOf(message, nth);
  });
}

export function keyOf(message: Message, nth = 0): string {
  const when = message.timestamp === undefined ? `x${hash(textOf(message))}` : String(message.timestamp);
  return `${message.role}:${when}${nth === 0 ? "" : `:${nth}`}`;
}

/** What of a conversation is told to Holdfast, in its form. */
export function toSentAll(messages: Message[]): Sent[] {
  const keys = keysOf(messages);
  return messages.map((message, index) => toSent(message, keys[index]!)).filter((one) => one !== null);
}

/** The message for Holdfast, or null for what is no part of a conversation: markers, summaries, silence. */
export function toSent(message: Message, key: string): Sent | null {
  if (!SPOKEN.has(message.role)) return null;
  const calls = blocks(message).filter((block) => block.type === "toolCall" && typeof block.id === "string");
  const content = clipped(textOf(message));
  if (content === "" && calls.length === 0 && message.role !== "toolResult") return null;
  const sent: Sent = { role: message.role as Sent["role"], content, key };
  if (message.timestamp !== undefined && message.timestamp > 0) sent.at = Math.floor(message.timestamp);
  if (message.provenance?.kind === "inter_session") sent.trust = "other_session";
  if (message.role === "assistant" && calls.length > 0) {
    sent.toolCalls = calls.map((block) => ({
      id: bounded(block.id ?? ""),
      name: bounded(block.name ?? "unknown"),
      arguments: block.arguments ?? {},
    }));
  }
  if (message.role === "toolResult") {
    sent.toolCallId = bounded(message.toolCallId ?? "unknown");
    sent.toolName = bounded(message.toolName ?? "unknown");
    sent.isError = message.isError === true;
  }
  return sent;
}

/**
 * What Holdfast assembled, in OpenClaw's form. A message that the host has and that is shown whole is the host's
 * own object, with its pictures, thoughts and signatures; the others are made.
 */
export function fromShown(shown: Shown[], host: Message[]): { messages: Message[]; made: Message[] } {
  const keys = keysOf(host);
  const own = new Map(host.map((message, index) => [keys[index], message]));
  const made: Message[] = [];
  const messages = shown.map((one, index) => {
    const known = one.key ? own.get(one.key) : undefined;
    if (known !== undefined && !one.form) return known;
    const message = known === undefined ? fresh(one, index) : { ...known, content: content(one, known) };
    made.push(message);
    return message;
  });
  return { messages, made };
}

function fresh(one: Shown, index: number): Message {
  const timestamp = Number(one.key?.split(":")[1]);
  const base = { timestamp: Number.isFinite(timestamp) ? timestamp : index };
  if (one.role === "toolResult") {
    const named = { toolCallId: one.toolCallId ?? "unknown", toolName: one.toolName ?? "unknown" };
    return { role: "toolResult", ...named, content: words(one.content), isError: one.isError === true, ...base };
  }
  if (one.role !== "assistant") return { role: "user", content: words(one.content), ...base };
  const usage = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0, cost: NO_COST };
  const from = { api: "openai-completions", provider: "holdfast", model: "history", usage };
  const stopReason = (one.toolCalls ?? []).length > 0 ? "toolUse" : "stop";
  return { role: "assistant", content: content(one), ...from, stopReason, ...base };
}

const NO_COST = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 };

function content(one: Shown, known?: Message): Block[] {
  if (one.role !== "assistant") return words(one.content);
  const calls = known === undefined ? [] : blocks(known).filter((block) => block.type === "toolCall");
  const made = (one.toolCalls ?? []).map((call) => ({ type: "toolCall", ...call }));
  return [...(one.content === "" ? [] : words(one.content)), ...(calls.length > 0 ? calls : made)];
}

function words(text: string): Block[] {
  return [{ type: "text", text }];
}

/** The newest whole turns that fit: what is shown when Holdfast cannot say what to show. */
export function newest(messages: Message[], tokenBudget: number | undefined): Message[] {
  if (tokenBudget === undefined) return messages;
  let tokens = 0;
  let start = messages.length;
  for (let index = messages.length - 1; index >= 0; index -= 1) {
    tokens += tokensOf(messages[index]!);
    if (tokens > tokenBudget) break;
    if (messages[index]!.role === "user" || index === 0) start = index;
  }
  return start === messages.length && messages.length > 0 && tokens <= tokenBudget ? messages : messages.slice(start);
}

export function tokensOf(message: Message): number {
  return Math.ceil(JSON.stringify(message.content ?? "").length / 4) + 8;
}

export function textOf(message: Message): string {
  if (typeof message.content === "string") return message.content;
  const found = blocks(message);
  const said = found.filter((block) => block.type === "text").map((block) => block.text ?? "");
  const pictures = found.some((block) => block.type === "image");
  return said.length === 0 && pictures ? "[image]" : said.join("\n");
}

/** What the provider counted for the last call of a turn. */
export function promptTokens(messages: Message[]): number {
  const usage = messages.findLast((message) => message.role === "assistant" && message.usage !== undefined)?.usage;
  return (usage?.input ?? 0) + (usage?.cacheRead ?? 0) + (usage?.cacheWrite ?? 0);
}

function blocks(message: Message): Block[] {
  return Array.isArray(message.content) ? message.content : [];
}

function clipped(text: string): string {
  return text.length <= MOST_CHARS ? text : `${text.slice(0, MOST_CHARS)}\n[${text.length - MOST_CHARS} more characters]`;
}

function bounded(id: string): string {
  const named = id === "" ? "unknown" : id;
  return named.length <= MOST_ID ? named : hash(named);
}

export function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}
