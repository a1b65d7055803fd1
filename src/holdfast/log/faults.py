"""What an error of the database means: a passing trouble, one that somebody must mend, or a bug of ours.

Transient     broken off, locked, restarted, failing over: the same may be tried again as it is
Unavailable   full, refused, damaged: told with what mends it, and tried again when that was done
None          a statement that is wrong in itself: the caller's error stays as it is
"""

from __future__ import annotations

from typing import Final

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError

from holdfast.errors import Transient, Unavailable

# By SQLSTATE, its class of two characters where no code of five stands beside it.
_LOST: Final = ("the database cannot be reached", "store_unreachable")
_BROKEN_OFF: Final = ("the database broke off what was asked of it", "store_interrupted")
_DEADLOCK: Final = ("the database broke off a transaction to resolve a deadlock", "store_busy")
_CROWDED: Final = ("the database has no room for another connection now", "store_busy")
_STANDBY: Final = (
    "the database takes no writes: it is a standby, or a failover is under way",
    "store_standby",
)
_TRANSIENT: Final = {
    "08": _LOST,
    "0A000": ("the tables were changed by another version meanwhile", "store_interrupted"),
    "25006": _STANDBY,
    "25P03": _BROKEN_OFF,
    "26000": ("a pooler gave another connection in the middle", "store_interrupted"),
    "40": _DEADLOCK,
    "42P05": ("a pooler gave another connection in the middle", "store_interrupted"),
    "53200": ("the database server is out of memory", "store_busy"),
    "53300": _CROWDED,
    "53400": _CROWDED,
    "55P03": ("what the database was asked for is locked", "store_locked"),
    "57014": _BROKEN_OFF,
    "57P": _LOST,
}
_TRY_AGAIN: Final = "Holdfast tries again by itself."
_TRANSIENT_HINTS: Final = {
    "store_unreachable": "Check that PostgreSQL is running and that the store's URL is right.",
    "store_standby": f"{_TRY_AGAIN} If it lasts, let the store's URL name the primary "
    "(host=a,b&target_session_attrs=read-write).",
    "store_locked": f"{_TRY_AGAIN} If it lasts, see who holds the lock: pg_locks.",
}
_FULL: Final = (
    "the disk of the database server is full or failing; nothing was written",
    "store_full",
    "Free some space on the database server; Holdfast goes on by itself.",
)
_REFUSED: Final = (
    "the database refuses the user, or has no such database",
    "store_refused",
    "Check user, password and database in the store's URL, and what that user may do.",
)
_DAMAGED: Final = (
    "the database server says that its data are damaged",
    "store_damaged",
    "See the server's log, and restore a backup if it says so.",
)
_PERMANENT: Final = {
    "28": _REFUSED,
    "3D000": _REFUSED,
    "42501": _REFUSED,
    "53100": _FULL,
    "58": _FULL,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}
# A connection that is refused has no SQLSTATE, only the server's words.
_REFUSALS: Final = ("authentication failed", "pg_hba.conf", "does not exist", "permission denied")
_POOLER: Final = frozenset({"26000", "42P05"})


def meaning(error: DBAPIError, *, postgres: bool) -> Unavailable | None:
    """What to raise instead of it; None for a bug, which is raised as it is."""
    return _of_postgres(error) if postgres else _of_sqlite(error)


def names_a_pooler(error: DBAPIError) -> bool:
    """Whether a prepared statement was missing, or there, where only another connection's could be."""
    return _state(error) in _POOLER


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def _of_postgres(error: DBAPIError) -> Unavailable | None:
    state, text = _state(error), str(error.orig).lower()
    if "statement pooling" in text:
        return Unavailable(
            "the pooler gives every statement another connection, so that there are no transactions",
            code="store_pooler",
            hint="Set its pool_mode to transaction or session.",
        )
    if not state:
        return _of_connection(error, text)
    if state == "0A000" and "cached plan" not in text:
        return _transient(*_STANDBY) if "recovery" in text else None
    for table in (state, state[:3], state[:2]):
        if table in _TRANSIENT:
            return _transient(*_TRANSIENT[table])
        if table in _PERMANENT:
            message, code, hint = _PERMANENT[table]
            return Unavailable(message, code=code, hint=hint)
    return None


def _of_connection(error: DBAPIError, text: str) -> Unavailable | None:
    if isinstance(error, DataError | IntegrityError | ProgrammingError | NotSupportedError):
        return None
    if any(words in text for words in _REFUSALS):
        message, code, hint = _REFUSED
        return Unavailable(f"{message}: {text.strip().splitlines()[-1][:200]}", code=code, hint=hint)
    return _transient(*(_CROWDED if "too many" in text or "no more connections" in text else _LOST))


def _transient(message: str, code: str) -> Transient:
    return Transient(message, code=code, hint=_TRANSIENT_HINTS.get(code, _TRY_AGAIN))


def _of_sqlite(error: DBAPIError) -> Unavailable | None:
    text = str(error.orig).lower()
    if "locked" in text or "busy" in text:
        return Transient(
            "the database is locked by another process",
            code="store_locked",
            hint="Stop the other process that writes to it, or use PostgreSQL for several writers.",
        )
    if "interrupted" in text or "schema has changed" in text or "out of memory" in text:
        return Transient(f"the database broke off: {text}", code="store_interrupted", hint=_TRY_AGAIN)
    if "disk is full" in text or "no space" in text or "disk i/o" in text:
        return Unavailable(
            "the disk is full or failing; nothing was written",
            code="store_full",
            hint="Free some space; Holdfast goes on by itself.",
        )
    if "readonly" in text or "read-only" in text or "unable to open" in text:
        return Unavailable(
            "the database cannot be opened for writing",
            code="store_readonly",
            hint="Check the owner and the permissions of the home folder.",
        )
    if "malformed" in text or "not a database" in text:
        return Unavailable(
            "the database file is damaged",
            code="store_damaged",
            hint="Run `holdfast store check`, and restore a copy if it says so.",
        )
    return None
