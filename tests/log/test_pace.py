"""What somebody waits for goes first; what nobody waits for is not forgotten."""

from __future__ import annotations

import asyncio

from holdfast.log import OWNER, Allowance, Pace, Store, Threads, agenda


class Hand:
    """A clock that is turned by hand, and a sleep that turns it."""

    def __init__(self) -> None:
        self.at = 100.0
        self.naps = 0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.naps += 1
        self.at += seconds


def rush(pace: Pace, hand: Hand, beats: int = 6, apart: float = 0.01) -> None:
    for _ in range(beats):
        pace.beat()
        hand.at += apart


def test_requests_close_upon_one_another_are_a_rush_until_there_is_a_gap() -> None:
    hand = Hand()
    pace = Pace(now=hand.now, gap=0.3)
    assert not pace.busy
    rush(pace, hand)
    assert pace.busy
    hand.at += 0.3
    assert not pace.busy


def test_one_request_now_and_then_is_no_rush() -> None:
    hand = Hand()
    pace = Pace(now=hand.now, gap=0.3)
    rush(pace, hand, beats=20, apart=0.2)
    assert not pace.busy


def test_who_waits_for_a_gap_goes_on_when_it_comes_and_at_the_latest_when_patience_ends() -> None:
    hand = Hand()
    pace = Pace(now=hand.now, sleep=hand.sleep, gap=0.3)
    rush(pace, hand)
    asyncio.run(pace.gap(10))
    assert not pace.busy
    assert hand.naps < 10

    async def never_idle(seconds: float) -> None:
        rush(pace, hand, apart=seconds / 6)

    endless = Pace(now=hand.now, sleep=never_idle, gap=0.3)
    pace = endless
    rush(pace, hand)
    began = hand.at
    asyncio.run(endless.gap(10))
    assert endless.busy
    assert 10 <= hand.at - began < 11


def test_an_allowance_is_for_a_stretch_of_time() -> None:
    hand = Hand()
    allowance = Allowance(now=hand.now)
    for _ in range(3):
        allowance.take()
    assert allowance.left(8, seconds=10) == 5
    assert allowance.left(2, seconds=10) == 0
    hand.at += 10
    assert allowance.left(8, seconds=10) == 8


def test_work_that_gives_way_is_not_begun_while_it_is_held_and_is_done_after(store: Store) -> None:
    room = {"free": 0}
    done: list[str] = []

    async def work(job: agenda.Job) -> None:
        done.append(job.item.kind)

    async def scene() -> None:
        runner = agenda.Runner(store, threads)
        runner.register("later", agenda.Kind(work, held=lambda: room["free"]))
        runner.register("now", agenda.Kind(work))
        with store.write(OWNER) as tx:
            agenda.enqueue(tx, "later", {})
            agenda.enqueue(tx, "now", {})
        await runner.drain()
        assert done == ["now"]
        room["free"] = 1
        await runner.drain()
        assert done == ["now", "later"]

    threads = Threads(2)
    asyncio.run(scene())
    threads.close()
