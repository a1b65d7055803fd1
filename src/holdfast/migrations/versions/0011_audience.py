"""Audiences: who may read what, on everything that holds somebody's words.

What is there already gets the narrowest audience that its session tells: groups and channels are their
group's, the direct chats of guests are the guest's, all else is the owner's. A space counts as shared if a
live token is limited to it; what was said before in such a space stays the owner's until it is shared.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

OWNER = "owner"
_GROUP = re.compile(r"agent:[^:]+:(?P<channel>[^:]+):(?:group|channel):(?P<id>.+)")
_DIRECT = re.compile(r"agent:[^:]+:(?P<channel>[^:]+):(?:(?P<account>[^:]+):)?(?:dm|direct):(?P<id>.+)")
_BUCKET = re.compile(r"channel:(?P<channel>.+)")
_NOT_CHANNELS = {"main", "subagent", "cron", "hook", "dm", "direct", "group", "channel"}


def upgrade() -> None:
    for table in (
        "entries",
        "sessions",
        "turns",
        "topics",
        "tasks",
        "session_routing",
        "attachments",
        "notes",
    ):
        op.add_column(table, sa.Column("audience", sa.Text, nullable=False, server_default=OWNER))
    op.add_column("entries", sa.Column("given_space", sa.Text))
    op.add_column("sessions", sa.Column("space_id", sa.Text))
    op.add_column("topics", sa.Column("agent_id", sa.Text))
    op.add_column("spaces", sa.Column("shared", sa.Boolean, nullable=False, server_default=sa.false()))
    # Two people who may not read each other's topics may each have one of the same name.
    op.drop_index("topics_name", "topics")
    readers = ["space_id", "name_key", "audience"]
    op.create_index("topics_name", "topics", [*readers, "agent_id"], unique=True)
    nobodys = sa.text("agent_id IS NULL")
    op.create_index(
        "topics_own_name", "topics", readers, unique=True, sqlite_where=nobodys, postgresql_where=nobodys
    )
    op.create_table(
        "exposed_surfaces",
        sa.Column("surface", sa.Text, primary_key=True),
        sa.Column("sender", sa.Text, nullable=False),
        sa.Column("exposed_at", sa.BigInteger, nullable=False),
    )
    # What is the owner's alone, most of a log, is read by whoever reads all: it needs no place in this index.
    others = sa.text(f"audience <> '{OWNER}'")
    op.create_index(
        "entries_audience",
        "entries",
        ["audience", "created_at", "position"],
        sqlite_where=others,
        postgresql_where=others,
    )
    conn = op.get_bind()
    conn.execute(sa.text("UPDATE entries SET given_space = space_id WHERE status = 'pending'"))
    for key, audience in _audiences(conn):
        for table, column in _KEYED:
            statement = f"UPDATE {table} SET audience = :audience WHERE {column} = :key"
            conn.execute(sa.text(statement), {"audience": audience, "key": key})
    _share_spaces(conn)


_KEYED = (
    ("entries", "session_key"),
    ("sessions", "key"),
    ("turns", "session_key"),
    ("session_routing", "session_key"),
    ("notes", "session_key"),
)


def _audiences(conn: sa.Connection) -> Iterator[tuple[str, str]]:
    """The session keys whose words are not the owner's alone."""
    known: set[str] = set()
    for table, column in _KEYED:
        known |= set(conn.execute(sa.text(f"SELECT DISTINCT {column} FROM {table}")).scalars())
    for key in sorted(one for one in known if one):
        audience = _audience(conn, key)
        if audience != OWNER:
            yield key, audience


def _audience(conn: sa.Connection, key: str) -> str:
    plain = re.split(r"[:|]thread:", key, maxsplit=1)[0]
    if (found := _BUCKET.fullmatch(plain)) is not None:
        return f"group:{_part(found['channel'])}::*"
    found = _GROUP.fullmatch(plain)
    if found is not None and found["channel"] not in _NOT_CHANNELS:
        return f"group:{_part(found['channel'])}::{found['id']}"
    found = _DIRECT.fullmatch(plain)
    if found is not None and found["channel"] not in _NOT_CHANNELS and _is_guest(conn, key):
        return f"peer:{_part(found['channel'])}:{_part(found['account'] or '')}:{found['id']}"
    return OWNER


def _is_guest(conn: sa.Connection, key: str) -> bool:
    """Whether anybody but the owner spoke there: a turn was run for somebody who is not the owner."""
    rows = conn.execute(sa.text("SELECT meta FROM turns WHERE session_key = :key"), {"key": key}).scalars()
    return any(((_read(meta) or {}).get("ask") or {}).get("owner", True) is not True for meta in rows)


def _share_spaces(conn: sa.Connection) -> None:
    if not sa.inspect(conn).has_table("tokens"):
        return
    live = sa.text("SELECT spaces FROM tokens WHERE revoked_at IS NULL AND spaces IS NOT NULL")
    for spaces in conn.execute(live).scalars():
        for space in _read(spaces) or ():
            shared = sa.text("UPDATE spaces SET shared = :yes WHERE id = :id")
            conn.execute(shared, {"yes": True, "id": space})


def _read(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _part(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")
