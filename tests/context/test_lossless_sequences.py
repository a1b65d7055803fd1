"""Whatever happens to a session, in whatever order, its projection stays whole."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from context_builders import Echo, Failing
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless_builders import Lossless

from builders import examples
from holdfast.clock import ManualClock
from holdfast.context import (
    AssistantMessage,
    EngineFailed,
    Message,
    SummaryRequest,
    ToolCall,
    ToolResult,
    UserMessage,
)
from holdfast.context.lossless import spans
from holdfast.context.tokens import message_tokens
from holdfast.ids import uuid7
from holdfast.log import OWNER, Store, Threads, entries, sqlite_url

TINY = {
    "leafChunkTokens": 400,
    "leafTargetTokens": 80,
    "condensedTargetTokens": 120,
    "freshTailTokens": 200,
    "freshTailMessages": 6,
    "leafFanout": 2,
    "condensedFanout": 2,
    "maxPasses": 4,
    "summaryPrefixTokens": 200,
    "largePayloadTokens": 600,
}


class Crash(Echo):
    """Dies at its second call, as a process does."""

    async def summarise(self, request: SummaryRequest) -> str:
        if self.requests:
            raise asyncio.CancelledError
        return await super().summarise(request)


MODELS: dict[str, Any] = {
    "none": lambda: None,
    "good": Echo,
    "empty": lambda: Failing(""),
    "long": lambda: Failing("LONGER"),
    "broken": lambda: Failing(RuntimeError("down")),
    "crash": Crash,
}

_size = st.integers(1, 120)
STEP = st.one_of(
    st.tuples(st.just("user"), _size),
    st.tuples(st.just("assistant"), _size),
    st.tuples(st.just("tools"), st.integers(1, 3), _size),
    st.tuples(st.just("open"), _size),
    st.tuples(st.just("close"), _size),
    st.tuples(st.just("big"), st.integers(600, 900)),
    st.tuples(st.just("assemble"), st.integers(0, 4000)),
    st.tuples(st.just("compact"), st.sampled_from(sorted(MODELS)), st.booleans(), st.integers(500, 5000)),
    st.tuples(st.just("drain"), st.sampled_from(sorted(MODELS))),
)
STEPS = st.lists(STEP, min_size=5, max_size=25)


class World:
    def __init__(self, store: Store, threads: Threads, home: Path, clock: ManualClock) -> None:
        self.stage = Lossless(store, threads, home, settings=TINY, key=f"agent:main:dm:{uuid7()}")
        self.clock = clock
        self.calls = 0
        self.waiting: list[str] = []
        self.revision = 0

    def apply(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("user", size):
                self.ingest(UserMessage(text=f"ask {self.calls} " * size))
            case ("assistant", size):
                self.ingest(AssistantMessage(text=f"say {self.calls} " * size))
            case ("tools", count, size):
                ids = [self.next() for _ in range(count)]
                self.ingest(AssistantMessage(text="", calls=tuple(ToolCall(i, "exec", {}) for i in ids)))
                for one in ids:
                    self.ingest(ToolResult(text=f"out {one} " * size, call_id=one, name="exec"))
            case ("open", _):
                self.waiting.append(self.next())
                self.ingest(AssistantMessage(text="", calls=(ToolCall(self.waiting[-1], "exec", {}),)))
            case ("close", size) if self.waiting:
                one = self.waiting.pop(0)
                self.ingest(ToolResult(text=f"late {one} " * size, call_id=one, name="exec"))
            case ("big", size):
                self.ingest(UserMessage(text=f"large payload {self.calls} " * size))
            case ("assemble", budget):
                self.assemble(budget)
            case ("compact", model, force, window):
                self.with_model(model, lambda: self.stage.compact(force=force, window=window))
            case ("drain", model):
                self.clock.advance(hours=1)
                self.with_model(model, lambda: asyncio.run(self.stage.engine.drain(self.stage.session.id)))

    def next(self) -> str:
        self.calls += 1
        return f"c{self.calls}"

    def ingest(self, message: Message) -> None:
        asyncio.run(self.stage.room.ingest(self.stage.session, message))

    def with_model(self, name: str, work: Any) -> None:
        self.stage.room.use_summariser(MODELS[name]())
        try:
            work()
        except (asyncio.CancelledError, EngineFailed):
            assert name == "crash"
        finally:
            self.stage.room.use_summariser(None)

    def assemble(self, budget: int) -> None:
        result = self.stage.assemble(budget)
        again = self.stage.assemble(budget)
        assert [m.text for m in again.messages] == [m.text for m in result.messages]
        assert sum(map(message_tokens, result.messages)) <= budget
        calls = [c.id for m in result.messages if isinstance(m, AssistantMessage) for c in m.calls]
        assert calls == [m.call_id for m in result.messages if isinstance(m, ToolResult)]
        shown = [m.mark.position for m in result.messages if m.mark and not isinstance(m, ToolResult)]
        assert shown == sorted(shown)

    def holds(self) -> None:
        """No entry is unreachable or behind two things; the revision never falls."""
        assert self.stage.problems() == []
        known = self.stage.projection()
        assert known.revision >= self.revision
        self.revision = known.revision
        with self.stage.store.read(OWNER) as tx:
            behind = spans.behind(tx, known.items)
            for entry in entries.transcript(tx, self.stage.session.id):
                assert sum(s.holds(entry.session_id, entry.position) for s in behind) == 1


def _played(store: Store, threads: Threads, home: Path, clock: ManualClock, steps: list[Any]) -> None:
    world = World(store, threads, home, clock)
    for step in steps:
        world.apply(step)
        world.holds()
    world.assemble(1500)


@contextmanager
def _sqlite(template: Path) -> Iterator[tuple[Store, Path, ManualClock]]:
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store = Store(sqlite_url(shutil.copy(template, home / "holdfast.db")), clock=clock)
        try:
            yield store, home, clock
        finally:
            store.close()


@settings(max_examples=examples(20))
@given(steps=STEPS)
def test_any_sequence_keeps_the_projection_whole(
    sqlite_template: Path, threads_for_all: Threads, steps: list[Any]
) -> None:
    with _sqlite(sqlite_template) as (store, home, clock):
        _played(store, threads_for_all, home, clock, steps)


@settings(max_examples=4)
@given(steps=STEPS)
def test_any_sequence_keeps_the_projection_whole_on_postgres(
    postgres_url: str, threads_for_all: Threads, steps: list[Any]
) -> None:
    clock = ManualClock()
    store = Store(postgres_url, clock=clock)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _played(store, threads_for_all, Path(folder), clock, steps)
    finally:
        store.close()


@pytest.fixture(scope="module")
def threads_for_all() -> Iterator[Threads]:
    pool = Threads(2)
    yield pool
    pool.close()
