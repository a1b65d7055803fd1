"""Chains, checked as a model: two processes on one store, in which anything may happen in any order."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from leash_play import SENT, STEPS, A, B, Line, Playing, World, staged

from holdfast.agents.loop import ending
from holdfast.agents.subagents import registry
from holdfast.clock import ManualClock
from holdfast.continuation import Kind, Record, Status, limits, records
from holdfast.continuation.state import Phase
from holdfast.keys import parse_key
from holdfast.log import (
    OWNER,
    Chain,
    Entry,
    EntryFilter,
    Store,
    Turn,
    TurnStatus,
    Tx,
    agenda,
    chains,
    entries,
    sessions,
    turns,
)
from holdfast.runtime.chain_view import Node, tree

LONG = int(os.environ.get("HOLDFAST_CRASH_KILLS", "6")) >= 100
HOUR = 3_600_000
WORDS = ["done", "NO_REPLY", "on it CONTINUE_WORK", "more [[CONTINUE_DELEGATE: look | silent-wake]]"]
WHERE = [{}, {}, {"targetSessionKey": B}, {"fanoutMode": "tree"}, {"fanoutMode": "all"}]
STOPS = ["/stop", "/stop", "chain", "/stop all", "halt"]
ANY = st.integers(0, 11)
ONE = st.integers(0, 1)


class Leash(RuleBasedStateMachine):
    """Turns, elections, delegates and children of both sessions; what is promised of chains holds after every
    step, and when all is left alone it comes to an end in which nothing is owed."""

    address: Callable[[], str]
    now: World

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-leash-"))
        self.clock = ManualClock()
        store = Store(Leash.address(), clock=self.clock)
        Leash.now = self.world = World(store, self.clock, self.folder)
        self.said = 0

    def teardown(self) -> None:
        try:
            self._settle_down()
        finally:
            self.world.close()
            shutil.rmtree(self.folder)

    @initialize()
    def both_sessions_are_known(self) -> None:
        with self.world.store.write(OWNER) as tx:
            for key in (A, B):
                sessions.ensure(tx, key, agent_id="main")

    @rule(which=ONE)
    def step(self, which: int) -> None:
        self.world.step(which)

    @rule(key=st.sampled_from([A, A, B]), which=ONE)
    def message_begins(self, key: str, which: int) -> None:
        self.world.say(key)
        self.world.step(which)

    @precondition(lambda self: self.world.playing)
    @rule(at=ANY, delay=st.sampled_from([None, 0, 40]), tokens=st.integers(0, 9))
    def elect(self, at: int, delay: int | None, tokens: int) -> None:
        given = {"reason": f"go on {at}", "delaySeconds": delay}
        self.world.play(self._one(at), Line("continue_work", given, tokens=tokens))

    @precondition(lambda self: self.world.playing)
    @rule(
        at=ANY,
        mode=st.sampled_from(["normal", "silent", "silent-wake"]),
        where=st.sampled_from(WHERE),
        delay=st.sampled_from([None, None, 40]),
    )
    def delegate(self, at: int, mode: str, where: dict[str, Any], delay: int | None) -> None:
        given = {"task": "look", "mode": mode, "delaySeconds": delay, **where}
        self.world.play(self._one(at), Line("continue_delegate", given, tokens=1))

    @precondition(lambda self: self.world.playing)
    @rule(at=ANY, expects=st.sampled_from([True, True, False]))
    def spawn(self, at: int, expects: bool) -> None:
        given = {"task": "look", "expectsCompletionMessage": expects}
        self.world.play(self._one(at), Line("sessions_spawn", given, tokens=1))

    @precondition(lambda self: self.world.playing)
    @rule(at=ANY, words=st.sampled_from(WORDS), tokens=st.integers(0, 9))
    def say(self, at: int, words: str, tokens: int) -> None:
        """The last words of a turn, told apart from all others."""
        self.said += 1
        spoken = words if words == "NO_REPLY" else f"word-{self.said}. {words}"
        self.world.play(self._one(at), Line(says=spoken, tokens=tokens))

    @precondition(lambda self: self.world.playing)
    @rule(at=ANY)
    def fail(self, at: int) -> None:
        self.world.play(self._one(at), Line())

    @rule(how=st.sampled_from(STOPS), at=ANY, which=ONE, meanwhile=st.booleans())
    def stop(self, how: str, at: int, which: int, meanwhile: bool) -> None:
        """In any session, also a child's; while the other process is at work, or while it rests."""
        before = self._live()
        live = sorted(before)
        if meanwhile:
            self.world.meanwhile = self.world.processes[1 - which]
        match how:
            case "/stop":
                keys = [A, B, *sorted({one.turn.session_key for one in self.world.playing.values()})]
                self.world.command(keys[at % len(keys)], how, which)
            case "/stop all":
                self.world.command(A, how, which)
            case "chain" if live:
                self.world.stop_chain(live[at % len(live)], which)
                assert self._chain(live[at % len(live)]).stopped
            case "halt":
                self.world.halt(which)
        self.world.meanwhile = None
        self.world.bury()
        if how in ("/stop all", "halt"):
            assert not before & self._live()
            self.world.stopped |= self._every_chain()
        if how == "halt" and at % 2:
            self.world.release(which)

    @rule(how=st.sampled_from(["/new", "/subagents stop all", "release"]), key=st.sampled_from([A, B]))
    def command(self, how: str, key: str) -> None:
        """What is not waited for ends soon."""
        if how == "release":
            self.world.release(0)
        else:
            self.world.command(key, how)
            self.world.wind_up()

    @rule(which=ONE, writes=st.integers(0, 5))
    def crash(self, which: int, writes: int) -> None:
        """The process ends now, or right after one of its next transactions."""
        if writes == 0:
            self.world.die(which)
        self.world.processes[which].writes_left = writes
        self.world.step(which)
        self.world.processes[which].writes_left = 0

    @precondition(lambda self: self.world.playing)
    @rule(at=ANY, writes=st.integers(1, 3), words=st.sampled_from([None, *WORDS]))
    def crash_within_a_turn(self, at: int, writes: int, words: str | None) -> None:
        playing = self._one(at)
        playing.process.writes_left = writes
        if words is None:
            self.spawn(at, expects=True)
        else:
            self.say(at, words, 1)
        playing.process.writes_left = 0

    @rule(
        seconds=st.sampled_from([6, 16, 45, 301]),
        slept=st.sampled_from([False, False, True]),
        which=ONE,
    )
    def time_passes(self, seconds: int, slept: bool, which: int) -> None:
        """Leases are renewed meanwhile; of who was put to sleep with its process the other takes over."""
        self.clock.advance(seconds=seconds)
        if slept:
            self.world.take_over(which)
        else:
            self.world.renew()
            self.world.step(which)

    @rule(hours=st.sampled_from([-1, -1, 1, 30]))
    def clock_is_set(self, hours: int) -> None:
        """Back: what waits for a delay waits as long as before, however many processes notice."""
        before = {r.id: (r.due or 0) - self.clock.now() for r in self._waiting()}
        self.clock.set(self.clock.now() + hours * HOUR)
        self.world.heed_clock()
        self.world.renew()
        for record in self._waiting():
            left = before[record.id]
            assert hours > 0 or left <= 0 or (record.due or 0) - self.clock.now() == left

    @invariant()
    def what_is_promised_holds(self) -> None:
        self.no_chain_is_beyond_its_caps_and_every_step_is_counted()
        self.all_that_lives_is_seen_below_the_root_of_its_chain()
        self.nothing_lives_or_begins_in_what_was_stopped()
        self.the_cost_of_a_chain_is_that_of_its_calls()
        assert self.world.faults == []

    def no_chain_is_beyond_its_caps_and_every_step_is_counted(self) -> None:
        with self.world.store.read(OWNER) as tx:
            for chain in chains.listing(tx, limit=200):
                elected = records.in_chain(tx, chain.id)
                spawned = [run for run in registry.in_chain(tx, chain.id) if not run.on_errand]
                assert chain.steps == sum(_took_a_step(record) for record in elected)
                assert chain.sent == len(spawned)
                assert chain.steps <= STEPS
                assert chain.sent <= SENT

    def all_that_lives_is_seen_below_the_root_of_its_chain(self) -> None:
        with self.world.store.read(OWNER) as tx:
            listed = {chain.id: chain for chain in chains.listing(tx, live=True, limit=200)}
            assert set(listed) == set(chains.all_live(tx))
            for id_, chain in listed.items():
                nodes = {node.id: node for node in tree(tx, chain)[0]}
                assert _living(tx, id_) <= nodes.keys()
                assert all(_root(node, nodes) == id_ for node in nodes.values())

    def nothing_lives_or_begins_in_what_was_stopped(self) -> None:
        assert self.world.begun_late == []
        with self.world.store.read(OWNER) as tx:
            stopped = {chain.id for chain in chains.listing(tx, limit=200) if chain.stopped}
            assert not stopped & set(chains.all_live(tx))
            assert not stopped & {one.turn.chain_id for one in self.world.playing.values()}

    def the_cost_of_a_chain_is_that_of_its_calls(self) -> None:
        with self.world.store.read(OWNER) as tx:
            for id_, billed in self.world.bills.items():
                found = turns.get_many(tx, chains.turns_of(tx, id_))
                assert chains.get(tx, id_).tokens + sum(_not_counted(turn) for turn in found) == billed

    def _one(self, at: int) -> Playing:
        found = sorted(self.world.playing)
        assert found, self.world.faults
        return self.world.playing[found[at % len(found)]]

    def _live(self) -> set[str]:
        with self.world.store.read(OWNER) as tx:
            return set(chains.all_live(tx))

    def _every_chain(self) -> set[str]:
        with self.world.store.read(OWNER) as tx:
            found = (turns.listing(tx, session.id, limit=200) for session in sessions.listing(tx, limit=200))
            return {str(turn.chain_id) for some in found for turn in some}

    def _chain(self, id_: str) -> Chain:
        with self.world.store.read(OWNER) as tx:
            return chains.get(tx, id_)

    def _waiting(self) -> list[Record]:
        with self.world.store.read(OWNER) as tx:
            found = records.listing(tx, limit=500)
        return [r for r in found if r.phase is Phase.WAITING and r.due is not None]

    def _stopped(self, stop: Any, which: int, meanwhile: bool) -> None:
        """Stop something in one process, while the other does what is due or not."""
        if meanwhile:
            self.world.meanwhile = self.world.processes[1 - which]
        stop()
        self.world.meanwhile = None
        self.world.bury()

    def _settle_down(self) -> None:
        """Left alone, with every turn answered, all comes to an end; and each result was told once."""
        self.world.release(0)
        for _ in range(60):
            for which in (0, 1):
                self.world.step(which)
            for playing in list(self.world.playing.values()):
                if playing.turn.id in self.world.playing:
                    self.say(sorted(self.world.playing).index(playing.turn.id), "done", 1)
            if not self.world.playing and not self._live():
                break
            self.clock.advance(seconds=301)
            self.world.renew()
            for which in (0, 1):
                self.world.take_over(which)
        assert not self._live(), self._left()
        for key in (A, B):  # what lies ready is shown to whoever comes next
            self.message_begins(key, 0)
            while self.world.playing:
                self.say(0, "done", 1)
        self.every_result_was_told_once()

    def _left(self) -> list[Any]:
        with self.world.store.read(OWNER) as tx:
            return [*(tree(tx, chains.get(tx, id_)) for id_ in self._live()), agenda.listing(tx)]

    def every_result_was_told_once(self) -> None:
        with self.world.store.read(OWNER) as tx:
            runs = [run for chain in chains.listing(tx, limit=200) for run in registry.in_chain(tx, chain.id)]
            told = {key: _told(tx, key) for key in {A, B, *(run.child_key for run in runs)}}
            elected = {
                r.spawn_key: r for c in chains.listing(tx, limit=200) for r in records.in_chain(tx, c.id)
            }
        for run in runs:
            assert not run.live
            if run.on_errand:
                _require_returned(elected[run.spawn_key], run, told)
            else:
                _require_announced(run, told[run.requester_key])


def _took_a_step(record: Record) -> bool:
    """A turn when it was anchored, a delegate when it was spawned."""
    return record.hop > 0 if record.kind is Kind.WORK else record.spawn_key is not None


def _living(tx: Tx, chain_id: str) -> set[str]:
    elected = records.in_chain(tx, chain_id, live=True)
    spawned = registry.in_chain(tx, chain_id, live=True)
    returning = [run for run in registry.in_chain(tx, chain_id) if run.announce is registry.Announce.WAITING]
    runs = {run.id for run in (*spawned, *returning)}
    return {*chains.live_turns(tx, chain_id), *(r.id for r in elected), *runs}


def _root(node: Node, nodes: dict[str, Node]) -> str:
    for _ in nodes:
        if node.parent is None:
            break
        node = nodes[node.parent]
    return node.id


def _not_counted(turn: Turn) -> int:
    """What a turn that may go on has used and its chain does not know of yet."""
    if turn.status in (TurnStatus.COMMITTED, TurnStatus.FAILED, TurnStatus.CANCELLED):
        return 0
    counted = ((turn.meta or {}).get(turns.COUNTED) or {}).get("inputTokens", 0)
    return int(turns.spent(turn).get("inputTokens", 0) - counted)


def _told(tx: Tx, key: str) -> list[Entry]:
    found = entries.listing(tx, EntryFilter(session_key=key), limit=500).entries
    return [entry for entry in found if "note" in (entry.source or {})]


def _require_announced(run: registry.Run, told: list[Entry]) -> None:
    """Once for each time that it ended; a child that was never begun is told of by its call, and to one that
    is over itself nothing more is said."""
    mine = [e for e in told if f"Session: {run.child_key} " in e.content]
    ended = run.round if run.run_id is not None else 0
    listens = not parse_key(run.requester_key).is_subagent
    assert len(mine) == ended if listens else len(mine) <= ended, (run, mine)


def _require_returned(record: Record, run: registry.Run, told: dict[str, list[Entry]]) -> None:
    """Once to everyone who gets it, and to nobody if someone stopped it."""
    returned = record.status is Status.SUCCEEDED
    word = (run.said or "").partition(" ")[0]
    for key, notes in told.items():
        mine = [e for e in notes if (e.source or {})["note"] == "continuation-return" and word in e.content]
        assert len(mine) <= (1 if returned else 0) or not word, (record, key, mine)
        own = key == record.owner and not record.election.targets and not parse_key(key).is_subagent
        assert mine or not (returned and own and word), (record, run)


@pytest.fixture
def stage(empty_store: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On both engines."""
    Leash.address = staticmethod(empty_store)
    staged(monkeypatch, lambda: Leash.now)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("stage")
@pytest.mark.timeout(1800 if LONG else 300)
def test_whatever_happens_a_chain_keeps_its_caps_and_stops_when_it_is_told_to(
    request: pytest.FixtureRequest,
) -> None:
    many = {"max_examples": 100, "stateful_step_count": 40}
    few = {"max_examples": 16 if "sqlite" in request.node.name else 4, "stateful_step_count": 25}
    run_state_machine_as_test(Leash, settings=settings(deadline=None, **(many if LONG else few)))


@pytest.mark.usefixtures("stage")
def test_a_result_on_its_way_is_stopped_with_its_chain() -> None:
    """Between the end of a child and the turn that would be given its result nothing else lives."""
    model = Leash()
    model.both_sessions_are_known()
    model.message_begins(A, 0)
    model.spawn(0, expects=True)
    model.say(0, "done", 1)
    [child] = model.world.playing.values()
    child.process.writes_left = 1
    model.say(0, "done", 1)
    assert model.world.command(A, "/stop") == "Stopped 1 return."
    for which in (0, 1):
        model.step(which)
    assert model.world.playing == {}
    model.teardown()


@pytest.mark.usefixtures("stage")
def test_the_model_notices_a_cap_that_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is known to be worth something."""
    monkeypatch.setattr(limits, "chain_cap", lambda *_, **__: None)
    model = Leash()
    model.both_sessions_are_known()
    model.message_begins(A, 0)
    for _ in range(STEPS + 1):
        model.say(0, "on it CONTINUE_WORK", 1)
        model.time_passes(16, slept=False, which=1)
    with pytest.raises(AssertionError):
        model.no_chain_is_beyond_its_caps_and_every_step_is_counted()
    model.world.close()


@pytest.mark.usefixtures("stage")
def test_the_model_notices_a_stop_that_leaves_something_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_live_turns", lambda *_: [])
    model = Leash()
    model.both_sessions_are_known()
    model.message_begins(A, 0)
    model.stop("/stop", 0, 1, meanwhile=False)
    with pytest.raises(AssertionError):
        model.nothing_lives_or_begins_in_what_was_stopped()
    model.world.close()
