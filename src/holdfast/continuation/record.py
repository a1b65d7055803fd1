"""An elected continuation as it stands: what was asked for, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from holdfast.clock import Millis

Mode = Literal["normal", "silent", "silent-wake", "post-compaction"]
Fanout = Literal["tree", "all"]


class Kind(StrEnum):
    WORK = "work"
    DELEGATE = "delegate"
    POST_COMPACTION = "post_compaction"


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (Status.QUEUED, Status.RUNNING)


class Phase(StrEnum):
    ELECTING = "electing"
    WAITING = "waiting"
    PARKED = "parked"
    STAGED = "staged"
    GRANTED = "granted"
    FOLDED = "folded"
    HANDED_OFF = "handed_off"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """What the agent asked for. It never changes; `text` is the reason of work or the task of a delegate.

    `call` tells it from the other elections of its turn, so that a repeated call finds it.

    `terms` are those of the electing turn, so that what follows runs in the same name with the same rights.
    """

    text: str
    turn_id: str
    elected_at: int
    call: str = ""
    delay_ms: int = 0
    source: Literal["tool", "token"] = "tool"
    terms: Mapping[str, Any] = field(default_factory=dict)
    mode: Mode = "normal"
    targets: tuple[str, ...] = ()
    fanout: Fanout | None = None
    model: str | None = None
    mount_path: str | None = None
    attachments: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    parent_run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`spawn_key` names the run that a delegate was given, before anything of it is begun."""

    id: str
    kind: Kind
    owner: str
    session_id: str
    agent_id: str
    election: Election
    created_at: Millis
    updated_at: Millis
    status: Status = Status.QUEUED
    phase: Phase = Phase.ELECTING
    revision: int = 0
    chain_id: str | None = None
    hop: int = 0
    due_at: int | None = None
    retry_at: int | None = None
    retry_count: int = 0
    busy_skips: int = 0
    turn_id: str | None = None
    note_key: str | None = None
    spawn_key: str | None = None
    child_session_key: str | None = None
    traceparent: str | None = None
    disposition: Literal["granted", "folded-active", "returned"] | None = None
    delivered_at: Millis | None = None
    failure: str | None = None
    notice_pending: bool = False
    cancel_requested_at: Millis | None = None
    ended_at: Millis | None = None

    @property
    def due(self) -> int | None:
        """When it is looked at next, of whatever phase; None while it waits for an event alone."""
        return self.due_at if self.retry_at is None else self.retry_at

    @property
    def delivered(self) -> bool:
        return self.delivered_at is not None

    def matured(self, now: int) -> bool:
        return self.status is Status.QUEUED and self.due is not None and self.due <= now
