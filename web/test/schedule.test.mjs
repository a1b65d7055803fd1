import assert from "node:assert/strict";
import { test } from "node:test";

import { dueOf, inWords } from "../src/schedule/due.ts";
import { changesOf, typedOf } from "../src/schedule/heartbeat-form.ts";

const item = (some) => ({
  id: "a", kind: "turn", lane: "l", status: "queued", dueAt: "2026-03-01T10:00:00.000Z", attempts: 0, maxAttempts: 5,
  error: null, cancelRequested: false, sessionKey: null, agentId: null, turnId: null, taskId: null, ...some,
});

test("what runs stands first, then what is due next, and what a session elected in the place of the look at it", () => {
  const rows = dueOf(
    [
      item({ id: "later", kind: "cron", taskId: "t", dueAt: "2026-03-02T10:00:00.000Z" }),
      item({ id: "look", kind: "continuation.due", sessionKey: "agent:main:main" }),
      item({ id: "runs", status: "running", turnId: "turn1", sessionKey: "agent:main:main", dueAt: "2026-03-03T10:00:00.000Z" }),
      item({ id: "new", kind: "some.other" }),
    ],
    [{ id: "e", kind: "work", agentId: "main", sessionKey: "agent:main:main", dueAt: null, phase: "waiting_for_turn", retries: 1 }],
    [{ id: "t", name: "News", agentId: "scout" }],
  );
  assert.deepEqual(rows.map((row) => row.id), ["runs", "new", "later", "e"]);
  assert.deepEqual(rows.map((row) => row.what), ["Turn", "some.other", "Standing task: News", "Elected turn"]);
  assert.deepEqual(rows.map((row) => row.cancel), [{ kind: "turn", id: "turn1" }, null, null, { kind: "election", id: "e" }]);
  assert.equal(rows[2].agentId, "scout");
});

test("what is already being stopped is not cancelled again", () => {
  const [row] = dueOf([item({ status: "running", turnId: "x", cancelRequested: true })], [], []);
  assert.equal(row.cancel, null);
});

test("only what was changed in a heartbeat is written, and an emptied field takes its setting out", () => {
  const before = typedOf({ every: "30m", target: "last", prompt: "Look.", activeHours: { start: "08:00", end: "20:00", timezone: "user" } });
  assert.deepEqual(changesOf(before, { ...before }), {});
  assert.deepEqual(changesOf(before, { ...before, every: " 2h ", prompt: "" }), { every: "2h", prompt: null });
  assert.deepEqual(changesOf(before, { ...before, end: "22:00" }), { activeHours: { start: "08:00", end: "22:00" } });
  assert.deepEqual(changesOf(before, { ...before, start: "", end: "" }), { activeHours: null });
});

test("an everyday cron expression is told in words, and any other as it stands", () => {
  const told = {
    "0 8 * * *": "every day at 08:00",
    "30 17 * * 1-5": "on workdays at 17:30",
    "0 17 * * 5": "on Fridays at 17:00",
    "5 * * * *": "every hour at :05",
    "*/15 * * * *": "every 15 minutes",
    "0 9 1 * *": "every month on day 1 at 09:00",
  };
  for (const [cron, words] of Object.entries(told)) assert.equal(inWords(cron), words);
  for (const cron of ["0 8 1 * 1", "0 8 * 2 *", "0 8,9 * * *", "every 30m", "whenever", "0 8 * * MON", "0 0 8 * * *"]) {
    assert.equal(inWords(cron), cron);
  }
});
