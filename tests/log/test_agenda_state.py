from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builders import examples
from holdfast.clock import Millis
from holdfast.ids import AgendaId
from holdfast.log.agenda import (
    MOST_LOSSES,
    Advance,
    Cancel,
    Claim,
    Event,
    Expire,
    Fail,
    Finish,
    IllegalTransition,
    Item,
    Postpone,
    Renew,
    Reschedule,
    Retry,
    Status,
    transition,
)

NOW = Millis(1_000)


def queued(**fields: object) -> Item:
    base = Item(
        id=AgendaId("due-1"),
        kind="work",
        lane="l",
        status=Status.QUEUED,
        due_at=NOW,
        payload={},
        created_at=NOW,
        updated_at=NOW,
        max_attempts=3,
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def running(**fields: object) -> Item:
    return replace(transition(queued(), Claim("a", NOW + 50), NOW), **fields)  # type: ignore[arg-type]


retries = st.builds(
    Retry, base_ms=st.integers(0, 10_000), factor=st.floats(1, 10), ceiling_ms=st.integers(10_000, 400_000)
)
owners = st.sampled_from(["a", "b"])
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Claim, owners, st.integers(0, 3_000)),
    st.builds(Renew, owners, st.integers(0, 3_000), st.booleans()),
    st.builds(Finish, owners),
    st.builds(Fail, owners, st.just("broke"), retries, st.booleans()),
    st.builds(Postpone, owners, st.integers(0, 3_000), st.sampled_from(["", "busy"])),
    st.builds(Expire, st.booleans(), st.booleans()),
    st.builds(Advance, owners),
    st.builds(Cancel),
    st.builds(Reschedule, st.integers(0, 3_000)),
)


class Life(RuleBasedStateMachine):
    """Any events in any order: what must hold of an item holds always."""

    @initialize(most=st.integers(1, 4))
    def begin(self, most: int) -> None:
        self.item = queued(max_attempts=most)
        self.now = int(NOW)
        self.was_cancelled = False

    @rule(event=events)
    def happen(self, event: Event) -> None:
        before = self.item
        try:
            after = transition(before, event, Millis(self.now))
        except IllegalTransition:
            return
        assert after.revision == before.revision + 1
        silent = isinstance(event, Renew) and not event.heard
        assert after.updated_at == (before.updated_at if silent else self.now)
        assert not before.status.ended
        if after.status is Status.RUNNING and before.status is Status.QUEUED:
            assert not self.was_cancelled
            assert before.due_at <= self.now
            assert after.attempts == before.attempts + 1
        assert after.claims == before.claims + isinstance(event, Claim)
        if isinstance(event, Postpone | Expire):
            assert after.attempts == before.attempts - 1
        if isinstance(event, Expire) and after.status is not Status.FAILED:
            assert after.due_at == before.due_at
            assert after.losses == before.losses + (not event.planned)
        if isinstance(event, Fail) and after.status is Status.QUEUED:
            assert self.now <= after.due_at <= self.now + event.retry.ceiling_ms
        if isinstance(event, Finish | Fail | Postpone | Advance):
            assert after.losses == 0
        self.was_cancelled |= isinstance(event, Cancel)
        self.item = after

    @rule(ms=st.integers(1, 500))
    def wait(self, ms: int) -> None:
        self.now += ms

    @invariant()
    def it_is_in_a_legal_state(self) -> None:
        if not hasattr(self, "item"):
            return
        one = self.item
        assert 0 <= one.attempts <= one.max_attempts
        assert 0 <= one.losses <= MOST_LOSSES
        assert (one.status is Status.RUNNING) == (one.owner is not None) == (one.lease_until is not None)
        assert one.status.ended == (one.ended_at is not None)
        if self.was_cancelled:
            assert one.status in (Status.RUNNING, Status.CANCELLED, Status.DONE)
            assert one.status is not Status.RUNNING or one.cancel_requested


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(100), stateful_step_count=25)


@given(retry=retries, attempts=st.integers(0, 5_000))
def test_the_wait_grows_and_never_passes_its_ceiling(retry: Retry, attempts: int) -> None:
    assert 0 <= retry.delay(attempts) <= retry.delay(attempts + 1) <= retry.ceiling_ms


def test_the_wait_doubles_by_default() -> None:
    assert [Retry().delay(n) for n in (1, 2, 3, 4)] == [1_000, 2_000, 4_000, 8_000]


@given(times=st.integers(1, 50))
def test_postponing_costs_nothing_however_often(times: int) -> None:
    one = queued(max_attempts=1)
    for _ in range(times):
        one = transition(one, Claim("a", NOW + 5), NOW)
        one = transition(one, Postpone("a", NOW), NOW)
    assert (one.status, one.attempts) == (Status.QUEUED, 0)


def lost(one: Item, now: int, *, planned: bool = False) -> Item:
    held = transition(one, Claim("a", now + 5), Millis(now))
    return transition(held, Expire(owner_dead=True, planned=planned), Millis(now))


@given(
    planned=st.lists(st.booleans(), max_size=80),
    waits=st.lists(st.integers(0, 100_000), min_size=80, max_size=80),
)
def test_losing_workers_costs_no_attempt_and_no_place_however_often_and_late(
    planned: list[bool], waits: list[int]
) -> None:
    one, now = queued(max_attempts=1), int(NOW)
    for stopped, wait in zip(planned, waits, strict=False):
        if one.losses == MOST_LOSSES - 1 and not stopped:
            break
        now += wait
        one = lost(one, now, planned=stopped)
        assert (one.status, one.attempts, one.due_at, one.error) == (Status.QUEUED, 0, NOW, None)
    ended = transition(transition(one, Claim("a", now + 5), Millis(now)), Finish("a"), Millis(now))
    assert ended.status is Status.DONE


@given(gets_on=st.integers(1, MOST_LOSSES - 1), rounds=st.integers(1, 5))
def test_what_gets_on_between_losses_is_never_given_up(gets_on: int, rounds: int) -> None:
    one = queued(max_attempts=1)
    for _ in range(rounds):
        for _ in range(gets_on):
            one = lost(one, NOW)
        one = transition(one, Claim("b", NOW + 5), NOW)
        one = transition(one, Advance("b"), NOW)
        one = transition(one, Expire(owner_dead=True, planned=True), NOW)
    assert (one.status, one.losses) == (Status.QUEUED, 0)


def test_what_ends_every_process_that_runs_it_fails_in_the_end() -> None:
    one = queued(max_attempts=1)
    for _ in range(MOST_LOSSES):
        assert one.status is Status.QUEUED
        one = lost(one, NOW)
    assert (one.status, one.error) == (
        Status.FAILED,
        f"given up: {MOST_LOSSES} processes in a row ended while they ran it",
    )


@given(times=st.integers(1, 3 * MOST_LOSSES))
def test_a_planned_stop_is_no_loss_however_often(times: int) -> None:
    one = queued(max_attempts=1)
    for _ in range(times):
        one = lost(one, NOW, planned=True)
    assert (one.status, one.losses, one.claims) == (Status.QUEUED, 0, times)


@pytest.mark.parametrize(
    "event", [Finish("b"), Fail("b", "x"), Postpone("b", 5), Renew("b", 5_000), Advance("b")]
)
def test_only_its_owner_may_move_a_running_item(event: Event) -> None:
    with pytest.raises(IllegalTransition, match="another owner"):
        transition(running(), event, NOW)


def test_a_lease_that_still_holds_does_not_expire_unless_the_owner_is_dead() -> None:
    with pytest.raises(IllegalTransition):
        transition(running(), Expire(), NOW)
    assert transition(running(), Expire(owner_dead=True), NOW).status is Status.QUEUED
    assert transition(running(), Expire(), Millis(NOW + 50)).status is Status.QUEUED


def test_a_lease_is_never_shortened_by_renewing() -> None:
    assert transition(running(), Renew("a", NOW + 1), NOW).lease_until == NOW + 50


def test_a_running_item_that_was_cancelled_ends_cancelled_however_it_fails() -> None:
    asked = transition(running(), Cancel("stop"), NOW)
    assert (asked.status, asked.cancel_requested) == (Status.RUNNING, True)
    assert transition(asked, Cancel("stop again"), NOW).error == "stop"
    for event in (Fail("a", "x"), Postpone("a", 5), Expire(owner_dead=True)):
        ended = transition(asked, event, NOW)
        assert (ended.status, ended.error) == (Status.CANCELLED, "stop")
    assert transition(asked, Finish("a"), NOW).status is Status.DONE


def test_attempts_used_up_end_in_failure() -> None:
    last = running(attempts=3)
    failed = transition(last, Fail("a", "broke"), NOW)
    assert (failed.status, failed.error, failed.ended_at) == (Status.FAILED, "broke", NOW)
    assert transition(running(), Fail("a", "hopeless", final=True), NOW).status is Status.FAILED


def test_an_item_cannot_be_claimed_early_nor_with_a_lease_in_the_past() -> None:
    with pytest.raises(IllegalTransition, match="not due"):
        transition(queued(due_at=NOW + 1), Claim("a", NOW + 9), NOW)
    with pytest.raises(IllegalTransition, match="future"):
        transition(queued(), Claim("a", NOW), NOW)
