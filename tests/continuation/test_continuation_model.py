"""The life of an election, checked as a model: by itself, and against the real store, agenda and clock."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from continuation_play import KEY, OTHER, Live, Play
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from builders import examples
from holdfast.agents.loop import ending
from holdfast.clock import ManualClock, Millis
from holdfast.continuation import dispatch, hook, records
from holdfast.continuation import state as steps
from holdfast.continuation.state import Election, Kind, Phase, Record, Status
from holdfast.log import (
    OWNER,
    Store,
    Threads,
    TurnStatus,
    agenda,
    chains,
    notes,
    sessions,
    sqlite_url,
    turns,
)

EVENTS = st.sampled_from(
    [
        steps.Anchor(1, "c"),
        steps.Refuse("cap"),
        steps.Grant("turn"),
        steps.Fold("note", 5),
        steps.Keep(9),
        steps.Unfold(),
        steps.Busy(9, parked=True),
        steps.Busy(9, parked=False),
        steps.Idle(),
        steps.Deliver(),
        steps.Fail("broken"),
        steps.Fail("broken", final=True),
        steps.Supersede(),
        steps.Reap(),
        steps.Cancel(),
        steps.Spawn("continuation:r:1", "child", 1),
        steps.Returned(),
        steps.Returned(stopped=True),
        steps.Stop("someone said so"),
        steps.Forward(3),
        steps.Lost(),
        steps.Release(),
        steps.Lapse("too late"),
        steps.Noticed(),
        steps.Rebind("s2"),
    ]
)


@settings(max_examples=300)
@given(st.sampled_from(list(Kind)), st.booleans(), st.lists(EVENTS, max_size=25))
def test_no_order_of_events_breaks_the_promises_of_a_record(
    kind: Kind, child: bool, events: list[steps.Event]
) -> None:
    election = Election(text="x", turn_id="t", elected_at=0, parent_run_id="p" if child else None)
    stamps = {"created_at": Millis(0), "updated_at": Millis(0)}
    record = Record(id="r", kind=kind, owner="k", session_id="s", agent_id="a", election=election, **stamps)
    delivered = 0
    for now, event in enumerate(events, 1):
        try:
            after = steps.transition(record, event, Millis(now))
        except steps.IllegalStep:
            continue
        assert after.revision == record.revision + 1
        assert after.election == record.election
        delivered += after.delivered and not record.delivered
        assert delivered <= 1
        if record.status.ended:
            assert isinstance(event, steps.Noticed)
            assert after.status is record.status
        if record.status is Status.RUNNING:
            assert not isinstance(event, steps.Supersede | steps.Reap)
        if isinstance(event, steps.Reap):
            assert child
        if after.status is Status.FAILED and record.status is not Status.FAILED:
            assert after.notice_pending
        if isinstance(event, steps.Busy):
            assert (after.retry_count, after.due_at) == (record.retry_count, record.due_at)
        assert (after.delivered_at is not None) == (after.status is Status.SUCCEEDED)
        record = after


LAST_WORDS = ["done", "NO_REPLY", "CONTINUE_WORK", "x [[CONTINUE_DELEGATE: y | silent-wake]]"]


class Crash(Exception):
    """The process ends here."""


class Model(RuleBasedStateMachine):
    """Anything may happen in any order; what is promised holds after every step."""

    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-model-"))
        self.clock = ManualClock()
        url = sqlite_url(shutil.copy(self.template, self.folder / "holdfast.db"))
        self.store = Store(url, clock=self.clock)
        self.threads = Threads(2)
        self.play = Play(
            self.store, self.clock, self.threads, self.folder / "p", maxChainLength=4, maxPendingWork=3
        )
        self.live: Live | None = None
        self.before: dict[str, Record] = {}
        self.left = False
        self.longest = 4
        with self.store.write(OWNER) as tx:
            sessions.ensure(tx, KEY)
            sessions.ensure(tx, OTHER)

    def teardown(self) -> None:
        try:
            self._settle_down()
        finally:
            self.threads.close()
            self.store.close()
            shutil.rmtree(self.folder)

    @precondition(lambda self: self.live is None)
    @rule(trigger=st.sampled_from(["user", "heartbeat", "flush"]))
    def message(self, trigger: str) -> None:
        self.play.say(trigger=trigger)

    @precondition(lambda self: self.live is None)
    @rule()
    def begin(self) -> None:
        self.live = self.play.begin()
        if self.live is None:
            self.play.say()
            self.live = self.play.begin()
        assert self.live is not None

    @precondition(lambda self: self.live is not None and self.play.given["enabled"])
    @rule(delay=st.sampled_from([None, 0, 40]))
    def elect(self, delay: int | None) -> None:
        assert self.live is not None
        self.play.call(self.live, "continue_work", reason="go on", delaySeconds=delay)

    @precondition(lambda self: self.live is not None and self.play.given["enabled"])
    @rule(
        mode=st.sampled_from(["normal", "silent", "silent-wake", "post-compaction"]),
        where=st.sampled_from(
            [{}, {"targetSessionKey": OTHER}, {"fanoutMode": "all"}, {"fanoutMode": "tree"}]
        ),
    )
    def delegate(self, mode: str, where: dict[str, Any]) -> None:
        assert self.live is not None
        self.play.call(self.live, "continue_delegate", task="look", mode=mode, **where)

    @precondition(lambda self: self.live is not None)
    @rule(said=st.sampled_from(LAST_WORDS))
    def commit(self, said: str) -> None:
        assert self.live is not None
        self.play.end(self.live, said)
        self.live = None

    @precondition(lambda self: self.live is not None)
    @rule(status=st.sampled_from([TurnStatus.FAILED, TurnStatus.CANCELLED]))
    def fail(self, status: TurnStatus) -> None:
        assert self.live is not None
        self.play.fail(self.live, status)
        self.live = None

    @rule()
    def fire(self) -> None:
        self.play.due()

    @precondition(lambda self: self.live is None)
    @rule(delays=st.lists(st.sampled_from([None, 0, 40]), max_size=3), said=st.sampled_from(LAST_WORDS))
    def whole_turn(self, delays: list[int | None], said: str) -> None:
        self.begin()
        for delay in delays if self.play.given["enabled"] else ():
            self.elect(delay)
        self.commit(said)

    @rule(seconds=st.sampled_from([16, 45, 301]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self.play.due()

    @rule()
    def crash_and_restart(self) -> None:
        """Whatever ran is gone; what the agenda knows of it is taken back, as after a start."""
        self.live = None
        with self.store.write(OWNER) as tx:
            for item in agenda.expire(tx, dead=lambda _: True):
                if item.kind in turns.KINDS:
                    ending.cut_off(tx, item, self.play.hooks, "main")
        self.play.room = self.play.opened()
        asyncio.run(self.play.room.recover())

    @rule()
    def crash_while_firing(self) -> None:
        """The process ends with its transaction open: nothing of it happened."""
        whole, spawn = self.play.accept, self.play.nursery.send_off

        def dying(*given: Any) -> Any:
            whole(*given)
            raise Crash

        def dying_too(*given: Any) -> Any:
            raise Crash

        self.play.accept = dying  # type: ignore[method-assign]
        self.play.nursery.send_off = dying_too  # type: ignore[method-assign]
        self.play.room = self.play.opened()
        try:
            with contextlib.suppress(Crash):
                self.play.due()
        finally:
            self.play.accept = whole  # type: ignore[method-assign]
            self.play.nursery.send_off = spawn  # type: ignore[method-assign]
        self.crash_and_restart()

    @rule()
    def come_back(self) -> None:
        """A delegate returns, and says so twice."""
        for order in self.play.nursery.orders[-3:]:
            before = len(self.play.waiting_notes(OTHER))
            allowed = self.play.given.get("crossSessionTargeting") == "enabled"
            self.play.returned(order)
            assert not self.play.returned(order)
            if not allowed:
                assert len(self.play.waiting_notes(OTHER)) == before

    @precondition(lambda self: self.live is None)
    @rule()
    def compact(self) -> None:
        self.play.compacted()

    @precondition(lambda self: self.live is None)
    @rule()
    def reset(self) -> None:
        self.play.say("/new")
        self.left = True

    @rule(
        change=st.sampled_from(
            [{"enabled": False}, {"enabled": True}, {"maxChainLength": 2}, {"maxChainLength": 4},
             {"crossSessionTargeting": "enabled"}, {"crossSessionTargeting": "disabled"}]
        )
    )  # fmt: skip
    def configure(self, change: dict[str, Any]) -> None:
        self.play.given |= change

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        listed = asyncio.run(self.play.room.listing())
        if listed:
            asyncio.run(self.play.room.cancel(data.draw(st.sampled_from(listed))["id"]))
        if self.live is not None and self.live.turn.id in self.play.stopped:
            self.fail(TurnStatus.CANCELLED)

    @rule(seconds=st.sampled_from([5, 16, 301, 3 * 3600, 8 * 24 * 3600]))
    def jump(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)

    @invariant()
    def everything_due_is_watched(self) -> None:
        with self.store.read(OWNER) as tx:
            assert dispatch.unwatched(tx) == []

    @invariant()
    def what_is_delivered_was_delivered_by_exactly_one_committed_turn(self) -> None:
        with self.store.read(OWNER) as tx:
            for record in self.play.records():
                if record.kind is not Kind.WORK:
                    continue
                keys = [f"continuation:{record.id}:{n}" for n in range(record.retry_count + 1)]
                granted = [turns.by_key(tx, key) for key in keys]
                done = sum(t is not None and t.status is TurnStatus.COMMITTED for t in granted)
                assert done == (record.disposition == "granted")
                assert record.delivered == (record.status is Status.SUCCEEDED)

    @invariant()
    def records_move_only_as_promised(self) -> None:
        now = {record.id: record for record in self.play.records()}
        assert self.before.keys() <= now.keys()
        for id_, was in self.before.items():
            if was.status.ended:
                assert now[id_].status is was.status
            if was.status is Status.RUNNING and now[id_].status is Status.CANCELLED:
                reset = {"the session was reset", "a new session was begun"}
                assert now[id_].failure in {"cancelled"} | (reset if self.left else set())
            assert not now[id_].notice_pending
        self.before, self.left = now, False

    @invariant()
    def the_caps_hold_over_every_session_and_the_cost_is_that_of_all_calls(self) -> None:
        with self.store.read(OWNER) as tx:
            for chain in chains.listing(tx, limit=200):
                assert chain.steps <= self.longest
                used = [turn.usage or {} for turn in turns.get_many(tx, chains.turns_of(tx, chain.id))]
                assert chain.tokens == sum(u.get("inputTokens", 0) + u.get("outputTokens", 0) for u in used)
            waiting = [
                r for r in records.listing(tx, owner=KEY) if r.kind is Kind.WORK and r.status is Status.QUEUED
            ]
        assert len(waiting) <= 3 + 1  # what came back from a turn counts as well as what was elected in it

    def _settle_down(self) -> None:
        """Switched on and left alone, all that was elected comes to an end that can be accounted for."""
        self.play.given["enabled"] = True
        if self.live is not None:
            self.play.end(self.live)
        self.play.compacted()
        for _ in range(40):
            if all(r.status.ended or r.phase is Phase.STAGED for r in self.play.records()):
                break
            self.clock.advance(seconds=400)
            self.play.due()
            for order in self.play.nursery.orders:
                self.play.returned(order)
            while (live := self.play.begin()) is not None:
                self.play.end(live)
        for record in self.play.records():
            assert record.status.ended or record.phase is Phase.STAGED, record
            if record.status is Status.FAILED:
                assert not record.notice_pending
            if record.status is Status.CANCELLED:
                assert record.failure, record
        self.what_is_delivered_was_delivered_by_exactly_one_committed_turn()
        with self.store.read(OWNER) as tx:
            assert not [n for n in notes.waiting(tx, KEY) if n.kind == "continuation-note"]


def checked(template: Path, **given: Any) -> None:
    Model.template = template
    run_state_machine_as_test(Model, settings=settings(deadline=None, **given))


def test_nothing_that_may_happen_breaks_what_is_promised(sqlite_template: Path) -> None:
    checked(sqlite_template, max_examples=examples(12), stateful_step_count=25)


def test_the_model_notices_a_delivery_that_is_not_marked(
    sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it is known to be worth something."""
    monkeypatch.setattr(hook, "_granted", lambda found, turn: [])
    Model.template = sqlite_template
    model = Model()
    model.message("user")
    for _ in range(2):
        model.begin()
        if model.clock.now() == ManualClock().now():
            model.elect(None)
        model.commit("done")
        model.jump(16)
        model.fire()
    with pytest.raises(AssertionError):
        model.what_is_delivered_was_delivered_by_exactly_one_committed_turn()
    with pytest.raises(AssertionError):
        model.teardown()
