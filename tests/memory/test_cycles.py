"""The cycles of memory on the agenda: at start, at intervals, when files change, and after trouble."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest_memory import Desk

from builders import append, rows, soon, until
from holdfast.clock import ManualClock
from holdfast.config.memory import MemoryConfig
from holdfast.errors import Unavailable
from holdfast.log import OWNER, Store, Threads, agenda, changes
from holdfast.memory import Filter
from holdfast.memory.cycles import EMBED, PROGRESS, UPDATE, UPDATED, MemoryCycles, Teller
from holdfast.memory.engine.embedded import EmbeddedIndex

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Round:
    """Cycles over a desk, with the agents and the config that a test gives."""

    def __init__(self, desk: Desk, threads: Threads, **update: Any) -> None:
        self.desk = desk
        self.agents = ["main"]
        self.update = update
        self.threads = threads
        self.cycles = MemoryCycles(
            desk.store,
            threads,
            lambda: desk.memory,
            lambda: list(self.agents),
            lambda agent: MemoryConfig.model_validate({"search": {"update": self.update}}),
            desk.workspace,
            look_again_ms=100,
            quiet_seconds=0.05,
        )

    async def drain(self) -> None:
        """Run what is due now to the end."""
        runner = agenda.Runner(self.desk.store, self.threads, owner="test")
        self.cycles.register(runner)
        await soon(runner.drain())

    def waiting(self, kind: str = UPDATE) -> list[agenda.Item]:
        with self.desk.store.read(OWNER) as tx:
            return agenda.listing(tx, kinds=[kind])

    def minutes(self, kind: str = UPDATE) -> list[float]:
        """How far off the rounds are that wait."""
        now = self.desk.clock.now()
        return [(item.due_at - now) / 60_000 for item in self.waiting(kind)]


@pytest.fixture
def round_(desk: Desk, threads: Threads) -> Round:
    return Round(desk, threads)


async def test_at_start_files_are_indexed_and_the_next_rounds_wait(round_: Round) -> None:
    round_.desk.write("MEMORY.md", "The walrus has tusks.")
    round_.cycles.schedule_boot()
    await round_.drain()
    assert round_.desk.paths("walrus") == ["MEMORY.md"]
    assert (round_.minutes(UPDATE), round_.minutes(EMBED)) == ([5.0], [60.0])


async def test_after_the_interval_what_changed_is_taken_in(round_: Round, clock: ManualClock) -> None:
    round_.cycles.schedule_boot()
    await round_.drain()
    round_.desk.write("MEMORY.md", "The heron moved in.")
    clock.advance(minutes=4)
    await round_.drain()
    assert round_.desk.paths("heron") == []
    clock.advance(minutes=1)
    await round_.drain()
    assert round_.desk.paths("heron") == ["MEMORY.md"]


async def test_a_start_without_an_update_waits_for_the_interval(desk: Desk, threads: Threads) -> None:
    made = Round(desk, threads, onBoot=False)
    made.cycles.schedule_boot()
    assert made.minutes() == [5.0]


async def test_starting_again_and_again_leaves_one_round_of_each_kind(round_: Round) -> None:
    for _ in range(3):
        round_.cycles.schedule_boot()
    assert (len(round_.waiting(UPDATE)), len(round_.waiting(EMBED))) == (1, 1)


async def test_an_interval_that_was_changed_holds_from_the_next_round(round_: Round) -> None:
    round_.cycles.schedule_boot()
    round_.update["interval"] = "20m"
    await round_.drain()
    assert round_.minutes() == [20.0]


async def test_the_files_of_an_agent_that_left_the_config_leave_the_index(
    round_: Round, clock: ManualClock
) -> None:
    desk = round_.desk
    desk.write("MEMORY.md", "The walrus has tusks.")
    desk.write("MEMORY.md", "The heron has a beak.", agent="other")
    append(desk.store, "the heron said so", session_key="agent:other:main")
    round_.agents.append("other")
    round_.cycles.schedule_boot()
    await round_.drain()
    desk.memory.follow()
    assert "MEMORY.md" in desk.paths("heron", agent="other")
    round_.agents.remove("other")
    clock.advance(minutes=5)
    await round_.drain()
    files = Filter(agents=frozenset({"other"}), sources=frozenset({"file"}))
    assert desk.memory.index.view(files).count == 0
    assert desk.memory.index.view(Filter(agents=frozenset({"other"}))).count == 1
    assert desk.paths("walrus") == ["MEMORY.md"]
    round_.agents.append("other")
    round_.cycles.schedule_boot()
    await round_.drain()
    assert "MEMORY.md" in desk.paths("heron", agent="other")


async def test_an_agent_that_left_the_config_has_no_further_rounds(round_: Round, clock: ManualClock) -> None:
    round_.cycles.schedule_boot()
    round_.agents.clear()
    clock.advance(minutes=60)
    await round_.drain()
    assert round_.waiting(UPDATE) == round_.waiting(EMBED) == []


async def test_trouble_in_a_round_is_seen_retried_and_never_the_end(
    round_: Round, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise Unavailable("the disk is full")

    whole = round_.desk.memory.update
    monkeypatch.setattr(round_.desk.memory, "update", broken)
    round_.cycles.schedule_boot()
    await round_.drain()
    (item,) = round_.waiting()
    assert (item.attempts, item.error) == (1, "the disk is full")
    for _ in range(4):
        clock.advance(minutes=5)
        await round_.drain()
    failed = rows(
        round_.desk.store, f"SELECT error FROM agenda WHERE status = 'failed' AND kind = '{UPDATE}'"
    )
    assert failed == [("the disk is full",)]
    assert round_.minutes() == [5.0]
    monkeypatch.setattr(round_.desk.memory, "update", whole)
    round_.desk.write("MEMORY.md", "The otter is back.")
    clock.advance(minutes=5)
    await round_.drain()
    assert round_.desk.paths("otter") == ["MEMORY.md"]


async def test_a_changed_file_brings_the_update_forward_once_for_many_changes(
    desk: Desk, threads: Threads
) -> None:
    made = Round(desk, threads, watchDebounceMs=50)
    made.cycles.schedule_boot()
    await made.drain()
    stop = asyncio.Event()
    watching = asyncio.create_task(made.cycles.watch_files(stop))
    number = 0

    def noticed() -> bool:
        nonlocal number
        number += 1
        desk.write(f"memory/{number % 5}.md", f"Change {number}.")
        return made.minutes()[0] < 1

    await until(noticed)
    assert made.minutes() == [0.25]
    desk.clock.advance(seconds=15)
    await made.drain()
    assert desk.memory.status("main")["collections"][2]["files"] >= 1
    stop.set()
    await soon(watching)


async def test_a_workspace_that_appears_later_is_watched_then(desk: Desk, threads: Threads) -> None:
    made = Round(desk, threads, watchDebounceMs=50)
    made.agents[:] = ["late"]
    made.cycles.schedule_boot()
    await made.drain()
    stop = asyncio.Event()
    watching = asyncio.create_task(made.cycles.watch_files(stop))
    await asyncio.sleep(0)

    def noticed() -> bool:
        desk.write("memory/x.md", str(id(object())), agent="late")
        return made.minutes()[0] < 1

    await until(noticed)
    stop.set()
    await soon(watching)


async def test_what_is_no_markdown_brings_nothing_forward(desk: Desk, threads: Threads) -> None:
    made = Round(desk, threads, watchDebounceMs=50)
    made.cycles.schedule_boot()
    await made.drain()
    stop = asyncio.Event()
    watching = asyncio.create_task(made.cycles.watch_files(stop))
    seen: list[bool] = []

    def both() -> bool:
        """Text files first; once a markdown file is noticed, the text files were so too."""
        desk.write("memory/x.txt", str(len(seen)))
        seen.append(made.minutes()[0] < 1)
        if len(seen) > 200:
            desk.write("memory/y.md", str(len(seen)))
        return seen[-1]

    await until(both)
    assert not any(seen[:200])
    stop.set()
    await soon(watching)


async def test_pages_are_told_of_an_update_that_changed_something(round_: Round, clock: ManualClock) -> None:
    round_.desk.write("MEMORY.md", "One.")
    round_.cycles.schedule_boot()
    await round_.drain()
    clock.advance(minutes=5)
    await round_.drain()
    with round_.desk.store.read(OWNER) as tx:
        told = [change for change in changes.since(tx, 0) if change.type == UPDATED]
    assert [dict(change.payload or {}) for change in told] == [
        {"agentId": "main", "files": 1, "indexed": 1, "removed": 0, "chunks": 1, "problems": []}
    ]


def test_long_work_tells_how_far_it_is_but_not_at_every_step(sqlite_store: Store) -> None:
    times = iter([0.0, 0.5, 1.2, 1.3, 2.5])
    teller = Teller(sqlite_store, "main", now=lambda: next(times))
    for step in range(1, 5):
        teller.progress("memory-dir", step, 4)
    with sqlite_store.read(OWNER) as tx:
        told = [change.payload for change in changes.since(tx, 0) if change.type == PROGRESS]
    assert [payload["done"] for payload in told if payload] == [2, 4]


async def test_the_log_is_followed_as_it_is_written(round_: Round) -> None:
    following = asyncio.create_task(round_.cycles.follow_log())
    await asyncio.sleep(0)
    append(round_.desk.store, "The comet passes.", session_key="agent:main:main", role="user")
    await until(lambda: round_.desk.memory.index.count == 1)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_the_index_is_tidied_once_nothing_is_written_any_more(round_: Round) -> None:
    index = round_.desk.memory.index
    assert isinstance(index, EmbeddedIndex)
    following = asyncio.create_task(round_.cycles.follow_log())
    for number in range(6):
        append(round_.desk.store, f"Comet {number} passes.", session_key="agent:main:main", role="user")
        await until(lambda number=number: index.count > number)
        index.flush()
    await until(lambda: len(index.segments) == 1)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
