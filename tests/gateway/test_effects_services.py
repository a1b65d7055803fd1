"""What the settings of the store, the agenda, the stream and the log change in what runs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving import running, wait_for

from builders import PATIENCE, in_threads, new_database, rows
from holdfast import logs
from holdfast.log import OWNER, agenda, entries
from holdfast.log.changes import Bridge
from holdfast.log.threads import Pulse
from holdfast.runtime import Holdfast, open_home
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


def test_as_many_read_at_once_as_the_config_says(hold_with: Opens) -> None:
    hold, gate = hold_with(store={"poolSize": 12}), threading.Barrier(12)

    def read(_: int) -> None:
        with hold.store.read(OWNER) as tx:
            entries.head(tx)
            gate.wait(PATIENCE)

    in_threads(12, read)


def test_postgres_is_waited_for_and_listened_to_as_the_config_says(
    postgres_server: Any, tmp_path: Path
) -> None:
    """`lockTimeoutMs` is the server's own; the connection that listens is told by its name."""
    url = new_database(postgres_server, "effects")
    own = {"lockTimeoutMs": 4_321, "listenUrl": f"{url}&application_name=the-ear"}
    (tmp_path / "holdfast.json").write_text(json.dumps({"store": own}))
    with open_home(tmp_path, store_url=url) as hold:
        with hold.store.write(OWNER) as tx:
            assert tx.conn.exec_driver_sql("SHOW lock_timeout").scalar() == "4321ms"
        bridge = Bridge(hold.store)
        bridge.start()
        try:
            listening = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'the-ear'"
            wait_for(lambda: rows(hold.store, listening) == [(1,)])
        finally:
            bridge.stop()


def test_no_reader_is_begun_where_the_config_says_none(hold_with: Opens) -> None:
    with running(hold_with(gateway={"readers": 0})) as gateway, gateway.client(gateway.admin) as api:
        for _ in range(3):
            in_threads(4, lambda _: api.get("/api/search", params={"q": "kelp"}))
        assert gateway.app.state.gateway.readers.processes == []


def test_what_runs_is_let_end_for_as_long_as_the_config_says(hold_with: Opens) -> None:
    given: list[float] = []
    with running(hold_with(gateway={"shutdownGraceSeconds": 60})) as gateway:
        runner = gateway.server.services.runner
        stop = runner.stop

        async def noted(seconds: float) -> None:
            given.append(seconds)
            await stop(seconds)

        runner.stop = noted
    assert given[0] > 30


def test_a_part_is_stuck_after_as_long_as_the_config_says(hold_with: Opens) -> None:
    """One pass of the bridge takes a minute of a clock that is turned by hand."""
    hold, now = hold_with(gateway={"health": {"stuckSeconds": 300}}), [0.0]
    supervisor = Services(hold).supervisor
    pulse = Pulse("slow", now=lambda: now[0])
    supervisor.add(pulse)
    pulse.begin()
    now[0] = 60.0
    assert [part.state for part in supervisor.parts() if part.name == "slow"] == ["ok"]


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
