"""What is kept for a while only goes when the config says so: each limit shown by what one sweep leaves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from builders import KEY, accept, append, claim, enqueue, rows, session
from holdfast.agents.approvals import audit
from holdfast.agents.loop import Ask
from holdfast.board import routing
from holdfast.board.routing import Routed
from holdfast.clock import ManualClock
from holdfast.config.board import RoutingMemory
from holdfast.log import FOR_OWNER, OWNER, Store, agenda, entries, outbox, sessions
from holdfast.log.agenda import Finish
from holdfast.runtime import Holdfast
from holdfast.services import RETENTION, Services

Opens = Callable[..., Holdfast]


def sweep(hold: Holdfast, services: Services | None = None) -> Services:
    """One sweep, as a gateway does it at its start and then every so often."""

    async def run() -> Services:
        swept = services or Services(hold)
        with hold.store.write(OWNER) as tx:
            agenda.enqueue(tx, RETENTION, {}, lane=RETENTION, key=RETENTION, due_at=int(tx.now))
        await swept.runner.drain()
        return swept

    return asyncio.run(run())


def finished(store: Store, count: int) -> None:
    for _ in range(count):
        enqueue(store)
    for held in claim(store):
        with store.write(OWNER) as tx:
            agenda.apply(tx, held, Finish("a"))


def archived(store: Store) -> None:
    append(store, "long ago", session_key=KEY, session_id=session(store).id)
    with store.write(OWNER) as tx:
        sessions.archive(tx, sessions.ensure(tx, KEY), cause="x")


def deleted(store: Store) -> None:
    gone = append(store, "a secret")
    with store.write(OWNER) as tx:
        entries.delete(tx, gone.id)


def delivered(store: Store) -> None:
    with store.write(OWNER) as tx:
        parcel = outbox.Parcel(key="k", kind="message", target="phone", payload={})
        outbox.delivered(tx, outbox.post(tx, parcel).id)


def audited(store: Store) -> None:
    with store.write(OWNER) as tx:
        audit.record(tx, "refused", audit.Call(agent_id="main", tool="exec", text="make"), rule="r")


def count(table: str) -> str:
    return f"SELECT count(*) FROM {table}"


# What lies there for two days, what is looked at, and what is found of it with and without the setting.
CASES: dict[str, tuple[dict[str, Any], Callable[[Store], object], str, Any, Any]] = {
    "agendaDays": (
        {"retention": {"agendaDays": 1}},
        lambda store: finished(store, 2),
        count("agenda WHERE kind = 'work'"),
        0,
        2,
    ),
    "agendaRows": (
        {"retention": {"agendaRows": 1}},
        lambda store: finished(store, 3),
        count("agenda WHERE kind = 'work'"),
        1,
        3,
    ),
    "changesDays": (
        {"retention": {"changesDays": 1}},
        lambda store: [append(store), append(store)],
        count("changes WHERE seq = 1"),
        0,
        1,
    ),
    "changesRows": (
        {"retention": {"changesRows": 1}},
        lambda store: [append(store), append(store)],
        count("changes WHERE seq = 1"),
        0,
        1,
    ),
    "deletedDays": (
        {"retention": {"deletedDays": 1}},
        deleted,
        count("entries WHERE content = 'a secret'"),
        0,
        1,
    ),
    "transcriptDays": (
        {"retention": {"transcriptDays": 1}},
        archived,
        count("entries WHERE content = 'long ago'"),
        0,
        1,
    ),
    "outboxDays": ({"retention": {"outboxDays": 1}}, delivered, count("outbox"), 0, 1),
    "auditDays": ({"teams": {"auditDays": 1}}, audited, count("tool_audit"), 0, 1),
    "archiveAfterDays": (
        {"session": {"retention": {"archiveAfterDays": 1}}},
        lambda store: session(store),
        count("sessions WHERE status = 'archived'"),
        1,
        0,
    ),
    "maxSessions": (
        {"session": {"retention": {"maxSessions": 1}}},
        lambda store: [session(store, f"agent:main:chat{n}") for n in range(3)],
        count("sessions WHERE status = 'archived'"),
        2,
        0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_for_a_while_only_goes_when_its_setting_says_so(
    name: str, hold_with: Opens, clock: ManualClock
) -> None:
    config, lay, query, with_it, without = CASES[name]
    found = []
    for settings in (config, {}):
        hold = hold_with(**settings)
        lay(hold.store)
        clock.advance(hours=48)
        append(hold.store, "today", session_key="agent:other:main")
        sweep(hold)
        found.append(rows(hold.store, query)[0][0])
    assert found == [with_it, without]


def test_the_next_sweep_is_due_when_the_config_says(hold_with: Opens, clock: ManualClock) -> None:
    hold = hold_with(retention={"sweepMinutes": 7})
    sweep(hold)
    due = rows(hold.store, f"SELECT due_at FROM agenda WHERE kind = '{RETENTION}' AND ended_at IS NULL")
    assert due == [(clock.now() + 7 * 60_000,)]


def test_one_transaction_removes_so_many_rows_and_no_more(hold_with: Opens, clock: ManualClock) -> None:
    hold = hold_with(retention={"agendaDays": 1, "batchRows": 2})
    finished(hold.store, 5)
    clock.advance(hours=48)
    removed: list[int] = []

    def note(_conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE FROM agenda"):
            removed.append(cursor.rowcount)

    sa.event.listen(sa.engine.Engine, "after_cursor_execute", note)
    try:
        sweep(hold)
    finally:
        sa.event.remove(sa.engine.Engine, "after_cursor_execute", note)
    assert max(removed) == 2
    assert sum(removed) == 5


def test_accounts_of_contexts_go_in_their_time(hold_with: Opens, clock: ManualClock) -> None:
    hold = hold_with(retention={"manifestDays": 1}, memory={"search": {"embedding": {"providers": []}}})

    async def turn() -> None:
        await hold.runs.accept(Ask(text="hello", session_key=KEY))
        await Services(hold).runner.drain()

    asyncio.run(turn())
    assert rows(hold.store, count("context_manifests")) != [(0,)]
    clock.advance(hours=72)
    sweep(hold)
    assert rows(hold.store, count("context_manifests")) == [(0,)]


def test_what_sessions_were_about_is_cleaned_up_every_so_often(hold_with: Opens, clock: ManualClock) -> None:
    hold = hold_with(board={"routingMemory": {"ttlDays": 1, "gcHours": 1}})

    def remembered() -> list[tuple[Any, ...]]:
        return rows(hold.store, count("session_routing"))

    with hold.store.write(OWNER) as tx:
        routing.remember(tx, KEY, Routed(tx.now, "topic", "topic"), RoutingMemory(), FOR_OWNER)
    clock.advance(hours=23.5)
    services = sweep(hold)
    clock.advance(minutes=59)
    sweep(hold, services)
    assert remembered() == [(1,)]
    clock.advance(minutes=1)
    sweep(hold, services)
    assert remembered() == [(0,)]


def test_files_of_logs_are_kept_for_so_many_days(hold_with: Opens, clock: ManualClock) -> None:
    hold = hold_with(logging={"keepDays": 2})
    hold.home.logs.mkdir(parents=True, exist_ok=True)
    for name, days in (("young.log", 1), ("old.log", 3)):
        (hold.home.logs / name).write_text("x")
        written = clock.now() / 1000 - days * 86_400
        os.utime(hold.home.logs / name, (written, written))
    sweep(hold)
    assert [path.name for path in hold.home.logs.glob("*.log")] == ["young.log"]


def test_the_record_of_the_board_drops_what_is_older(hold_with: Opens, clock: ManualClock) -> None:
    hold = hold_with(board={"audit": {"enabled": True, "maxBytes": 1024, "retentionDays": 1}})
    for _ in range(2):
        hold.board_audit.write("recall", {"words": "x" * 1000})
    older = hold.home.logs / "board.jsonl.1"
    written = clock.now() / 1000 - 2 * 86_400
    os.utime(older, (written, written))
    hold.board_audit.write("recall", {"words": "y" * 1000})
    kept = "".join(path.read_text() for path in hold.home.logs.glob("board.jsonl*"))
    assert kept.count("recall") == 2


def test_an_accepted_message_is_no_unused_session(hold_with: Opens, clock: ManualClock) -> None:
    hold = hold_with(session={"retention": {"archiveAfterDays": 1}})
    accept(hold.store)
    clock.advance(hours=48)
    sweep(hold)
    assert rows(hold.store, count("sessions WHERE status = 'archived'")) == [(0,)]
