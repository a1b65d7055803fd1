import assert from "node:assert/strict";
import test from "node:test";

import { excerpt, pieces } from "../src/board/highlight.ts";

const hits = (text, query) => pieces(text, query).filter((piece) => piece.hit).map((piece) => piece.text);
const joined = (text, query) => pieces(text, query).map((piece) => piece.text).join("");

test("the beginnings of words are marked, whatever their case, and never the middle of one", () => {
  assert.deepEqual(hits("Valves and the bivalve, VALVE 3", "valve"), ["Valve", "VALVE"]);
  assert.deepEqual(hits("Über den Überlauf", "über"), ["Über", "Über"]);
  assert.deepEqual(hits("the longer word wins: valves", "valve valves"), ["valves"]);
});

test("pieces joined are the text, whatever the question is made of", () => {
  for (const query of ["", "a", ".*", "(", "<img>", "a|b", "\\", "👩‍🌾 zero", "$& $1"]) {
    for (const text of ["", "a.b (c) <img src=x> \\ 👩‍🌾 $& zero\u200bwidth", "aa|bb"]) {
      assert.equal(joined(text, query), text);
    }
  }
  assert.deepEqual(hits("<img src=x>", "<img"), ["img"]);
});

test("an excerpt is one line around the first hit, and says where it was cut", () => {
  const text = `${"before ".repeat(60)}the quokka\n\nsleeps ${"after ".repeat(60)}`;
  const found = excerpt(text, "quokka", 120);
  assert.match(found, /^….*the quokka sleeps.*…$/);
  assert.ok(found.length <= 122);
  assert.equal(excerpt("short\n text", "none"), "short text");
  assert.doesNotMatch(excerpt("🌾".repeat(200), "none", 101), /[\ud800-\udbff](?![\udc00-\udfff])/);
});

test("an excerpt is read, not marked up", () => {
  assert.equal(excerpt("The **flashing** leaks.\n\n## What I would do", "leak"), "The flashing leaks. What I would do");
});
