import assert from "node:assert/strict";
import { test } from "node:test";

import { readConfig } from "../src/config.ts";
import type { Message } from "../src/host.ts";
import { fromShown, keysOf, newest, tokensOf, toSentAll } from "../src/transcript.ts";
import { message, opened, until, type World, world } from "./world.ts";

const KEY = "agent:main:main";
const session = { sessionId: "s", sessionKey: KEY };

function history(turns: number): Message[] {
  const spoken = Array.from({ length: turns }, (_, n) => [message("user", `q${n} `.repeat(50)), message("assistant", `a${n}`)]);
  return spoken.flat();
}

/** Answers as Holdfast would that keeps everything: all that it was told, in order, once. */
function keeping({ gateway }: World, also: object[] = []): void {
  const kept = new Map<string, object>();
  gateway.answer = ({ path, body }) => {
    if (path.endsWith("ingestBatch")) for (const one of body["messages"]) kept.set(one.key, { ...one, form: "" });
    return [200, { messages: [...also, ...kept.values()], estimatedTokens: 7, systemPromptAddition: null }];
  };
}

test("a message has the same name however the host rewrites it", () => {
  const call = { type: "toolCall", id: "call_1|x", name: "exec", arguments: {} };
  const asked = message("assistant", "", { content: [call] });
  const result = message("toolResult", "long output", { toolCallId: "call_1|x" });
  const twin = { ...result, toolCallId: "call_2" };
  const later = [
    { ...asked, content: [{ ...call, id: "call1x" }] },
    { ...result, toolCallId: "call1x", content: "[Old tool result content cleared]" },
    { ...twin, toolCallId: "call2" },
  ];
  assert.deepEqual(keysOf(later), keysOf([asked, result, twin]));
  assert.equal(new Set(keysOf(later)).size, 3);
});

test("what is no part of a conversation is not told", () => {
  const silent = message("assistant", "", { content: [] });
  const marker = message("compactionSummary", "all of it");
  const elsewhere = message("user", "done", { provenance: { kind: "inter_session" } });
  assert.deepEqual(toSentAll([silent, marker, elsewhere]).map((one) => [one.content, one.trust]), [["done", "other_session"]]);
});

test("what the host has is given back as it has it, what it lacks is made, what was cut is cut", () => {
  const host = [message("user", "hi", { secret: "signature" }), message("toolResult", "x".repeat(99), { toolCallId: "c" })];
  const [user, result] = toSentAll(host);
  const summary = { role: "user", content: "Summary of it.", key: null, form: "summary" };
  const { messages, made } = fromShown([summary, { ...user!, form: "" }, { ...result!, content: "xx…", form: "trim:2:0" }], host);
  assert.equal(messages[1], host[0]);
  assert.deepEqual([messages[0]!.content, messages[2]!.content], [[{ type: "text", text: "Summary of it." }], [{ type: "text", text: "xx…" }]]);
  assert.equal(messages[2]!.toolCallId, "c");
  assert.equal(made.length, 2);
});

test("the newest whole turns fit every budget, and a result never loses its call", () => {
  const messages = history(20).flatMap((one) =>
    one.role === "user" ? [one] : [message("assistant", "", { content: [{ type: "toolCall", id: "c" }] }), message("toolResult", "r"), one],
  );
  for (let budget = 0; budget < 3_000; budget += 37) {
    const kept = newest(messages, budget);
    assert.ok(kept.reduce((sum, one) => sum + tokensOf(one), 0) <= budget);
    assert.ok(kept.length === 0 || kept[0]!.role === "user");
    assert.deepEqual(kept, messages.slice(messages.length - kept.length));
  }
  assert.equal(newest(messages, 1_000_000).length, messages.length);
});

test("assembling its own answer again tells Holdfast nothing new", async () => {
  const here = await world();
  keeping(here, [{ role: "user", content: "<summary of long ago>", key: null, form: "summary" }]);
  const before = history(2);
  const first = await here.engine.assemble({ ...session, messages: before, tokenBudget: 9_000 });
  assert.equal(first.messages.length, 5);
  assert.equal(here.gateway.told().length, 4);
  const again = await here.engine.assemble({ ...session, messages: first.messages, tokenBudget: 12_000 });
  assert.deepEqual(again.messages, first.messages);
  assert.equal(here.gateway.told().length, 4);
  assert.deepEqual(here.gateway.of("/api/engine/assemble").map((one) => one.body["tokenBudget"]), [9_000, 9_000]);
  await here.gateway.stop();
});

test("nothing of the host's config goes anywhere", async () => {
  const here = await world();
  assert.deepEqual(here.engine.info.acceptedHostParams, ["sessionKey", "prompt"]);
  const more = { runtimeContext: { config: { apiKey: "sk-secret" } }, config: { apiKey: "sk-secret" } };
  await here.engine.bootstrap({ ...session, ...more });
  await here.engine.assemble({ ...session, ...more, messages: history(1), tokenBudget: 100 });
  await here.engine.commitTurn({ ...session, ...more, advancementKey: "k", messages: history(1) });
  await here.engine.compact({ ...session, ...more, force: true });
  assert.ok(here.gateway.asked.length >= 5);
  assert.ok(here.gateway.asked.every((one) => !one.text.includes("sk-secret")));
  await here.gateway.stop();
});

test("without Holdfast the newest turns are shown, and a turn is committed that arrives once it is there", async () => {
  const here = await world();
  await here.gateway.stop();
  const before = history(30);
  const shown = await here.engine.assemble({ ...session, messages: before, tokenBudget: 500 });
  assert.ok(shown.messages.length > 0 && shown.messages.length < 60);
  const turn = history(1);
  assert.equal((await here.engine.commitTurn({ ...session, advancementKey: "k1", messages: turn })).status, "committed");
  here.queue.close();
  const later = { gateway: here.gateway, ...opened(here.config) };
  await later.gateway.start();
  await later.queue.drain();
  assert.equal(later.queue.waiting(), 0);
  assert.deepEqual(later.gateway.told(), toSentAll([...before, ...turn]).map((one) => one.content));
  assert.equal((await later.engine.commitTurn({ ...session, advancementKey: "k1", messages: turn })).status, "duplicate");
  await later.gateway.stop();
});

test("a Holdfast that hangs costs a turn its limit once, and then nothing for a while", async () => {
  const here = await world({ timeoutMs: 60, turnBudgetMs: 100, restMs: 60_000 });
  here.gateway.answer = () => "silence";
  const messages = history(2);
  assert.equal((await here.engine.assemble({ ...session, messages, tokenBudget: 9_000 })).messages.length, 4);
  const asked = here.gateway.asked.length;
  for (let n = 0; n < 5; n += 1) await here.engine.assemble({ ...session, messages, tokenBudget: 9_000 });
  await assert.rejects(here.client.get("/api/context"), /slow a moment ago/);
  assert.equal(here.gateway.of("/api/engine/assemble").length, 0);
  assert.ok(here.gateway.asked.length - asked <= 1);
  await here.gateway.stop();
});

test("messages of a running turn wait for its commit, which tells them once", async () => {
  const here = await world();
  const turn = history(1);
  for (const one of toSentAll(turn)) here.queue.add(KEY, "message", `message:${KEY}:${one.key}`, one, true);
  await here.queue.drain();
  assert.equal(here.gateway.asked.length, 0);
  await here.engine.commitTurn({ ...session, advancementKey: "k", messages: turn });
  here.queue.release();
  await here.queue.drain();
  assert.equal(here.gateway.told().length, 2);
  assert.equal(here.gateway.of("/api/engine/ingestBatch")[0]!.body["advancementKey"], "k");
  await here.gateway.stop();
});

test("what is refused for good is kept aside and the rest goes on; what is refused for now waits", async () => {
  const here = await world();
  here.gateway.answer = ({ text }) => (text.includes("poison") ? [422, { code: "invalid_input", detail: "no" }] : [200, {}]);
  const spoken = [message("user", "one"), message("user", "poison"), message("user", "three")];
  await here.engine.ingestBatch({ ...session, messages: spoken });
  await here.queue.drain();
  assert.deepEqual(here.gateway.told().slice(-3), ["one", "poison", "three"]);
  assert.equal(here.queue.waiting(), 0);
  here.gateway.answer = ({ body }) => (body["sessionKey"] === KEY ? [403, { code: "session_forbidden", detail: "no" }] : [200, {}]);
  await here.engine.ingestBatch({ ...session, messages: [message("user", "four")] });
  await here.engine.ingestBatch({ sessionId: "t", sessionKey: "agent:other:main", messages: [message("user", "five")] });
  await assert.rejects(here.queue.drain(), /session_forbidden/);
  assert.deepEqual([here.queue.waiting(), here.gateway.told().at(-1)], [1, "five"]);
  await here.gateway.stop();
});

test("a reset stands between what was said before and what is said after, and counts once", async () => {
  const here = await world();
  await here.engine.ingestBatch({ ...session, messages: [message("user", "before")] });
  here.engine.reset(KEY);
  here.engine.reset(KEY);
  await here.engine.ingestBatch({ ...session, messages: [message("user", "after")] });
  await here.queue.drain();
  assert.deepEqual(here.gateway.asked.map((one) => one.path), [
    "/api/engine/ingestBatch",
    `/api/sessions/${encodeURIComponent(KEY)}/reset`,
    "/api/engine/ingestBatch",
  ]);
  await here.gateway.stop();
});

test("a turn that fills the window has Holdfast compact by itself", async () => {
  const here = await world();
  here.gateway.answer = ({ path }) =>
    path.endsWith("afterTurn")
      ? [200, { compactionDue: true, window: 8_000 }]
      : [200, { ok: true, compacted: true, reason: "", result: { tokensBefore: 9, tokensAfter: 3 } }];
  await here.engine.commitTurn({ ...session, advancementKey: "k", messages: history(1) });
  await until(() => here.gateway.of("/api/engine/compact").length === 1);
  assert.equal(here.gateway.of("/api/engine/compact")[0]!.body["reason"], "threshold");
  await here.gateway.stop();
});

test("sessions with an ignored prefix pass by untouched", async () => {
  const here = await world();
  const messages = history(1);
  const internal = { sessionId: "s", sessionKey: "internal:clawboard-classifier:1" };
  assert.equal((await here.engine.assemble({ ...internal, messages })).messages, messages);
  await here.engine.commitTurn({ ...internal, advancementKey: "k", messages });
  assert.equal(here.gateway.asked.length, 0);
  assert.deepEqual(readConfig({}, { CLAWBOARD_LOGGER_IGNORE_SESSION_PREFIXES: "a:, b:" }).ignoreSessionPrefixes, ["a:", "b:"]);
  await here.gateway.stop();
});

test("a child's context is readied and cleaned up, and a spawn that fails is taken back", async () => {
  const here = await world();
  const child = "agent:main:subagent:1";
  const ready = await here.engine.prepareSubagentSpawn({ parentSessionKey: KEY, childSessionKey: child, contextMode: "fork" });
  ready!.rollback();
  await here.queue.drain();
  assert.deepEqual(here.gateway.asked.map((one) => [one.path, one.body["contextMode"] ?? one.body["reason"]]), [
    ["/api/engine/prepareSubagentSpawn", "fork"],
    ["/api/engine/onSubagentEnded", "deleted"],
  ]);
  await here.gateway.stop();
});
