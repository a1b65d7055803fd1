"""How a run stands, read from its turn: true in every process and after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.clock import Millis, iso
from holdfast.context import is_silent
from holdfast.errors import NotFound
from holdfast.log import Turn, TurnStatus, Tx, agenda, entries, turns


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """`ended` is whether nothing more comes of it by itself; an interrupted turn that is retried has not."""

    run_id: str
    session_key: str
    session_id: str
    turn: int
    status: TurnStatus
    ended: bool
    accepted_at: Millis
    started_at: Millis | None = None
    ended_at: Millis | None = None
    reply: str | None = None
    reply_id: str | None = None
    silent: bool = False
    resumable: bool = False
    error: str | None = None
    model: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status is TurnStatus.COMMITTED

    def json(self) -> dict[str, Any]:
        times = {"startedAt": self.started_at, "endedAt": self.ended_at}
        shown = ("attempts", "finish", "calls", "handed")
        return {
            "runId": self.run_id,
            "sessionKey": self.session_key,
            "sessionId": self.session_id,
            "turn": self.turn,
            "status": self.status.value,
            "ended": self.ended,
            "acceptedAt": iso(self.accepted_at),
            **{name: None if at is None else iso(at) for name, at in times.items()},
            "reply": self.reply,
            "replyId": self.reply_id,
            "silent": self.silent,
            "resumable": self.resumable,
            "error": self.error,
            "model": self.model,
            "usage": dict(self.usage),
            **{name: self.meta[name] for name in shown if name in self.meta},
        }


def status_of(tx: Tx, run_id: str) -> RunStatus:
    try:
        turn = turns.get(tx, run_id)
    except NotFound as error:
        raise NotFound(f"no run {run_id[:80]!r}", code="unknown_run") from error
    return status_of_turn(tx, turn)


def status_of_turn(tx: Tx, turn: Turn) -> RunStatus:
    meta = turn.meta or {}
    ended = has_ended(tx, turn)
    reply = None if turn.reply_id is None else entries.get(tx, turn.reply_id).content
    return RunStatus(
        run_id=turn.id,
        session_key=turn.session_key,
        session_id=turn.session_id,
        turn=turn.number,
        status=turn.status,
        ended=ended,
        accepted_at=turn.accepted_at,
        started_at=turn.started_at,
        ended_at=turn.ended_at,
        reply=reply,
        reply_id=turn.reply_id,
        silent=turn.status is TurnStatus.COMMITTED and (reply is None or is_silent(reply)),
        resumable=ended and turn.status is TurnStatus.INTERRUPTED,
        error=turn.error,
        model=turn.model,
        usage=turn.usage or {},
        meta=meta,
    )


def has_ended(tx: Tx, turn: Turn) -> bool:
    """An interrupted turn whose item still waits or runs is about to be tried again."""
    if turn.status is not TurnStatus.INTERRUPTED or turn.agenda_id is None:
        return turn.status.ended
    item = agenda.find(tx, turn.agenda_id)
    return item is None or item.status.ended
