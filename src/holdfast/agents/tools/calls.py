"""The tool calls of a session as its log has them, each with what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.context import AssistantMessage, ToolCall, ToolResult, message_of
from holdfast.log import Entry

_KEPT: Final = re.compile(r'the whole is kept, read on with file_read \{"path": "(output:[0-9a-f-]{36})"')
_MOST_NAMES: Final = 8


@dataclass(frozen=True, slots=True)
class RecordedResult:
    entry: Entry
    is_error: bool

    @property
    def kept(self) -> tuple[str, ...]:
        """The names under which what was cut out of it is kept, if any."""
        return kept_outputs(self.entry.content)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    entry: Entry
    call: ToolCall
    result: RecordedResult | None


def kept_outputs(text: str) -> tuple[str, ...]:
    """The names under which what was cut out of a result is kept, as the result itself tells."""
    return tuple(dict.fromkeys(_KEPT.findall(text)))[:_MOST_NAMES]


def recorded_calls(newest_first: Iterable[Entry]) -> list[RecordedCall]:
    """The calls in a stretch of a session's log, newest first; one without a result in it has none."""
    results: dict[str, RecordedResult] = {}
    found: list[RecordedCall] = []
    for entry in newest_first:
        message = message_of(entry)
        if isinstance(message, ToolResult):
            results[message.call_id] = RecordedResult(entry, message.is_error)
        elif isinstance(message, AssistantMessage):
            found += [
                RecordedCall(entry, call, results.pop(call.id, None)) for call in reversed(message.calls)
            ]
    return found
