"""Distinct types for ids, and the minting of time-ordered ones (UUID version 7)."""

from __future__ import annotations

import os
import threading
import time
from typing import NewType

EntryId = NewType("EntryId", str)
SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
AgendaId = NewType("AgendaId", str)
OutboxId = NewType("OutboxId", str)
AgentId = NewType("AgentId", str)

_lock = threading.Lock()
_last = 0


def uuid7() -> str:
    """A UUIDv7 that sorts after every one minted before it in this process, even within a millisecond.

    The 12 bits after the milliseconds hold a counter; when it runs over, the clock is pushed on by one.
    """
    global _last
    with _lock:
        stamp = max((time.time_ns() // 1_000_000) << 12, _last + 1)
        _last = stamp
    ms, count, noise = stamp >> 12, stamp & 0xFFF, os.urandom(8).hex()
    variant = "89ab"[int(noise[0], 16) & 3]
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{count:03x}-{variant}{noise[1:4]}-{noise[4:]}"


def entry_id() -> EntryId:
    return EntryId(f"log-{uuid7()}")


def session_id() -> SessionId:
    return SessionId(uuid7())


def turn_id() -> TurnId:
    return TurnId(f"turn-{uuid7()}")


def agenda_id() -> AgendaId:
    return AgendaId(f"due-{uuid7()}")


def outbox_id() -> OutboxId:
    return OutboxId(f"out-{uuid7()}")


def note_id() -> str:
    return f"note-{uuid7()}"
