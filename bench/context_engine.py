"""What a context costs to build, how that grows with the session, and how much of it a provider can cache.

python bench/context_engine.py [--quick]
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common import table, timed

from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.context import (
    AssistantMessage,
    BuildRequest,
    Built,
    ContextRoom,
    Message,
    ModelFacts,
    SummaryRequest,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trust,
    UserMessage,
    draft_of,
)
from holdfast.context.manifest import JOINT
from holdfast.context.messages import SystemMessage, digest
from holdfast.context.tokens import message_tokens, raw_tokens
from holdfast.home import Home
from holdfast.ids import turn_id
from holdfast.log import (
    OWNER,
    EntryDraft,
    Outcome,
    Session,
    Store,
    Threads,
    entries,
    open_store,
    sessions,
    sqlite_url,
    turns,
)

WINDOW = 200_000
SIMULATED_WINDOW = 96_000  # small enough that 200 turns fill it more than once
KEY = "agent:main:main"
TOOLS = tuple(
    ToolSpec(
        f"tool_{n}", f"Does thing {n}. " * 12, {"type": "object", "properties": {"a": {"type": "string"}}}
    )
    for n in range(20)
)
INSTRUCTIONS = (Text("base", "You are a careful assistant. " * 60),)


class Summariser:
    async def summarise(self, request: SummaryRequest) -> str:
        return "What was decided and what is open. " * 60


class Bench:
    """A store with one session, and a room over it."""

    def __init__(self, folder: Path, config: Config | None = None) -> None:
        self.clock = ManualClock()
        self.store: Store = open_store(sqlite_url(folder / "holdfast.db"), clock=self.clock)
        self.threads = Threads(2)
        self.home = Home(folder)
        self.config = config or Config()
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        for name in ("IDENTITY", "SOUL", "USER", "AGENTS", "TOOLS"):
            (self.workspace / f"{name}.md").write_text(f"A rule of {name} to follow. " * 400)
        self.room = self.fresh_room()
        with self.store.write(OWNER) as tx:
            self.session: Session = sessions.ensure(tx, KEY)

    def fresh_room(self) -> ContextRoom:
        return ContextRoom(self.store, self.threads, self.home, lambda: self.config, summariser=Summariser())

    def fill(self, count: int, words: int) -> None:
        """A session of so many messages, people and agent in turns."""
        for start in range(0, count, 2000):
            drafts = [
                EntryDraft(
                    content=f"message {n} " + "word " * words,
                    role="user" if n % 2 == 0 else "assistant",
                    session_key=KEY,
                    session_id=self.session.id,
                )
                for n in range(start, min(count, start + 2000))
            ]
            with self.store.write(OWNER) as tx:
                entries.append_many(tx, drafts)

    def request(self, number: int, **fields: object) -> BuildRequest:
        given: dict[str, object] = {
            "session": self.session,
            "turn_id": turn_id(),
            "number": number,
            "model": ModelFacts("bench", WINDOW),
            "settings": self.config.agents.defaults,
            "workspace": self.workspace,
            "tools": TOOLS,
            "instructions": INSTRUCTIONS,
            "input": UserMessage(text="and now?"),
        }
        return BuildRequest(**given | fields)  # type: ignore[arg-type]

    def builds(self, repeat: int, **fields: object) -> list[float]:
        """The CPU time of each of several builds, one after another."""

        async def run() -> list[float]:
            taken = []
            for number in range(repeat):
                begin = time.process_time()
                await self.room.build(self.request(number + 1, **fields))
                taken.append(time.process_time() - begin)
            return taken

        return asyncio.run(run())

    def first_builds(self, repeat: int) -> list[float]:
        """The same with nothing in any cache of ours."""
        taken = []
        for _ in range(repeat):
            self.room = self.fresh_room()
            taken += self.builds(1)
        return taken

    def close(self) -> None:
        self.threads.close()
        self.store.close()


def main() -> None:
    quick = "--quick" in sys.argv
    assembling(repeat=5 if quick else 15)
    growth([1_000, 10_000] if quick else [1_000, 10_000, 100_000], repeat=5 if quick else 11)
    prefix(60 if quick else 200)


def assembling(repeat: int) -> None:
    """10,000 short messages that all fit: what the first build costs, and every later one."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.fill(10_000, 5)
        [cold] = bench.builds(1)
        warm = statistics.median(bench.builds(repeat))
        unrecorded = statistics.median(bench.builds(repeat, record=False))
        built = asyncio.run(bench.room.build(bench.request(2)))
        copied = statistics.median(timed(lambda: list(built.messages)) for _ in range(repeat))
        bench.close()
    table(
        f"One context of {len(built.messages):,} messages, {built.manifest.used:,} tokens, window {WINDOW:,}",
        [
            ("a bare copy of the list", _ms(copied), "1 x", ""),
            ("first build of a process", _ms(cold), f"{cold / copied:,.0f} x", ""),
            ("every later build, manifest stored", _ms(warm), f"{warm / copied:,.0f} x", ""),
            ("... without storing the manifest", _ms(unrecorded), f"{unrecorded / copied:,.0f} x", ""),
        ],
    )


def growth(sizes: Sequence[int], repeat: int) -> None:
    """The same window over longer and longer sessions."""
    found: list[tuple[int, float, float]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder))
            bench.fill(size, 170)
            cold = statistics.median(bench.first_builds(5))
            warm = statistics.median(bench.builds(repeat))
            found.append((size, cold, warm))
            bench.close()
    base = found[0]
    rows = [
        (
            f"{size:,} messages: first / later build",
            f"{_ms(cold)} / {_ms(warm)}",
            f"{cold / base[1]:.2f}/{warm / base[2]:.2f} x",
            "target <= 1.5 x" if size == sizes[-1] else "",
        )
        for size, cold, warm in found
    ]
    table("Growth with the length of the session", rows)


def prefix(count: int) -> None:
    """A simulated session with tools, edits, pauses and compactions: what repeats from call to call."""
    ours, opening, naive, compactions = asyncio.run(_simulate(count))
    table(
        f"Share of a prompt's tokens that repeats the one before ({count} turns, {compactions} compactions)",
        [
            ("this layout, mean", f"{statistics.mean(ours):.3f}", "", "target >= 0.95"),
            (
                "this layout, median / 10th percentile",
                f"{statistics.median(ours):.3f} / {_low(ours):.3f}",
                "",
                "",
            ),
            ("... of the first call of each turn, mean", f"{statistics.mean(opening):.3f}", "", ""),
            ("clock and recall on top, mean", f"{statistics.mean(naive):.3f}", "", ""),
        ],
    )


async def _simulate(count: int) -> tuple[list[float], list[float], list[float], int]:
    chance = random.Random(5)
    ours: list[float] = []
    opening: list[float] = []
    naive: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        before: list[tuple[str, int]] = []
        naive_before: list[tuple[str, int]] = []
        compacted = 0
        for number in range(1, count + 1):
            fresh_cut = compacted
            for built in await _turn(bench, number, chance):
                parts = _parts(built)
                naive_parts = _naive(parts, number)
                if before and fresh_cut == compacted and number > 1:
                    ours.append(_shared(before, parts))
                    opening += ours[-1:] if built.manifest.call == 0 else []
                    naive.append(_shared(naive_before, naive_parts))
                before, naive_before = parts, naive_parts
            verdict = await bench.room.after_turn(bench.session, built)
            if verdict.compaction_due:
                with bench.store.read(OWNER) as tx:
                    session = sessions.get(tx, bench.session.id)
                if (await bench.room.compact(session, window=SIMULATED_WINDOW, reason="threshold")).compacted:
                    compacted += 1
                    before = naive_before = []
            if number % 25 == 0:
                (bench.workspace / "TOOLS.md").write_text(f"Edition {number}. " + "A rule of TOOLS. " * 600)
            bench.clock.advance(minutes=chance.choice([0, 0, 1, 1, 1, 2, 30]))
        bench.close()
    return ours, opening, naive, compacted


async def _turn(bench: Bench, number: int, chance: random.Random) -> list[Built]:
    """One turn with up to four rounds of tools; the prompt of each of its calls."""
    text = f"question {number} " + "word " * chance.randint(10, 120)
    with bench.store.write(OWNER) as tx:
        said = EntryDraft(content=text, role="user")
        turn = turns.accept(tx, bench.session, said, key=f"t{number}").turn
        turns.start(tx, turn)
    pending: list[Message] = []
    calls: list[Built] = []
    recall = Text("recall", f"note {number} " * 60, Trust.MODEL, "memory")
    for step in range(chance.choice([1, 2, 3, 5])):
        if step:
            call = ToolCall(f"c{number}-{step}", "tool_1", {"a": "x" * 40})
            output = "line of output\n" * chance.randint(5, 400)
            pending += [
                AssistantMessage(calls=(call,)),
                ToolResult(text=output, call_id=call.id, name="tool_1"),
            ]
        request = bench.request(
            turn.number,
            turn_id=turn.id,
            call=step,
            input=None,
            input_id=turn.input_id,
            volatile=(recall,),
            pending=tuple(pending),
            model=ModelFacts("bench", SIMULATED_WINDOW),
        )
        calls.append(await bench.room.build(request))
    reply = AssistantMessage(text=f"reply {number} " + "because " * chance.randint(10, 200))
    with bench.store.write(OWNER) as tx:
        turns.commit(tx, turn.key, Outcome(entries=[draft_of(m) for m in (*pending, reply)]))
    return calls


def _parts(built: Built) -> list[tuple[str, int]]:
    """A prompt as a provider's cache sees it: tools, the system message by pieces, then the messages."""
    tools = [(s.hash or "", s.tokens) for s in built.manifest.sections if s.place == "tools"]
    system = [
        (piece, raw_tokens(piece))
        for m in built.messages
        if isinstance(m, SystemMessage)
        for piece in m.text.split(JOINT)
    ]
    rest = [(digest(m), message_tokens(m)) for m in built.messages if not isinstance(m, SystemMessage)]
    return [*tools, *system, *rest]


def _naive(parts: list[tuple[str, int]], number: int) -> list[tuple[str, int]]:
    """The same with what changes per turn at the head of the system prompt, behind the tools."""
    return [parts[0], (f"clock and recall {number}", 140), *parts[1:]]


def _shared(before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]]) -> float:
    shared = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        shared += other[1]
    return shared / sum(tokens for _, tokens in after)


def _low(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 10]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.001 else f"{seconds * 1e6:.0f} us"


if __name__ == "__main__":
    main()
