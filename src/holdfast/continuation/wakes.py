"""Turns asked for in the name of who elected them, and the one agenda item that looks after a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.agents.loop.asks import ASK, Ask, Terms
from holdfast.context import Trust
from holdfast.continuation import records
from holdfast.continuation.dependencies import Dependencies
from holdfast.continuation.state import Record
from holdfast.log import Session, Turn, TurnStatus, Tx, agenda, turns

WORK: Final = "continuation"
DELEGATE: Final = "delegate"
_NOT_KEPT: Final = ("prompt", "systemPrompt", "timeoutSeconds", "occasion", "ownerSent")
_CLOSED: Final = frozenset(("flush", "evacuation"))


@dataclass(frozen=True, slots=True)
class Lane:
    """What a session is busy with: the turn that runs, and whether anything runs or is about to."""

    running: Turn | None
    busy: bool

    @property
    def open(self) -> bool:
        """Whether the running turn can be told something more."""
        return self.running is not None and self.running.trigger not in _CLOSED


def lane_of(tx: Tx, session: Session) -> Lane:
    items = agenda.listing(tx, lane=session.key, limit=20)
    due = [item for item in items if item.status is agenda.Status.RUNNING or item.due_at <= tx.now]
    for item in due:
        if item.kind in turns.KINDS and item.status is agenda.Status.RUNNING:
            turn = turns.get(tx, str(item.payload["turnId"]))
            if turn.session_id == session.id and turn.status is TurnStatus.RUNNING:
                return Lane(turn, True)
    return Lane(None, bool(due))


def waiting_wake(tx: Tx, session: Session) -> bool:
    """Whether a wake waits that has not begun: what is posted now will be shown to it."""
    items = agenda.listing(tx, statuses=[agenda.Status.QUEUED], kinds=turns.KINDS, lane=session.key, limit=20)
    found = turns.get_many(tx, [str(item.payload["turnId"]) for item in items])
    return any(t.trigger in (WORK, DELEGATE) and t.status is TurnStatus.ACCEPTED for t in found)


def kept_terms(meta: Mapping[str, Any] | None, agent_id: str) -> dict[str, Any]:
    """Of the electing turn's terms what holds for what follows from it: in whose name, with which rights."""
    given = {**((meta or {}).get(ASK) or {})}
    return {"agentId": agent_id, **{name: value for name, value in given.items() if name not in _NOT_KEPT}}


def grant(tx: Tx, deps: Dependencies, record: Record, text: str, *, traceparent: str | None) -> str:
    """A turn for elected work; the id of its run."""
    key = f"continuation:{record.id}:{record.retry_count}"
    ask = _ask(record, text, key=key, trigger=WORK, session_key=record.owner, traceparent=traceparent)
    with tx.savepoint():
        return deps.accept(tx, ask).run_id


def wake(
    tx: Tx, deps: Dependencies, record: Record, text: str, session: Session, *, traceparent: str | None
) -> str:
    """A turn for a return that came in, in the chain that brought it about wherever that is. In a session
    other than the elector's it is run in that session's own name."""
    key = f"delegate-return:{record.id}:{session.key}"
    mine = session.key == record.owner
    trigger = DELEGATE if mine else "session"
    ask = _ask(record, text, key=key, trigger=trigger, session_key=session.key, traceparent=traceparent)
    if not mine:
        ask = replace(
            ask, model=None, thinking=None, deliver=None, sender=record.owner, owner=False,
            trust=Trust.OTHER_SESSION, agent_id=None,
        )  # fmt: skip
    elif record.election.mode != "normal":
        ask = replace(ask, deliver=None)
    with tx.savepoint():
        return deps.accept(tx, ask).run_id


def _ask(
    record: Record, text: str, *, key: str, trigger: str, session_key: str, traceparent: str | None
) -> Ask:
    terms = Terms.read(record.election.terms, record.agent_id)
    source: dict[str, Any] = {"continuation": record.id, "traceparent": traceparent or record.traceparent}
    return Ask(
        text=text,
        session_key=session_key,
        agent_id=terms.agent_id or None,
        source={name: value for name, value in source.items() if value is not None},
        model=terms.model,
        thinking=terms.thinking,
        key=key,
        sender=terms.sender,
        owner=terms.owner,
        deliver=terms.deliver,
        mode="queue",
        trigger=trigger,
        trust=Trust.OPERATOR,
        commands=False,
        limited_to=terms.limited_to,
        chain_id=record.chain_id,
    )


KIND: Final = "continuation.due"
_ATTEMPTS: Final = 1_000_000


def due_key(owner: str) -> str:
    return f"{KIND}:{owner}"


def arm(tx: Tx, owner: str, due_at: int) -> None:
    """See to it that the session is looked at then, or before."""
    agenda.enqueue(
        tx,
        KIND,
        {"sessionKey": owner},
        lane=f"continuation:{owner}",
        key=due_key(owner),
        due_at=due_at,
        max_attempts=_ATTEMPTS,
    )


def arm_for(tx: Tx, owner: str, found: Sequence[Record] | None = None) -> None:
    """The same by what the session has now."""
    due = records.next_due(records.live(tx, owner) if found is None else found)
    if due is not None:
        arm(tx, owner, due)
