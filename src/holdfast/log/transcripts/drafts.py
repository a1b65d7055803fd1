"""Transcript lines as entries of the log, from whose `raw` alone each can be written again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

from holdfast.clock import Millis
from holdfast.ids import AgentId, SessionId
from holdfast.keys import SessionKey
from holdfast.log.entries import Classification, EntryDraft, EntryType
from holdfast.log.transcripts.lines import (
    BadLine,
    Line,
    MessageLine,
    calls_line,
    dump_line,
    line_content,
    line_time,
    parse_line,
)
from holdfast.log.transcripts.record import storable

IMPORT_PREFIX: Final = "import:"
USER: Final = AgentId("user")

_WRAPPED: Final = '{"type":"holdfast.verbatim",'
_OPEN: Final = f'{_WRAPPED}"ended":false,'
_SPOKEN: Final = ("user", "assistant")
_EPOCH: Final = Millis(0)


def to_drafts(
    lines: Iterable[Line],
    session_key: SessionKey,
    session_id: SessionId,
    agent_id: AgentId,
    *,
    default_at: Millis = _EPOCH,
) -> Iterator[EntryDraft]:
    """One draft for each line. The same file gives the same keys, also after it has grown.

    A line without a usable time gets that of the line before it, the first ones `default_at`.
    """
    seen: dict[bytes, int] = {}
    at = default_at
    for line in lines:
        at = line_time(line) or at
        line_id = None if isinstance(line, BadLine) else line.id
        source = {"channel": "import", "sessionKey": session_key}
        role = line.role if isinstance(line, MessageLine) else None
        type_ = _draft_type(line)
        silent = type_ is EntryType.SYSTEM
        yield EntryDraft(
            type=type_,
            role=None if role is None else storable(role),
            session_key=session_key,
            session_id=session_id,
            content=storable(_content(line, type_)),
            raw=_to_raw(line),
            source=source if line_id is None else {**source, "messageId": storable(line_id)},
            status=Classification.CLASSIFIED if silent else Classification.PENDING,
            code="filtered_non_semantic" if silent else None,
            created_at=at,
            agent_id=USER if role == "user" else agent_id,
            idempotency_key=_idempotency_key(session_id, line_id, dump_line(line), seen),
        )


def from_raw(rows: Iterable[str]) -> Iterator[Line]:
    """The lines again from the `raw` of their entries, in order: the identical file."""
    for lineno, raw in enumerate(rows, 1):
        if raw.startswith(_WRAPPED):
            kept = json.loads(raw)
            yield parse_line(kept["text"], lineno, ended=kept["ended"])
        else:
            yield parse_line(raw, lineno)


def is_open(raw: str) -> bool:
    """Whether the line had no newline behind it yet: its writer may have been in the middle of it."""
    return raw.startswith(_OPEN)


def _to_raw(line: Line) -> str:
    """The line as text for the log, wrapped if plain text could not say it exactly."""
    text = dump_line(line)
    if line.ended and not text.startswith(_WRAPPED) and storable(text) == text:
        return text
    return f'{_WRAPPED}"ended":{json.dumps(line.ended)},"text":{json.dumps(text)}}}'


def _draft_type(line: Line) -> EntryType:
    if not isinstance(line, MessageLine):
        return EntryType.SYSTEM
    if line.role == "toolResult":
        return EntryType.ACTION
    if line.role not in _SPOKEN:
        return EntryType.SYSTEM
    only_tools = line.has_tool_calls and not line_content(line).strip()
    return EntryType.ACTION if only_tools else EntryType.CONVERSATION


def _content(line: Line, type_: EntryType) -> str:
    if type_ is EntryType.ACTION and isinstance(line, MessageLine) and line.has_tool_calls:
        return calls_line(line.message.get("content"))
    return line_content(line)


def _idempotency_key(session_id: str, line_id: str | None, text: str, seen: dict[bytes, int]) -> str:
    """A hash of session, line id and text; equal lines are told apart by which of them it is."""
    plain = sha256(json.dumps([session_id, line_id, text]).encode()).digest()
    nth = seen[plain] = seen.get(plain, -1) + 1
    return IMPORT_PREFIX + sha256(plain + str(nth).encode()).hexdigest()[:40]
