"""A chain is a chain: one embeds, the next only when it fails, and nobody waits an hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pytest
from conftest_memory import Desk
from hypothesis import given
from hypothesis import strategies as st

from builders import append, soon, until
from holdfast.config.memory import MemoryConfig
from holdfast.errors import Unavailable
from holdfast.log import Pace, Threads, agenda
from holdfast.memory.cycles import EMBED, MemoryCycles
from holdfast.memory.embedders.base import EmbedderId, Vectors
from holdfast.memory.embedders.hub import HubModel, Manifest
from holdfast.memory.embedders.remote import EmbeddingFailed
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.embedding import EmbedderChain, Trouble, after_failure, who_may_embed


@dataclass
class Vendor:
    """An embedder that counts what it is given, and fails when told to."""

    name: str
    provider: str = "openai"
    down: bool = False
    refuses: bool = False
    given: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @property
    def id(self) -> EmbedderId:
        return EmbedderId(self.provider, self.name, 4, f"{self.provider}:{self.name}")

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self._fail()
        self.given += texts
        return np.eye(4, dtype=np.float32)[[len(text) % 4 for text in texts]]

    def embed_query(self, text: str) -> Vectors:
        self._fail()
        self.asked.append(text)
        return np.eye(4, dtype=np.float32)[len(text) % 4]

    def _fail(self) -> None:
        if self.refuses:
            raise EmbeddingFailed(f"{self.name} answered 401", refused=True)
        if self.down:
            raise EmbeddingFailed(f"{self.name} answered 503")


class Seconds:
    """A clock of seconds that a test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Seconds:
    return Seconds()


def chained(
    desk: Desk, static: StaticEmbedder, time: Seconds, *vendors: Vendor, beside: bool = False
) -> None:
    desk.memory.chain = EmbedderChain(
        list(vendors), static, failover_seconds=600, local_beside=beside, now=time
    )


def test_only_the_first_of_a_chain_is_given_texts(desk: Desk, static: StaticEmbedder, time: Seconds) -> None:
    first, second, local = Vendor("a"), Vendor("b", "gemini"), Vendor("c", "local")
    chained(desk, static, time, first, second, local)
    desk.write("MEMORY.md", "The walrus has tusks.")
    desk.memory.update("main")
    assert desk.memory.refine() == 1
    found = desk.ask("what has tusks?")
    assert (found.provider, found.model, found.fallback) == ("openai", "a", None)
    assert (len(first.given), first.asked) == (1, ["what has tusks?"])
    assert (second.given, second.asked, local.given, local.asked) == ([], [], [], [])


def test_the_local_model_runs_beside_the_others_where_asked_for(
    desk: Desk, static: StaticEmbedder, time: Seconds
) -> None:
    first, local = Vendor("a"), Vendor("c", "local")
    chained(desk, static, time, first, local, beside=True)
    desk.write("MEMORY.md", "The walrus has tusks.")
    desk.memory.update("main")
    desk.memory.refine()
    assert first.given == local.given != []
    first.down = True
    found = desk.ask("what has tusks?")
    assert (found.provider, found.model) == ("local", "c")
    assert "503" in (found.fallback or "")


def test_the_next_takes_over_only_after_the_first_was_down_for_long_and_gives_it_back(
    desk: Desk, static: StaticEmbedder, time: Seconds
) -> None:
    first, second = Vendor("a", down=True), Vendor("b", "gemini")
    chained(desk, static, time, first, second)
    desk.write("MEMORY.md", "The walrus has tusks.")
    desk.memory.update("main")
    for _ in range(5):
        desk.memory.refine()
        time.now += 60
    assert second.given == []
    assert desk.ask("tusks").provider == "static"
    time.now += 600
    assert desk.memory.refine() == 1
    assert len(second.given) == 1
    assert desk.ask("tusks").model == "b"
    first.down = False
    time.now += 700
    desk.write("memory/x.md", "The heron moved in.")
    desk.memory.update("main")
    assert desk.memory.refine() == 2
    assert (len(first.given), len(second.given)) == (2, 1)
    assert desk.ask("who moved in?").model == "a"


def test_one_that_refuses_for_good_leaves_the_texts_to_the_next_at_once(
    desk: Desk, static: StaticEmbedder, time: Seconds
) -> None:
    first, second = Vendor("a", refuses=True), Vendor("b", "gemini")
    chained(desk, static, time, first, second)
    desk.write("MEMORY.md", "The walrus has tusks.")
    desk.memory.update("main")
    assert desk.memory.refine() == 1
    assert len(second.given) == 1
    told = {one["model"]: one for one in desk.memory.status("main")["embedders"]}
    assert "401" in told["a"]["trouble"]
    assert (told["b"]["trouble"], told["b"]["covered"]) == (None, 1.0)


def test_a_question_goes_to_no_second_vendor_while_the_first_answers(
    desk: Desk, static: StaticEmbedder, time: Seconds
) -> None:
    """Even where the second covers all from a time when the first was down, and the first does not yet."""
    first, second = Vendor("a"), Vendor("b", "gemini")
    chain = EmbedderChain([first, second], static, now=time)
    made = chain.question("q", {first.id.fingerprint: 0.5, second.id.fingerprint: 1.0})
    assert made.embedder.id.provider == "static"
    assert second.asked == []
    first.down = True
    made = chain.question("q", {first.id.fingerprint: 1.0, second.id.fingerprint: 1.0})
    assert (made.embedder.id.model, "503" in (made.fallback or "")) == ("b", True)


class Elsewhere:
    """A model of a hub that cannot be reached; counts how often it was wanted."""

    wanted = 0

    def fetch(self, progress: object = None) -> Manifest:
        self.wanted += 1
        raise Unavailable("no hub")


def test_a_model_behind_one_that_answers_is_not_fetched(static: StaticEmbedder, time: Seconds) -> None:
    first, model = Vendor("a"), Elsewhere()
    awaited = [(1, cast("HubModel", model))]
    EmbedderChain([first], static, awaited, now=time).fetch()
    assert model.wanted == 0
    EmbedderChain([first], static, awaited, local_beside=True, now=time).fetch()
    assert model.wanted == 1
    chain = EmbedderChain([first], static, awaited, now=time)
    chain.failed(first, EmbeddingFailed("it answered 503"))
    chain.fetch()
    assert model.wanted == 2


TROUBLES = st.none() | st.builds(
    Trouble,
    since=st.floats(0, 2_000),
    until=st.floats(0, 4_000),
    failures=st.integers(1, 9),
    why=st.just("x"),
    refused=st.booleans(),
)


@given(st.lists(TROUBLES, min_size=1, max_size=4), st.floats(0, 1_000))
def test_nobody_embeds_before_all_who_stand_before_them_have_failed_for_long(
    troubles: list[Trouble | None], patience: float
) -> None:
    names = [f"e{place}" for place in range(len(troubles))]
    known = {name: one for name, one in zip(names, troubles, strict=True) if one is not None}
    now = 2_000.0
    chosen = who_may_embed(names, known, now, patience)
    assert chosen is None or known.get(chosen) is None or known[chosen].until <= now
    before = names if chosen is None else names[: names.index(chosen)]
    given_up = [known[n].refused or now - known[n].since >= patience for n in before if n in known]
    assert len(given_up) == len(before) if chosen is not None else True
    if chosen is not None:
        assert all(given_up)
        assert all(known[name].until > now for name in before)


@given(st.integers(1, 40))
def test_pauses_grow_and_are_bounded_and_the_beginning_is_remembered(times: int) -> None:
    trouble: Trouble | None = None
    now, pauses = 5.0, []
    for _ in range(times):
        trouble = after_failure(trouble, now, "down", refused=False)
        pauses.append(trouble.until - now)
        now = trouble.until
    assert trouble is not None
    assert (trouble.since, trouble.failures) == (5.0, times)
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] <= pauses[-1] <= 600


def cycles_of(desk: Desk, threads: Threads, before_embedding: Pace | None = None) -> MemoryCycles:
    return MemoryCycles(
        desk.store,
        threads,
        lambda: desk.memory,
        lambda: ["main"],
        lambda agent: MemoryConfig(),
        desk.workspace,
        before_embedding=before_embedding,
        look_again_ms=100,
    )


async def drain(desk: Desk, threads: Threads, cycles: MemoryCycles) -> None:
    runner = agenda.Runner(desk.store, threads, owner="test")
    cycles.register(runner)
    await soon(runner.drain())


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_what_an_update_took_in_is_embedded_as_soon_as_it_is_done(
    desk: Desk, static: StaticEmbedder, time: Seconds, threads: Threads
) -> None:
    first = Vendor("a")
    chained(desk, static, time, first)
    cycles = cycles_of(desk, threads)
    desk.write("MEMORY.md", "The walrus has tusks.")
    cycles.schedule_boot()
    await drain(desk, threads, cycles)
    assert len(first.given) == 1
    desk.write("memory/x.md", "The heron moved in.")
    desk.clock.advance(minutes=5)
    await drain(desk, threads, cycles)
    assert len(first.given) == 2


@pytest.mark.anyio
async def test_what_was_said_is_embedded_a_moment_later(
    desk: Desk, static: StaticEmbedder, time: Seconds, threads: Threads
) -> None:
    import asyncio

    first = Vendor("a")
    chained(desk, static, time, first)
    cycles = cycles_of(desk, threads)
    cycles.schedule_boot()
    await drain(desk, threads, cycles)
    following = asyncio.create_task(cycles.follow_log())
    append(desk.store, "The comet passes.", session_key="agent:main:main", role="user")

    def due() -> list[int]:
        from holdfast.log import OWNER

        with desk.store.read(OWNER) as tx:
            return [item.due_at - desk.clock.now() for item in agenda.listing(tx, kinds=[EMBED])]

    await until(lambda: due() == [15_000])
    desk.clock.advance(seconds=15)
    await drain(desk, threads, cycles)
    assert [text.endswith("The comet passes.") for text in first.given] == [True]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


@pytest.mark.anyio
async def test_an_embedder_that_failed_is_asked_again_soon_and_not_after_an_hour(
    desk: Desk, static: StaticEmbedder, time: Seconds, threads: Threads
) -> None:
    first = Vendor("a", down=True)
    chained(desk, static, time, first)
    cycles = cycles_of(desk, threads)
    desk.write("MEMORY.md", "The walrus has tusks.")
    cycles.schedule_boot()
    await drain(desk, threads, cycles)
    assert first.given == []
    first.down = False
    time.now += 31
    desk.clock.advance(seconds=31)
    await drain(desk, threads, cycles)
    assert len(first.given) == 1


@pytest.mark.anyio
async def test_embedding_gives_way_to_what_is_sorted_in_a_rush_but_not_for_ever(
    desk: Desk, static: StaticEmbedder, time: Seconds, threads: Threads
) -> None:
    first, sorting = Vendor("a"), Pace(now=lambda: 0.0)
    chained(desk, static, time, first)
    cycles = cycles_of(desk, threads, sorting)
    for _ in range(6):
        sorting.beat()
    desk.write("MEMORY.md", "The walrus has tusks.")
    cycles.schedule_boot()
    await drain(desk, threads, cycles)
    desk.clock.advance(minutes=4)
    await drain(desk, threads, cycles)
    assert first.given == []
    desk.clock.advance(minutes=1)
    await drain(desk, threads, cycles)
    assert len(first.given) == 1
