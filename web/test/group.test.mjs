import assert from "node:assert/strict";
import test from "node:test";

import { asOf, countsOfSpaces, isWanted, moved, taskGroups, topicGroups } from "../src/board/group.ts";
import { EVERYTHING, matches } from "../src/board/log/matches.ts";

const topic = (id, more = {}) => ({
  id,
  name: id,
  status: "active",
  priority: "medium",
  pinned: false,
  sortIndex: 0,
  tags: [],
  spaceIds: ["one"],
  description: null,
  digest: null,
  snoozedUntil: null,
  ...more,
});
const task = (id, more = {}) => ({ ...topic(id), status: "todo", dueDate: null, createdAt: id, updatedAt: id, ...more });
const shape = (groups) => groups.map((group) => [group.status, group.rows.map((row) => row.id)]);

test("topics stand by status, pinned ones first, then in the user's order", () => {
  const rows = [topic("c", { sortIndex: 2 }), topic("b", { sortIndex: 1 }), topic("p", { sortIndex: 9, pinned: true })];
  assert.deepEqual(shape(topicGroups([...rows, topic("d", { status: "doing" })])), [
    ["doing", ["d"]],
    ["active", ["p", "b", "c"]],
  ]);
});

test("a snooze ends by itself", () => {
  const asleep = topic("a", { status: "snoozed", snoozedUntil: "2026-01-02T00:00:00.000Z" });
  const until = Date.parse(asleep.snoozedUntil);
  assert.equal(asOf(asleep, until - 1).status, "snoozed");
  assert.equal(asOf(asleep, until).status, "active");
  assert.equal(asOf(topic("b", { status: "snoozed" }), until).status, "snoozed");
});

test("tasks come by urgency, and what is done by when it was", () => {
  const rows = [
    task("1", { priority: "low" }),
    task("2", { dueDate: "2026-03-01" }),
    task("3", { dueDate: "2026-02-01" }),
    task("4", { priority: "high" }),
    task("5", { priority: "low", pinned: true }),
    task("6", { status: "done" }),
    task("7", { status: "done" }),
  ];
  assert.deepEqual(shape(taskGroups(rows)), [
    ["todo", ["5", "4", "3", "2", "1"]],
    ["doing", []],
    ["blocked", []],
    ["done", ["7", "6"]],
  ]);
});

test("a filter wants every word, wherever it stands, and the chosen space", () => {
  const wanted = { text: "", spaceId: null, priority: "", tag: "" };
  const pond = topic("Pond", { digest: "The pump rattles", tags: ["garden"], spaceIds: ["one", "two"] });
  assert.ok(isWanted(pond, { ...wanted, text: "PUMP garden" }));
  assert.ok(!isWanted(pond, { ...wanted, text: "pump roof" }));
  assert.ok(isWanted(pond, { ...wanted, spaceId: "two" }));
  assert.ok(!isWanted(pond, { ...wanted, spaceId: "three" }));
  assert.deepEqual([...countsOfSpaces([pond, topic("x"), topic("y", { status: "archived" })])], [["one", 2], ["two", 1]]);
});

test("a topic goes past its neighbour and not past the end", () => {
  assert.deepEqual(moved(["a", "b", "c"], "b", -1), ["b", "a", "c"]);
  assert.deepEqual(moved(["a", "b", "c"], "b", 1), ["a", "c", "b"]);
  assert.equal(moved(["a", "b"], "b", 1), null);
  assert.equal(moved(["a", "b"], "z", 1), null);
});

test("an entry that is heard of is listed where the gateway would list it", () => {
  const entry = { topicId: "t", taskId: null, agentId: "main", type: "note", classificationStatus: "classified", spaceId: null, source: null };
  const spacesOf = (id) => (id === "t" ? ["garden"] : []);
  assert.ok(matches(entry, EVERYTHING, spacesOf));
  assert.ok(matches(entry, { ...EVERYTHING, spaceId: "garden", type: "note" }, spacesOf));
  assert.ok(!matches(entry, { ...EVERYTHING, spaceId: "work" }, spacesOf));
  assert.ok(!matches(entry, { ...EVERYTHING, sessionKey: "agent:main:main" }, spacesOf));
});
