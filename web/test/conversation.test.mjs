import assert from "node:assert/strict";
import { File } from "node:buffer";
import process from "node:process";
import test from "node:test";

import { attached, withTexts } from "../src/conversation/attachments.ts";
import { duration, gist, itemsOf } from "../src/conversation/items.ts";

const entry = (id, more = {}) => ({
  id,
  role: "assistant",
  turnId: "t1",
  content: id,
  thinking: null,
  calls: [],
  result: null,
  createdAt: "2026-11-17T10:00:00.000Z",
  ...more,
});
const call = (callId) => ({ callId, name: "exec", arguments: { command: "ls" } });

test("a turn's entries stand together, each call with its result, at the place of the first", () => {
  const turn = { turnId: "t1", number: 1 };
  const items = itemsOf(
    [
      entry("asked", { role: "user" }),
      entry("note", { role: null, turnId: null }),
      entry("calls", { content: "", thinking: "hm", calls: [call("a"), call("b")] }),
      entry("result", { role: "toolResult", result: { callId: "a", name: "exec", isError: false } }),
      entry("event", { role: "system" }),
      entry("said"),
    ],
    new Map([["t1", turn]]),
  );
  assert.deepEqual(
    items.map((item) => item.kind),
    ["day", "turn", "entry"],
  );
  const { steps } = items[1];
  assert.deepEqual(
    steps.map((step) => step.kind),
    ["asked", "thinking", "tool", "tool", "said"],
  );
  assert.equal(steps[2].result.id, "result");
  assert.equal(steps[3].result, null);
  assert.equal(items[1].turn, turn);
});

test("each day begins once", () => {
  const on = (id, day) => entry(id, { turnId: null, role: null, createdAt: `${day}T10:00:00.000Z` });
  const items = itemsOf([on("a", "2026-11-16"), on("b", "2026-11-16"), on("c", "2026-11-17")], new Map());
  assert.deepEqual(
    items.flatMap((item) => (item.kind === "day" ? [item.day] : [])),
    ["2026-11-16", "2026-11-17"],
  );
});

test("a day is the reader's own", () => {
  const before = process.env.TZ;
  process.env.TZ = "America/New_York";
  try {
    const on = (id, at) => entry(id, { turnId: null, role: null, createdAt: at });
    const items = itemsOf([on("a", "2026-11-17T23:30:00.000Z"), on("b", "2026-11-18T04:30:00.000Z"), on("c", "2026-11-18T05:30:00.000Z")], new Map());
    assert.deepEqual(
      items.map((item) => item.day ?? item.key),
      ["2026-11-17", "a", "b", "2026-11-18", "c"],
    );
  } finally {
    if (before === undefined) delete process.env.TZ;
    else process.env.TZ = before;
  }
});

test("a call is told by its command, else by what it was given first", () => {
  assert.equal(gist({ name: "exec", arguments: { cwd: "/", command: "ls" } }), "ls");
  assert.equal(gist({ name: "other", arguments: { depth: 3 } }), "3");
  assert.equal(gist({ name: "none", arguments: {} }), "");
});

test("times are told in the unit that fits", () => {
  assert.deepEqual([duration(20), duration(1500), duration(65_000), duration(-1)], ["20 ms", "1.5 s", "1 min 5 s", ""]);
});

test("a file's text stands in a fence that nothing within it can close", () => {
  assert.equal(withTexts("Look:", [{ name: "a.md", text: "```\nx\n```" }]), "Look:\n\na.md:\n````\n```\nx\n```\n````");
  assert.equal(withTexts("Only words", []), "Only words");
});

test("what a file is its bytes say: text goes within the words, a picture is shown, all else is a file", async () => {
  const limits = { maxBytes: 100, maxFiles: 3 };
  const png = new File([new Uint8Array([0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10])], "tide.dat", { type: "" });
  const files = [
    new File(["noon, high"], "tides.csv", { type: "text/csv" }),
    new File(["\0<b>"], "page.html", { type: "image/png" }),
    png,
    new File([], "void.bin"),
    new File(["x".repeat(101)], "long.bin"),
    new File(["%PDF"], "a.pdf"),
    new File(["%PDF"], "b.pdf"),
  ];
  const found = await attached(files, [], limits);
  assert.deepEqual(found.texts, [{ name: "tides.csv", text: "noon, high" }]);
  assert.deepEqual(
    found.enclosed.map(({ name, mimeType }) => [name, mimeType]),
    [
      ["page.html", ""],
      ["tide.dat", "image/png"],
      ["a.pdf", ""],
    ],
  );
  assert.deepEqual(
    found.refused.map((why) => why.split(":")[0]),
    ["void.bin", "long.bin", "b.pdf"],
  );
});
