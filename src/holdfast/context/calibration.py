"""What models teach, kept in the store: from the usage that one reports a factor for our estimates, from the
requests that it refused what its server takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import sqlalchemy as sa

from holdfast.context.blobs import insert_new
from holdfast.context.tables import calibrations as table
from holdfast.context.tables import lessons as lesson_table
from holdfast.context.tokens import Estimator
from holdfast.log import Tx
from holdfast.log.statements import Insert, Statement, Update

LOWEST: Final = 0.5
HIGHEST: Final = 2.0
FEWEST_TOKENS: Final = 200
_STEP: Final = 0.25
_SLOWEST: Final = 0.1


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factor of a model, how far off its last estimates were (a running mean), and from how many."""

    factor: float = 1.0
    error: float = 0.0
    samples: int = 0
    rejected: int = 0

    @property
    def estimator(self) -> Estimator:
        return Estimator(self.factor)


def learn(known: Calibration, *, estimated_raw: int, reported: int) -> Calibration:
    """Take in one reported figure. One strange report moves the factor little, an absurd one not at all."""
    if estimated_raw < FEWEST_TOKENS or reported < FEWEST_TOKENS:
        return known
    ratio = reported / estimated_raw
    if not LOWEST / 2 <= ratio <= HIGHEST * 2:
        return Calibration(known.factor, known.error, known.samples, known.rejected + 1)
    off = abs(estimated_raw * known.factor - reported) / reported
    weight = max(_SLOWEST, 1 / (known.samples + 1))
    near = min(max(ratio, known.factor * (1 - _STEP)), known.factor * (1 + _STEP)) if known.samples else ratio
    factor = known.factor + (near - known.factor) * weight
    return Calibration(
        min(max(factor, LOWEST), HIGHEST),
        known.error + (off - known.error) * weight,
        known.samples + 1,
        known.rejected,
    )


def get(tx: Tx, model: str) -> Calibration:
    row = _OF_MODEL.first(tx, model=model)
    return Calibration() if row is None else Calibration(*row)


def observe(tx: Tx, model: str, *, estimated_raw: int, reported: int) -> Calibration:
    """Learn from one call of a model, for good."""
    known = get(tx, model)
    now = learn(known, estimated_raw=estimated_raw, reported=reported)
    values = {
        "factor": now.factor,
        "error": now.error,
        "samples": now.samples,
        "rejected": now.rejected,
        "updated_at": tx.now,
    }
    if now == known:
        return known
    if _UPDATE.run(tx, values, of=model) == 0:
        # Two first observations at once: either's will do.
        tx.conn.execute(insert_new(tx, table), {"model": model, **values})
    return now


_OF_MODEL = Statement(
    sa.select(table.c.factor, table.c.error, table.c.samples, table.c.rejected).where(
        table.c.model == sa.bindparam("model")
    )
)
_UPDATE = Update(table, table.c.model == sa.bindparam("of"))


def listing(tx: Tx, *, limit: int = 100) -> dict[str, Calibration]:
    """By model, the most used first."""
    query = sa.select(table).order_by(table.c.samples.desc()).limit(limit)
    return {r.model: Calibration(r.factor, r.error, r.samples, r.rejected) for r in tx.conn.execute(query)}


MOST_LESSONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class LessonRow:
    """One fact of a model at a server, with the words that it was learned from, and when."""

    model: str
    fact: Any
    server: str
    value: Any
    why: str
    at: int


def lessons(tx: Tx) -> list[LessonRow]:
    """All that was learned, the newest first."""
    query = sa.select(lesson_table).order_by(lesson_table.c.at.desc()).limit(MOST_LESSONS)
    return [LessonRow(r.model, r.fact, r.server, r.value, r.why, r.at) for r in tx.conn.execute(query)]


def teach(tx: Tx, row: LessonRow) -> None:
    """Keep a lesson in place of an older one of the same fact."""
    _TEACH.one(tx, asdict(row))


_TEACH = Insert(lesson_table, replace=["model", "fact"])
