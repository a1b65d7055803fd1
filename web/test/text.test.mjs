import assert from "node:assert/strict";
import test from "node:test";

import { browserOf, directionOf, gist } from "../src/parts/gist.ts";

test("a hint at a text has its words and none of its marks", () => {
  const text = "## What\n1. **Lift** two *slates*\n- [x] `ls` done\n\n| a | b |\n|---|:---:|\n> see [it](https://x.org)\n```py\n2 * 3 * 4";
  assert.equal(gist(text), "What 1. Lift two slates ls done | a | b | see it 2 * 3 * 4");
});

test("a call of a tool is hinted at by its name and what it was given first", () => {
  assert.equal(gist('Tool call: exec {"command": "ls -la", "cwd": "/"}'), "exec: ls -la");
  assert.equal(gist("Tool call: list {}"), "list");
  assert.equal(gist("Tool call: odd {not json}"), "Tool call: odd {not json}");
});

test("a text runs as its first letter does, whatever stands before it", () => {
  assert.equal(directionOf("1. **التسرب** from here"), "rtl");
  assert.equal(directionOf("See שלום"), "ltr");
  assert.equal(directionOf("… 12"), "ltr");
});

test("a browser is called what people call it, and what is unknown by what it says", () => {
  const chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36";
  assert.equal(browserOf(chrome), "Chrome 156 on Linux");
  const iphone = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 Version/19.0 Mobile/15E148 Safari/604.1";
  assert.equal(browserOf(iphone), "Safari 19 on an iPhone");
  assert.equal(browserOf("python-httpx/0.28"), "python-httpx/0.28");
});
