"""Answers kept for a moment. One is given again only while nothing at all was written since it was made."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from holdfast.board.reads import Query
from holdfast.log import Tx

T = TypeVar("T")

KEPT: Final = 256
HEAVIEST: Final = 4_096
SECONDS: Final = 5.0
MAX_LOOKED_AT: Final = 500


@dataclass(frozen=True, slots=True)
class Stamp:
    """How far the change feed and a session's routing memory (which has no changes of its own) have come."""

    seq: int
    routed_at: int | None = None


def stamp(tx: Tx, session_key: str | None = None) -> Stamp:
    seq, routed_at = _STAMP.rows(tx, key=session_key or "")[0]
    return Stamp(seq or 0, routed_at)


class ShortCache(Generic[T]):
    """Bounded in number, in weight and in age: some of what an answer depends on is only the time."""

    def __init__(
        self,
        *,
        kept: int = KEPT,
        heaviest: int = HEAVIEST,
        seconds: float = SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept = kept
        self._heaviest = heaviest
        self._weight = 0
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[Stamp, float, T, int]] = OrderedDict()

    def get(self, key: Hashable, now: Stamp) -> T | None:
        with self._lock:
            found = self._answers.get(key)
            if found is None or found[0] != now or found[1] < self._monotonic():
                return None
            self._answers.move_to_end(key)
            return found[2]

    def put(self, key: Hashable, made_at: Stamp, answer: T, *, weight: int = 1) -> None:
        """Keep an answer, `weight` being about how many things it holds: large ones push out more others."""
        with self._lock:
            old = self._answers.pop(key, None)
            self._weight += weight - (0 if old is None else old[3])
            self._answers[key] = (made_at, self._monotonic() + self._seconds, answer, weight)
            while len(self._answers) > self._kept or self._weight > self._heaviest:
                self._weight -= self._answers.popitem(last=False)[1][3]


def only_log(tx: Tx, since: int, until: int) -> bool:
    """Whether nothing but the log changed between: no space, topic or task. Too much to look at is a no."""
    return until - since <= MAX_LOOKED_AT and (until == since or _OTHER.first(tx, since=since) is None)


_OTHER: Final = Query(
    """SELECT 1 FROM changes WHERE seq > :since
    AND type NOT IN ('log.appended', 'log.patched', 'log.deleted') LIMIT 1"""
)
_STAMP: Final = Query(
    """SELECT (SELECT max(seq) FROM changes),
    (SELECT updated_at FROM session_routing WHERE session_key = :key)"""
)
