"""How a run stands, read from its turn, and waiting until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.clock import Millis, iso
from holdfast.context import is_silent
from holdfast.errors import NotFound
from holdfast.log import (
    SYSTEM,
    Pulse,
    Store,
    Threads,
    Turn,
    TurnStatus,
    Tx,
    changes,
    entries,
    ringing,
    rung,
    turns,
)
from holdfast.records import Iso, record

_PAUSE_SECONDS: Final = 0.1


_TROUBLE_SECONDS: Final = 1.0


_LOOK_AGAIN_SECONDS: Final = 15.0


@record
class RunOut(TypedDict):
    runId: str
    sessionKey: str
    sessionId: str
    turn: int
    status: TurnStatus
    ended: Annotated[bool, Field(description="Nothing more comes of it by itself.")]
    acceptedAt: Iso
    startedAt: Iso | None
    endedAt: Iso | None
    reply: str | None
    replyId: str | None
    silent: Annotated[bool, Field(description="The agent chose to say nothing.")]
    resumable: bool
    error: str | None
    model: str | None
    usage: dict[str, Any]
    attempts: NotRequired[Annotated[list[Any] | None, Field(description="Models that were tried before.")]]
    finish: NotRequired[Annotated[str | None, Field(description="Why the model stopped.")]]
    calls: NotRequired[Annotated[int, Field(description="How often a model was asked.")]]
    handed: NotRequired[Annotated[list[Any], Field(description="Calls of the asker's own tools.")]]


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

    def json(self) -> RunOut:
        told: RunOut = {
            "runId": self.run_id,
            "sessionKey": self.session_key,
            "sessionId": self.session_id,
            "turn": self.turn,
            "status": self.status,
            "ended": self.ended,
            "acceptedAt": iso(self.accepted_at),
            "startedAt": None if self.started_at is None else iso(self.started_at),
            "endedAt": None if self.ended_at is None else iso(self.ended_at),
            "reply": self.reply,
            "replyId": self.reply_id,
            "silent": self.silent,
            "resumable": self.resumable,
            "error": self.error,
            "model": self.model,
            "usage": dict(self.usage),
        }
        if "attempts" in self.meta:
            told["attempts"] = self.meta["attempts"]
        if "finish" in self.meta:
            told["finish"] = self.meta["finish"]
        if "calls" in self.meta:
            told["calls"] = self.meta["calls"]
        if "handed" in self.meta:
            told["handed"] = self.meta["handed"]
        return told


def status_of(tx: Tx, run_id: str) -> RunStatus:
    try:
        turn = turns.get(tx, run_id)
    except NotFound as error:
        raise NotFound(f"no run {run_id[:80]!r}", code="unknown_run") from error
    return status_of_turn(tx, turn)


def status_of_turn(tx: Tx, turn: Turn) -> RunStatus:
    meta = turn.meta or {}
    ended = turns.has_ended(tx, turn)
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


class EndWatch:
    """Rung by the change feed's signal, which on PostgreSQL crosses processes; looks only while one waits.

    What ends here says so through `look`; for the rest a look every tenth of a second is enough.
    """

    def __init__(self, store: Store, threads: Threads) -> None:
        self._store = store
        self._threads = threads
        self._waiting: dict[str, asyncio.Future[RunStatus]] = {}
        self._task: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self._now = asyncio.Event()
        self._pulse = Pulse("run ends")

    def look(self) -> None:
        """A run has just ended in this process."""
        self._now.set()
        self._bell.set()

    async def ended(self, run_id: str) -> RunStatus:
        """The run's status once it has ended."""
        now = await self._threads(self._status, run_id)
        if now.ended:
            self._settle(run_id, now)
            return now
        future = self._waiting.get(run_id)
        if future is None:
            future = self._waiting[run_id] = asyncio.get_running_loop().create_future()
        self._begin()
        return await asyncio.shield(future)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="run-ends")
        self._bell.set()

    async def _run(self) -> None:
        unsubscribe = self._store.signals.subscribe(changes.SIGNAL, ringing(self._bell.set))
        try:
            while self._waiting:
                await rung(self._bell, _LOOK_AGAIN_SECONDS)
                await rung(self._now, _PAUSE_SECONDS)
                self._bell.clear()
                self._now.clear()
                try:
                    ended = await self._threads(self._ended_among, list(self._waiting))
                    self._pulse.passed()
                except Exception as error:  # noqa: BLE001 - somebody waits for these ends: told, and tried again
                    self._pulse.failed(error)
                    await asyncio.sleep(_TROUBLE_SECONDS)
                    self._bell.set()
                    continue
                for status in ended:
                    self._settle(status.run_id, status)
        finally:
            unsubscribe()

    def _settle(self, run_id: str, status: RunStatus) -> None:
        future = self._waiting.pop(run_id, None)
        if future is not None and not future.done():
            future.set_result(status)

    def _status(self, run_id: str) -> RunStatus:
        with self._store.read(SYSTEM) as tx:
            return status_of(tx, run_id)

    def _ended_among(self, ids: list[str]) -> list[RunStatus]:
        with self._store.read(SYSTEM) as tx:
            found = [status_of_turn(tx, turn) for turn in turns.get_many(tx, ids) if turn.status.ended]
            return [status for status in found if status.ended]
