import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import test from "node:test";

/** Sheets that are there from the first page on. A room's own comes with the room, and stays when one leaves it. */
const SHARED = ["src/style.css", "src/parts/parts.css", "src/parts/prose.css"];

test("no room's sheet styles what is another room's, so that a page looks the same whatever was looked at before", () => {
  const owners = new Map();
  for (const sheet of globSync("src/**/*.css").filter((name) => !SHARED.includes(name))) {
    const rules = readFileSync(sheet, "utf8").replace(/\/\*.*?\*\//gs, "");
    for (const [, selectors] of rules.matchAll(/([^{}]+)\{/g)) {
      for (const selector of selectors.split(",")) {
        const [, name] = /^\s*\.([\w-]+)/.exec(selector) ?? [];
        if (name !== undefined) owners.set(name, (owners.get(name) ?? new Set()).add(sheet.split("/")[1]));
      }
    }
  }
  const twice = [...owners].filter(([, sheets]) => sheets.size > 1).map(([name, sheets]) => `${name}: ${[...sheets].join(", ")}`);
  assert.deepEqual(twice, []);
});
