"""Approvals: a tool call that waits for a person. Durable, bound to exactly one call, used at most once."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from holdfast.agents.approvals import audit
from holdfast.agents.approvals.bound_files import changed, named, present
from holdfast.agents.approvals.tables import approvals as table
from holdfast.clock import DAY_MS, Millis
from holdfast.errors import Busy, Conflict, NotFound
from holdfast.ids import uuid7
from holdfast.log import SYSTEM, Store, Threads, Tx, Waiter, agenda, changes, outbox, ringing
from holdfast.log import audit as trail
from holdfast.people import contacts
from holdfast.text import clean_json, clean_text

SIGNAL: Final = "approvals"
ASKING: Final = "approval.ask"
MAX_PENDING: Final = 100
MAX_PAGE: Final = 500
MAX_FILES: Final = 100
BATCH: Final = 500
USABLE_MS: Final = 300_000


class ApprovalStatus(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A call to be approved. `command` is what the person reads; `arguments` are what would be run.

    `files` are what it runs, each with a digest: the approval holds while they stay the same.
    `why_not_always` says why it cannot be allowed for good.
    """

    agent_id: str
    tool: str
    command: str
    arguments: Mapping[str, Any]
    reason: str
    session_key: str | None = None
    turn_id: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    why_not_always: str | None = None

    @property
    def digest(self) -> str:
        """Names this very call: same agent, session, tool, arguments and files, to the byte."""
        what = [self.agent_id, self.session_key, self.tool, self.command, clean_json(self.arguments)]
        what += [clean_json(self.files)] if self.files else []
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    id: str
    agent_id: str
    session_key: str | None
    turn_id: str | None
    tool: str
    command: str
    arguments: Mapping[str, Any]
    digest: str
    reason: str
    files: Mapping[str, str]
    why_not_always: str | None
    status: ApprovalStatus
    decided_by: str | None
    decided_at: Millis | None
    used_at: Millis | None
    expires_at: Millis
    created_at: Millis

    @property
    def file_names(self) -> list[str]:
        """What it runs, for people: the first of them."""
        return present(self.files)[:MAX_FILES]

    @property
    def call(self) -> audit.Call:
        return audit.Call(
            agent_id=self.agent_id, tool=self.tool, text=self.command, session_key=self.session_key
        )


_NAMES: Final = tuple(f.name for f in fields(Approval))


def request(tx: Tx, asked: ApprovalRequest, *, lasts_ms: int) -> Approval:
    """Ask for an approval; the same call again, while it waits, finds the one that waits."""
    expire(tx)
    waiting = sa.and_(table.c.status == "pending", table.c.agent_id == asked.agent_id)
    same = sa.select(table).where(table.c.digest == asked.digest, waiting)
    known = tx.conn.execute(same).mappings().first()
    if known is not None:
        return _approval(known)
    count = tx.conn.execute(sa.select(sa.func.count()).where(waiting)).scalar_one()
    if count >= MAX_PENDING:
        raise Busy(
            f"{count} calls of agent {asked.agent_id} wait for approval",
            code="too_many_approvals",
            hint="Decide on them: `holdfast approvals list`.",
        )
    approval = _made(asked, tx.now, lasts_ms)
    tx.conn.execute(sa.insert(table), {name: getattr(approval, name) for name in _NAMES})
    audit.record(tx, "requested", approval.call, rule="ask", reason=approval.reason, approval_id=approval.id)
    _tell(tx, "approval.requested", approval.id)
    if contacts.of(tx):
        agenda.enqueue(tx, ASKING, {"id": approval.id, "round": 0}, lane=f"approval:{approval.id}")
    return approval


def approve(tx: Tx, id_: str, *, by: str, behalf_of: str | None = None) -> Approval:
    """Let the call run, once, and soon: an approval that nobody picks up does not lie about for ever."""
    return _decide(tx, id_, ApprovalStatus.APPROVED, by, behalf_of)


def deny(tx: Tx, id_: str, *, by: str) -> Approval:
    return _decide(tx, id_, ApprovalStatus.DENIED, by)


def use(tx: Tx, id_: str, asked: ApprovalRequest) -> Approval:
    """Spend an approval on the call that it was given for; a `Conflict` for another call or a second time."""
    expire(tx)
    approval = get(tx, id_)
    if approval.digest != asked.digest:
        _refuse_changed(approval, asked)
        raise Conflict(
            f"approval {id_} is for another call",
            code="approval_mismatch",
            hint="Let a person look at it again: make the same call anew.",
        )
    fresh = sa.and_(table.c.id == id_, table.c.status == "approved", table.c.used_at.is_(None))
    live = sa.and_(fresh, table.c.expires_at > tx.now)
    if tx.conn.execute(sa.update(table).where(live).values(used_at=tx.now)).rowcount != 1:
        raise Conflict(f"approval {id_} is {_state(approval, tx.now)}", code="approval_not_usable")
    audit.record(tx, "used", approval.call, rule="approval", actor=approval.decided_by, approval_id=id_)
    return get(tx, id_)


def _refuse_changed(approval: Approval, asked: ApprovalRequest) -> None:
    """Where it is the same call, what else is other is a file: tell which."""
    before = (approval.agent_id, approval.session_key, approval.tool, approval.command, approval.arguments)
    now = (
        asked.agent_id,
        asked.session_key,
        asked.tool,
        clean_text(asked.command),
        clean_json(asked.arguments),
    )
    names = changed(approval.files, clean_json(asked.files))
    if before == now and names:
        raise Conflict(
            f"nothing was run: {named(names)} has changed since it was asked for",
            code="files_changed",
            hint="Let a person look at it again: make the same call anew.",
        )


def get(tx: Tx, id_: str) -> Approval:
    found = get_many(tx, [id_])
    if not found:
        raise unknown(id_)
    return found[0]


def unknown(id_: str) -> NotFound:
    return NotFound(
        f"no approval {id_[:80]!r}", code="unknown_approval", hint="See `holdfast approvals list`."
    )


def get_many(tx: Tx, ids: Sequence[str]) -> list[Approval]:
    rows = tx.conn.execute(sa.select(table).where(table.c.id.in_(ids))).mappings()
    return [_approval(row) for row in rows]


def listing(
    tx: Tx,
    *,
    status: ApprovalStatus | None = None,
    agent_ids: frozenset[str] | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[Approval]:
    """The newest first. What ran out of time but was not swept yet is shown as expired."""
    query = sa.select(table).order_by(table.c.created_at.desc(), table.c.id.desc())
    if agent_ids is not None:
        query = query.where(table.c.agent_id.in_(sorted(agent_ids)))
    if status is not None:
        query = query.where(_shown_as(status, tx.now))
    rows = tx.conn.execute(query.limit(max(1, min(limit, MAX_PAGE))).offset(offset)).mappings()
    return [seen(_approval(row), tx.now) for row in rows]


def waiting_in(tx: Tx, turn_id: str) -> list[Approval]:
    """What a turn asked for and nobody has decided on: those calls have not begun."""
    own = sa.select(table).where(table.c.status == "pending", table.c.turn_id == turn_id)
    return [_approval(row) for row in tx.conn.execute(own.limit(MAX_PAGE)).mappings()]


def seen(approval: Approval, now: int) -> Approval:
    """The approval as it stands at this moment, whether or not it was swept."""
    over = approval.status is ApprovalStatus.PENDING and approval.expires_at <= now
    return replace(approval, status=ApprovalStatus.EXPIRED) if over else approval


def expire(tx: Tx) -> int:
    """Mark what nobody decided on in time; how many."""
    return _lapse(tx, table.c.expires_at <= tx.now, "time")


def withdraw(tx: Tx, session_key: str) -> int:
    """Let what a session asked for lapse, since nothing waits for it any more; how many."""
    return _lapse(tx, table.c.session_key == session_key, "session")


def withdraw_about(tx: Tx, tool: str, about: Mapping[str, str], *, but: str = "") -> int:
    """Let lapse what a tool asked with these arguments, among others; but not the question of this digest."""
    waiting = sa.select(table).where(table.c.status == "pending", table.c.tool == tool, table.c.digest != but)
    found = [_approval(row) for row in tx.conn.execute(waiting).mappings()]
    ids = [one.id for one in found if about.items() <= one.arguments.items()]
    return _lapse(tx, table.c.id.in_(ids), "replaced") if ids else 0


def _lapse(tx: Tx, which: sa.ColumnElement[bool], rule: str) -> int:
    over = sa.and_(table.c.status == "pending", which)
    rows = tx.conn.execute(sa.select(table).where(over).limit(BATCH)).mappings().all()
    for row in rows:
        approval = _approval(row)
        values = {"status": "expired", "decided_at": tx.now}
        tx.conn.execute(sa.update(table).where(table.c.id == approval.id).values(**values))
        audit.record(tx, "expired", approval.call, rule=rule, approval_id=approval.id)
        _tell(tx, "approval.decided", approval.id)
        _tell_asked(
            tx, approval, "over: nobody decided in time" if rule == "time" else "over: it was stopped"
        )
    return len(rows)


def prune(tx: Tx, days: int) -> int:
    """Remove a batch of what was decided longer ago; how many rows went."""
    ended = sa.and_(table.c.status != "pending", table.c.created_at < tx.now - days * DAY_MS)
    old = sa.select(table.c.id).where(ended).limit(BATCH)
    return tx.conn.execute(sa.delete(table).where(table.c.id.in_(old))).rowcount


def _made(asked: ApprovalRequest, now: Millis, lasts_ms: int) -> Approval:
    return Approval(
        id=f"appr-{uuid7()}",
        agent_id=asked.agent_id,
        session_key=asked.session_key,
        turn_id=asked.turn_id,
        tool=asked.tool,
        command=clean_text(asked.command),
        arguments=clean_json(asked.arguments),
        digest=asked.digest,
        reason=clean_text(asked.reason),
        files=clean_json(asked.files),
        why_not_always=clean_text(asked.why_not_always) if asked.why_not_always else None,
        status=ApprovalStatus.PENDING,
        decided_by=None,
        decided_at=None,
        used_at=None,
        expires_at=Millis(now + lasts_ms),
        created_at=now,
    )


def _decide(tx: Tx, id_: str, status: ApprovalStatus, by: str, behalf_of: str | None = None) -> Approval:
    """Once: the same answer again changes nothing, another one is a `Conflict`."""
    expire(tx)
    before = get(tx, id_)
    if before.status is status:
        return before
    if before.status is not ApprovalStatus.PENDING:
        raise Conflict(
            f"approval {id_} is {before.status} already",
            code="approval_decided",
            hint="Let the agent ask again.",
        )
    until = max(before.expires_at, tx.now + USABLE_MS)
    values = {"status": status.value, "decided_by": by, "decided_at": tx.now, "expires_at": until}
    tx.conn.execute(sa.update(table).where(table.c.id == id_).values(**values))
    event: audit.Event = "approved" if status is ApprovalStatus.APPROVED else "denied"
    audit.record(tx, event, before.call, rule="person", actor=by, approval_id=id_)
    told = {"agent": before.agent_id, "tool": before.tool}
    trail.note(tx, f"approval.{event}", id_, by=by, behalf_of=behalf_of, **told)
    _tell(tx, "approval.decided", id_)
    _tell_asked(tx, before, f"{event} by {by}")
    return get(tx, id_)


def _shown_as(status: ApprovalStatus, now: int) -> sa.ColumnElement[bool]:
    waits = sa.and_(table.c.status == "pending", table.c.expires_at > now)
    if status is ApprovalStatus.PENDING:
        return waits
    if status is ApprovalStatus.EXPIRED:
        unswept = sa.and_(table.c.status == "pending", table.c.expires_at <= now)
        return sa.or_(table.c.status == "expired", unswept)
    return table.c.status == status.value


def asked_key(id_: str, round_: int, target: str) -> str:
    """Names the message that asks somebody, at one of their chats."""
    return f"approval:{id_}:{round_}:{target}"


def _tell_asked(tx: Tx, approval: Approval, how: str) -> None:
    """Say in every chat that was asked how it ended; one that answers later learns it there too."""
    for kind, target in outbox.sent_to(tx, f"approval:{approval.id}:"):
        text = f"{approval.tool} ({approval.id}) is {how}."
        payload = {"text": text, "about": {"kind": "approval", "id": approval.id}, "op": "settled"}
        key = f"approval-settled:{approval.id}:{target}"
        outbox.post(tx, outbox.Parcel(key=key, kind=kind, target=target, payload=payload))


def _tell(tx: Tx, type_: str, id_: str) -> None:
    changes.emit(tx, type_, id_)
    tx.wake(SIGNAL)


def _state(approval: Approval, now: int) -> str:
    if approval.used_at is not None:
        return "used already"
    over = approval.status is ApprovalStatus.APPROVED and approval.expires_at <= now
    return "out of time" if over else str(approval.status)


def _approval(row: Mapping[Any, Any]) -> Approval:
    values = dict(row)
    values["status"] = ApprovalStatus(values["status"])
    values["files"] = values["files"] or {}
    return Approval(**values)


LONGEST_SECONDS: Final = 60.0


async def decision(store: Store, threads: Threads, id_: str, *, waiter: Waiter | None = None) -> Approval:
    """The approval once it is decided or has run out of time. Cancelling it leaves the approval waiting.

    A turn that asked for it gives its place to another until then: people take their time.
    """
    bell = asyncio.Event()
    unsubscribe = store.signals.subscribe(SIGNAL, ringing(bell.set))
    try:
        async with agenda.waiting():
            while True:
                bell.clear()
                approval, left = await threads(_look, store, id_)
                if approval.status is not ApprovalStatus.PENDING:
                    return approval
                await (waiter or Waiter()).wait(bell, min(left, LONGEST_SECONDS))
    finally:
        unsubscribe()


def _look(store: Store, id_: str) -> tuple[Approval, float]:
    """The approval and the seconds it has left; one that has none is marked on the way."""
    with store.read(SYSTEM) as tx:
        approval, now = get(tx, id_), tx.now
    if approval.status is ApprovalStatus.PENDING and approval.expires_at <= now:
        with store.write(SYSTEM) as tx:
            expire(tx)
            approval = get(tx, id_)
    return approval, max(0.001, (approval.expires_at - now) / 1000)
