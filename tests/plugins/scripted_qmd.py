"""A small program that speaks `qmd`'s protocol, and misbehaves when a file beside it says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SCRIPT = r"""
import json, os, re, subprocess, sys, time
from pathlib import Path

here = Path(__file__).parent
args = sys.argv[1:]
with (here / "calls.jsonl").open("a") as out:
    out.write(json.dumps({"args": args, "env": dict(os.environ), "cwd": os.getcwd()}) + "\n")
mode = (here / "mode").read_text() if (here / "mode").exists() else ""
if mode.startswith(args[0] + ":"):
    what = mode.split(":")[1]
    if what == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (here / "child").write_text(str(child.pid))
        time.sleep(600)
    if what == "crash":
        print("index is malformed", file=sys.stderr)
        sys.exit(3)
    if what == "flood":
        while True:
            sys.stdout.write("x" * 65536)
    print(mode.partition(":print:")[2])
    sys.exit(0)

book = Path(os.environ["XDG_CONFIG_HOME"]) / "collections.json"
known = json.loads(book.read_text()) if book.exists() else {}

def found(line, collections):
    words = [w.lower() for w in re.findall(r"\w+", line)]
    for name in collections:
        for path in sorted(Path(known[name][0]).glob(known[name][1])):
            text = path.read_text()
            if words and all(w in text.lower() for w in words):
                yield name, path

if args[0] == "collection":
    if args[1] == "list":
        for name in known:
            print(f"{name} (qmd://{name}/)\n  Pattern: {known[name][1]}")
    elif args[1] == "add":
        known[args[4]] = [args[2], args[6]]
    elif args[1] == "remove":
        del known[args[2]]
    book.write_text(json.dumps(known))
elif args[0] == "query":
    chosen = [args[i + 1] for i, word in enumerate(args) if word == "-c"]
    ranked = {}
    for line in args[1].splitlines():
        for rank, hit in enumerate(found(line.partition(": ")[2], chosen)):
            ranked[hit] = ranked.get(hit, 0) + 1 / (60 + rank)
    best = sorted(ranked, key=ranked.get, reverse=True)[: int(args[args.index("-n") + 1])]
    rows = []
    for rank, (name, path) in enumerate(best, 1):
        lines = path.read_text().split("\n")
        snippet = f"@@ -1,{len(lines)} @@ (0 before, 0 after)\n" + "\n".join(lines)
        file = f"qmd://{name}/{path.relative_to(known[name][0]).as_posix()}"
        rows.append({"docid": "#abc123", "score": round(1 / rank, 2), "file": file, "snippet": snippet})
    print(json.dumps(rows))
"""


class ScriptedQmd:
    """The program in a folder, what it was called with, and how it shall behave."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.path = folder / "qmd"
        self.path.write_text(f"#!{sys.executable} -IS\n{SCRIPT}")
        self.path.chmod(0o755)

    def behaves(self, mode: str = "") -> None:
        """`COMMAND:hang`, `:crash`, `:flood` or `:print:TEXT`; nothing: well."""
        (self.folder / "mode").write_text(mode)

    @property
    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def asked(self, command: str) -> list[list[str]]:
        return [call["args"] for call in self.calls if call["args"][0] == command]
