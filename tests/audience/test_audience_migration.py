"""A home of the days before audiences: what is in it becomes the narrowest that its sessions tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from holdfast import migrations
from holdfast.board import sharing
from holdfast.log import FOR_OWNER, OWNER, EntryFilter, Store, entries, heard_by, open_store, sessions

MAIN = "agent:main:main"
GUEST = "agent:main:discord:dm:7"
AT_WORK = "agent:main:slack:work:dm:U7"
OWNERS_DM = "agent:main:discord:dm:1"
GROUP = "agent:main:discord:group:9"
BOARD = "clawboard:topic:topic-1"
# The key of a session, and who may read what was said in it once the home is upgraded.
SPECIFIED = {
    MAIN: "owner",
    OWNERS_DM: "owner",
    GUEST: "peer:discord::7",
    AT_WORK: "peer:slack:work:U7",
    GROUP: "group:discord::9",
    f"{GROUP}:thread:5": "group:discord::9",
    "agent:main:slack:channel:C1": "group:slack::C1",
    "agent:main:slack:channel:C1:thread:8.1": "group:slack::C1",
    "channel:discord": "group:discord::*",
    BOARD: "owner",
    "agent:main:subagent:s1": "owner",
    "agent:main:cron:task-1": "owner",
    "agent:beta:main": "owner",
}
GUESTS = (GUEST, AT_WORK)


def test_everything_is_read_by_those_who_heard_it_and_by_nobody_else(old: Store) -> None:
    tables = {"entries": "session_key", "sessions": "key", "turns": "session_key"}
    tables |= {"session_routing": "session_key", "notes": "session_key"}
    with old.read(OWNER) as tx:
        for table, column in tables.items():
            found = tx.conn.exec_driver_sql(f"SELECT {column}, audience FROM {table}")
            assert {row[0]: row[1] for row in found if row[0] is not None} == SPECIFIED, table
        for table in ("topics", "tasks", "attachments"):
            told = tx.conn.exec_driver_sql(f"SELECT DISTINCT audience FROM {table}").scalars()
            assert list(told) == [FOR_OWNER], table
        nobodys = tx.conn.exec_driver_sql("SELECT audience FROM entries WHERE session_key IS NULL").scalars()
        assert set(nobodys) == {FOR_OWNER}


def test_the_readers_of_today_find_what_is_theirs_in_it(old: Store) -> None:
    for key in (GUEST, GROUP):
        with old.read(heard_by(SPECIFIED[key])) as tx:
            shown = entries.listing(tx, EntryFilter(), limit=100).entries
            assert {entry.audience for entry in shown} == {SPECIFIED[key]}
            assert f"said in {key}" in {entry.content for entry in shown}
            assert sessions.find(tx, key).audience == SPECIFIED[key]
    with old.read(OWNER) as tx:
        assert len(entries.listing(tx, EntryFilter(), limit=100).entries) == len(SPECIFIED) + 1


def test_a_space_is_shared_if_a_live_token_is_limited_to_it(old: Store) -> None:
    with old.read(OWNER) as tx:
        assert {id_: sharing.is_shared(tx, id_) for id_ in ("space-p", "space-q", "space-r")} == {
            "space-p": True,
            "space-q": False,
            "space-r": False,
        }


def test_where_an_entry_was_put_by_name_and_not_yet_sorted_stays_known(old: Store) -> None:
    with old.read(OWNER) as tx:
        found = tx.conn.exec_driver_sql("SELECT space_id, given_space, status FROM entries ORDER BY position")
        placed = [tuple(row) for row in found if row[0] is not None]
    assert placed == [("space-p", "space-p", "pending")]


@pytest.fixture
def old(empty_url: str) -> Iterator[Store]:
    """A home of revision 0010, upgraded."""
    with at_revision(empty_url, "0010") as conn:
        fill(conn)
    store = open_store(empty_url)
    with store.read(OWNER) as tx:
        assert migrations.current(tx.conn) == migrations.HEAD
    yield store
    store.close()


@contextmanager
def at_revision(url: str, revision: str) -> Iterator[sa.Connection]:
    made = sa.create_engine(url)
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with made.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, revision)
        yield conn
    made.dispose()


def fill(conn: sa.Connection) -> None:
    kept = Tables(conn)
    for id_ in ("space-p", "space-q", "space-r"):
        kept.insert("spaces", id=id_, name=id_)
    for number, key in enumerate(SPECIFIED, 1):
        kept.insert("sessions", id=f"s{number}", key=key, status="active", agent_id="main")
        kept.insert(
            "entries",
            position=number,
            id=f"log-{number}",
            type="conversation",
            content=f"said in {key}",
            session_key=key,
            session_id=f"s{number}",
            status="classified",
        )
        asked = {"agentId": "main"} | ({"owner": False} if key in GUESTS else {})
        turn = {"session_id": f"s{number}", "session_key": key, "number": 1, "status": "committed"}
        kept.insert("turns", id=f"turn-{number}", key=f"k{number}", meta={"ask": asked}, **turn)
        kept.insert("session_routing", session_key=key, items=[])
        kept.insert("notes", id=f"n{number}", key=f"n{number}", session_key=key, text="a note")
    placed = {"content": "put into P", "space_id": "space-p", "status": "pending", "type": "conversation"}
    kept.insert("entries", position=100, id="log-100", **placed)
    kept.insert("topics", id="topic-1", name="Plans", name_key="plans", space_id="space-p", status="active")
    kept.insert("tasks", id="task-1", topic_id="topic-1", title="Plan", space_id="space-p", status="todo")
    kept.insert("attachments", id="att-1", file_name="a.txt", sha256="0" * 64)
    for name, spaces, revoked in (
        ("live", ["space-p"], None),
        ("revoked", ["space-q"], 1),
        ("unlimited", None, None),
    ):
        kept.insert("tokens", id=name, name=name, hash=name, scope="write", spaces=spaces, revoked_at=revoked)


class Tables:
    """Rows as that revision had them; what a row must have besides is filled in."""

    def __init__(self, conn: sa.Connection) -> None:
        self._conn = conn
        self._known = sa.MetaData()
        self._known.reflect(conn)

    def insert(self, name: str, /, **values: Any) -> None:
        table = self._known.tables[name]
        for column in table.columns:
            needed = not column.nullable and column.server_default is None
            if needed and column.name not in values:
                values[column.name] = _some(column)
            if not isinstance(column.type, sa.JSON) and isinstance(values.get(column.name), dict | list):
                values[column.name] = json.dumps(values[column.name])
        self._conn.execute(sa.insert(table), values)


def _some(column: sa.Column[Any]) -> Any:
    if isinstance(column.type, sa.Boolean):
        return False
    return 0 if isinstance(column.type, sa.Integer | sa.Float | sa.Numeric) else "x"
