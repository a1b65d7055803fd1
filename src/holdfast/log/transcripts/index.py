"""`sessions.json`: which session is the current one of each key, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import InvalidInput
from holdfast.log.transcripts.record import Record, decode, encode, key, record


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMeta(Record):
    """One session's record in `sessions.json`."""

    session_id: str | None = key("sessionId", str)
    updated_at: int | None = key("updatedAt", int)
    session_file: str | None = key("sessionFile", str)
    chat_type: str | None = key("chatType", str)
    input_tokens: int | None = key("inputTokens", int)
    output_tokens: int | None = key("outputTokens", int)
    total_tokens: int | None = key("totalTokens", int)
    context_tokens: int | None = key("contextTokens", int)
    compaction_count: int | None = key("compactionCount", int)
    memory_flush_at: int | None = key("memoryFlushAt", int)
    memory_flush_compaction_count: int | None = key("memoryFlushCompactionCount", int)


def parse_sessions_json(text: str) -> dict[str, SessionMeta]:
    """Read `sessions.json`: session keys, as they are written there, and what is known of each."""
    hint = "Give it the sessions.json of an agent: one object, with a session key for each record."
    try:
        found = decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"sessions.json is not JSON: {error}", hint=hint) from error
    if not isinstance(found, dict):
        raise InvalidInput("sessions.json holds no object", hint=hint)
    for name, value in found.items():
        if not isinstance(value, dict):
            raise InvalidInput(f"the record of {name[:80]!r} is no object", hint=hint)
    return {name: record(SessionMeta, value) for name, value in found.items()}


def dump_sessions_json(sessions: Mapping[str, SessionMeta]) -> str:
    return encode({name: meta.as_json() for name, meta in sessions.items()}, indent=2) + "\n"
