"""Answers kept for a moment. One is given again only while nothing at all was written since it was made."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import sqlalchemy as sa

from holdfast.board.tables import session_routing
from holdfast.log import Tx
from holdfast.log.tables import changes

T = TypeVar("T")

KEPT: Final = 256
SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Stamp:
    """How far the change feed and a session's routing memory (which has no changes of its own) have come."""

    seq: int
    routed_at: int | None = None


def stamp(tx: Tx, session_key: str | None = None) -> Stamp:
    row = tx.conn.execute(_STAMP, {"key": session_key or ""}).one()
    return Stamp(row.seq or 0, row.routed_at)


class ShortCache(Generic[T]):
    """Bounded in number and in age: some of what an answer depends on is only the time."""

    def __init__(
        self,
        *,
        kept: int = KEPT,
        seconds: float = SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept = kept
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[Stamp, float, T]] = OrderedDict()

    def get(self, key: Hashable, now: Stamp) -> T | None:
        with self._lock:
            found = self._answers.get(key)
            if found is None or found[0] != now or found[1] < self._monotonic():
                return None
            self._answers.move_to_end(key)
            return found[2]

    def put(self, key: Hashable, made_at: Stamp, answer: T) -> None:
        with self._lock:
            self._answers[key] = (made_at, self._monotonic() + self._seconds, answer)
            self._answers.move_to_end(key)
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)


def only_log(tx: Tx, since: int) -> bool:
    """Whether nothing but the log changed since: no space, topic or task."""
    return tx.conn.execute(_OTHER, {"since": since}).first() is None


_LOG: Final = ("log.appended", "log.patched", "log.deleted")
_OTHER = (
    sa.select(sa.literal(1))
    .where(changes.c.seq > sa.bindparam("since"), changes.c.type.not_in(_LOG))
    .limit(1)
)
_STAMP = sa.select(
    sa.select(sa.func.max(changes.c.seq)).scalar_subquery().label("seq"),
    sa.select(session_routing.c.updated_at)
    .where(session_routing.c.session_key == sa.bindparam("key"))
    .scalar_subquery()
    .label("routed_at"),
)
