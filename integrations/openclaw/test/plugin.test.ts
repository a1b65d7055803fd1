import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { readConfig } from "../src/config.ts";
import { Continuation, delayOf } from "../src/continuation.ts";
import plugin from "../src/index.ts";
import { BoardLogger } from "../src/logger.ts";
import { Gateway, Host, message, until, type World, world } from "./world.ts";

const KEY = "agent:main:discord:channel:42";
const here_ = { sessionKey: KEY, channelId: "discord", agentId: "main" };
const manifest = JSON.parse(readFileSync(new URL("../openclaw.plugin.json", import.meta.url), "utf8"));

/** The logger as it is without Holdfast in the engine slot, or with it. */
async function logging(given: Record<string, unknown> = {}, engineWrites = false): Promise<World & { host: Host }> {
  const here = await world(given);
  const host = new Host({});
  const log = { info: () => undefined, warn: () => undefined };
  new BoardLogger({ ...here, log }, here.engine, engineWrites).register(host.api);
  return { ...here, host };
}

async function rows({ gateway, queue }: World): Promise<{ content: string; [more: string]: any }[]> {
  await queue.drain();
  return gateway.of("/api/log").map((one) => one.body as { content: string });
}

test("what came in and stands in the transcript is one row, whichever is first", async () => {
  const here = await logging();
  const received = (text: string, id: string) => here.host.fire("message_received", { content: text, messageId: id, from: "ann" }, here_);
  const written = async (text: string) => {
    const one = message("user", text);
    await here.host.fire("before_message_write", { message: one }, here_);
    await here.host.fire("before_message_write", { message: one }, here_);
  };
  await received("the pond is low", "m1");
  await written("[Discord ann] the pond is low");
  await written("open the sluice");
  await received("open the sluice", "m2");
  await received("two", "m3");
  await received("three", "m4");
  await written("two\nthree");
  const found = await rows(here);
  assert.deepEqual(found.map((one) => one.content), ["the pond is low", "open the sluice", "two", "three"]);
  assert.deepEqual(found[0]!["source"], { channel: "discord", messageId: "m1", sessionKey: KEY });
  assert.ok(found.every((one) => one["agentId"] === "user"));
  await here.gateway.stop();
});

test("an answer is one row, though it is written twice, sent and told again at the end", async () => {
  const here = await logging();
  const answer = message("assistant", "Done.");
  await here.host.fire("before_message_write", { message: answer }, here_);
  await here.host.fire("before_message_write", { message: answer }, here_);
  await here.host.fire("message_sending", { content: "Done.", to: "42" }, here_);
  await here.host.fire("agent_end", { messages: [message("user", "do it"), answer], success: true }, here_);
  await here.host.fire("message_sending", { content: "By the way: rain.", to: "42" }, here_);
  assert.deepEqual((await rows(here)).map((one) => one.content), ["Done.", "By the way: rain."]);
  await here.gateway.stop();
});

test("where no hook told of the words, the end of the run does", async () => {
  const here = await logging();
  const spoken = [message("user", "old"), message("assistant", "older"), message("user", "new"), message("assistant", "newer")];
  await here.host.fire("agent_end", { messages: spoken, success: true }, here_);
  assert.deepEqual((await rows(here)).map((one) => one.content), ["new", "newer"]);
  await here.gateway.stop();
});

test("tool calls, results and errors are actions", async () => {
  const here = await logging();
  const call = { toolName: "exec", toolCallId: "c1", params: { command: "ls" } };
  await here.host.fire("before_tool_call", call, here_);
  await here.host.fire("after_tool_call", { ...call, result: { content: "a.txt" } }, here_);
  await here.host.fire("after_tool_call", { ...call, toolCallId: "c2", error: "no such file" }, here_);
  const found = await rows(here);
  assert.deepEqual(found.map((one) => [one["type"], one.content.split("\n")[0]]), [
    ["action", "Tool call: exec"],
    ["action", "Tool result: exec"],
    ["action", "Tool error: exec"],
  ]);
  await here.gateway.stop();
});

test("a board's chat is not logged twice, its child has its place, and nobody else has", async () => {
  const here = await logging();
  const board = { ...here_, sessionKey: "agent:main:clawboard:task:topic-1:task-2" };
  await here.host.fire("message_received", { content: "mend it", messageId: "m" }, board);
  await here.host.fire("before_message_write", { message: message("user", "mend it") }, board);
  await here.host.fire("subagent_spawned", { childSessionKey: "agent:main:subagent:1" }, { requesterSessionKey: board.sessionKey });
  await here.host.fire("subagent_spawned", { childSessionKey: "agent:main:subagent:2" }, { requesterSessionKey: KEY });
  for (const n of [1, 2]) {
    const child = { sessionKey: `agent:main:subagent:${n}`, agentId: "main" };
    await here.host.fire("before_message_write", { message: message("assistant", `child ${n}`) }, child);
  }
  const found = await rows(here);
  assert.deepEqual(found.map((one) => [one.content, one["source"]["boardScopeTopicId"], one["source"]["boardScopeTaskId"]]), [
    ["child 1", "topic-1", "task-2"],
    ["child 2", undefined, undefined],
  ]);
  await here.gateway.stop();
});

test("internal sessions, heartbeats and our own block are no words of anybody", async () => {
  const here = await logging();
  const internal = { ...here_, sessionKey: "internal:clawboard-classifier:7" };
  await here.host.fire("message_received", { content: "classify this", messageId: "m" }, internal);
  await here.host.fire("before_message_write", { message: message("assistant", "HEARTBEAT_OK") }, here_);
  const block = "[CLAWBOARD_CONTEXT_BEGIN]\nold words\n[CLAWBOARD_CONTEXT_END]\n\nnew words";
  await here.host.fire("before_message_write", { message: message("user", block) }, here_);
  assert.deepEqual((await rows(here)).map((one) => one.content), ["new words"]);
  await here.gateway.stop();
});

test("with the engine in its slot only what no commit brings is told, after the turn", async () => {
  const here = await logging({}, true);
  const failed = message("user", "a turn that fails");
  await here.host.fire("before_message_write", { message: failed }, here_);
  await here.host.fire("before_message_write", { message: failed }, here_);
  assert.deepEqual([await rows(here), here.gateway.asked.length], [[], 0]);
  await here.host.fire("session_end", { reason: "reset" }, here_);
  await here.queue.drain();
  assert.deepEqual(here.gateway.told(), ["a turn that fails"]);
  assert.ok(here.gateway.asked.at(-1)!.path.endsWith("/reset"));
  await here.gateway.stop();
});

test("a turn that failed leaves the next one all of its time", async () => {
  const here = await logging({ timeoutMs: 40, turnBudgetMs: 60, restMs: 0 }, true);
  here.gateway.answer = () => "silence";
  const turn = async () => {
    for (let n = 0; n < 4; n += 1) await here.engine.assemble({ sessionId: "s", sessionKey: KEY, messages: [], tokenBudget: 9 });
  };
  await turn();
  const asked = here.gateway.asked.length;
  await turn();
  assert.equal(here.gateway.asked.length, asked);
  await here.host.fire("agent_end", { messages: [], success: false }, here_);
  await turn();
  assert.ok(here.gateway.asked.length > asked);
  await here.gateway.stop();
});

test("the block goes before the prompt; the last one stands in when none comes", async () => {
  const here = await logging({ contextFetchTimeoutMs: 50, contextMaxChars: 900, contextMode: "full" });
  here.gateway.answer = () => [200, { block: "[CLAWBOARD_CONTEXT_BEGIN]…[CLAWBOARD_CONTEXT_END]" }];
  const build = () => here.host.fire("before_prompt_build", { prompt: "what now?", messages: [] }, here_);
  assert.deepEqual(await build(), { prependContext: "[CLAWBOARD_CONTEXT_BEGIN]…[CLAWBOARD_CONTEXT_END]" });
  const asked = new URL(here.gateway.asked[0]!.path, "http://x").searchParams;
  assert.deepEqual([asked.get("q"), asked.get("sessionKey"), asked.get("mode"), asked.get("maxChars")], ["what now?", KEY, "full", "900"]);
  here.gateway.answer = () => "silence";
  assert.ok(await build());
  assert.equal(await here.host.fire("before_prompt_build", { prompt: "x" }, { sessionKey: "agent:main:other" }), undefined);
  await here.gateway.stop();
});

test("each part is there only where it is switched on and OpenClaw chose it", async () => {
  const gateway = new Gateway();
  await gateway.start();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-parts-"));
  const base = { baseUrl: gateway.url, queuePath: join(folder, "q.sqlite"), token: "t" };
  const registered = (config: Record<string, unknown>, slots = {}): Host => {
    const host = new Host({ ...base, ...config }, slots);
    plugin.register(host.api);
    return host;
  };
  const all = registered({ parts: { continuation: true } }, { contextEngine: "holdfast", memory: "holdfast" });
  assert.deepEqual([...all.tools.keys()].toSorted(), manifest.contracts.tools.toSorted());
  assert.deepEqual([all.engines, all.memories, all.hooks.has("message_received")], [1, 1, false]);
  const logger = registered({ parts: { engine: false, memory: false, tools: false } });
  assert.deepEqual([logger.tools.size, logger.engines, logger.hooks.has("message_received")], [0, 0, true]);
  const quiet = registered({ parts: { engine: false, logger: false }, contextAugment: false });
  assert.deepEqual([quiet.hooks.has("message_received"), quiet.hooks.has("before_prompt_build"), quiet.tools.size], [false, false, 7]);
  assert.equal(registered({ enabled: false }).hooks.size, 0);
  assert.equal(statSync(base.queuePath).mode & 0o777, 0o600);
  await gateway.stop();
});

test("what the manifest says of defaults is what holds", () => {
  const found = readConfig({}, {}) as unknown as Record<string, any>;
  const check = (properties: Record<string, any>, given: Record<string, any>): void => {
    for (const [name, one] of Object.entries(properties)) {
      if (one.properties) check(one.properties, given[name]);
      else if ("default" in one && name !== "queuePath") assert.equal(given[name], one.default, name);
    }
  };
  check(manifest.configSchema.properties, found);
});

test("a token is taken from its file", () => {
  const file = join(mkdtempSync(join(tmpdir(), "holdfast-token-")), "token");
  writeFileSync(file, "hf_secret\n");
  assert.equal(readConfig({ tokenFile: file }, {}).token, "hf_secret");
  assert.equal(readConfig({ tokenFile: "/nowhere" }, {}).token, "");
});

test("the tools ask what they are to ask, for the session in which they are called", async () => {
  const gateway = new Gateway();
  await gateway.start();
  gateway.answer = ({ path }) => (path.includes("gone") ? [404, { code: "unknown_topic", detail: "no" }] : [200, { ok: true }]);
  const queuePath = join(mkdtempSync(join(tmpdir(), "holdfast-tools-")), "q.sqlite");
  const host = new Host({ baseUrl: gateway.url, queuePath, token: "t" }, { contextEngine: "holdfast", memory: "holdfast" });
  plugin.register(host.api);
  await host.use("clawboard_search", { q: "pond" }, { sessionKey: KEY });
  await host.use("clawboard_get_log", { id: "log-1", includeRaw: true, sessionKey: "agent:main:main" }, { sessionKey: KEY });
  await host.use("clawboard_create_note", { relatedLogId: "log-1", text: "weir first" }, { sessionKey: KEY, agentId: "main" });
  await host.use("clawboard_update_task", { id: "task/1", status: "done" });
  await host.use("memory_get", { path: "MEMORY.md", from: 3 }, { agentId: "main" });
  await host.use("context_search", { query: "heron" }, { sessionKey: KEY });
  assert.deepEqual(await host.use("clawboard_get_topic", { id: "gone" }), { error: "unknown_topic", detail: "unknown_topic: no" });
  const asked = gateway.asked.map((one) => `${one.method} ${decodeURIComponent(one.path)}`);
  assert.deepEqual(asked.slice(0, 6), [
    `GET /api/search?limitTopics=5&limitTasks=5&limitLogs=10&q=pond&sessionKey=${KEY}`,
    `GET /api/log/log-1?includeRaw=true&sessionKey=${KEY}`,
    "POST /api/log",
    "PATCH /api/tasks/task/1",
    "GET /api/memory/get?path=MEMORY.md&from=3&agentId=main",
    "POST /api/engine/recall",
  ]);
  assert.deepEqual([gateway.asked[2]!.body["type"], gateway.asked[3]!.body], ["note", { status: "done" }]);
  await gateway.stop();
  assert.equal((await host.use("clawboard_get_task", { id: "t" })).error, "unavailable");
});

test("an elected turn is woken once, after the turn that elected it, within bounds", async () => {
  const here = await world();
  const bounds = { ...here.config.continuation, minDelayMs: 0, maxDelayMs: 10, defaultDelayMs: 5, maxChainLength: 3 };
  for (const seconds of [undefined, -1, 0, 0.001, 5, 1e9, Number.NaN]) {
    assert.ok(delayOf(seconds, bounds) >= 0 && delayOf(seconds, bounds) <= 10);
  }
  const host = new Host({});
  const made = new Continuation(host.api, here.queue, here.engine, bounds);
  made.register();
  const use = (reason: string) => host.use("continue_work", { reason }, { sessionKey: KEY });
  assert.equal((await use("look again")).status, "scheduled");
  assert.equal((await use("and again")).status, "scheduled");
  assert.equal((await use("third")).status, "scheduled");
  assert.deepEqual((await use("fourth")).reason, "maxChainLength");
  assert.equal(host.events.length, 0);
  await host.fire("agent_end", {}, { sessionKey: KEY });
  await until(() => host.events.length === 3);
  for (const [n, reason] of ["look again", "and again", "third"].entries()) {
    const woken = host.events[n]!.text;
    assert.ok(woken.startsWith("[continuation:wake]") && woken.includes(reason), woken);
  }
  made.resume();
  assert.equal(here.queue.listed("election").length, 0);
  assert.equal((await use("beyond")).status, "rejected");
  await host.fire("before_prompt_build", { prompt: "a person writes" }, { sessionKey: KEY });
  assert.equal((await use("anew")).status, "scheduled");
  await host.fire("before_reset", {}, { sessionKey: KEY });
  assert.equal(here.queue.listed("election").length, 0);
  await here.gateway.stop();
});
