"""Our own transcripts, line by line, and what is drafted from anyone's before it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

from holdfast.clock import Millis, iso
from holdfast.ids import AgentId, SessionId
from holdfast.keys import SessionKey
from holdfast.log.entry_model import Classification, Entry, EntryDraft, EntryType
from holdfast.log.transcripts.lines import (
    BadLine,
    Header,
    Json,
    Line,
    MessageLine,
    OtherLine,
    calls_line,
    dump_line,
    line_content,
    line_time,
    parse_line,
    storable,
    typed_line,
)

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


VERSION: Final = 4

Role = Literal["user", "assistant", "toolResult", "system"]

_NO_USAGE: Final[Json] = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0)
_ORDER: Final = ("type", "id", "parentId", "timestamp")
_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "toolResult": "toolResult",
    "tool": "toolResult",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeEntry:
    """What is needed of an entry that was born here, to write it as a transcript line."""

    id: str
    role: Role
    content: str
    created_at: Millis
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    provider: str = "holdfast"
    model: str = "unknown"
    usage: Json = field(default_factory=lambda: _NO_USAGE)


def header_for(session_id: SessionId, started_at: Millis, cwd: str = "") -> Header:
    order = ("type", "version", "id", "timestamp", "cwd")
    return Header(version=VERSION, id=session_id, timestamp=iso(started_at), cwd=cwd, order=order)


def line_for(entry: NativeEntry, parent_id: str | None) -> Line:
    """Build the line of an entry, hung under `parent_id` (None for the first)."""
    stamp = iso(entry.created_at)
    if entry.role == "system":
        extra = {
            "type": "custom_message",
            "customType": "holdfast.system",
            "content": entry.content,
            "display": False,
        }
        return OtherLine(id=entry.id, parent_id=parent_id, timestamp=stamp, extra=extra, order=_ORDER)
    message = _native_message(entry)
    return MessageLine(id=entry.id, parent_id=parent_id, timestamp=stamp, message=message, order=_ORDER)


def lines_for(header: Header, entries: Iterable[NativeEntry]) -> Iterator[Line]:
    """A whole native session: the header, then each entry under the one before it."""
    yield header
    parent: str | None = None
    for entry in entries:
        yield line_for(entry, parent)
        parent = entry.id


def line_of_entry(entry: Entry, parent_id: str | None) -> Line:
    """The line of an entry in the log.

    Where its `raw` is a message (an object with `role` and `content`) or the body of a line (an object
    with `type`, such as a compaction), that is what is written; otherwise a line is made of its text.
    """
    body = _body(entry)
    if body is None:
        return line_for(_from_text(entry), parent_id)
    head = {
        "type": body.get("type", "message"),
        "id": entry.id,
        "parentId": parent_id,
        "timestamp": iso(entry.created_at),
    }
    return typed_line(head | {name: value for name, value in body.items() if name not in head})


def _body(entry: Entry) -> dict[str, Any] | None:
    """What `raw` says of an entry, unless its text was corrected since."""
    if not entry.raw or entry.revision or not entry.raw.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(entry.raw)
    except (ValueError, RecursionError):
        return None
    if isinstance(found.get("role"), str) and "content" in found:
        return {"message": {**found, "timestamp": found.get("timestamp", entry.created_at)}}
    if found.get("type") == "compaction":
        return {"summary": entry.content, **found}
    return found if isinstance(found.get("type"), str) and found["type"] != "session" else None


def _from_text(entry: Entry) -> NativeEntry:
    source = entry.source or {}
    call_id = source.get("toolCallId")
    return NativeEntry(
        id=entry.id,
        role=_role(entry, has_call=isinstance(call_id, str)),
        content=entry.content,
        created_at=entry.created_at,
        tool_call_id=call_id if isinstance(call_id, str) else None,
        tool_name=str(source.get("toolName") or "unknown"),
        is_error=source.get("isError") is True,
    )


def _role(entry: Entry, *, has_call: bool) -> Role:
    """A result whose call is not known would not be a valid message, and goes as a note of the system."""
    if entry.type not in (EntryType.CONVERSATION, EntryType.ACTION):
        return "system"
    role = _ROLES.get(entry.role or "")
    if role is None and entry.role is None and entry.type is EntryType.CONVERSATION:
        role = "user" if entry.agent_id == "user" else "assistant"
    if role is None or (role == "toolResult" and not has_call):
        return "system"
    return role


def _native_message(entry: NativeEntry) -> dict[str, Any]:
    text = [{"type": "text", "text": entry.content}] if entry.content else []
    message: dict[str, Any] = {"role": entry.role, "content": text}
    if entry.role == "assistant":
        calls = [
            {"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in entry.tool_calls
        ]
        message |= {
            "content": [*text, *calls],
            "api": "holdfast",
            "provider": entry.provider,
            "model": entry.model,
            "usage": entry.usage,
            "stopReason": "toolUse" if calls else "stop",
        }
    elif entry.role == "toolResult":
        message |= {
            "toolCallId": entry.tool_call_id,
            "toolName": entry.tool_name,
            "isError": entry.is_error,
        }
    return {**message, "timestamp": entry.created_at}
