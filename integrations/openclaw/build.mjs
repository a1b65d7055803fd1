// Node takes the types off by itself; nothing else is needed to build this package.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";

const here = new URL("./", import.meta.url);
const source = new URL("src/", here);
const target = new URL("dist/", here);

rmSync(target, { recursive: true, force: true });
mkdirSync(target);
for (const name of readdirSync(source)) {
  const code = stripTypeScriptTypes(readFileSync(new URL(name, source), "utf8"), { mode: "strip" });
  const linked = code.replaceAll(/(from "\.\/[\w-]+)\.ts"/g, '$1.js"');
  writeFileSync(new URL(name.replace(/\.ts$/, ".js"), target), linked);
}
