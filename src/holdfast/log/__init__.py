"""The log room: what happened, and what is still due. Everything else in Holdfast is a view of it.

store = open_store("sqlite:///holdfast.db")
with store.write(OWNER) as tx:
    session = sessions.ensure(tx, "agent:main:main")
    turns.accept(tx, session, EntryDraft(content="hello"), key="client-42")
"""

from holdfast.log import (
    agenda,
    audit,
    chains,
    changes,
    entries,
    ingest,
    leases,
    notes,
    outbox,
    sessions,
    surfaces,
    turns,
    versions,
)
from holdfast.log.audience import (
    FOR_ANYONE,
    FOR_OWNER,
    NOBODY,
    OWNER,
    SYSTEM,
    Audience,
    Origin,
    Reader,
    covers,
    for_group,
    for_member,
    for_peer,
    for_space,
    heard_by,
    meet,
    of_key,
    parse_audience,
    space_of,
)
from holdfast.log.chains import Chain, ChainStopped
from holdfast.log.changes import Bridge, Change, Feed, Ping, Reset, Waiter
from holdfast.log.entry_model import Classification, Cursor, Entry, EntryDraft, EntryFilter, EntryType
from holdfast.log.leases import this_process
from holdfast.log.notes import Note, NoteDraft
from holdfast.log.reset import Entered, enter
from holdfast.log.retention import Retention, forget_entry, prune
from holdfast.log.sessions import Session, SessionStatus
from holdfast.log.store import Store, Tx, sqlite_url
from holdfast.log.threads import Allowance, Pace, Pulse, Signals, Threads, ringing, rung, to_the_end
from holdfast.log.turns import Outcome, Turn, TurnStatus
from holdfast.log.upkeep import check, copy

__all__ = [
    "FOR_ANYONE",
    "FOR_OWNER",
    "NOBODY",
    "OWNER",
    "SYSTEM",
    "Allowance",
    "Audience",
    "Bridge",
    "Chain",
    "ChainStopped",
    "Change",
    "Classification",
    "Cursor",
    "Entered",
    "Entry",
    "EntryDraft",
    "EntryFilter",
    "EntryType",
    "Feed",
    "Note",
    "NoteDraft",
    "Origin",
    "Outcome",
    "Pace",
    "Ping",
    "Pulse",
    "Reader",
    "Reset",
    "Retention",
    "Session",
    "SessionStatus",
    "Signals",
    "Store",
    "Threads",
    "Turn",
    "TurnStatus",
    "Tx",
    "Waiter",
    "agenda",
    "audit",
    "chains",
    "changes",
    "check",
    "copy",
    "covers",
    "enter",
    "entries",
    "for_group",
    "for_member",
    "for_peer",
    "for_space",
    "forget_entry",
    "heard_by",
    "ingest",
    "leases",
    "meet",
    "notes",
    "of_key",
    "open_store",
    "outbox",
    "parse_audience",
    "prune",
    "require_store",
    "ringing",
    "rung",
    "sessions",
    "space_of",
    "sqlite_url",
    "surfaces",
    "this_process",
    "to_the_end",
    "turns",
    "versions",
]


def open_store(url: str, *, used: bool = False, **options: object) -> Store:
    """Open a store and bring its schema up to date.

    A file that is there must be a store: another program's is left alone, and so is an empty one where `used`
    says that there was a store.
    """
    from pathlib import Path

    from holdfast import migrations
    from holdfast.home import make_private

    store = Store(url, **options)  # type: ignore[arg-type]
    if not store.postgres:
        file = Path(str(store.url.database))
        there = file.exists()
        make_private(file)
        if there:
            require_store(store, used=used)
    migrations.migrate(store)
    return store


def require_store(store: Store, *, used: bool) -> None:
    """`Conflict` for the file of another program, and for an empty one where a store was."""
    import sqlalchemy as sa

    from holdfast import migrations
    from holdfast.errors import Conflict

    with store.schema() as conn:
        if migrations.current(conn) is not None:
            return
        tables = sa.inspect(conn).get_table_names()
    if tables:
        raise Conflict(
            f"{store.url.database} is a database of another program (it has a table {tables[0]})",
            code="store_foreign",
            hint="Set store.url to another file, or move this one away.",
        )
    if used:
        raise Conflict(
            f"{store.url.database} is empty, but this home has been used: its log is gone",
            code="store_emptied",
            hint="Put a copy of it back. To begin with an empty log, delete the file.",
        )
