"""What the settings of the store, the agenda, the stream and the log change in what runs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from serving import running

from builders import PATIENCE, rows
from holdfast import logs
from holdfast.log import OWNER, agenda
from holdfast.runtime import Holdfast
from holdfast.services import Services

Opens = Callable[..., Holdfast]


def run_all(hold: Holdfast, count: int, work: Any) -> None:
    """So many items of one kind, to the end, by the runner that a gateway would have."""

    async def main() -> None:
        services = Services(hold)
        services.runner.register("effects.work", agenda.Kind(work, limit=8))
        with hold.store.write(OWNER) as tx:
            for _ in range(count):
                agenda.enqueue(tx, "effects.work", {})
        await services.runner.drain()

    asyncio.run(main())


def test_no_more_of_a_kind_run_at_once_than_the_config_says(hold_with: Opens) -> None:
    hold = hold_with(agenda={"perKind": {"effects.work": 1}})
    now, most = 0, 0

    async def work(_: agenda.Job) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    run_all(hold, 4, work)
    assert most == 1


def test_an_item_is_held_for_as_long_as_the_config_says(hold_with: Opens) -> None:
    hold = hold_with(agenda={"leaseSeconds": 7})
    held: list[int] = []

    async def work(_: agenda.Job) -> None:
        query = "SELECT lease_until FROM agenda WHERE kind = 'effects.work'"
        held.append(rows(hold.store, query)[0][0] - hold.clock.now())

    run_all(hold, 1, work)
    assert held == [7_000]


def test_the_store_has_as_many_threads_and_as_much_patience_as_the_config_says(hold_with: Opens) -> None:
    hold = hold_with(store={"threads": 2, "busyTimeoutMs": 1_234})
    assert rows(hold.store, "PRAGMA busy_timeout") == [(1_234,)]
    gate, lock, at_once = threading.Barrier(2), threading.Lock(), [0, 0]

    def work() -> None:
        with lock:
            at_once[0] += 1
            at_once[1] = max(at_once)
        gate.wait(PATIENCE)
        with lock:
            at_once[0] -= 1

    async def main() -> None:
        await asyncio.gather(*(hold.threads(work) for _ in range(6)))

    asyncio.run(main())
    assert at_once == [0, 2]


def test_a_stream_gives_a_sign_of_life_as_often_as_the_config_says(hold_with: Opens) -> None:
    hold = hold_with(gateway={"stream": {"pingSeconds": 1}})
    with (
        running(hold) as gateway,
        gateway.client(gateway.admin) as api,
        api.stream("GET", "/api/stream") as stream,
    ):
        lines = stream.iter_lines()
        assert any("ping" in line for line in lines)


def test_the_log_is_written_in_the_form_of_the_config(hold_with: Opens) -> None:
    hold = hold_with(logging={"format": "json"})
    screen = io.StringIO()
    logs.configure(hold.settings.logging, hold.home, stream=screen)
    try:
        logging.getLogger("holdfast.effects").warning("the tide is high")
    finally:
        logs.close()
    assert "the tide is high" in json.loads(screen.getvalue().splitlines()[-1]).values()
