"""A model looks over what rules sorted: what it may move, name and merge, and what it may never touch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.board import EVERYTHING, decisions, ingest, pending, review, tasks, topics
from holdfast.board.classifier import Classifier
from holdfast.board.judge import Judge, Question
from holdfast.board.topics import Topic
from holdfast.clock import ManualClock
from holdfast.config.board import BoardConfig
from holdfast.errors import Unavailable
from holdfast.log import (
    OWNER,
    Allowance,
    Entry,
    EntryDraft,
    Reader,
    Store,
    Threads,
    agenda,
    entries,
)

MAIN = "agent:main:main"
FENCE = "The oak fence post by the quokka enclosure is rotten, we must replace the fence post with concrete"
GATE = "New topic: the hinge of the paddock gate squeaks and the gate sags on its hinge"
DENTIST = "Unrelated: book a dentist appointment for Anna, her molar aches and the dentist opens on Tuesday"


class Scripted:
    """A model that answers from a list, and keeps what it was asked; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[Question]()

    async def ask(self, question: Question) -> str:
        self.asked.append(question)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else json.dumps({"exchanges": answer})

    def data(self, n: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.JSONDecoder().raw_decode(self.asked[n].text)[0]
        return found


class Board:
    def __init__(self, store: Store, threads: Threads, clock: ManualClock) -> None:
        self.store, self.threads, self.clock = store, threads, clock
        self.options = BoardConfig()
        self.judge: Judge | None = None
        self.allowance = Allowance(now=lambda: clock.now() / 1000)

    def say(self, text: str, role: str = "user", **fields: Any) -> str:
        self.clock.advance(seconds=10)
        draft = EntryDraft(content=text, role=role, **{"session_key": MAIN} | fields)
        with self.store.write(OWNER) as tx:
            return entries.append(tx, ingest.prepare(tx, draft, self.options)).entry.id

    def run(self, minutes: float = 0.5) -> None:
        """Sort what is due, and look over what is due for that."""

        async def work() -> None:
            runner = agenda.Runner(self.store, self.threads)
            parts: Any = (self.store, self.threads, lambda: self.options)
            room = Classifier(*parts, has_judge=lambda key: self.judge is not None, candidates=self)
            reviewer = review.Reviewer(
                *parts, judge=lambda agent: self.judge, allowance=self.allowance, candidates=self
            )
            runner.register(pending.KIND, room.kind())
            runner.register(review.KIND, reviewer.kind())
            await runner.drain()

        self.clock.advance(minutes=minutes)
        asyncio.run(work())

    def topics(
        self, texts: Sequence[str], *, reader: Reader, spaces: frozenset[str] | None, limit: int
    ) -> Sequence[Sequence[str]]:
        return [()] * len(texts)

    def entry(self, id_: str) -> Entry:
        with self.store.read(OWNER) as tx:
            return entries.get(tx, id_)

    def topic(self, id_: str) -> Topic:
        with self.store.read(OWNER) as tx:
            return topics.get(tx, self.entry(id_).topic_id or "", EVERYTHING)

    def all_topics(self) -> list[Topic]:
        with self.store.read(OWNER) as tx:
            return topics.listing(tx, EVERYTHING).topics

    def method(self, id_: str) -> str:
        with self.store.read(OWNER) as tx:
            return decisions.explain(tx, id_).method

    def due(self) -> list[agenda.Item]:
        with self.store.read(OWNER) as tx:
            return agenda.listing(tx, kinds=[review.KIND])


@pytest.fixture
def board(store: Store, threads: Threads, clock: ManualClock) -> Board:
    return Board(store, threads, clock)


def kept(topic_id: str, n: int = 1, **fields: Any) -> dict[str, Any]:
    return {"n": n, "topicId": topic_id, **fields}


def test_rules_sort_at_once_and_a_model_looks_it_over_when_it_is_quiet(board: Board) -> None:
    judge = board.judge = Scripted()
    asked = board.say(FENCE)
    board.say("A concrete post lasts longer; I will order one.", "assistant")
    board.run()
    made = board.topic(asked)
    assert (board.method(asked), judge.asked) == ("heuristic", [])
    judge.answers = [[kept(made.id, name="Enclosure fence", summary="Replace the rotten post")]]
    board.run(minutes=4)
    assert (board.topic(asked).id, board.topic(asked).name) == (made.id, "Enclosure fence")
    assert board.entry(asked).summary == "Replace the rotten post"
    assert board.method(asked) == "model"
    shown = judge.data()
    assert next(one["text"] for one in shown["exchanges"][0]["said"]) == FENCE
    assert [(one["id"], one["mayBeRenamed"]) for one in shown["topics"]] == [(made.id, True)]
    assert board.due() == []


def test_a_stretch_is_one_call_and_is_not_looked_over_twice(board: Board) -> None:
    judge = board.judge = Scripted()
    first, second, third = board.say(FENCE), board.say(GATE), board.say(DENTIST)
    board.run()
    ids = [board.topic(one).id for one in (first, second, third)]
    assert len(set(ids)) == 3
    judge.answers = [[kept(ids[0], 1), kept(ids[0], 2), kept(ids[2], 3)]]
    board.run(minutes=4)
    assert [board.topic(one).id for one in (first, second, third)] == [ids[0], ids[0], ids[2]]
    assert {topic.id for topic in board.all_topics()} == {ids[0], ids[2]}, "what it left empty is gone"
    new = board.say("By the way, the tax return is due on 31 May, with the receipts of the barn")
    board.run()
    board.run(minutes=4)
    judge_shown = judge.data(1)["exchanges"]
    assert [one["said"][0]["text"][:10] for one in judge_shown] == ["By the way"]
    assert board.method(new) == "heuristic", "its list of answers was at an end"


def test_a_new_matter_gets_one_topic_by_its_name(board: Board) -> None:
    judge = board.judge = Scripted()
    first, second = board.say(FENCE), board.say("And order twelve bags of gravel for the fence posts")
    board.run()
    before = board.topic(first).id
    judge.answers = [[{"n": 1, "name": "Enclosure fence"}, {"n": 2, "name": "Enclosure  fence"}]]
    board.run(minutes=4)
    assert board.topic(first).id == board.topic(second).id != before
    assert [topic.name for topic in board.all_topics()] == ["Enclosure fence"]


def test_topics_and_names_of_a_person_stay(board: Board) -> None:
    judge = board.judge = Scripted()
    first, second = board.say(FENCE), board.say(DENTIST)
    board.run()
    mine, other = board.topic(first), board.topic(second)
    with board.store.write(OWNER) as tx:
        topics.update(tx, mine.id, {"name": "My fence"})
        tasks.upsert(tx, "Call Dr. Woods", topic_id=other.id)
    judge.answers = [[kept(mine.id, 1, name="Fence of the enclosure"), kept(mine.id, 2)]]
    board.run(minutes=4)
    assert [one["mayBeRenamed"] for one in judge.data()["topics"]] == [False, True]
    assert {topic.name for topic in board.all_topics()} == {"My fence", other.name}


def test_what_a_person_moved_meanwhile_stays_where_it_is(board: Board) -> None:
    first = board.say(FENCE)

    class Slow(Scripted):
        async def ask(self, question: Question) -> str:
            with board.store.write(OWNER) as tx:
                entries.annotate(tx, first, {"topic_id": topics.upsert(tx, "Mine").topic.id})
            return await super().ask(question)

    board.judge = Slow([{"n": 1, "name": "Model's own"}])
    board.run()
    board.run(minutes=4)
    assert board.topic(first).name == "Mine"


def test_an_answer_that_cannot_be_used_is_mended_once_and_then_left(board: Board) -> None:
    judge = board.judge = Scripted([kept("made-up")], "{}")
    entry = board.say(FENCE)
    board.run()
    board.run(minutes=4)
    assert board.method(entry) == "heuristic"
    assert len(judge.asked) == 2
    assert "topicId is none of topics" in judge.asked[1].text
    board.run(minutes=60)
    assert len(judge.asked) == 2


def test_a_model_that_fails_is_asked_again_once_and_costs_nothing(board: Board) -> None:
    judge = board.judge = Scripted(*[Unavailable("no model")] * 9)
    entry = board.say(FENCE)
    for _ in range(4):
        board.run(minutes=10)
    assert board.method(entry) == "heuristic"
    assert len(judge.asked) == review.MAX_ATTEMPTS


def test_a_model_that_never_answers_holds_nothing_up(board: Board) -> None:
    class Mute:
        async def ask(self, question: Question) -> str:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    board.options = BoardConfig.model_validate({"classifier": {"sessionBudgetSeconds": 1}})
    board.judge = Mute()
    entry = board.say(FENCE)
    board.run()
    for _ in range(2):
        board.run(minutes=10)
    assert board.method(entry) == "heuristic"
    assert board.due() == []


def test_calls_are_bounded_by_the_hour_and_what_is_left_waits(board: Board) -> None:
    board.options = BoardConfig.model_validate(
        {"classifier": {"modelCallsPerHour": 1, "modelWaitSeconds": 60}}
    )

    class Content(Scripted):
        """One that leaves everything where it is."""

        async def ask(self, question: Question) -> str:
            shown = json.loads(question.text)["exchanges"]
            self.answers = [[kept(one["topicId"], one["n"]) for one in shown]]
            return await super().ask(question)

    judge = board.judge = Content()
    first = board.say(FENCE)
    second = board.say(DENTIST, session_key="agent:main:web:other")
    board.run()
    board.run(minutes=1.1)
    assert len(judge.asked) == 1
    board.run(minutes=30)
    assert len(judge.asked) == 1
    board.run(minutes=40)
    assert len(judge.asked) == 2
    assert {board.method(first), board.method(second)} == {"model"}


def test_board_chats_and_what_goes_without_saying_are_never_asked_about(board: Board) -> None:
    board.judge = Scripted()
    with board.store.write(OWNER) as tx:
        garden = topics.upsert(tx, "Garden").topic.id
    board.say(DENTIST, session_key=f"clawboard:topic:{garden}")
    board.run()
    board.run(minutes=10)
    assert board.judge.asked == []
