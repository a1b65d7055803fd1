"""Parts that end, fail or are stuck: begun again, counted, told, and in the end the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from builders import PATIENCE, append, until
from holdfast import supervision
from holdfast.config.runtime import HealthOptions
from holdfast.errors import Unavailable
from holdfast.log import Pulse, Store, connections
from holdfast.supervision import Part, Supervisor


class Ticks:
    """A clock turned by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Pauses:
    """Sleeps that take no time, and are remembered."""

    def __init__(self, most: int) -> None:
        self.taken: list[float] = []
        self._most = most

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        if len(self.taken) >= self._most:
            await asyncio.Event().wait()


def health(part: Part) -> str:
    return part.health(stuck_seconds=10).state


async def kept(part: Part, pauses: Pauses, holds: Callable[[], bool]) -> None:
    task = asyncio.create_task(part.keep(pauses))
    await until(holds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_part_that_ends_is_begun_again_after_growing_pauses() -> None:
    async def scene() -> None:
        pauses = Pauses(5)

        async def fail() -> None:
            raise RuntimeError("a bug")

        part = Part(Pulse("part"), fail, vital=True, once=False, slow=False)
        await kept(part, pauses, lambda: len(pauses.taken) == 5)
        assert pauses.taken == [0.5, 1.0, 2.0, 4.0, 8.0]
        assert part.restarts == 4
        assert health(part) == "down"
        assert not part.health(10).ready
        assert part.health(10).error == "RuntimeError: a bug"

    asyncio.run(scene())


def test_what_ready_tells_is_never_older_than_the_five_seconds_that_are_promised() -> None:
    """The tests with processes do not count seconds: the machine may be busy with others."""
    assert max(supervision.FAILING_SECONDS, supervision.ANSWER_SECONDS) + supervision._LOOK_SECONDS < 5


def test_a_part_that_is_done_once_is_not_begun_again() -> None:
    async def scene() -> None:
        tries: list[int] = []

        async def second_time() -> None:
            tries.append(1)
            if len(tries) < 2:
                raise OSError("not yet")

        part = Part(Pulse("part"), second_time, vital=False, once=True, slow=False)
        await part.keep(Pauses(9))
        assert health(part) == "done"
        assert part.restarts == 1

    asyncio.run(scene())


@pytest.mark.parametrize("slow", [False, True])
def test_a_part_is_stuck_when_one_pass_takes_too_long(slow: bool) -> None:
    ticks = Ticks()
    pulse = Pulse("part", now=ticks)
    part = Part(pulse, None, vital=True, once=False, slow=slow)
    ticks.now += 1000  # it waits for its bell
    assert health(part) == "ok"
    pulse.begin()
    ticks.now += 11
    assert health(part) == ("ok" if slow else "stuck")
    pulse.passed()
    assert health(part) == "ok"


def test_a_trouble_that_passes_is_none_and_one_that_stays_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ticks = Ticks()
    pulse = Pulse("part", now=ticks)
    vital = Part(pulse, None, vital=True, once=False, slow=False)
    fresh = Part(pulse, None, vital=False, once=False, slow=False)
    for _ in range(58):
        pulse.failed(Unavailable("the disk is full"))
        ticks.now += 1
    assert len(caplog.records) == 1
    assert health(vital) == "failing"
    assert not vital.health(10).ready
    assert fresh.health(10).ready
    ticks.now += 3
    pulse.failed(Unavailable("the disk is full"))
    assert "the same error 58 times more" in caplog.records[-1].getMessage()
    pulse.passed()
    assert vital.health(10).ready
    pulse.failed(ValueError("another"))
    assert caplog.records[-1].exc_info
    assert health(vital) == "ok"
    assert vital.health(10).errors == 60


def test_a_vital_part_that_stays_down_ends_the_process_and_one_without_its_store_does_not(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    ticks = Ticks()
    options = HealthOptions(stuck_seconds=1, exit_after_seconds=60)
    supervisor = Supervisor(sqlite_store, lambda: options, on_fatal=ended.append, now=ticks)
    for name, vital in (("vital", True), ("other", False)):
        pulse = Pulse(name, now=ticks)
        supervisor.add(pulse, vital=vital)
        pulse.begin()

    def broken() -> None:
        raise Unavailable("gone", code="store_unreachable")

    async def scene() -> None:
        monkeypatch.setattr(sqlite_store, "probe", broken)
        assert await supervisor.store_watch.look() is not None
        for _ in range(3):
            ticks.now += 100
            supervisor._judge()
        assert ended == []
        monkeypatch.undo()
        assert await supervisor.store_watch.look() is None
        supervisor._judge()
        ticks.now += 59
        supervisor._judge()
        assert ended == []
        ticks.now += 2
        supervisor._judge()
        supervisor._judge()
        assert ended == ["vital: stuck for more than 60 seconds"]
        supervisor.store_watch.close()

    asyncio.run(scene())


def test_a_disk_that_refused_a_flush_ends_the_process(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(connections, "flush", refused)
    ended: list[str] = []
    ticks = Ticks()
    supervisor = Supervisor(sqlite_store, HealthOptions, on_fatal=ended.append, now=ticks)

    async def scene() -> None:
        with pytest.raises(Unavailable):
            append(sqlite_store)
        for _ in range(2):
            assert await supervisor.store_watch.look() is not None
            supervisor._judge()
            ticks.now += 121
        supervisor.store_watch.close()

    asyncio.run(scene())
    assert ended == ["store: not flushed for more than 120 seconds"]


def test_a_store_that_does_not_answer_is_told_although_all_threads_wait_for_it(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    let_go = threading.Event()
    monkeypatch.setattr(sqlite_store, "probe", lambda: let_go.wait(4 * PATIENCE))
    monkeypatch.setattr(supervision, "ANSWER_SECONDS", 0.05)

    async def scene() -> None:
        watch = supervision.StoreWatch(sqlite_store)
        problems: list[Any] = await asyncio.gather(watch.look(), watch.look())
        assert {problem.code for problem in problems} == {"store_slow"}
        let_go.set()
        looks: Callable[[], Awaitable[Any]] = watch.look
        while await looks() is not None:
            await asyncio.sleep(0.01)
        watch.close()

    asyncio.run(scene())
