"""Supervision: the ladder, the five minutes, and that a restart or a late clock changes neither."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board import supervision
from holdfast.board.supervision import Observed, Run, RunStatus, Supervisor, check_at, plan
from holdfast.clock import ManualClock, Millis
from holdfast.config.board import BoardConfig, Supervision
from holdfast.log import OWNER, EntryFilter, Store, Threads, Tx, agenda, entries

OPTIONS = Supervision()
MINUTE = 60_000
START = 1_000_000


def run(**fields: object) -> Run:
    known = {"run_id": "r", "session_key": "s", "status": RunStatus.RUNNING, "started_at": Millis(START)}
    return Run(**known | fields)  # type: ignore[arg-type]


def test_the_ladder_is_that_of_the_contract() -> None:
    assert OPTIONS.ladder == tuple(n * MINUTE for n in (1, 3, 10, 15, 30, 60))
    due = [(check_at(0, step, OPTIONS.ladder)) // MINUTE for step in range(8)]
    assert due == [1, 4, 14, 29, 59, 119, 179, 239]


def simulate(delays: list[int], until: int) -> tuple[list[int], list[int]]:
    """The minutes-since-start (ms) of checks and of updates when every check comes so much too late."""
    one, now = run(), START
    checks, told = [], []
    while now - START < until:
        planned = plan(one, now, OPTIONS)
        if planned.tell:
            told.append(now - START)
        last = Millis(now) if planned.tell else one.last_update_at
        one = replace(one, step=planned.step, last_update_at=last)
        late = delays[len(checks) % len(delays)] if delays else 0
        now = planned.next_at + late
        checks.append(now - START)
    return checks, told


def test_a_punctual_clock_checks_on_the_ladder_and_tells_at_five_minutes() -> None:
    checks, told = simulate([], 240 * MINUTE)
    assert [at // MINUTE for at in checks] == [1, 4, 5, 14, 29, 59, 119, 179, 239, 299]
    assert [at // MINUTE for at in told] == [5, 14, 29, 59, 119, 179, 239]


@given(st.lists(st.integers(0, 90 * MINUTE), max_size=5))
def test_checks_never_stand_still_and_the_user_hears_of_every_one_after_five_minutes(late: list[int]) -> None:
    checks, told = simulate(late, 600 * MINUTE)
    assert all(b > a for a, b in pairwise(checks))
    assert all(at >= 5 * MINUTE for at in told)
    past = [at for at in checks if 5 * MINUTE <= at < 600 * MINUTE]
    assert told == past
    longest = max((b - a for a, b in pairwise(checks)), default=0)
    assert longest <= 60 * MINUTE + max(late, default=0)


@given(st.integers(0, 2_000 * MINUTE), st.integers(0, 12))
def test_the_next_check_lies_ahead_and_at_most_an_hour(now: int, step: int) -> None:
    planned = plan(run(step=step), START + now, OPTIONS)
    ahead = planned.next_at - START - now
    assert ahead > 0
    assert planned.step >= step
    if check_at(START, step, OPTIONS.ladder) <= START + now:
        assert ahead <= 60 * MINUTE


class Agents:
    """What the agents room would say."""

    def __init__(self) -> None:
        self.seen: Observed | None = Observed(RunStatus.RUNNING)
        self.nudged = 0

    def observe(self, tx: Tx, run: Run) -> Observed | None:
        return self.seen

    def nudge(self, tx: Tx, run: Run) -> None:
        self.nudged += 1


class Watch:
    def __init__(self, store: Store, threads: Threads, clock: ManualClock) -> None:
        self.store, self.threads, self.clock = store, threads, clock
        self.agents = Agents()
        self.options = BoardConfig()

    def begin(self) -> Run:
        with self.store.write(OWNER) as tx:
            return supervision.watch(
                tx, "run-1", "agent:main:main", OPTIONS, topic_id="t1", meta={"label": "Survey"}
            )

    def after(self, minutes: float) -> None:
        async def work() -> None:
            runner = agenda.Runner(self.store, self.threads)
            room = Supervisor(self.store, self.threads, lambda: self.options, runs=self.agents)
            runner.register(supervision.KIND, room.kind())
            await runner.drain()

        self.clock.advance(minutes=minutes)
        asyncio.run(work())

    def told(self) -> list[str]:
        with self.store.read(OWNER) as tx:
            found = entries.listing(tx, EntryFilter(session_key="agent:main:main")).entries
            return [entry.content for entry in reversed(found)]

    def run(self) -> Run:
        with self.store.read(OWNER) as tx:
            return supervision.get(tx, "run-1")


@pytest.fixture
def watch(store: Store, threads: Threads, clock: ManualClock) -> Watch:
    return Watch(store, threads, clock)


def test_the_user_is_told_of_long_work_and_of_nothing_else(watch: Watch) -> None:
    watch.begin()
    watch.after(1)
    watch.after(3)
    assert watch.told() == []
    watch.after(1)
    assert watch.told() == ["Survey is still running after 5 min; the next look is in 9 min."]
    watch.after(9)
    assert len(watch.told()) == 2


def test_after_a_long_absence_one_check_makes_up_for_all(watch: Watch) -> None:
    watch.begin()
    watch.after(200)
    watch.after(0)
    assert len(watch.told()) == 1
    assert watch.run().next_check_at == watch.run().started_at + 239 * MINUTE


def test_work_that_is_done_is_not_asked_about_again(watch: Watch) -> None:
    watch.begin()
    watch.agents.seen = Observed(RunStatus.DONE)
    watch.after(1)
    assert (watch.run().status, watch.run().next_check_at) == (RunStatus.DONE, None)
    watch.after(60)
    assert watch.told() == []
    with watch.store.read(OWNER) as tx:
        assert agenda.listing(tx) == []


def test_work_that_nobody_knows_any_more_has_failed(watch: Watch) -> None:
    watch.begin()
    watch.agents.seen = None
    watch.after(1)
    assert watch.run().status is RunStatus.FAILED


def test_a_silent_run_is_stalled_and_nudged(watch: Watch) -> None:
    begun = watch.begin()
    watch.agents.seen = Observed(RunStatus.RUNNING, last_activity_at=begun.started_at)
    watch.after(4)
    assert (watch.run().status, watch.agents.nudged) == (RunStatus.STALLED, 0)
    watch.after(6)
    assert watch.agents.nudged == 1
    assert "is silent" in watch.told()[-1]


def test_a_repeated_watch_and_a_recovery_add_nothing(watch: Watch) -> None:
    first = watch.begin()
    watch.clock.advance(seconds=5)
    assert watch.begin() == first
    with watch.store.write(OWNER) as tx:
        assert supervision.recover(tx, OPTIONS) == 1
        assert len(agenda.listing(tx)) == 1


def test_silence_is_a_stall_and_old_runs_are_left_as_the_config_says(
    sqlite_store: Store, threads: Threads, clock: ManualClock
) -> None:
    watch = Watch(sqlite_store, threads, clock)
    given = {"supervision": {"stallSeconds": 3_600, "recoveryLookbackHours": 1}}
    watch.options = BoardConfig.model_validate(given)
    watch.begin()
    watch.agents.seen = Observed(RunStatus.RUNNING, last_activity_at=clock.now())
    watch.after(10)
    assert watch.run().status is RunStatus.RUNNING
    clock.advance(hours=2)
    with sqlite_store.write(OWNER) as tx:
        assert supervision.recover(tx, watch.options.supervision) == 0
        assert supervision.recover(tx, OPTIONS) == 1
