"""The log room: what happened, and what is still due. Everything else in Holdfast is a view of it.

store = open_store("sqlite:///holdfast.db")
with store.write() as tx:
    session = sessions.ensure(tx, "agent:main:main")
    turns.accept(tx, session, EntryDraft(content="hello"), key="client-42")
"""

from holdfast.log import agenda, changes, entries, ingest, leases, notes, outbox, sessions, turns
from holdfast.log.bridge import Bridge
from holdfast.log.changes import Change
from holdfast.log.check import check
from holdfast.log.copy import copy
from holdfast.log.entering import Entered, enter
from holdfast.log.entries import Classification, Cursor, Entry, EntryDraft, EntryFilter, EntryType
from holdfast.log.feed import Feed, Ping, Reset, Waiter
from holdfast.log.notes import Note, NoteDraft
from holdfast.log.owner import this_process
from holdfast.log.pace import Allowance, Pace
from holdfast.log.retention import Retention, prune
from holdfast.log.sessions import Session, SessionStatus
from holdfast.log.signals import Signals
from holdfast.log.store import Store, Tx, sqlite_url
from holdfast.log.threads import Threads, ringing, to_the_end
from holdfast.log.turns import Outcome, Turn, TurnStatus

__all__ = [
    "Allowance",
    "Bridge",
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
    "Outcome",
    "Pace",
    "Ping",
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
    "changes",
    "check",
    "copy",
    "enter",
    "entries",
    "ingest",
    "leases",
    "notes",
    "open_store",
    "outbox",
    "prune",
    "ringing",
    "sessions",
    "sqlite_url",
    "this_process",
    "to_the_end",
    "turns",
]


def open_store(url: str, **options: object) -> Store:
    """Open a store and bring its schema up to date."""
    from pathlib import Path

    from holdfast import migrations
    from holdfast.home import make_private

    store = Store(url, **options)  # type: ignore[arg-type]
    if not store.postgres:
        make_private(Path(str(store.url.database)))
    migrations.migrate(store)
    return store
