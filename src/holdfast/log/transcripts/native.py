"""Entries that were born here, as the lines of a transcript."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.clock import Millis, iso
from holdfast.ids import SessionId
from holdfast.log.entries import Entry, EntryType
from holdfast.log.transcripts.lines import Header, Line, MessageLine, OtherLine, typed_line
from holdfast.log.transcripts.record import Json

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
