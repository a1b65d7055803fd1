import assert from "node:assert/strict";
import test from "node:test";

import { frame, labelled, layout, nextTowards } from "../src/board/graph/layout.ts";

const node = (id, type = "entity", count = 1) => ({ id, type, label: id, count });
const edge = (source, target, weight = 1) => ({ source, target, type: "co_occurs", weight, count: 1 });

test("the same map is drawn the same, finite and within its frame", () => {
  const nodes = Array.from({ length: 60 }, (_, index) => node(`n${index}`));
  const edges = nodes.slice(1).map((one, index) => edge(`n${index % 7}`, one.id, 0.5));
  const places = layout(nodes, edges);
  assert.deepEqual(places, layout(nodes, edges));
  const box = frame(places);
  for (const { x, y } of places.values()) {
    assert.ok(x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height);
  }
});

test("what is linked lies nearer than what is not, and a link to nowhere does no harm", () => {
  const names = ["a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4"];
  const pairs = names.flatMap((one, index) => names.slice(index + 1).map((other) => [one, other]));
  const isLinked = ([one, other]) => one[0] === other[0];
  const edges = pairs.filter(isLinked).map(([one, other]) => edge(one, other));
  const places = layout(names.map((id) => node(id)), [...edges, edge("a1", "gone")]);
  const mean = (some) => some.map(apart).reduce((sum, far) => sum + far) / some.length;
  const apart = ([one, other]) => {
    const [a, b] = [places.get(one), places.get(other)];
    return Math.hypot(a.x - b.x, a.y - b.y);
  };
  assert.ok(mean(pairs.filter(isLinked)) * 1.3 < mean(pairs.filter((pair) => !isLinked(pair))));
  assert.deepEqual([...layout([], [])], []);
});

test("of two labels that would lie over each other the more frequent stays, and topics come first", () => {
  const places = new Map([["often", { x: 0, y: 0 }], ["seldom", { x: 4, y: 0 }], ["topic", { x: 0, y: 300 }]]);
  const shown = labelled([node("seldom", "entity", 1), node("often", "entity", 9), node("topic", "topic")], places);
  assert.deepEqual([...shown], ["topic", "often"]);
});

test("an arrow key goes to what lies that way, and stays at the rim", () => {
  const places = new Map([["mid", { x: 0, y: 0 }], ["right", { x: 50, y: 5 }], ["far", { x: 40, y: 90 }]]);
  assert.equal(nextTowards("mid", places, 1, 0), "right");
  assert.equal(nextTowards("mid", places, 0, 1), "far");
  assert.equal(nextTowards("mid", places, -1, 0), null);
});
