"""An elected continuation: what was asked for, how far it has come, and its life as one pure function.

    electing ──anchor──▶ waiting ──grant──▶ granted ──deliver──▶ succeeded
       │                 ▲ │ │  └──fold───▶ folded ───deliver──▶ succeeded
       └─refuse▶ failed  │ │ └─busy─▶ waiting or parked, later; an idle session brings it forward
                         │ └──spawn──▶ handed_off ──return──▶ succeeded
                         └── a failed turn, an untaken note or a failed spawn comes back, up to a ceiling
    staged ──release──▶ waiting: what waits for a compaction
    anything that lives ──stop──▶ cancelled, at once

What runs is never superseded or reaped, and what has ended stays as it ended. A wait for a busy session is
no failure. Retries never touch `due_at`: what was asked for stays readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Literal

from holdfast.clock import Millis
from holdfast.errors import Conflict

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


MAX_RETRIES: Final = 8
RETRY_MS: Final = 5_000
STAGED_TTL_MS: Final = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Anchor:
    """The electing turn has ended: the delay begins now. `hop` is its place in the chain."""

    hop: int
    chain_id: str | None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """A cap or a gate is in the way; whoever refuses owes a notice."""

    reason: str


@dataclass(frozen=True, slots=True)
class Grant:
    turn_id: str


@dataclass(frozen=True, slots=True)
class Fold:
    """Shown to the turn that runs, by a note; looked at again at `check_at` if no turn takes it."""

    note_key: str
    check_at: int


@dataclass(frozen=True, slots=True)
class Keep:
    """The turn that may take the note still runs; look again later."""

    check_at: int


@dataclass(frozen=True, slots=True)
class Unfold:
    """No turn took the note, and it is withdrawn."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Not now. `parked` waits for the end of the running turn, with `until` as the hedge."""

    until: int
    parked: bool


@dataclass(frozen=True, slots=True)
class Idle:
    """The session's turn has ended."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """The turn that acted on it, or was shown it, is being committed."""


@dataclass(frozen=True, slots=True)
class Fail:
    """An attempt went wrong before anything was delivered; it is tried again, up to a ceiling."""

    error: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Supersede:
    reason: str = "superseded"


@dataclass(frozen=True, slots=True)
class Reap:
    """Its parent run is over for certain."""


@dataclass(frozen=True, slots=True)
class Cancel:
    reason: str = "cancelled"


@dataclass(frozen=True, slots=True)
class Stop:
    """Someone stopped it, whatever it is at: what runs for it is ended by whoever says so."""

    reason: str = "stopped"


@dataclass(frozen=True, slots=True)
class Spawn:
    """The delegate's run is reserved in this very transaction."""

    spawn_key: str
    child_session_key: str
    hop: int
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """The delegate has ended and its return is posted; one that was stopped returns nothing."""

    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody knows of the child's run: at most once means that it is not spawned again."""


@dataclass(frozen=True, slots=True)
class Release:
    """The compaction that it waited for is done."""


@dataclass(frozen=True, slots=True)
class Lapse:
    """It cannot come about any more; whoever says so owes a notice."""

    reason: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """The notice that was owed is posted, in the same transaction."""


@dataclass(frozen=True, slots=True)
class Forward:
    """The clock on the wall was set back by so much: what waits for a time is due that much earlier."""

    ms: int


@dataclass(frozen=True, slots=True)
class Rebind:
    """The session went on under another id without anyone asking for a new one."""

    session_id: str


Event = (
    Anchor
    | Refuse
    | Grant
    | Fold
    | Keep
    | Unfold
    | Busy
    | Idle
    | Deliver
    | Fail
    | Supersede
    | Reap
    | Cancel
    | Stop
    | Spawn
    | Returned
    | Lost
    | Release
    | Lapse
    | Noticed
    | Forward
    | Rebind
)


class IllegalStep(Conflict):
    code = "illegal_continuation_step"


_READY: Final = (Phase.WAITING, Phase.PARKED)


def transition(record: Record, event: Event, now: Millis) -> Record:
    """What `event` makes of `record`, or `IllegalStep`. Every step raises the revision by one."""
    after = _noticed(record) if isinstance(event, Noticed) else _step(_live(record), event, now)
    return replace(after, revision=record.revision + 1, updated_at=now)


def _step(record: Record, event: Event, now: Millis) -> Record:
    match event:
        case Anchor() | Refuse():
            return _elected(record, event, now)
        case Grant() | Fold() | Busy() | Idle() | Supersede() | Reap() | Spawn() | Release() | Lapse():
            return _from_queue(_in(record, Status.QUEUED), event, now)
        case Fail(error=error, final=final):
            _require(record, record.phase is Phase.GRANTED or _may_spawn(record), f"it is {record.phase}")
            return _failed(record, error, final, now)
        case Keep() | Unfold() | Deliver() | Returned() | Lost():
            return _from_running(_in(record, Status.RUNNING), event, now)
        case Stop(reason=reason):
            return _ended(record, Status.CANCELLED, reason, now)
        case Cancel(reason=reason):
            if record.status is Status.RUNNING:
                return replace(record, cancel_requested_at=record.cancel_requested_at or now)
            return _ended(record, Status.CANCELLED, reason, now)
        case Forward(ms=ms):
            due, again = (_earlier(at, ms, now) for at in (record.due_at, record.retry_at))
            return replace(record, due_at=due, retry_at=again)
        case Rebind(session_id=session_id):
            return replace(record, session_id=session_id)
        case Noticed():
            raise AssertionError("handled by the caller")


def _elected(record: Record, event: Anchor | Refuse, now: Millis) -> Record:
    _at(record, Phase.ELECTING)
    if isinstance(event, Refuse):
        return replace(_ended(record, Status.FAILED, event.reason, now), notice_pending=True)
    after = replace(record, chain_id=event.chain_id, hop=event.hop, retry_at=None)
    after = replace(after, traceparent=event.traceparent or record.traceparent)
    if record.kind is Kind.POST_COMPACTION:
        return replace(after, phase=Phase.STAGED, due_at=None)
    return replace(after, phase=Phase.WAITING, due_at=now + record.election.delay_ms)


def _from_queue(record: Record, event: Event, now: Millis) -> Record:
    match event:
        case Grant(turn_id=turn_id):
            _work(_at(record, *_READY))
            return _running(record, Phase.GRANTED, turn_id=turn_id, retry_at=None)
        case Fold(note_key=key, check_at=at):
            _work(_at(record, *_READY))
            return _running(record, Phase.FOLDED, note_key=key, retry_at=at)
        case Spawn(spawn_key=key, child_session_key=child, hop=hop, traceparent=trace):
            _require(record, _may_spawn(record), "it is not to be spawned")
            facts = {"spawn_key": key, "child_session_key": child, "hop": hop}
            after = _running(record, Phase.HANDED_OFF, **facts, retry_at=None, due_at=None)
            return replace(after, traceparent=trace or record.traceparent)
        case Busy(until=until, parked=parked):
            _at(record, *_READY, Phase.ELECTING)
            waits = Phase.PARKED if parked else Phase.WAITING
            phase = record.phase if record.phase is Phase.ELECTING else waits
            return replace(record, phase=phase, retry_at=until, busy_skips=record.busy_skips + 1)
        case Idle():
            _at(record, Phase.PARKED)
            return replace(record, phase=Phase.WAITING, retry_at=int(now))
        case Release():
            _at(record, Phase.STAGED)
            return replace(record, phase=Phase.WAITING, due_at=int(now))
        case Lapse(reason=reason):
            return replace(_ended(record, Status.FAILED, reason, now), notice_pending=True)
        case Reap():
            _require(record, record.election.parent_run_id is not None, "it has no parent run")
            return _ended(record, Status.CANCELLED, "reaped", now)
        case Supersede(reason=reason):
            return _ended(record, Status.CANCELLED, reason, now)
    raise AssertionError(f"unreachable: {event}")


def _from_running(record: Record, event: Event, now: Millis) -> Record:
    match event:
        case Deliver():
            _at(record, Phase.GRANTED, Phase.FOLDED)
            how: Literal["granted", "folded-active"] = (
                "granted" if record.phase is Phase.GRANTED else "folded-active"
            )
            return _delivered(replace(record, disposition=how), now)
        case Keep(check_at=at):
            return replace(_at(record, Phase.FOLDED), retry_at=at)
        case Unfold():
            _at(record, Phase.FOLDED)
            return _again(replace(record, note_key=None), int(now), now)
        case Returned(stopped=stopped):
            _at(record, Phase.HANDED_OFF)
            if stopped or record.cancel_requested_at is not None:
                return _ended(record, Status.CANCELLED, "cancelled", now)
            return _delivered(replace(record, disposition="returned"), now)
        case Lost():
            _at(record, Phase.HANDED_OFF)
            gone = _ended(record, Status.FAILED, "the spawn was interrupted", now)
            return replace(gone, notice_pending=True)
    raise AssertionError(f"unreachable: {event}")


def _failed(record: Record, error: str, final: bool, now: Millis) -> Record:
    if record.cancel_requested_at is not None:
        return _ended(record, Status.CANCELLED, "cancelled", now)
    count = record.retry_count + 1
    tried = replace(record, retry_count=count, failure=error[:500])
    if final or count > MAX_RETRIES:
        return replace(_ended(tried, Status.FAILED, error[:500], now), notice_pending=True)
    return _again(tried, now + RETRY_MS, now)


def _again(record: Record, at: int, now: Millis) -> Record:
    if record.cancel_requested_at is not None:
        return _ended(record, Status.CANCELLED, "cancelled", now)
    return replace(record, status=Status.QUEUED, phase=Phase.WAITING, turn_id=None, retry_at=at)


def _earlier(at: int | None, ms: int, now: Millis) -> int | None:
    return at if at is None or at <= now else max(int(now), at - ms)


def _may_spawn(record: Record) -> bool:
    return record.kind is not Kind.WORK and record.phase in _READY


def _running(record: Record, phase: Phase, **changes: Any) -> Record:
    return replace(record, status=Status.RUNNING, phase=phase, **changes)


def _delivered(record: Record, now: Millis) -> Record:
    return replace(_ended(record, Status.SUCCEEDED, None, now), delivered_at=now)


def _ended(record: Record, status: Status, failure: str | None, now: Millis) -> Record:
    return replace(record, status=status, phase=Phase.ENDED, failure=failure, ended_at=now, retry_at=None)


def _noticed(record: Record) -> Record:
    _require(record, record.notice_pending, "no notice is owed")
    return replace(record, notice_pending=False)


def _live(record: Record) -> Record:
    _require(record, not record.status.ended, f"it is {record.status} already")
    return record


def _in(record: Record, status: Status) -> Record:
    _require(record, record.status is status, f"it is {record.status}, not {status}")
    return record


def _at(record: Record, *phases: Phase) -> Record:
    _require(record, record.phase in phases, f"it is {record.phase}")
    return record


def _work(record: Record) -> Record:
    _require(record, record.kind is Kind.WORK, "a delegate is given no turn")
    return record


def _require(record: Record, holds: bool, why: str) -> None:
    if not holds:
        raise IllegalStep(f"continuation {record.id}: {why}")
