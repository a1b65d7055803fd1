"""Why an entry lies where it lies: every decision is kept with its reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import sqlalchemy as sa

from holdfast.board import visibility
from holdfast.board.ingest import as_draft, gather
from holdfast.board.pending import enqueue
from holdfast.board.reads import Query
from holdfast.board.rules import decide
from holdfast.board.tables import decisions as table
from holdfast.clock import Millis
from holdfast.config.board import Classifier
from holdfast.log import Classification, Tx, entries
from holdfast.log.statements import Insert
from holdfast.text import clean_json

MAX_REPLAY: Final = 200
Method = Literal["lock", "reply", "continuity", "session", "model", "heuristic", "rule"]
BY_RULES: Final = frozenset(("heuristic", "continuity", "reply"))
"""What words and form decided: later words or a model may decide it anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One decision about one entry."""

    entry_id: str
    method: Method
    reasons: Mapping[str, Any]
    decided_at: Millis
    topic_id: str | None = None
    task_id: str | None = None
    confidence: float | None = None
    attempt: int = 1


def record(tx: Tx, made: Sequence[Made]) -> None:
    """Keep decisions; a later one about the same entry takes its place."""
    _PUT.many(
        tx,
        [
            {name: getattr(one, name) for name in Made.__slots__} | {"reasons": clean_json(one.reasons)}
            for one in made
        ],
    )


def methods(tx: Tx, ids: list[str]) -> dict[str, Method]:
    """How each of the entries was sorted, as far as they were."""
    return dict(_METHODS.rows(tx, ids=ids)) if ids else {}


def replay(tx: Tx, anchor_id: str, options: Classifier) -> int:
    """Sort again what the classifier sorted in a session, from an entry on; how many entries that is.

    What is bound to its topic stays bound, and what was never sorted but sent as it is stays so.
    """
    anchor = entries.get(tx, anchor_id)
    found = [anchor] if anchor.session_key is None else entries.around(tx, anchor, before=0, after=MAX_REPLAY)
    known = methods(tx, [entry.id for entry in found])
    again = [entry for entry in found if entry.id in known and entry.status is not Classification.PENDING]
    for entry in again:
        fields: dict[str, Any] = {"status": Classification.PENDING, "code": None}
        if known[entry.id] != "lock":
            space = entry.given_space or visibility.source_space(tx, None, entry.session_key)
            fields |= {"topic_id": None, "task_id": None, "space_id": space}
        entries.annotate(tx, entry.id, fields)
    if again:
        enqueue(tx, anchor.session_key, options)
    return len(again)


def explain(tx: Tx, entry_id: str) -> Made:
    """How an entry was sorted; one that a rule settled as it came in is explained by that rule.

    The words and topics that were weighed may be others': who may not read all is told the rule alone.
    """
    entry = entries.get(tx, entry_id)
    row = tx.conn.execute(sa.select(table).where(table.c.entry_id == entry_id)).mappings().first()
    if row is not None:
        made = Made(**row)
        return made if tx.reader.reads_all else replace(made, reasons=_plain(made.reasons))
    ruled = decide(as_draft(entry), gather(tx, as_draft(entry)))
    reason = ruled.reason or ("waits to be sorted" if entry.status == "pending" else "as it was sent")
    return Made(
        entry_id=entry_id,
        method="rule",
        topic_id=entry.topic_id,
        task_id=entry.task_id,
        reasons={"text": reason, "code": entry.code},
        decided_at=entry.created_at,
    )


def _plain(reasons: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"text": reasons["text"]} if reasons and "text" in reasons else {}


_METHODS: Final = Query("SELECT entry_id, method FROM decisions WHERE entry_id IN :ids")
_PUT: Final = Insert(table, replace=["entry_id"])
