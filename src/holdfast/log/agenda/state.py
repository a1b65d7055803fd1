"""The life of an agenda item, as one pure function.

    queued ──claim──▶ running ──finish──▶ done
      ▲                 │ ├──fail──▶ queued (later) … failed, when the attempts are used up
      └──postpone───────┘ └──expire─▶ queued, where it was … failed, after very many lost processes in a row
    queued ──cancel──▶ cancelled;  running ──cancel──▶ asked to stop, then cancelled

An attempt is counted when it begins. Postponing gives it back, since being busy is not a failure, and so does
the loss of the worker: the item is due when it was before and keeps its place in the lane.

What kills every process that runs it must end some day. `losses` are the processes in a row that ended or
fell silent with the item in hand; a planned stop is none, and whatever shows that the item does get on (an
attempt that came to an end, or a part of the work that is written) sets them back to none. From
`SUSPECT_LOSSES` on a process runs one such item at a time, so that each further loss is its own doing and not
another such item's; after `MOST_LOSSES` it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from holdfast.clock import Millis
from holdfast.errors import Conflict
from holdfast.ids import AgendaId

SUSPECT_LOSSES: Final = 3
MOST_LOSSES: Final = 50
INTERRUPTED: Final = "interrupted: the process that ran it ended"


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (Status.DONE, Status.FAILED, Status.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    id: AgendaId
    kind: str
    lane: str
    status: Status
    due_at: int
    payload: Mapping[str, Any]
    created_at: Millis
    updated_at: Millis
    key: str | None = None
    revision: int = 0
    attempts: int = 0
    max_attempts: int = 1
    owner: str | None = None
    lease_until: int | None = None
    cancel_requested: bool = False
    error: str | None = None
    ended_at: Millis | None = None
    claims: int = 0
    losses: int = 0

    @property
    def is_suspect(self) -> bool:
        """Whether so many processes ended with it in hand that it may be the cause."""
        return self.losses >= SUSPECT_LOSSES


@dataclass(frozen=True, slots=True)
class Retry:
    """How long to wait before the next attempt: doubling, or as configured, up to a ceiling."""

    base_ms: int = 1_000
    factor: float = 2.0
    ceiling_ms: int = 300_000

    def delay(self, attempts: int) -> int:
        try:
            grown = self.base_ms * self.factor ** max(0, attempts - 1)
        except OverflowError:
            return self.ceiling_ms
        return int(min(grown, self.ceiling_ms))


@dataclass(frozen=True, slots=True)
class Claim:
    """`owner` takes a due item and promises to renew or end it before `until`."""

    owner: str
    until: int


@dataclass(frozen=True, slots=True)
class Renew:
    """The owner goes on; `heard` says that the work itself gave a sign of life since the last time."""

    owner: str
    until: int
    heard: bool = True


@dataclass(frozen=True, slots=True)
class Advance:
    """The owner wrote a part of the work: whatever ends its process next, it is not the same again."""

    owner: str


@dataclass(frozen=True, slots=True)
class Finish:
    owner: str


@dataclass(frozen=True, slots=True)
class Fail:
    """An attempt went wrong; `final` says that another would too."""

    owner: str
    error: str
    retry: Retry = Retry()
    final: bool = False


@dataclass(frozen=True, slots=True)
class Postpone:
    """Not now: come back at `due_at`, with the attempt given back."""

    owner: str
    due_at: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Expire:
    """The owner is gone: its lease ran out, its process is known to be dead, or it gives the item back.

    `planned` says that the item had no part in that: its process was told to stop.
    """

    owner_dead: bool = False
    planned: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    reason: str = "cancelled"


@dataclass(frozen=True, slots=True)
class Reschedule:
    due_at: int


Event = Claim | Renew | Advance | Finish | Fail | Postpone | Expire | Cancel | Reschedule


class IllegalTransition(Conflict):
    code = "illegal_transition"


def transition(item: Item, event: Event, now: Millis) -> Item:
    """What `event` makes of `item`, or `IllegalTransition`. Every step raises the revision by one.

    `updated_at` is when there was news of it: that its owner holds on to it is none.
    """
    after = _step(item, event, now)
    silent = isinstance(event, Renew) and not event.heard
    return replace(after, revision=item.revision + 1, updated_at=item.updated_at if silent else now)


def _step(item: Item, event: Event, now: Millis) -> Item:
    match event:
        case Claim():
            return _claim(item, event, now)
        case Cancel():
            return _cancel(item, event, now)
        case Reschedule(due_at=due_at):
            _require(item, item.status is Status.QUEUED, "only a queued item can be rescheduled")
            return replace(item, due_at=due_at)
        case Expire():
            return _expire(item, event, now)
        case _:
            return _by_owner(item, event, now)


def _claim(item: Item, event: Claim, now: Millis) -> Item:
    _require(item, item.status is Status.QUEUED, "it is not queued")
    _require(item, item.due_at <= now, "it is not due yet")
    _require(item, event.until > now, "a lease must end in the future")
    return replace(
        item,
        status=Status.RUNNING,
        owner=event.owner,
        lease_until=event.until,
        attempts=item.attempts + 1,
        claims=item.claims + 1,
    )


def _by_owner(item: Item, event: Renew | Advance | Finish | Fail | Postpone, now: Millis) -> Item:
    _require(item, item.status is Status.RUNNING, "it is not running")
    _require(item, item.owner == event.owner, "another owner has it")
    match event:
        case Renew(until=until):
            return replace(item, lease_until=max(until, item.lease_until or 0))
        case Advance():
            return replace(item, losses=0)
        case Finish():
            return _ended(replace(item, losses=0), Status.DONE, None, now)
        case Postpone(due_at=due_at, reason=reason):
            back = replace(item, attempts=item.attempts - 1, losses=0, error=reason or None)
            if item.cancel_requested:
                return _ended(back, Status.CANCELLED, item.error or reason or None, now)
            return _requeued(back, max(due_at, now))
        case Fail(error=error, retry=retry, final=final):
            return _failed(replace(item, losses=0), error, retry, final, now)


def _failed(item: Item, error: str, retry: Retry, final: bool, now: Millis) -> Item:
    if item.cancel_requested:  # why it was cancelled is why it ended, however its handler came to an end
        return _ended(item, Status.CANCELLED, item.error or error, now)
    if final or item.attempts >= item.max_attempts:
        return _ended(item, Status.FAILED, error, now)
    return _requeued(replace(item, error=error), now + retry.delay(item.attempts))


def _expire(item: Item, event: Expire, now: Millis) -> Item:
    _require(item, item.status is Status.RUNNING, "it is not running")
    lapsed = (item.lease_until or 0) <= now
    _require(item, event.owner_dead or lapsed, "its owner still holds the lease")
    losses = item.losses + (not event.planned)
    back = replace(item, attempts=item.attempts - 1, losses=losses)
    if item.cancel_requested:
        return _ended(back, Status.CANCELLED, item.error or INTERRUPTED, now)
    if losses >= MOST_LOSSES:
        return _ended(
            back, Status.FAILED, f"given up: {losses} processes in a row ended while they ran it", now
        )
    return _requeued(back, item.due_at)


def _cancel(item: Item, event: Cancel, now: Millis) -> Item:
    _require(item, not item.status.ended, f"it is {item.status} already")
    if item.status is Status.RUNNING:
        first = item.error if item.cancel_requested else None
        return replace(item, cancel_requested=True, error=first or event.reason)
    return _ended(item, Status.CANCELLED, event.reason, now)


def _requeued(item: Item, due_at: int) -> Item:
    return replace(item, status=Status.QUEUED, due_at=due_at, owner=None, lease_until=None)


def _ended(item: Item, status: Status, error: str | None, now: Millis) -> Item:
    return replace(item, status=status, error=error, owner=None, lease_until=None, ended_at=now)


def _require(item: Item, holds: bool, why: str) -> None:
    if not holds:
        raise IllegalTransition(f"agenda item {item.id}: {why}")
