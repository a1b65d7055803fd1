"""Entries on their way in: what a batch on the agenda holds until it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from holdfast.log import agenda
from holdfast.log.agenda import Item
from holdfast.log.entry_model import Classification, EntryDraft, EntryType
from holdfast.log.store import Tx

INGEST: Final = "log.ingest"
MAX_ATTEMPTS: Final = 10
_NAMES: Final = tuple(field.name for field in fields(EntryDraft))


def accept(tx: Tx, drafts: Sequence[EntryDraft]) -> Item:
    """Take a batch in: once this is committed it will be written, whatever happens to this process.

    Drafts without a time get the time of acceptance, so that waiting does not change history.
    """
    rows = [_plain(draft, tx.now) for draft in drafts]
    return agenda.enqueue(tx, INGEST, {"entries": rows}, lane=INGEST, max_attempts=MAX_ATTEMPTS)


def drafts_from(payload: Mapping[str, Any]) -> list[EntryDraft]:
    return [_draft(row) for row in payload["entries"]]


def _plain(draft: EntryDraft, now: int) -> dict[str, Any]:
    row = {name: value for name in _NAMES if (value := getattr(draft, name)) is not None}
    row.setdefault("created_at", now)
    return row


def _draft(row: Mapping[str, Any]) -> EntryDraft:
    values = dict(row)
    values["type"] = EntryType(values["type"])
    values["status"] = Classification(values["status"])
    return EntryDraft(**values)
