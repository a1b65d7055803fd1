"""The guard against a session that wakes itself for nothing: after a few such turns no model is asked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from holdfast.context import is_silent
from holdfast.continuation.session_state import SessionState

MOST: Final = 4
WITHIN_MS: Final = 300_000
_IDLE_TOOLS: Final = frozenset(("sessions_yield", "continue_work"))


def is_idle(trigger: str, said: str, tools: Collection[str], *, rearmed: bool) -> bool:
    """Whether a woken turn did nothing but elect the next one."""
    quiet = all(name in _IDLE_TOOLS or name.startswith("message") for name in tools)
    return trigger == "continuation" and rearmed and is_silent(said) and quiet


def counted(state: SessionState, idle: bool, now: int) -> SessionState:
    """The streak after a turn; anything real ends it, and so does a long pause."""
    if not idle:
        return replace(state, idle_turns=0, idle_at=None)
    going_on = state.idle_at is not None and now - state.idle_at <= WITHIN_MS
    return replace(state, idle_turns=state.idle_turns + 1 if going_on else 1, idle_at=now)


def tripped(state: SessionState, now: int) -> bool:
    recent = state.idle_at is not None and now - state.idle_at <= WITHIN_MS
    return state.idle_turns >= MOST and recent
