"""The guard against a session that wakes itself for nothing: after a few such turns no model is asked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from holdfast.context import is_silent
from holdfast.continuation.chains import Chain

MOST: Final = 4
WITHIN_MS: Final = 300_000
_IDLE_TOOLS: Final = frozenset(("sessions_yield", "continue_work"))


def is_idle(trigger: str, said: str, tools: Collection[str], *, rearmed: bool) -> bool:
    """Whether a woken turn did nothing but elect the next one."""
    quiet = all(name in _IDLE_TOOLS or name.startswith("message") for name in tools)
    return trigger == "continuation" and rearmed and is_silent(said) and quiet


def counted(chain: Chain, idle: bool, now: int) -> Chain:
    """The streak after a turn; anything real ends it, and so does a long pause."""
    if not idle:
        return replace(chain, idle_turns=0, idle_at=None)
    going_on = chain.idle_at is not None and now - chain.idle_at <= WITHIN_MS
    return replace(chain, idle_turns=chain.idle_turns + 1 if going_on else 1, idle_at=now)


def tripped(chain: Chain, now: int) -> bool:
    recent = chain.idle_at is not None and now - chain.idle_at <= WITHIN_MS
    return chain.idle_turns >= MOST and recent
