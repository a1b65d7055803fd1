"""A first "Hello" in a fresh home: its tokens by section, for windows from 2k to 200k, against the targets.

    python bench/fit.py [--windows 2048 4096 8192 32768 200000] [--show 4096]

Each window has a home of its own with a new workspace, all settings at their defaults, and a scripted model
server of that window; the figures are those of the manifest of the turn that was run. `before` is all that
stands before the user's words, `left` what the window has left for the answer. Counted by our estimator, and
by a real tokenizer (Mistral's Tekken, `pip install mistral-common`) where that is installed. Exits 1 where a
target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.agents.loop import Ask
from holdfast.cli.workspaces import prepare_workspaces
from holdfast.context import Manifest, load_manifest, replay
from holdfast.log import OWNER, agenda, sessions
from holdfast.runtime import open_home
from holdfast.testing import Say, ScriptedOpenAI

KEY = "agent:main:main"
WINDOWS = (2_048, 4_096, 8_192, 32_768, 200_000)
MOST_BEFORE = {4_096: 1_500, 32_768: 5_000}
LEAST_LEFT = {2_048: 512, 4_096: 1_024, 8_192: 2_048}
LEAST_TOOLS = {8_192: 4}
PLACES = ("tools", "system", "summary", "history", "carrier")


@dataclass(frozen=True, slots=True)
class FirstTurn:
    window: int
    status: str
    manifest: Manifest
    tools: tuple[str, ...]
    counted: int | None

    def tokens(self, *names: str) -> int:
        return sum(s.tokens for s in self.manifest.sections if s.name in names)

    @property
    def before(self) -> int:
        return sum(s.tokens for s in self.manifest.sections if s.place in PLACES)

    @property
    def files(self) -> int:
        return sum(s.tokens for s in self.manifest.sections if s.source.startswith("workspace/"))

    @property
    def left(self) -> int:
        return self.window - self.manifest.used

    @property
    def misses(self) -> list[str]:
        found = [] if self.status == "committed" else [f"the turn was {self.status}"]
        if self.before > MOST_BEFORE.get(self.window, self.window):
            found.append(f"more than {MOST_BEFORE[self.window]:,} before the words")
        if self.left < LEAST_LEFT.get(self.window, 0):
            found.append(f"less than {LEAST_LEFT[self.window]:,} left for an answer")
        if len(self.tools) < LEAST_TOOLS.get(self.window, 0):
            found.append(f"fewer than {LEAST_TOOLS[self.window]} tools")
        return found


async def first_turn(home: Path, window: int, count: Callable[[str], int] | None = None) -> FirstTurn:
    """Say Hello to a fresh home whose model has this window, and read the account of it."""
    server = ScriptedOpenAI(lambda asked: Say("Hello to you."))
    server.start()
    home.mkdir(parents=True)
    model = {"id": "scripted", "contextWindow": window, "maxTokens": min(8_192, window // 2)}
    provider = {"baseUrl": server.url, "apiKey": "none", "models": [model]}
    config = {
        "models": {"providers": {"bench": provider}},
        "agents": {"defaults": {"model": "bench/scripted"}},
    }
    (home / "holdfast.json").write_text(json.dumps(config))
    with open_home(home) as hold:
        prepare_workspaces(hold.home, hold.settings)
        runner = agenda.Runner(hold.store, hold.threads)
        hold.runs.register(runner)
        task = asyncio.create_task(runner.run())
        accepted = await hold.runs.accept(Ask(text="Hello", session_key=KEY))
        status = (await hold.runs.wait(accepted.run_id)).status
        await runner.stop(5.0)
        await task
        with hold.store.read(OWNER) as tx:
            found = replay(tx, load_manifest(tx, sessions.find(tx, KEY).id, 1))
        await hold.aclose()
    server.close()
    listed = json.loads(found.tools or "[]")
    counted = None
    if count is not None:
        counted = count(found.tools or "") + sum(count(m.text) + 4 for m in found.messages[:-1])
    return FirstTurn(window, str(status), found.manifest, tuple(t["name"] for t in listed), counted)


def tokenizer() -> Callable[[str], int] | None:
    """A real tokenizer's count; None where none is installed."""
    try:
        from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    except ImportError:
        return None
    real = MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer
    return lambda text: len(real.encode(text, bos=False, eos=False))


def report(turns: Sequence[FirstTurn]) -> None:
    names = [
        "window",
        "tools",
        "skills",
        "files",
        "rest",
        "before",
        "real",
        "target",
        "left",
        "number",
    ]
    print("  ".join(f"{name:>9}" for name in names))
    for turn in turns:
        own = (turn.tokens("tools"), turn.tokens("skills"), turn.files)
        row = [f"{n:,}" for n in (turn.window, *own, turn.before - sum(own), turn.before)]
        row += ["-" if turn.counted is None else f"{turn.counted:,}"]
        row += [f"{MOST_BEFORE[turn.window]:,}" if turn.window in MOST_BEFORE else "-", f"{turn.left:,}"]
        row += [str(len(turn.tools)), "; ".join(turn.misses)]
        print("  ".join(f"{text:>9}" for text in row).rstrip())


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    ask.add_argument("--show", type=int, help="print every section of this window's turn")
    given = ask.parse_args()
    logging.disable(logging.WARNING)
    count, turns = tokenizer(), []
    with tempfile.TemporaryDirectory() as folder:
        for window in given.windows:
            turns.append(asyncio.run(first_turn(Path(folder) / str(window), window, count)))
    report(turns)
    for turn in turns:
        if turn.window == given.show:
            for part in turn.manifest.sections:
                print(f"{part.tokens:>8,}  {part.place:<8}  {part.name}")
            print(", ".join(turn.tools))
    sys.exit(any(turn.misses for turn in turns))


if __name__ == "__main__":
    main()
