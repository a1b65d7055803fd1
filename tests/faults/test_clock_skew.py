"""Clocks that are wrong: real gateways under libfaketime beside healthy ones, and clocks turned by hand."""

from __future__ import annotations

import glob
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_play import Gateway, Nest, configure, wait_for

from builders import PATIENCE, accept, rows
from holdfast.clock import JUMP_MS, ManualClock, Millis, StoreClock
from holdfast.log import OWNER, Store, turns
from holdfast.testing import Asked, Say, ScriptedOpenAI, Turn

HOUR = 3_600_000
AHEAD = 70 * 60
LIBRARY = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None)
faked = pytest.mark.skipif(LIBRARY is None, reason="libfaketime is missing (apt-get install libfaketime)")


@pytest.fixture(scope="module")
def wrong_nest() -> Iterator[Nest]:
    """Gateways whose clock on the wall is 70 minutes ahead; time that passes is real."""
    made = Nest(
        LD_PRELOAD=LIBRARY or "",
        FAKETIME=f"+{AHEAD}s",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
        FAKETIME_DISABLE_SHM="1",
    )
    yield made
    made.close()


@pytest.fixture
def wrong(wrong_nest: Nest) -> Iterator[Nest]:
    yield wrong_nest
    wrong_nest.end_all()


def running(store: Store) -> list[str]:
    return [
        owner
        for (owner,) in rows(store, "SELECT owner FROM agenda WHERE status = 'running' AND kind = 'turn'")
    ]


@faked
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_a_gateway_whose_clock_is_ahead_takes_nothing_from_a_healthy_one(
    store_url: str, tmp_path: Path, nest: Nest, wrong: Nest
) -> None:
    let = threading.Event()

    def answer(asked: Asked) -> Turn:
        let.wait(4 * PATIENCE)
        return Say("Only once.")

    store = Store(store_url)
    with ScriptedOpenAI(answer, models=["scripted"]) as server:
        for name in ("right", "ahead"):
            configure(tmp_path / name, server.url, store={"url": store_url})
        healthy = nest.gateway(tmp_path / "right", store_url)
        runs = [healthy.say("Hello.", f"agent:main:web:dm:{n}") for n in range(3)]
        wait_for(lambda: len(server.requests) == 3)
        owners = running(store)
        skewed = wrong.gateway(tmp_path / "ahead", store_url)
        taken = skewed.say("Hello.", "agent:main:web:dm:late")
        wait_for(lambda: len(server.requests) == 4)
        assert running(store)[:3] == owners
        assert abs(skew_of(skewed) - AHEAD) < 20
        assert abs(skew_of(healthy)) < 20
        let.set()
        told = [healthy.ended(run) for run in (*runs, taken)]
        doctor = json.loads(wrong.cli("--home", str(tmp_path / "ahead"), "doctor", "--json"))
    assert [run["reply"] for run in told] == ["Only once."] * 4
    assert len(server.requests) == 4
    assert rows(store, "SELECT count(*) FROM turns WHERE attempt > 1") == [(0,)]
    ((newest,),) = rows(store, "SELECT max(created_at) FROM entries")
    assert newest < time.time() * 1000 + 30_000, "what is written has the database's time"
    (found,) = [line for line in doctor if line["check"] == "clock"]
    assert found["level"] == "warn"
    assert "ahead of the database's" in found["message"]
    store.close()


def skew_of(gateway: Gateway) -> float:
    lines = gateway.api.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("holdfast_clock_skew_seconds ")))


@faked
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_clock_that_was_set_back_between_two_gateways_delays_nothing_that_waits(
    store_url: str, tmp_path: Path, nest: Nest, wrong: Nest
) -> None:
    """On PostgreSQL the clock on the wall has no say at all."""
    home = tmp_path / "home"
    with ScriptedOpenAI(lambda asked: Say("At once."), models=["scripted"]) as server:
        configure(home, server.url)
        before = wrong.gateway(home, store_url)
        before.api.post("/api/halt", json={"reason": "to have it wait"}).raise_for_status()
        waits = before.say("Hello.")
        before.end(signal.SIGKILL)
        after = nest.gateway(home, store_url)
        after.api.delete("/api/halt").raise_for_status()
        assert after.ended(waits)["reply"] == "At once."


class Reference:
    """A clock elsewhere, which takes a while to tell the time."""

    def __init__(self, wall: ManualClock, ahead: int, takes: int = 0) -> None:
        self.wall, self.ahead, self.takes = wall, ahead, takes

    def __call__(self) -> int:
        self.wall.advance(ms=self.takes)
        told = self.wall.monotonic() + self.ahead
        self.wall.advance(ms=self.takes)
        return told


def test_the_store_s_time_is_the_reference_s_whatever_is_done_to_the_clock_on_the_wall() -> None:
    wall = ManualClock(10 * HOUR)
    clock = StoreClock(wall)
    assert (clock.is_stale, clock.now()) == (True, 10 * HOUR)
    clock.set_by(Reference(wall, 9 * HOUR, takes=7))
    assert (clock.is_stale, clock.now(), clock.skew_ms) == (False, 9 * HOUR + 14, HOUR)
    wall.set(3 * HOUR)
    wall.advance(seconds=1)
    assert (clock.now(), clock.skew_ms) == (9 * HOUR + 1_014, -6 * HOUR - 14)
    wall.advance(seconds=14)
    assert clock.is_stale


def test_a_slow_answer_is_not_taken_for_the_time_once_a_better_one_is_known() -> None:
    wall = ManualClock(10 * HOUR)
    clock = StoreClock(wall)
    clock.set_by(Reference(wall, 9 * HOUR, takes=5_000))
    assert not clock.is_stale
    clock.set_by(Reference(wall, 9 * HOUR + 10, takes=5))
    wall.advance(seconds=20)
    clock.set_by(lambda: (wall.advance(seconds=9), 42)[1])
    assert (clock.is_stale, clock.now() - wall.monotonic()) == (True, 9 * HOUR + 10)


@given(steps=st.lists(st.tuples(st.integers(0, 20_000), st.integers(-JUMP_MS, JUMP_MS)), max_size=30))
def test_small_corrections_never_make_time_run_backwards(steps: list[tuple[int, int]]) -> None:
    wall = ManualClock(10 * HOUR)
    clock, ahead, last = StoreClock(wall), 10 * HOUR, Millis(0)
    for passed, drift in steps:
        wall.advance(ms=passed)
        assert clock.now() >= last
        last = clock.now()
        ahead = max(ahead + drift, ahead - JUMP_MS)
        clock.set_by(Reference(wall, ahead))
        assert clock.now() >= last
        assert clock.now() >= wall.monotonic() + ahead


@given(back=st.integers(JUMP_MS + 1, 90 * 24 * HOUR))
def test_a_reference_that_was_set_back_is_followed_and_can_be_told_from_time_that_passed(back: int) -> None:
    wall = ManualClock(200 * 24 * HOUR)
    clock = StoreClock(wall)
    clock.set_by_wall()
    before, ticks = clock.now(), clock.monotonic()
    wall.set(wall.now() - back)
    wall.advance(seconds=5)
    clock.set_by_wall()
    assert before + (clock.monotonic() - ticks) - clock.now() == back


def test_turns_wait_in_the_order_of_the_store_s_time(store: Store, clock: ManualClock) -> None:
    made = []
    for n in range(3):
        made.append(accept(store, key=f"k{n}").id)
        clock.advance(ms=1)
    with store.read(OWNER) as tx:
        assert [one.turn.id for one in turns.waiting(tx, "agent:main:main")] == made
