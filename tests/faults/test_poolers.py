"""A pooler between Holdfast and PostgreSQL, in either mode: nothing is lost, mixed up or left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fault_stage import echoing, gateway, wait_until
from pooler import pgbouncer

from builders import PATIENCE, append, in_threads, new_database, rows
from holdfast.errors import Unavailable
from holdfast.log import OWNER, Bridge, EntryDraft, Store, changes, check, entries, open_store
from holdfast.log.statements import Preparing
from holdfast.memory.engine.postgres_connections import Connections


@pytest.fixture(scope="module", params=["session", "transaction"])
def pooled(
    request: pytest.FixtureRequest, postgres_server: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The address through the pooler, and the server's own."""
    name = f"pooled_{request.param}"
    direct = new_database(postgres_server, name)
    open_store(direct).close()
    size = 40 if request.param == "session" else 4
    folder = tmp_path_factory.mktemp("pooler") / "bouncer"
    with pgbouncer(postgres_server, folder, request.param, size=size) as port:
        yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/{name}", direct


def test_many_writers_and_readers_share_few_servers(pooled: tuple[str, str]) -> None:
    store = Store(pooled[0], readers=8)

    def work(writer: int) -> None:
        for n in range(15):
            append(store, f"{writer}-{n}")
            rows(store, "SELECT count(*) FROM entries")
            with store.read(OWNER) as tx:
                changes.since(tx, 0, limit=5)

    in_threads(8, work)
    assert store.pooled
    written = "SELECT count(*), count(DISTINCT content) FROM entries WHERE content ~ '^[0-7]-[0-9]+$'"
    assert rows(store, written) == [(120, 120)]
    assert check(store) == []
    store.close()


def test_a_pooler_that_hides_itself_is_found_out_and_no_wrong_statement_is_ever_run(
    pooled: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Preparing, "look", lambda *_: None)
    store = Store(pooled[0], readers=8)
    draft = EntryDraft(content="hidden")

    def work(_: int) -> None:
        for _ in range(15):
            store.run(OWNER, lambda tx: entries.append(tx, draft))

    in_threads(8, work)
    assert rows(store, "SELECT count(*) FROM entries WHERE content = 'hidden'") == [(120,)]
    assert check(store) == []
    store.close()


def test_settings_of_one_are_not_left_to_the_next(pooled: tuple[str, str]) -> None:
    store = Store(pooled[0], durability="process", lock_ms=1234)
    index = Connections(pooled[0], "holdfast_pooled")
    append(store)
    with index.reading() as connection:
        assert "holdfast_pooled" in connection.execute("SHOW search_path").fetchone()[0]
    plain = pooled[0].replace("+psycopg", "")
    for _ in range(8):
        with psycopg.connect(plain, autocommit=True) as stranger:
            for name, left in (("synchronous_commit", "off"), ("lock_timeout", "1234ms")):
                assert stranger.execute(f"SHOW {name}").fetchone() != (left,)
            assert "holdfast_pooled" not in str(stranger.execute("SHOW search_path").fetchone())
    index.close()
    store.close()


@pytest.mark.parametrize("listens", [True, False], ids=["at the server itself", "not at all"])
def test_the_commits_of_others_are_heard_of(pooled: tuple[str, str], listens: bool) -> None:
    url, direct = pooled
    own = Store(url, listen_url=direct if listens else None)
    other = Store(url)
    rung = threading.Event()
    bridge = Bridge(own)
    own.signals.subscribe(changes.SIGNAL, rung.set)
    bridge.start()
    try:
        wait_until(lambda: bridge.pulse.passes > 0, "the bridge works")
        rung.clear()
        append(other)
        assert rung.wait(PATIENCE)
    finally:
        bridge.stop()
        own.close()
        other.close()


def test_a_pooler_without_transactions_is_refused_with_the_reason(
    postgres_server: Any, tmp_path: Path, pooled: tuple[str, str]
) -> None:
    name = pooled[1].partition("?")[0].rpartition("/")[2]
    with pgbouncer(postgres_server, tmp_path / "bouncer", "statement") as port:
        store = Store(f"postgresql+psycopg://postgres@127.0.0.1:{port}/{name}")
        with pytest.raises(Unavailable) as caught:
            store.probe()
        store.close()
    assert caught.value.code == "store_pooler"


def test_a_gateway_behind_a_pooler_takes_in_and_answers(pooled: tuple[str, str], tmp_path: Path) -> None:
    with echoing() as model, gateway(tmp_path, model, pooled[0]) as here:
        runs = [here.ask(f"hello {n}", f"agent:main:web:dm:{n}") for n in range(5)]
        assert [here.append(f"entry {n}") for n in range(20)] == [201] * 20
        for run in runs:
            wait_until(lambda run=run: here.end_of(run) == "committed", "the turn is committed")
        assert here.ready() is None
        assert here.api.get("/api/health").json()["store"]["pooled"] is True
        assert here.stop() == 0
        assert "Traceback" not in here.said()
