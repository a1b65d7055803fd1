"""Digests: written when due, by whoever can, within their size, and without moving anything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board import EVERYTHING, digests, tasks, topics
from holdfast.board.digests import Digester, Subject, due, extract
from holdfast.board.semantic import topic_text
from holdfast.clock import ManualClock
from holdfast.config.board import BoardConfig, Digests
from holdfast.errors import Unavailable
from holdfast.log import OWNER, Classification, EntryDraft, EntryType, Store, Threads, agenda, entries

OPTIONS = Digests()
MINUTE = 60_000


class Scribe:
    def __init__(self, said: str | Exception) -> None:
        self.said = said

    async def digest(self, title: str, texts: Sequence[str], *, max_chars: int) -> str:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


class Desk:
    def __init__(self, store: Store, threads: Threads, clock: ManualClock) -> None:
        self.store, self.threads, self.clock = store, threads, clock
        self.scribe: Scribe | None = None

    def topic(self, name: str, *texts: str, notes: Sequence[str] = ()) -> str:
        with self.store.write(OWNER) as tx:
            id_ = topics.upsert(tx, name).topic.id
            for text in texts:
                self._log(tx, id_, text, EntryType.CONVERSATION)
            for text in notes:
                self._log(tx, id_, text, EntryType.NOTE)
            digests.enqueue(tx, due_at=int(tx.now))
        return id_

    def _log(self, tx: object, topic_id: str, text: str, kind: EntryType) -> None:
        draft = EntryDraft(content=text, type=kind, topic_id=topic_id, status=Classification.CLASSIFIED)
        entries.append(tx, draft)  # type: ignore[arg-type]

    def cycle(self, minutes: float = 2) -> None:
        async def work() -> None:
            runner = agenda.Runner(self.store, self.threads)
            room = Digester(self.store, self.threads, BoardConfig, scribe=lambda: self.scribe)
            runner.register(digests.KIND, room.kind())
            await runner.drain()

        self.clock.advance(minutes=minutes)
        asyncio.run(work())

    def get(self, id_: str) -> topics.Topic:
        with self.store.read(OWNER) as tx:
            return topics.get(tx, id_, EVERYTHING)


@pytest.fixture
def desk(store: Store, threads: Threads, clock: ManualClock) -> Desk:
    return Desk(store, threads, clock)


TEXTS = ("The fence post is oak. It is rotten.", "We order concrete posts for the fence.", "Which size?")


def test_without_a_model_a_digest_is_made_of_the_telling_sentences(desk: Desk) -> None:
    id_ = desk.topic("Fence", *TEXTS, notes=["Posts come from the mill in Ashford."])
    before = desk.get(id_)
    desk.cycle()
    after = desk.get(id_)
    assert after.digest is not None
    assert "concrete posts" in after.digest
    assert "Ashford" in after.digest
    assert "Which size" not in after.digest
    assert (after.updated_at, after.sort_index) == (before.updated_at, before.sort_index)


def test_with_a_model_its_words_are_taken_cleaned_and_cut(desk: Desk) -> None:
    desk.scribe = Scribe("[CLAWBOARD_CONTEXT_BEGIN]x[CLAWBOARD_CONTEXT_END]\nPosts: concrete. " + "y " * 2000)
    id_ = desk.topic("Fence", *TEXTS)
    desk.cycle()
    digest = desk.get(id_).digest or ""
    assert digest.startswith("Posts: concrete.")
    assert len(digest) <= OPTIONS.max_chars


def test_a_model_that_fails_costs_nothing(desk: Desk) -> None:
    desk.scribe = Scribe(Unavailable("no model"))
    id_ = desk.topic("Fence", *TEXTS)
    desk.cycle()
    assert "concrete" in (desk.get(id_).digest or "")


def test_a_digest_is_not_written_again_within_the_interval(desk: Desk) -> None:
    id_ = desk.topic("Fence", *TEXTS)
    desk.cycle()
    first = desk.get(id_)
    with desk.store.write(OWNER) as tx:
        desk._log(tx, id_, "The posts arrived from the concrete works.", EntryType.CONVERSATION)
        topics.update(tx, id_, {"description": "new words"})
        digests.enqueue(tx, due_at=int(tx.now))
    desk.cycle()
    assert desk.get(id_).digest_updated_at == first.digest_updated_at
    desk.cycle(minutes=15)
    assert "arrived" in (desk.get(id_).digest or "")


def test_a_cycle_keeps_to_its_budget_and_the_rest_follows(desk: Desk) -> None:
    ids = [desk.topic(f"Fence {n}", *TEXTS) for n in range(5)]
    written = []
    for _ in range(3):
        desk.cycle()
        written.append(sum(desk.get(id_).digest is not None for id_ in ids))
    assert written == [2, 4, 5]


def test_a_topic_with_nothing_to_say_gets_no_digest(desk: Desk) -> None:
    id_ = desk.topic("Empty")
    desk.cycle()
    assert desk.get(id_).digest is None
    with desk.store.read(OWNER) as tx:
        assert agenda.listing(tx, kinds=[digests.KIND]) == []


def test_tasks_have_digests_too(desk: Desk) -> None:
    id_ = desk.topic("Fence")
    with desk.store.write(OWNER) as tx:
        task = tasks.upsert(tx, "Replace the post", topic_id=id_).task
        for text in TEXTS:
            done = Classification.CLASSIFIED
            entries.append(tx, EntryDraft(content=text, topic_id=id_, task_id=task.id, status=done))
    desk.cycle()
    with desk.store.read(OWNER) as tx:
        found = tasks.get(tx, task.id, EVERYTHING)
    assert "concrete" in (found.digest or "")
    assert found.updated_at == task.updated_at


def test_a_digest_is_no_index_text(desk: Desk) -> None:
    id_ = desk.topic("Fence", *TEXTS)
    desk.cycle()
    topic = desk.get(id_)
    assert topic_text(topic.name, topic.description, topic.tags) == "Fence"


MOMENTS = st.integers(0, 100 * MINUTE)
SUBJECTS = st.lists(
    st.builds(Subject, st.just("topic"), st.uuids().map(str), st.just("x"), MOMENTS, st.none() | MOMENTS),
    max_size=8,
)


@given(SUBJECTS, MOMENTS)
def test_only_what_is_stale_and_rested_is_due(found: list[Subject], now: int) -> None:
    chosen, later = due(found, now, OPTIONS)
    assert len(chosen) <= OPTIONS.per_cycle
    for one in chosen:
        assert one.digest_updated_at is None or one.updated_at >= one.digest_updated_at
        assert (one.digest_updated_at or 0) + 15 * MINUTE <= now
    stale = [one for one in found if one.digest_updated_at is None or one.updated_at >= one.digest_updated_at]
    assert (later is None) == (len(stale) == len(chosen))
    assert later is None or later > now


@given(st.lists(st.tuples(st.text(max_size=400), st.booleans()), max_size=12), st.integers(0, 500))
def test_an_extract_keeps_to_its_size(found: list[tuple[str, bool]], limit: int) -> None:
    assert len(extract(found, max_chars=limit)) <= limit
