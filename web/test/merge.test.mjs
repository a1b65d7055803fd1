import assert from "node:assert/strict";
import test from "node:test";

import { isBehind, withEdits, withRow, withRows, withoutRow } from "../src/live/merge.ts";

const row = (id, at, more = {}) => ({ id, createdAt: `2026-01-0${at}`, updatedAt: `2026-01-0${at}`, ...more });
const ids = (rows) => rows.map((one) => one.id);

test("a change takes the place of what is held, and one that comes late does not", () => {
  const rows = [row("a", 2, { name: "old" }), row("b", 2)];
  assert.deepEqual(withRow(rows, row("a", 3, { name: "new" }))[0].name, "new");
  assert.equal(withRow(rows, row("a", 1, { name: "late" })), rows);
  assert.deepEqual(ids(withRow(rows, row("c", 1))), ["a", "b", "c"]);
});

test("what was heard while a list was read wins where it is newer, and nothing is doubled", () => {
  const read = [row("a", 1, { name: "read" }), row("b", 4, { name: "read" })];
  const heard = [row("a", 2, { name: "heard" }), row("b", 3, { name: "heard" }), row("c", 5)];
  const all = withRows(read, heard);
  assert.deepEqual(ids(all), ["a", "b", "c"]);
  assert.deepEqual(
    all.slice(0, 2).map((one) => one.name),
    ["heard", "read"],
  );
});

test("an edit shows until it is answered, and whatever came meanwhile stays when it is taken back", () => {
  const edits = [
    { id: "a", change: { name: "mine" } },
    { id: "a", change: { pinned: true } },
  ];
  let told = [row("a", 1, { name: "was", pinned: false })];
  assert.deepEqual(withEdits(told, edits)[0], row("a", 1, { name: "mine", pinned: true }));
  told = withRow(told, row("a", 2, { name: "theirs", pinned: false }));
  assert.equal(withEdits(told, edits)[0].name, "mine");
  assert.deepEqual(withEdits(told, edits.slice(1))[0], row("a", 2, { name: "theirs", pinned: true }));
  assert.equal(withEdits(told, []), told);
});

test("what is not there is removed without a change", () => {
  const rows = [row("a", 1)];
  assert.equal(withoutRow(rows, "b"), rows);
  assert.deepEqual(withoutRow(rows, "a"), []);
});

test("a row behind the last page that was read waits for its page", () => {
  const rows = [row("new", 5), row("old", 3)];
  assert.equal(isBehind(rows, row("older", 2)), true);
  assert.equal(isBehind(rows, row("between", 4)), false);
  assert.equal(isBehind(rows, { ...row("old", 3), updatedAt: "2026-01-09" }), false);
});
