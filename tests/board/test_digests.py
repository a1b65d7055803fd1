"""Digests: written when due, by whoever can, within their size, and without moving anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board import EVERYTHING, digests, present, tasks, topics
from holdfast.board.digests import Digester, Subject, due
from holdfast.board.judge import Question
from holdfast.board.semantic import topic_text
from holdfast.clock import ManualClock, iso
from holdfast.config.board import BoardConfig, Digests
from holdfast.errors import Unavailable
from holdfast.log import OWNER, Classification, EntryDraft, EntryType, Store, Threads, agenda, entries

OPTIONS = Digests()
MINUTE = 60_000


class Scribe:
    def __init__(self, said: str | Exception) -> None:
        self.said = said
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> str:
        self.asked.append(question)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


class Desk:
    def __init__(self, store: Store, threads: Threads, clock: ManualClock) -> None:
        self.store, self.threads, self.clock = store, threads, clock
        self.scribe: Scribe | None = None
        self.options = BoardConfig()

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
            room = Digester(self.store, self.threads, lambda: self.options, scribe=lambda: self.scribe)
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


def test_a_model_chooses_among_the_sentences_and_adds_nothing(desk: Desk) -> None:
    scribe = desk.scribe = Scribe('{"state": [1], "decided": [3], "open": [], "next": []}')
    id_ = desk.topic("Fence", *TEXTS)
    desk.cycle()
    day = iso(desk.clock.now())[:10]
    assert desk.get(id_).digest == (
        f"- {day}: The fence post is oak.\n- Decided {day}: We order concrete posts for the fence."
    )
    told = json.loads(scribe.asked[0].text)
    assert told["matter"] == "Fence"
    assert [one["text"] for one in told["sentences"]] == [
        "The fence post is oak.", "It is rotten.", "We order concrete posts for the fence.",
    ]  # fmt: skip


@pytest.mark.parametrize("said", ["It is oak.", '{"state": [9]}', '{"state": [1, 1]}', '{"state": []}'])
def test_a_choice_that_cannot_be_used_is_asked_for_once_more_and_then_made_by_rules(
    desk: Desk, said: str
) -> None:
    scribe = desk.scribe = Scribe(said)
    id_ = desk.topic("Fence", *TEXTS)
    desk.cycle()
    assert "concrete" in (desk.get(id_).digest or "")
    assert len(scribe.asked) == 2


def test_a_digest_is_no_longer_than_it_may_be(desk: Desk) -> None:
    desk.options = BoardConfig.model_validate({"digests": {"maxChars": 60}})
    id_ = desk.topic("Fence", *TEXTS)
    desk.cycle()
    assert len((desk.get(id_).digest or "").splitlines()) == 1


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


def day(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}T12:00:00+00:00").timestamp() * 1000)


TALK = [
    ("The cutover is on Saturday 7 March, 05:00 UTC. Dumps go to ~/backup/*.sql.", day("2026-02-02"), False),
    ("We decided to keep wal_keep_size at 18,000 MB.", day("2026-02-05"), False),
    ("Priya still has to write the rollback plan.", day("2026-02-06"), False),
    ("We move the cutover to Saturday 14 March, same hours.", day("2026-02-10"), False),
    ("Rehearsal took 31 minutes for 412 GB.", day("2026-02-11"), False),
]  # fmt: skip


def test_a_digest_tells_of_the_present_and_quotes_to_the_letter() -> None:
    found = present.by_rules(present.lines_of(TALK), day("2026-02-20"))
    assert [one.text for one in found.next] == ["We move the cutover to Saturday 14 March, same hours."]
    assert [one.text for one in found.decided] == ["We decided to keep wal_keep_size at 18,000 MB."]
    assert [one.text for one in found.open] == ["Priya still has to write the rollback plan."]
    assert [one.text for one in found.state] == [
        "Rehearsal took 31 minutes for 412 GB.",
        "Dumps go to ~/backup/*.sql.",
    ]
    assert (
        present.written(found, 1800).splitlines()[0] == "- 2026-02-11: Rehearsal took 31 minutes for 412 GB."
    )


@pytest.mark.parametrize(
    ("older", "newer", "is_so"),
    [
        ("The cutover is on 7 March.", "The cutover moved to 14 March.", True),
        ("Die Klassenfahrt kostet 210 Euro.", "Die Klassenfahrt kostet jetzt 235 Euro.", True),
        ("The cutover is on 7 March.", "The cutover on 7 March takes two hours now.", False),
        ("The cutover is on 7 March.", "The dinner moved to 14 March.", False),
        ("The cutover is on 7 March.", "The cutover window is 150 minutes.", False),
    ],
)
def test_a_figure_is_outdated_by_a_later_one_of_the_same_matter(older: str, newer: str, is_so: bool) -> None:
    first, second = present.lines_of([(older, 1, False), (newer, 2, False)])
    assert present.outdates(second, first) is is_so


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("on 14 March", ["2026-03-14"]),
        ("March 14th, and 2026-04-01", ["2026-04-01", "2026-03-14"]),
        ("am 12.3. oder 8. Juni", ["2026-06-08", "2026-03-12"]),
        ("since 3 January", ["2026-01-03"]),
        ("on 5 August", ["2026-08-05"]),
        ("version 2.10.1 on 31 February", []),
        ("18,000 MB at 05:00", []),
    ],
)
def test_days_are_read_as_they_were_meant_when_they_were_said(text: str, days: list[str]) -> None:
    assert [str(one) for one in present.dates_in(text, day("2026-02-20"))] == days


@given(
    st.lists(st.tuples(st.text(max_size=400), st.integers(0, 2_000_000_000_000), st.booleans()), max_size=12),
    st.integers(0, 2_000_000_000_000),
    st.integers(0, 500),
)
def test_a_digest_keeps_to_its_size_and_to_what_was_said(
    said: list[tuple[str, int, bool]], now: int, limit: int
) -> None:
    lines = present.lines_of(said)
    found = present.by_rules(lines, now)
    chosen = [*found.state, *found.decided, *found.open, *found.next]
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(lines)
    assert len(present.written(found, limit)) <= limit


def test_a_digest_that_history_came_behind_is_made_again_when_its_time_has_come(
    desk: Desk, clock: ManualClock
) -> None:
    id_ = desk.topic("Fence", "The post is oak.", "It is rotten at the ground.")
    clock.advance(minutes=5)
    desk.cycle()
    before = desk.get(id_)
    assert before.digest_updated_at is not None
    assert before.digest_updated_at > before.updated_at
    with desk.store.write(OWNER) as tx:
        desk._log(tx, id_, "The new post is concrete, 12 cm.", EntryType.CONVERSATION)
        digests.enqueue_again(tx, id_, before.digest_updated_at, OPTIONS)
    desk.cycle(minutes=10)
    assert desk.get(id_).digest == before.digest
    desk.cycle(minutes=6)
    assert "concrete, 12 cm" in (desk.get(id_).digest or "")
    assert desk.get(id_).updated_at == before.updated_at


@pytest.mark.parametrize(
    ("older", "newer", "over"),
    [
        (
            "11 onboarding screens for Tidewell, due 19 January.",
            "Tidewell changed its mind: 9 screens.",
            True,
        ),
        ("The grant for the pump is 55 percent.", "The grant came: 50 percent, not 55.", True),
        ("The estimate is 860 euros.", "The bill: 912 instead of 860.", True),
        ("Tidewell changed its mind: 9 screens.", "Tidewell wants a round of changes until the 26th.", False),
        ("Tidewell wants 9 screens.", "The Tidewell screens now ship on 3 March.", False),
        ("The roof costs 14,500 euros.", "The roof work now begins on 18 May.", False),
    ],
)
def test_a_newer_figure_outdates_an_older_one_of_the_same_kind(older: str, newer: str, over: bool) -> None:
    assert present.outdates(present.line_of(newer, 2), present.line_of(older, 1)) is over
    held = present.by_rules(present.lines_of([(older, 1, False), (newer, 2, False)]), now=3)
    told = present.written(held, 1_000)
    assert newer in told
    assert (older in told) is not over


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("first", "newer", "minutes", "over"),
    [
        ("The dentist is on Tuesday at 14:00.", "Moved to Thursday.", 4, True),
        ("The dentist is on Tuesday at 14:00.", "now 14:30 instead", 4, True),
        ("The dentist is on Tuesday 12 May.", "It's the 14th of May now.", 20, True),
        ("Der Elternabend ist am Freitag um 19 Uhr.", "doch erst am Montag", 4, True),
        ("Der Elternabend ist am Freitag um 19 Uhr.", "Jetzt 19:30 Uhr.", 4, True),
        ("The dentist is on Tuesday at 14:00.", "Moved to Thursday.", 60 * 30, False),
        ("The dentist is on Tuesday at 14:00.", "The rehearsal moved to Thursday.", 4, False),
        ("The dentist is on Tuesday at 14:00.", "I am there on Thursday.", 4, False),
        ("The dentist costs 80 euros.", "Moved to Thursday.", 4, False),
        ("The dentist is on Tuesday at 14:00.", "Tuesday it is now.", 4, False),
    ],
)
def test_a_short_correction_is_of_what_was_said_just_before(
    first: str, newer: str, minutes: int, over: bool
) -> None:
    said = [(first, 1, False), (f"Noted: {first}", 2, False), (newer, 2 + minutes * MINUTE, False)]
    lines = present.lines_of(said)
    assert present.replaced(lines) == ({0: 2, 1: 2} if over else {})


def test_a_digest_tells_a_short_correction_with_what_it_corrects() -> None:
    lines = present.lines_of(
        [
            ("The dentist is on Tuesday 12 May at 14:00.", day("2026-05-04"), False),
            ("Bring the X-ray of 2024.", day("2026-05-04") + MINUTE, False),
            ("Moved to Thursday 14 May.", day("2026-05-04") + HOUR, False),
        ]
    )
    told = present.written(present.by_rules(lines, day("2026-05-05")), 1800)
    assert (
        "Moved to Thursday 14 May. (instead of, 2026-05-04: The dentist is on Tuesday 12 May at 14:00.)"
        in told
    )
    assert told.count("The dentist") == 1


def test_a_digest_has_room_for_each_kind_of_news() -> None:
    valves = [f"The valve number {n} of the boiler house {n} is green and sound." for n in range(30)]
    noise = [(text, day("2026-02-01") + n, False) for n, text in enumerate(valves)]
    lines = present.lines_of([*TALK, *noise])
    chosen = present.Present(
        state=[one for one in lines if "valve" in one.text],
        decided=[one for one in lines if "decided" in one.text],
        open=[one for one in lines if "Priya" in one.text],
        next=[one for one in lines if "14 March" in one.text],
    )
    told = present.written(chosen, 600)
    assert len(told) <= 600
    assert [part in told for part in ("- Decided ", "- Open ", "- Next ")] == [True, True, True]
    assert told.startswith("- 2026-02-01: The valve")
