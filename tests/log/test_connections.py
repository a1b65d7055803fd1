"""Connections are kept ready, and a broken one is never handed out twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from builders import PATIENCE
from holdfast.log import OWNER, Bridge, EntryDraft, Store, changes, entries
from holdfast.log.connections import Connections


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(postgres_url)
    yield made
    made.dispose()


def test_a_connection_is_used_again_and_one_that_the_server_ended_is_replaced(engine: sa.Engine) -> None:
    kept = Connections(engine, 2, ask=True, fresh_seconds=0.0)
    first = _backend(kept)
    assert _backend(kept) == first
    with engine.begin() as other:
        other.exec_driver_sql(f"SELECT pg_terminate_backend({first}, 10000)")
    assert _backend(kept) != first
    kept.close()


def test_a_connection_that_failed_is_given_up_and_its_place_is_free(engine: sa.Engine) -> None:
    kept = Connections(engine, 1, ask=False)
    for _ in range(3):
        with pytest.raises(sa.exc.ProgrammingError), kept.one() as conn, conn.begin():
            conn.exec_driver_sql("SELECT nonsense")
    assert _backend(kept) > 0
    kept.close()


def test_the_changes_of_a_transaction_come_in_the_order_in_which_they_were_told(store: Store) -> None:
    with store.write(OWNER) as tx:
        changes.emit(tx, "one.updated", "1")
        changes.emit(tx, "two.updated", "2", {"why": "it was told so"})
        entries.load(tx, [EntryDraft(content="three")])
        changes.emit(tx, "four.updated", "4")
    with store.read(OWNER) as tx:
        told = changes.since(tx, 0)
    assert [change.type for change in told] == ["one.updated", "two.updated", "log.appended", "four.updated"]
    assert told[1].payload == {"why": "it was told so"}


def test_a_store_rings_once_for_its_own_commits_and_once_for_those_of_others(postgres_url: str) -> None:
    own, other = Store(postgres_url), Store(postgres_url)
    rung: list[str] = []
    both, ready = threading.Event(), threading.Event()

    def ring() -> None:
        rung.append("rung")
        ready.set()
        if len(rung) > 2:
            both.set()

    own.signals.subscribe(changes.SIGNAL, ring)
    bridge = Bridge(own)
    bridge.start()
    try:
        assert ready.wait(PATIENCE)  # it rings all bells once it listens
        for store in (own, other):
            with store.write(OWNER) as tx:
                changes.emit(tx, "one.updated", "1")
        assert both.wait(PATIENCE)
        assert len(rung) == 3
    finally:
        bridge.stop()
        own.close()
        other.close()


def _backend(kept: Connections) -> int:
    with kept.one() as conn, conn.begin():
        return int(conn.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
