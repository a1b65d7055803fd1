"""Noticing an agent that goes round in circles: the same call with the same result, again and again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, Literal

from holdfast.config.tools import LoopDetection
from holdfast.text import clean_json

AFTER_COMPACTION: Final = 3
MOST_REMEMBERED: Final = 500


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made, with digests of what went in and what came out."""

    name: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`warn`: the call may run and the agent is told; `stop`: it does not run."""

    kind: Literal["go", "warn", "stop"]
    repeats: int = 0
    reason: str = ""


@dataclass(slots=True)
class History:
    """The calls of one turn, oldest first; `compacted` is how many of them a compaction hid."""

    made: list[Made] = field(default_factory=list)
    compacted: int = 0

    def add(self, call: Made) -> None:
        self.made.append(call)
        surplus = len(self.made) - MOST_REMEMBERED
        if surplus > 0:
            del self.made[:surplus]
            self.compacted = max(0, self.compacted - surplus)

    def compact(self) -> None:
        self.compacted = len(self.made)


def digest(value: object) -> str:
    """A short name for a text or for arguments, equal exactly when they are."""
    text = value if isinstance(value, str) else json.dumps(clean_json(value), sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def repeats(made: Sequence[Made], name: str, arguments: str) -> int:
    """How often this call, at its last, gave one and the same result; other calls between do not count."""
    results = [m.result for m in reversed(made) if (m.name, m.arguments) == (name, arguments)]
    return sum(1 for _ in takewhile(lambda result: result == results[0], results))


def judge(history: History, name: str, arguments: Mapping[str, Any], settings: LoopDetection) -> Verdict:
    """Whether a call may be made once more.

    An agent that lost its place in a compaction and repeats what it did before is stopped early.
    """
    if not settings.enabled:
        return Verdict("go")
    own = digest(arguments)
    count = repeats(history.made, name, own)
    since = repeats(history.made[history.compacted :], name, own)
    if count > since >= min(AFTER_COMPACTION, settings.stop_after):
        why = f"this call gave the same result before the compaction and {since} times since"
        return Verdict("stop", count, why)
    if count >= settings.stop_after:
        return Verdict("stop", count, f"this very call gave the same result {count} times")
    if count + 1 >= settings.warn_after:
        return Verdict("warn", count)
    return Verdict("go", count)


def warning(repeated: int, settings: LoopDetection) -> str:
    left = max(0, settings.stop_after - repeated)
    return (
        f"[Holdfast: this very call has now given this result {repeated} times. Do something else; "
        f"after {left} more it is refused.]"
    )
