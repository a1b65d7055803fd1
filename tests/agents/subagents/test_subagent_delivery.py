"""Results arrive once each, in whatever order children end, the requester busy or not, whatever is lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import KEY, examples, rows
from holdfast.agents.loop import ending
from holdfast.agents.loop.accepting import take_in
from holdfast.agents.loop.asks import Accepted, Ask, Terms, address
from holdfast.agents.loop.journal import Journal
from holdfast.agents.loop.parts import TurnEnd
from holdfast.agents.subagents import SubagentHook, SubagentParts, registry
from holdfast.agents.subagents.handlers import Waker, recover
from holdfast.agents.subagents.registry import Announce, Run, Status
from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.config.board import BoardConfig
from holdfast.errors import HoldfastError
from holdfast.log import (
    OWNER,
    Outcome,
    Store,
    Threads,
    Turn,
    TurnStatus,
    Tx,
    agenda,
    sessions,
    sqlite_url,
    this_process,
    turns,
)

CONFIG = Config()
BOARD = BoardConfig.model_validate({"classifier": {"enabled": False}})
WORKER = "here"


class Lost(Exception):
    """The process died before the transaction was committed."""


class Life:
    """Requester and children, moved by hand through the log's own steps; any step can be lost."""

    def __init__(self, store: Store, children: int) -> None:
        self.store = store
        threads, nobody = Threads(1), cast("Any", None)
        parts = SubagentParts(
            store=store, threads=threads, config=lambda: CONFIG, context=nobody, models=nobody
        )
        self.hook = SubagentHook(parts)
        self.waker = Waker(store, threads, self._accept)
        self.open: tuple[agenda.Job, Journal] | None = None
        self.runs = [self._child(n) for n in range(children)]

    def step(self, work: Callable[[Tx], object], *, lost: bool = False) -> None:
        with suppress(Lost), self.store.write(OWNER) as tx:
            work(tx)
            if lost:
                raise Lost

    def end_child(self, number: int, *, fails: bool = False, lost: bool = False) -> None:
        """A child's turn comes to its end, with everything that this writes."""

        def work(tx: Tx) -> None:
            run = registry.get(tx, self.runs[number])
            if not run.live or run.run_id is None:
                return
            turn = turns.get(tx, run.run_id)
            session = sessions.get(tx, turn.session_id)
            if turn.status is TurnStatus.ACCEPTED:
                turn = turns.start(tx, turn)
                self.hook.begun(tx, turn, session, Terms(agent_id="main"))
            if fails:
                ended = turns.end(tx, turn, TurnStatus.FAILED, "broken")
                self.hook.failed(tx, TurnEnd(turn=ended, session=session, terms=Terms(agent_id="main")))
            else:
                done = turns.commit(tx, turn.key, Outcome())
                end = TurnEnd(
                    turn=done.turn, session=session, terms=Terms(agent_id="main"), said=f"<{number}>"
                )
                self.hook.committed(tx, end)

        self.step(work, lost=lost)

    def say(self, text: str) -> None:
        self.step(lambda tx: self._accept(tx, Ask(text=text, session_key=KEY)))

    def go_on(self, *, fails: bool = False, lost: bool = False) -> bool:
        """The requester's lane moves by one step: a turn begins or ends, or results are looked after."""
        if self.open is not None:
            job, journal = self.open
            self.step(lambda tx: self._end_turn(tx, job, journal, fails), lost=lost)
            self.open = self.open if lost else None
            return True
        item = self._claimed()
        if item is None:
            return False
        job = agenda.Job(item)
        if item.kind == turns.KIND:
            self._begin_turn(job, lost)
        else:
            self.step(lambda tx: self.waker._wake(tx, job), lost=lost)
            if lost:
                self._given_back()
        return True

    def restart(self) -> None:
        """Everything in memory is gone; what ran is taken back."""
        if self.open is not None:
            self.open = None
            self._given_back()
        self.step(lambda tx: recover(tx, ()))

    def arrived(self) -> dict[int, int]:
        """How often each child's words stand in the requester's log."""
        found = rows(self.store, f"SELECT content FROM entries WHERE session_key = '{KEY}'")
        text = "\n".join(str(row[0]) for row in found)
        return {n: text.count(f"Subagent: ({run})") for n, run in enumerate(self.runs)}

    def child(self, number: int) -> Run:
        with self.store.read(OWNER) as tx:
            return registry.get(tx, self.runs[number])

    def _begin_turn(self, job: agenda.Job, lost: bool) -> None:
        made: list[Journal] = []

        def begin(tx: Tx) -> None:
            turn = turns.get(tx, str(job.item.payload["turnId"]))
            journal = Journal.begin(tx, turn, "main", lambda: BOARD)
            self.hook.begun(tx, journal.turn, journal.session, Terms(agent_id="main"))
            journal.listen(tx)
            made.append(journal)

        self.step(begin, lost=lost)
        if lost:
            self._given_back()
        else:
            self.open = (job, made[0])

    def _end_turn(self, tx: Tx, job: agenda.Job, journal: Journal, fails: bool) -> None:
        terms = Terms(agent_id="main")
        if fails:
            job.settle(tx, agenda.Fail(WORKER, "broken", final=True))
            ended = turns.end(tx, turns.get(tx, journal.turn.id), TurnStatus.FAILED, "broken")
            self.hook.failed(tx, TurnEnd(turn=ended, session=journal.session, terms=terms))
        else:
            done = turns.commit(tx, journal.turn.key, Outcome(), job)
            self.hook.committed(tx, TurnEnd(turn=done.turn, session=journal.session, terms=terms, said="ok"))

    def _claimed(self) -> agenda.Item | None:
        with self.store.write(OWNER, ordered=False) as tx:
            kinds = {turns.KIND: 1, "subagent.wake": 1}
            lanes = agenda.claim(tx, kinds, owner=WORKER, lease_ms=60_000, most=1)
        return lanes[0] if lanes else None

    def _given_back(self) -> None:
        """What a dead process ran is queued again, as the runner does when it starts."""
        with self.store.write(OWNER) as tx:
            for item in agenda.expire(tx, dead=lambda _: True):
                if item.kind == turns.KIND:
                    ending.cut_off(tx, item, (self.hook,), "main")
        assert isinstance(self.store.clock, ManualClock)
        self.store.clock.advance(minutes=10)

    def _accept(self, tx: Tx, ask: Ask) -> Accepted:
        return take_in(tx, ask, address(ask, CONFIG), CONFIG)

    def _child(self, number: int) -> str:
        """A run as a spawn leaves it; its turn is moved by hand, so it is on no agenda."""
        with self.store.write(OWNER) as tx:
            key = f"agent:main:subagent:{number}"
            session = sessions.ensure(tx, key, parent_key=KEY)
            sessions.ensure(tx, KEY)
            turn: Turn = turns.accept(tx, session, None, key=f"subagent:{number}", trigger="subagent").turn
            assert turn.agenda_id is not None
            agenda.cancel(tx, turn.agenda_id)
            run = Run(
                id=f"run-{number}",
                spawn_key=f"spawn:{number}",
                child_key=key,
                child_session_id=session.id,
                agent_id="main",
                requester_key=KEY,
                requester_agent="main",
                origin={},
                task="count",
                depth=1,
                mode="run",
                cleanup="keep",
                context="isolated",
                expects=True,
                timeout_seconds=0,
                owner=this_process(),
                created_at=tx.now,
                updated_at=tx.now,
                run_id=turn.id,
                label=f"(run-{number})",
                status=Status.QUEUED,
            )
            return registry.insert(tx, run).id


MOVES = ("end", "end", "fail", "say", "go", "go", "go", "fail-turn", "restart")
moves_made = st.tuples(
    st.sampled_from(MOVES), st.integers(0, 3), st.sampled_from((False, False, False, True))
)


@settings(max_examples=examples(15))
@given(st.integers(1, 4), st.lists(moves_made, min_size=4, max_size=24))
def test_every_result_arrives_once_whatever_happens_on_the_way(
    sqlite_template: Path, children: int, moves: list[tuple[str, int, bool]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock()
        store = Store(sqlite_url(shutil.copy(sqlite_template, Path(folder) / "h.db")), clock=clock)
        try:
            _lived_through(Life(store, children), moves, clock)
        finally:
            store.close()


def _lived_through(life: Life, moves: list[tuple[str, int, bool]], clock: ManualClock) -> None:
    count = len(life.runs)
    said = 0
    for move, number, lost in moves:
        match move:
            case "end" | "fail":
                life.end_child(number % count, fails=move == "fail", lost=lost)
            case "say":
                said += 1
                with suppress(HoldfastError):
                    life.say(f"message {said}")
            case "restart":
                life.restart()
            case _:
                life.go_on(fails=move == "fail-turn", lost=lost)
        assert all(times <= 1 for times in life.arrived().values())
    for number in range(count):
        life.end_child(number)
    for _ in range(200):
        if not life.go_on():
            clock.advance(minutes=10)
            if not life.go_on():
                break
    assert life.arrived() == dict.fromkeys(range(count), 1)
    assert {life.child(n).announce for n in range(count)} <= {Announce.DELIVERED, Announce.QUIET}
    asked = [life.child(n).asks for n in range(count)]
    assert max(asked) <= 3


def test_a_result_that_comes_while_a_turn_is_under_way_is_not_taken_for_seen(sqlite_store: Store) -> None:
    life = Life(sqlite_store, 2)
    life.say("hello")
    assert life.go_on()
    life.end_child(0)
    assert life.go_on()
    assert (life.child(0).announce, life.arrived()[0]) == ("waiting", 0)
    assert life.go_on()
    assert life.child(0).announce == "asked"
    life.end_child(1)
    assert life.go_on()
    assert life.arrived() == {0: 1, 1: 1}
    assert life.go_on(fails=True)
    assert (life.child(0).announce, life.child(1).announce) == ("waiting", "waiting")
    assert life.go_on() is True
    assert life.go_on() is True
    assert life.go_on() is True
    assert {life.child(n).announce for n in (0, 1)} == {"delivered"}
    assert life.arrived() == {0: 1, 1: 1}
    assert life.go_on() is False


@pytest.mark.parametrize("ends", ["end", "fail"])
def test_on_both_engines_the_result_the_note_and_the_waking_are_there_together_or_not_at_all(
    store: Store, ends: str
) -> None:
    life = Life(store, 2)
    life.end_child(0, fails=ends == "fail", lost=True)
    assert (life.child(0).status, rows(store, "SELECT count(*) FROM notes")) == ("queued", [(0,)])
    assert rows(store, "SELECT count(*) FROM agenda WHERE kind IN ('subagent.wake', 'subagent.sweep')") == [
        (0,)
    ]
    life.end_child(0, fails=ends == "fail")
    life.end_child(1)
    life.end_child(1)
    assert rows(store, "SELECT count(*) FROM notes WHERE kind = 'subagent-account'") == [(2,)]
    wakes = "SELECT count(*) FROM agenda WHERE kind = 'subagent.wake'"
    assert rows(store, wakes) == [(1,)]
    while life.go_on():
        pass
    assert life.arrived() == {0: 1, 1: 1}
    assert rows(store, "SELECT count(*) FROM turns WHERE trigger = 'subagent-return'") == [(1,)]
    assert {life.child(n).announce for n in (0, 1)} == {"delivered"}


def test_after_a_restart_what_is_over_is_told_and_nothing_is_begun_again(store: Store) -> None:
    life = Life(store, 3)
    with store.write(OWNER) as tx:
        cut = turns.start(tx, turns.get(tx, life.child(0).run_id or ""))
        life.hook.begun(tx, cut, sessions.get(tx, cut.session_id), Terms(agent_id="main"))
        turns.end(tx, cut, TurnStatus.INTERRUPTED, "the process ended")
        lost = registry.get(tx, life.runs[1])
        registry.save(tx, lost, run_id="turn-that-is-gone")
        never = registry.get(tx, life.runs[2])
        registry.save(tx, never, status=Status.PREPARING, owner="nowhere/1/1")
    with store.write(OWNER) as tx:
        assert recover(tx, ()) == 2
        assert recover(tx, ()) == 0
    assert [life.child(n).outcome for n in range(3)] == ["interrupted", "unknown", None]
    while life.go_on():
        pass
    assert life.arrived() == {0: 1, 1: 1, 2: 0}
    turn = life.child(0).run_id
    assert rows(store, f"SELECT status, attempt FROM turns WHERE id = '{turn}'") == [("interrupted", 1)]


def test_a_run_that_someone_resumes_comes_back_once_more(sqlite_store: Store) -> None:
    life = Life(sqlite_store, 1)
    with sqlite_store.write(OWNER) as tx:
        cut = turns.start(tx, turns.get(tx, life.child(0).run_id or ""))
        session = sessions.get(tx, cut.session_id)
        life.hook.begun(tx, cut, session, Terms(agent_id="main"))
        ended = turns.end(tx, cut, TurnStatus.INTERRUPTED, "the process ended")
        life.hook.failed(tx, TurnEnd(turn=ended, session=session, terms=Terms(agent_id="main")))
    while life.go_on():
        pass
    assert (life.child(0).outcome, life.arrived()[0]) == ("interrupted", 1)
    with sqlite_store.write(OWNER) as tx:
        again = turns.start(tx, turns.get(tx, cut.id))
        life.hook.begun(tx, again, session, Terms(agent_id="main"))
    assert (life.child(0).status, life.child(0).round) == ("running", 2)
    life.end_child(0)
    while life.go_on():
        pass
    assert (life.child(0).outcome, life.child(0).announce, life.arrived()[0]) == ("success", "delivered", 2)
