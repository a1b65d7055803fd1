import assert from "node:assert/strict";
import test from "node:test";

import { added, csv, grouped } from "../src/usage/sums.ts";

const row = (day, model, more = {}) => ({
  day,
  agentId: "main",
  model,
  turns: 1,
  failed: 0,
  inputTokens: 100,
  outputTokens: 10,
  cacheReadTokens: 50,
  cost: 0.5,
  seconds: 2,
  ...more,
});

test("what was used is added up by day, newest first, and by model, the most first", () => {
  const rows = [row("2026-11-16", "a"), row("2026-11-17", "a"), row("2026-11-17", "b", { inputTokens: 900 })];
  assert.deepEqual(
    grouped(rows, "day").map(([day, sum]) => [day, sum.turns]),
    [
      ["2026-11-17", 2],
      ["2026-11-16", 1],
    ],
  );
  assert.deepEqual(
    grouped(rows, "model").map(([model]) => model),
    ["b", "a"],
  );
});

test("a cost is known as soon as one is, and only then", () => {
  assert.equal(added([row("d", "a", { cost: null })]).cost, null);
  assert.equal(added([row("d", "a", { cost: null }), row("d", "b")]).cost, 0.5);
});

test("a table for a spreadsheet holds no formula", () => {
  const [, line] = csv([row("2026-11-17", '=cmd|"x"')]).split("\r\n");
  assert.equal(line, `2026-11-17,main,"'=cmd|""x""",1,0,100,10,50,0.5,2`);
});
