"""How much of a result the model is given: the beginning and the end, whole lines where there are any."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.agents.tools.settings import tools_of
from holdfast.agents.tools.types import Caller
from holdfast.context import Budgets, chars

ROOM_FOR_NOTE: Final = 320
_SMALL: Final = 16_000
_MIDDLE: Final = 32_000
_LARGE: Final = 64_000
_HEAD_SHARE: Final = 0.7


@dataclass(frozen=True, slots=True)
class Cut:
    """What a long text lost: `line` is the first that is not shown whole."""

    line: int
    chars: int


def cap_of(caller: Caller) -> int:
    """Characters of one result: as configured, else by the model's window."""
    own = tools_of(caller).result_max_chars
    if own is not None:
        return own
    window = caller.window
    most = _LARGE if window >= 200_000 else _MIDDLE if window >= 100_000 else _SMALL
    return min(most, chars(Budgets.for_window(window, caller.settings.compaction).result))


def shortened(text: str, limit: int, note: Callable[[Cut], str]) -> str:
    """At most `limit` characters of a text, with a note in the place of what was cut from its middle."""
    if len(text) <= limit:
        return text
    room = limit - ROOM_FOR_NOTE
    if room < ROOM_FOR_NOTE:
        return text[:limit]
    first = int(room * _HEAD_SHARE)
    head = _whole_head(text[:first])
    tail = _whole_tail(text[len(text) - (room - first) :])
    cut = Cut(head.count("\n") + 1, len(text) - len(head) - len(tail))
    told = note(cut)[: ROOM_FOR_NOTE - 2]
    before = "" if head.endswith("\n") else "\n"
    return f"{head}{before}{told}\n{tail}"


def _whole_head(part: str) -> str:
    """Up to the last line that is whole, unless that would throw half of it away."""
    end = part.rfind("\n") + 1
    return part[:end] if end > len(part) // 2 else part


def _whole_tail(part: str) -> str:
    start = part.find("\n") + 1
    return part[start:] if 0 < start <= len(part) // 2 else part
