"""The classifier as a whole: log, run the agenda, look where things lie and why."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.board import EVERYTHING, decisions, digests, ingest, lineage, pending, routing, tasks, topics
from holdfast.board.candidates import Recent
from holdfast.board.classifier import PIECE_SECONDS, Classifier
from holdfast.board.topics import Topic
from holdfast.board.work import TopicStatus
from holdfast.clock import ManualClock
from holdfast.config.board import BoardConfig
from holdfast.log import (
    FOR_OWNER,
    OWNER,
    Classification,
    Entry,
    EntryDraft,
    EntryType,
    Pace,
    Reader,
    Store,
    Threads,
    Tx,
    agenda,
    entries,
    sqlite_url,
)

MAIN = "agent:main:main"
FENCE = "The oak fence post by the quokka enclosure is rotten, we must replace the fence post with concrete"
FENCE_REPLY = "A concrete fence post lasts longer than oak; I will order concrete for the enclosure fence."
DENTIST = "Book a dentist appointment for Anna, her molar aches and the dentist opens on Tuesday"
DENTIST_REPLY = "The dentist has an appointment on Tuesday at nine for the molar."


class Board:
    """A store with its classifier; `say` logs, `run` sorts what is due."""

    def __init__(self, store: Store, threads: Threads, clock: ManualClock) -> None:
        self.store, self.threads, self.clock = store, threads, clock
        self.options = BoardConfig()
        self.breaks = False
        self.piece_seconds = PIECE_SECONDS
        self.found: Sequence[str] = ()
        self.room: Classifier | None = None

    def say(self, text: str, role: str = "user", **fields: Any) -> str:
        self.clock.advance(seconds=10)
        draft = EntryDraft(content=text, role=role, **{"session_key": MAIN} | fields)
        with self.store.write(OWNER) as tx:
            return entries.append(tx, ingest.prepare(tx, draft, self.options)).entry.id

    def run(self) -> None:
        async def work() -> None:
            runner = agenda.Runner(self.store, self.threads)
            self.room = self.room or Classifier(
                self.store,
                self.threads,
                lambda: self.options,
                candidates=self,
                piece_seconds=self.piece_seconds,
            )
            runner.register(pending.KIND, self.room.kind())
            await runner.drain()

        self.clock.advance(seconds=20)
        asyncio.run(work())

    def topics(
        self, texts: Sequence[str], *, reader: Reader, spaces: frozenset[str] | None, limit: int
    ) -> Sequence[Sequence[str]]:
        if self.breaks:
            raise ValueError("broken")
        return [self.found[:limit]] * len(texts)

    def entry(self, id_: str) -> Entry:
        with self.store.read(OWNER) as tx:
            return entries.get(tx, id_)

    def topic(self, id_: str) -> Topic:
        with self.store.read(OWNER) as tx:
            return topics.get(tx, self.entry(id_).topic_id or "", EVERYTHING)

    def made(self, name: str, **values: Any) -> Topic:
        with self.store.write(OWNER) as tx:
            return topics.upsert(tx, name, **values).topic

    def why(self, id_: str) -> decisions.Made:
        with self.store.read(OWNER) as tx:
            return decisions.explain(tx, id_)


@pytest.fixture
def board(store: Store, threads: Threads, clock: ManualClock) -> Iterator[Board]:
    return Board(store, threads, clock)


def test_an_exchange_gets_a_topic_with_a_readable_name_and_chips(board: Board) -> None:
    asked, answered = board.say(FENCE), board.say(FENCE_REPLY, "assistant")
    board.run()
    first, second = board.entry(asked), board.entry(answered)
    assert first.status is second.status is Classification.CLASSIFIED
    assert first.topic_id == second.topic_id
    assert "fence" in board.topic(asked).name.lower()
    assert board.topic(asked).created_by == "classifier"
    for entry in (first, second):
        assert entry.summary
        assert len(entry.summary) <= 56
        assert entry.space_id == board.topic(asked).space_id


def test_other_matters_get_other_topics_and_one_can_come_back(board: Board) -> None:
    fence = [board.say(FENCE), board.say(FENCE_REPLY, "assistant")]
    dentist = [board.say(DENTIST), board.say(DENTIST_REPLY, "assistant")]
    board.run()
    again = board.say("Did the concrete for the quokka enclosure fence post arrive?")
    board.run()
    assert board.entry(fence[0]).topic_id == board.entry(fence[1]).topic_id
    assert board.entry(dentist[0]).topic_id == board.entry(dentist[1]).topic_id
    assert board.entry(fence[0]).topic_id != board.entry(dentist[0]).topic_id
    assert board.entry(again).topic_id == board.entry(fence[0]).topic_id
    assert "fence" in board.why(again).reasons["evidence"]


@pytest.mark.parametrize("terse", ["yes", "ok do it", "continue", "👍", "Thanks, sounds great!"])
def test_words_that_say_nothing_stay_in_the_thread(board: Board, terse: str) -> None:
    board.say(DENTIST)
    fence = board.say(FENCE)
    board.run()
    short = board.say(terse)
    board.run()
    assert board.entry(short).topic_id == board.entry(fence).topic_id
    assert board.why(short).method == "continuity"


def test_a_terse_start_joins_what_follows_and_alone_it_is_noise(board: Board) -> None:
    hello, asked = board.say("hello there"), board.say(FENCE)
    alone = board.say("ok", session_key="agent:main:discord:dm:7")
    board.run()
    assert board.entry(hello).topic_id == board.entry(asked).topic_id is not None
    assert (board.entry(alone).status, board.entry(alone).code) == (
        Classification.FAILED,
        "conversation_noise",
    )
    with board.store.read(OWNER) as tx:
        assert len(topics.listing(tx, EVERYTHING).topics) == 1


@pytest.mark.parametrize(
    "follow_up", ["Can you make it cheaper with recycled plastic?", "Make the slats wider"]
)
def test_a_request_that_points_back_stays_in_the_thread(board: Board, follow_up: str) -> None:
    fence = board.say(FENCE)
    board.run()
    more = board.say(follow_up)
    board.run()
    assert board.entry(more).topic_id == board.entry(fence).topic_id


EPISODE = (
    ("My molar aches", "user"),
    ("Since when does it?", "assistant"),
    ("Since Sunday, and Dr. Brandt wants an x-ray of the molar and the root canal", "user"),
)


def test_what_hangs_together_is_thought_over_as_more_is_said(board: Board) -> None:
    fence = board.say(FENCE)
    board.run()
    first = [board.say(*line) for line in EPISODE[:2]]
    board.run()
    assert board.entry(first[0]).topic_id == board.entry(fence).topic_id
    last = board.say(*EPISODE[2])
    board.run()
    assert {board.entry(one).topic_id for one in first} == {board.entry(last).topic_id}
    assert board.entry(last).topic_id != board.entry(fence).topic_id
    assert "molar" in board.topic(last).name.lower()


def test_yes_goes_on_with_what_was_said_whatever_follows_it(board: Board) -> None:
    board.say(DENTIST)
    board.run()
    board.clock.advance(minutes=300)
    first = [
        board.say("Durchgefallen. Bremsleitung hinten rostig und Auspuff. 640 Euro sagt er."),
        board.say("640 Euro; Nachprüfung innerhalb eines Monats.", "assistant"),
    ]
    board.run()
    last = board.say("Ja, bis dahin nehm ich den Anhänger von meinem Schwager mit dem Kran und der Winde.")
    board.run()
    assert {board.entry(one).topic_id for one in first} == {board.entry(last).topic_id}


def test_a_topic_that_an_episode_leaves_empty_goes(board: Board) -> None:
    dentist = board.say(DENTIST)
    board.run()
    board.clock.advance(minutes=300)
    first = board.say("Brandt called back, he has a ladder, a tarpaulin and two buckets")
    board.run()
    made = board.topic(first)
    assert made.id != board.entry(dentist).topic_id
    last = board.say("And Brandt is the dentist of Anna, about her molar and the appointment")
    board.run()
    assert board.entry(first).topic_id == board.entry(last).topic_id == board.entry(dentist).topic_id
    with board.store.read(OWNER) as tx:
        assert [one.id for one in topics.listing(tx, EVERYTHING).topics] == [board.topic(dentist).id]


@pytest.mark.parametrize("given", [{"color": "#2f6f4f"}, {"status": TopicStatus.DOING}, {"pinned": True}])
def test_an_empty_topic_that_a_person_gave_something_stays(board: Board, given: dict[str, Any]) -> None:
    board.say(DENTIST)
    board.run()
    board.clock.advance(minutes=300)
    first = board.say("Brandt called back, he has a ladder, a tarpaulin and two buckets")
    board.run()
    made = board.topic(first)
    with board.store.write(OWNER) as tx:
        topics.update(tx, made.id, given)
    board.say("And Brandt is the dentist of Anna, about her molar and the appointment")
    board.run()
    assert board.entry(first).topic_id != made.id
    with board.store.read(OWNER) as tx:
        assert made.id in {one.id for one in topics.listing(tx, EVERYTHING).topics}


def test_what_a_person_moved_is_taken_nowhere(board: Board) -> None:
    board.say(FENCE)
    board.run()
    first = board.say(*EPISODE[0])
    board.run()
    mine = board.made("Teeth")
    with board.store.write(OWNER) as tx:
        entries.annotate(tx, first, {"topic_id": mine.id})
    board.say(*EPISODE[1])
    last = board.say(*EPISODE[2])
    board.run()
    assert board.entry(first).topic_id == mine.id
    assert board.entry(last).topic_id is not None


def test_messages_in_a_row_may_be_about_different_matters(board: Board) -> None:
    fence, dentist = board.say(FENCE), board.say(DENTIST)
    board.run()
    assert board.entry(fence).topic_id != board.entry(dentist).topic_id


def test_a_new_thread_cue_ends_the_thread(board: Board) -> None:
    fence = board.say(FENCE)
    board.run()
    other = board.say("New topic: the fence of our tax return, tax office deadline and receipts")
    board.run()
    assert board.entry(other).topic_id != board.entry(fence).topic_id


def test_board_chats_are_sorted_without_a_model_and_never_leave_their_topic(board: Board) -> None:
    topic = board.made("Garden")
    with board.store.write(OWNER) as tx:
        task = tasks.upsert(tx, "Water the roses", topic_id=topic.id).task
    in_topic = board.say(DENTIST, session_key=f"clawboard:topic:{topic.id}")
    in_task = board.say(DENTIST, session_key=f"clawboard:task:{topic.id}:{task.id}")
    promoted = board.say("I have to water all the roses", session_key=f"clawboard:topic:{topic.id}")
    board.run()
    assert [board.entry(one).topic_id for one in (in_topic, in_task, promoted)] == [topic.id] * 3
    assert [board.entry(one).task_id for one in (in_topic, in_task, promoted)] == [None, task.id, task.id]
    assert board.why(in_task).method == "lock"


def test_pending_rows_from_before_the_rules_converge(board: Board) -> None:
    with board.store.write(OWNER) as tx:
        old = [
            entries.append(tx, EntryDraft(content=text, session_key=MAIN, type=kind)).entry.id
            for text, kind in (
                ("HEARTBEAT_OK", EntryType.CONVERSATION),
                ("Tool call: exec ls", EntryType.ACTION),
                ("booted", EntryType.SYSTEM),
                (FENCE, EntryType.CONVERSATION),
            )
        ]
        assert pending.backlog(tx, board.options.classifier) == 1
    board.run()
    found = [board.entry(id_) for id_ in old]
    assert [(e.status, e.code) for e in found] == [
        (Classification.FAILED, "filtered_control_plane"),
        (Classification.FAILED, "filtered_unanchored_tool_activity"),
        (Classification.CLASSIFIED, "filtered_non_semantic"),
        (Classification.CLASSIFIED, None),
    ]
    assert board.why(old[0]).reasons["text"]


def test_a_long_backlog_is_worked_off_to_the_end(board: Board) -> None:
    board.options = BoardConfig.model_validate({"classifier": {"window": 4}})
    ids = [board.say(FENCE if n % 2 else DENTIST) for n in range(15)]
    board.run()
    with board.store.read(OWNER) as tx:
        assert pending.listing(tx) == []
    assert {board.entry(id_).status for id_ in ids} == {Classification.CLASSIFIED}


MATTERS = (
    ("the oak fence post by the quokka enclosure", "concrete fence post for the enclosure"),
    ("the dentist appointment for the molar", "dentist on Tuesday about the molar"),
    ("tax return with the receipts of the studio", "receipts for the tax office"),
    ("sourdough starter that rises too slowly", "warmer place for the starter dough"),
    ("router firmware that drops the printer", "firmware and printer address"),
)
TERSE = ("ok", "yes please", "do it", "thanks", "hm", "go on")


def recorded(board: Board, count: int) -> list[str]:
    """A history that switches between matters, comes back, answers, and often says nothing much."""
    chance = random.Random(11)
    ids, matter = [], 0
    for _ in range(count):
        if chance.random() < 0.25:
            matter = chance.randrange(len(MATTERS))
        asked, answered = MATTERS[matter]
        text = chance.choice(TERSE) if chance.random() < 0.3 else f"{asked}, part {chance.randrange(4)}"
        if chance.random() < 0.1:
            text = f"new topic: {text}"
        ids.append(board.say(text))
        for _ in range(chance.choice((0, 1, 1, 2))):
            ids.append(board.say(f"About {answered}", "assistant"))
    return ids


@pytest.mark.parametrize("window", [3, 24])
def test_many_exchanges_in_one_transaction_end_as_each_in_its_own(
    tmp_path: Path, sqlite_template: Path, threads: Threads, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is kept from one transaction to the next is what reading it anew each time would find."""
    outcomes = []
    begin = Recent.begin

    def knowing_nothing(recent: Recent, tx: Tx) -> bool:
        known = begin(recent, tx)
        recent.forget()
        return known

    for name, seconds in (("each", 0.0), ("many", 60.0), ("anew", 0.0)):
        if name == "anew":
            monkeypatch.setattr(Recent, "begin", knowing_nothing)
        store = Store(sqlite_url(shutil.copy(sqlite_template, tmp_path / f"{name}.db")), clock=ManualClock())
        board = Board(store, threads, store.clock)  # type: ignore[arg-type]
        board.piece_seconds = seconds
        board.options = BoardConfig.model_validate({"classifier": {"window": window}})
        ids = recorded(board, 70)
        board.run()
        with store.read(OWNER) as tx:
            found = [entries.get(tx, id_) for id_ in ids]
            names = {one.id: one.name for one in topics.listing(tx, EVERYTHING, limit=200).topics}
            made = [decisions.explain(tx, id_) for id_ in ids]
        outcomes.append(
            [
                (e.status, e.code, names.get(e.topic_id or ""), e.summary, m.method, m.confidence)
                for e, m in zip(found, made, strict=True)
            ]
        )
        store.close()
    assert len({name for _, _, name, *_ in outcomes[0]}) > 2
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_what_others_change_between_two_sortings_is_heeded(board: Board) -> None:
    fence, dentist = board.say(FENCE), board.say(DENTIST)
    board.run()
    with board.store.write(OWNER) as tx:
        topics.delete(tx, board.topic(fence).id)
        entries.delete(tx, dentist)
        topics.update(tx, entries.get(tx, dentist).topic_id or "", {"name": "Kernel modules with clang"})
    again = board.say("The oak fence post of the quokka enclosure fell over, order concrete")
    other = board.say("compile the kernel modules with clang", session_key="agent:main:other")
    board.run()
    assert board.topic(again).id != board.entry(fence).topic_id
    assert board.topic(other).name == "Kernel modules with clang"
    assert "molar" not in json.dumps(board.why(other).reasons)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (
            [
                "I booked the flights to Lisbon: TAP, 21 to 25 May, booking code K7QX2M",
                "The flight is TP 671.",
            ],
            "Book a table at Da Luigi on 12.12.",
        ),
        (
            ["Ich habe die Zugtickets nach Lissabon gebucht, Buchung K7QX2M", "Der Zug fährt um 6:55 Uhr."],
            "Buche einen Tisch im Restaurant Luigi für den 12.12.",
        ),
    ],
)
def test_the_verb_of_a_request_does_not_tell_what_it_is_about(
    board: Board, said: list[str], asked: str
) -> None:
    first = board.say(said[0])
    board.say(said[1], "assistant")
    board.run()
    other = board.say(asked)
    board.run()
    assert board.topic(other).id != board.topic(first).id
    assert "Luigi" in board.topic(other).name


ROOF = [
    ("The ladder by the attic window is wet, the roof leaks.", "Is it the flashing of the roof again?"),
    ("The roofer says that the roof needs new tiles.", "Then get a quote for the roof."),
]


def test_a_young_topic_is_renamed_by_what_comes_again(board: Board) -> None:
    first = board.say(ROOF[0][0])
    board.run()
    before = board.topic(first)
    board.say(ROOF[0][1], "assistant")
    for asked, answered in ROOF[1:]:
        board.say(asked)
        board.say(answered, "assistant")
    board.run()
    after = board.topic(first)
    assert (before.id, before.created_by) == (after.id, after.created_by)
    assert before.name != after.name == "Roof, Ladder"


def test_a_name_that_a_person_gave_is_never_changed(board: Board) -> None:
    first = board.say(ROOF[0][0])
    board.run()
    with board.store.write(OWNER) as tx:
        topics.update(tx, board.topic(first).id, {"name": "House repairs 2026"})
    for asked, answered in ROOF:
        again = board.say(asked)
        board.say(answered, "assistant")
    board.run()
    assert board.topic(again).name == board.topic(first).name == "House repairs 2026"


def test_a_name_that_is_taken_is_left_to_its_topic(board: Board) -> None:
    first = board.say(ROOF[0][0])
    board.run()
    name = board.topic(first).name
    board.made("Roof")
    for asked, answered in ROOF[1:]:
        board.say(asked)
        board.say(answered, "assistant")
    board.run()
    assert board.topic(first).name == name


def test_what_fewer_may_read_gives_a_topic_no_name(board: Board) -> None:
    group = {"session_key": "agent:main:telegram:group:7", "audience": "group:telegram:7"}
    first = board.say(ROOF[0][0], **group)
    board.run()
    shared = board.topic(first)
    board.found = [shared.id]
    secret = [
        board.say(f"The roof {word} leaks by the attic window ladder: offshore account") for word in "abc"
    ]
    board.run()
    assert {board.entry(id_).audience for id_ in secret} == {FOR_OWNER}
    assert {board.entry(id_).topic_id for id_ in secret} == {shared.id}
    assert board.topic(first).name == shared.name


def test_after_days_a_session_finds_its_earlier_topic_again(board: Board) -> None:
    fence, _ = board.say(FENCE), board.say(FENCE_REPLY, "assistant")
    board.clock.advance(minutes=24 * 60)
    dentist = board.say(DENTIST)
    board.run()
    board.clock.advance(minutes=48 * 60)
    again = board.say("The quokka enclosure has a new post now, made of concrete.")
    board.run()
    assert board.entry(fence).topic_id != board.entry(dentist).topic_id
    assert board.entry(again).topic_id == board.entry(fence).topic_id
    assert board.why(again).reasons["text"] == "goes back to a topic"


def test_entries_without_a_session_are_sorted_each_by_itself(board: Board) -> None:
    one, two, short = (board.say(t, session_key=None) for t in (FENCE, DENTIST, "yes"))
    board.run()
    assert board.entry(one).topic_id != board.entry(two).topic_id
    assert board.entry(short).code == "conversation_noise"


def test_no_topic_is_taken_that_nothing_speaks_for(board: Board) -> None:
    first = board.made("Completely different matters")
    asked = board.say(FENCE)
    board.run()
    assert board.entry(asked).topic_id != first.id


def test_topics_of_spaces_out_of_sight_are_no_candidates(board: Board) -> None:
    with board.store.write(OWNER) as tx:
        from holdfast.board import spaces

        spaces.upsert(tx, "Alpha", default_visible=False)
        spaces.upsert(tx, "Beta", default_visible=False)
    hidden = board.made("Quokka fence post", space_id="space-beta")
    board.found = [hidden.id]
    asked = board.say(FENCE, space_id="space-alpha")
    board.run()
    assert board.entry(asked).topic_id != hidden.id
    assert board.topic(asked).space_id == "space-alpha"


def test_what_the_index_finds_is_weighed_too(board: Board) -> None:
    far = board.made("Quokka fence post", space_id=None)
    board.found = [far.id]
    asked = board.say(FENCE)
    board.run()
    assert board.entry(asked).topic_id == far.id


def test_new_words_wake_an_archived_topic(board: Board) -> None:
    fence = board.say(FENCE)
    board.run()
    with board.store.write(OWNER) as tx:
        topics.update(tx, board.topic(fence).id, {"status": TopicStatus.ARCHIVED})
    board.say("The oak fence post of the quokka enclosure fell over, order concrete")
    board.run()
    assert board.topic(fence).status is TopicStatus.ACTIVE


def test_a_child_is_sorted_once_its_request_is(board: Board) -> None:
    child = "agent:main:subagent:11111111-1111-1111-1111-111111111111"
    request = board.say(FENCE)
    with board.store.write(OWNER) as tx:
        lineage.link_spawn(tx, MAIN, child, request_id=request)
    work = board.say("Measuring the posts", "assistant", session_key=child)
    board.run()
    board.run()
    assert board.entry(work).topic_id == board.entry(request).topic_id is not None


def test_a_child_whose_request_never_gets_a_topic_ends_as_failed(board: Board) -> None:
    child = "agent:main:subagent:11111111-1111-1111-1111-111111111111"
    request = board.say("ok")
    with board.store.write(OWNER) as tx:
        lineage.link_spawn(tx, MAIN, child, request_id=request)
    work = board.say("Measuring the posts", "assistant", session_key=child)
    board.run()
    assert board.entry(work).status is Classification.PENDING
    board.clock.advance(hours=2)
    board.run()
    assert board.entry(work).code == "filtered_unlinked_subagent"


def test_replay_sorts_again_but_leaves_what_is_bound(board: Board) -> None:
    topic = board.made("Garden")
    bound, free = board.say(FENCE, topic_id=topic.id), board.say(DENTIST)
    board.run()
    with board.store.write(OWNER) as tx:
        assert decisions.replay(tx, bound, board.options.classifier) == 2
        assert entries.get(tx, free).status is Classification.PENDING
    board.run()
    assert board.entry(bound).topic_id == topic.id
    assert board.entry(free).status is Classification.CLASSIFIED


def test_the_session_remembers_what_it_was_about(board: Board) -> None:
    fence = board.say(FENCE)
    board.run()
    with board.store.read(OWNER) as tx:
        items = routing.recall(tx, MAIN, board.options.routing_memory, EVERYTHING)
    assert [item.topic_id for item in items] == [board.entry(fence).topic_id]
    assert items[0].anchor == FENCE


def test_terse_words_follow_what_the_session_was_told_that_it_is_about(board: Board) -> None:
    fence, garden = board.say(FENCE), board.made("Garden")
    board.run()
    with board.store.write(OWNER) as tx:
        item = routing.Routed(int(tx.now), garden.id, garden.name)
        routing.remember(tx, MAIN, item, board.options.routing_memory, FOR_OWNER)
    short = board.say("ok, go on")
    board.run()
    assert board.entry(short).topic_id == garden.id != board.entry(fence).topic_id


def test_a_replay_does_not_know_what_came_later(board: Board) -> None:
    hello, fence = board.say("hello"), board.say(FENCE)
    board.run()
    board.say(DENTIST)
    board.run()
    with board.store.write(OWNER) as tx:
        decisions.replay(tx, hello, board.options.classifier)
    board.run()
    assert board.entry(hello).topic_id == board.entry(fence).topic_id


def test_an_error_that_no_attempt_survives_ends_the_entry_as_failed(board: Board) -> None:
    board.breaks = True
    entry = board.say(FENCE)
    for _ in range(4):
        board.run()
    assert (board.entry(entry).status, board.entry(entry).code) == (
        Classification.FAILED,
        "classifier_error",
    )


def test_history_that_is_loaded_dates_its_topics_by_when_it_was_said(board: Board) -> None:
    now = int(board.clock.now())
    day = 86_400_000
    first = board.say(FENCE, created_at=now - 30 * day)
    board.say(FENCE_REPLY, "assistant", created_at=now - 30 * day + 60_000)
    other = board.say(DENTIST, created_at=now - 20 * day)
    board.say(DENTIST_REPLY, "assistant", created_at=now - 20 * day + 60_000)
    board.run()
    fence, dentist = board.topic(first), board.topic(other)
    assert (fence.created_at, fence.updated_at) == (now - 30 * day, now - 30 * day + 60_000)
    assert (dentist.created_at, dentist.updated_at) == (now - 20 * day, now - 20 * day + 60_000)
    with board.store.read(OWNER) as tx:
        routed = routing.recall(tx, MAIN, board.options.routing_memory, EVERYTHING)
    assert [one.topic_id for one in routed] == [fence.id, dentist.id]
    assert [one.ts for one in routed] == [fence.updated_at, dentist.updated_at]
    with board.store.write(OWNER) as tx:
        topics.set_digest(tx, fence.id, "concrete, not oak")
        agenda_before = agenda.listing(tx, kinds=[digests.KIND])
    board.say("The fence post of the enclosure is oak, 12 cm", created_at=now - 25 * day)
    board.run()
    assert board.topic(first).updated_at == now - 25 * day
    with board.store.read(OWNER) as tx:
        fresh = [one for one in agenda.listing(tx, kinds=[digests.KIND]) if one not in agenda_before]
    digested = board.topic(first).digest_updated_at
    assert [one.payload for one in fresh] == [{"topicId": fence.id}]
    assert digested is not None
    assert fresh[0].due_at == digested + 15 * 60_000


@pytest.mark.parametrize(("lookback", "goes_on"), [(80, True), (1, False)])
def test_the_topic_at_hand_is_looked_for_as_far_back_as_the_config_says(
    board: Board, lookback: int, goes_on: bool
) -> None:
    """What somebody placed by hand is nothing that routing remembers: it is found by looking back."""
    board.options = BoardConfig.model_validate({"classifier": {"lookback": lookback}})
    fence = board.made("Fence of the quokkas")
    draft = EntryDraft(
        content=FENCE,
        role="user",
        session_key=MAIN,
        topic_id=fence.id,
        status=Classification.CLASSIFIED,
    )
    with board.store.write(OWNER) as tx:
        entries.append(tx, draft)
    board.say("/status")
    board.run()
    later = board.say("Go on, please.")
    board.run()
    assert (board.entry(later).topic_id == fence.id) is goes_on


class Rush:
    """More comes in than can be sorted at once, for as long as a test says."""

    busy = True

    async def gap(self, seconds: float) -> None:
        return None


def test_in_a_rush_so_many_sessions_are_sorted_in_each_interval_as_the_config_says(
    sqlite_store: Store, threads: Threads
) -> None:
    given = {"classifier": {"sessionsPerCycle": 3, "intervalSeconds": 100}}
    options, seconds = BoardConfig.model_validate(given), [0.0]
    room = Classifier(sqlite_store, threads, lambda: options, pace=cast("Pace", Rush()))
    room._allowance._now = lambda: seconds[0]
    held = room.kind().held
    assert held is not None
    left = [held()]
    room._allowance.take()
    left.append(held())
    seconds[0] = 50.0
    left.append(held())
    seconds[0] = 101.0
    assert [*left, held()] == [3, 2, 2, 3]
