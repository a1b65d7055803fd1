"""Turns: one run from input to reply. Accepted with its message, committed once with its results.

accepted ──▶ running ──▶ committed | failed | cancelled
               └──▶ interrupted (its process died) ──▶ running again by itself, as often as it takes;
                                                       left for the user when an effect of it is in doubt
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import Conflict, NotFound
from holdfast.ids import SessionId, TurnId, turn_id
from holdfast.keys import parse_key
from holdfast.log import agenda, chains, changes, entries, entry_model, outbox, sessions
from holdfast.log.audience import FOR_OWNER, Audience, Reader
from holdfast.log.entry_model import Classification, Entry, EntryDraft, EntryType
from holdfast.log.sessions import Session
from holdfast.log.statements import Row, Statement, Update, among
from holdfast.log.store import Tx
from holdfast.log.tables import agenda as agenda_table
from holdfast.log.tables import entries as entry_table
from holdfast.log.tables import turns as table
from holdfast.text import clean_text

KIND: Final = "turn"
SUBAGENT: Final = "turn.subagent"
KINDS: Final = (KIND, SUBAGENT)
"""Turns of spawned sessions have places of their own: a crowd of them never stands before a person."""
BESIDE: Final = "summaries"
COUNTED: Final = "counted"
MOST_LOOKED_AT: Final = 20_000
_STRETCH: Final = 500
_MOST_TRACE: Final = 64


class TurnStatus(StrEnum):
    ACCEPTED = "accepted"
    RUNNING = "running"
    COMMITTED = "committed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (TurnStatus.ACCEPTED, TurnStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """`chain_id` is the turn from which it follows in the end; its own id where nothing went before."""

    id: TurnId
    key: str
    session_id: SessionId
    session_key: str
    number: int
    trigger: str
    status: TurnStatus
    accepted_at: Millis
    audience: Audience = FOR_OWNER
    attempt: int = 0
    agenda_id: str | None = None
    input_id: str | None = None
    reply_id: str | None = None
    model: str | None = None
    usage: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None
    error: str | None = None
    started_at: Millis | None = None
    ended_at: Millis | None = None
    chain_id: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    turn: Turn
    input: Entry | None
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that a turn leaves behind, to be written in one transaction.

    `reply_id` names an entry that was written before, for a turn whose last entries are no reply.
    """

    entries: Sequence[EntryDraft] = ()
    reply_id: str | None = None
    model: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    context_tokens: int | None = None
    meta: Mapping[str, Any] | None = None
    parcels: Sequence[outbox.Parcel] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A turn that has not begun, and when it may."""

    turn: Turn
    due_at: int


@dataclass(frozen=True, slots=True)
class Committed:
    turn: Turn
    entries: list[Entry]
    duplicate: bool = False


_NAMES = tuple(f.name for f in fields(Turn))


def accept(
    tx: Tx,
    session: Session,
    message: EntryDraft | None,
    *,
    key: str,
    trigger: str = "user",
    payload: Mapping[str, Any] | None = None,
    due_at: int | None = None,
    max_attempts: int = 2,
    most_waiting: int = agenda.MAX_WAITING,
    meta: Mapping[str, Any] | None = None,
    said: Entry | None = None,
    fresh: bool = False,
    chain_id: str | None = None,
) -> Accepted:
    """Write a message, its turn and the agenda item that will run it, together. A repeat finds them.

    `said` is a message that stands in the log already and gets a turn of its own. `fresh` says that the key
    was made for this call: nothing can have it yet. `chain_id` is the chain that it follows from; one from
    outside begins its own. Nothing follows from a chain that was stopped (`ChainStopped`).
    """
    key = clean_text(key)
    known = None if fresh else _known(tx, key)
    if known is not None:
        return known
    if chain_id is not None:
        chains.require_open(tx, chain_id)
        chains.touch(tx, chain_id)
    id_ = turn_id()
    if message is not None:
        said = _write_input(tx, session, message, id_, key)
    item = agenda.enqueue(
        tx,
        kind_of(session.key),
        {"turnId": id_, **_trace_of(message), **(payload or {})},
        lane=session.key,
        due_at=due_at,
        max_attempts=max_attempts,
        most_waiting=most_waiting,
    )
    turn = Turn(
        id=id_,
        key=key,
        session_id=session.id,
        session_key=session.key,
        audience=session.audience,
        number=sessions.next_turn_number(tx, session.id),
        trigger=trigger,
        status=TurnStatus.ACCEPTED,
        agenda_id=item.id,
        input_id=None if said is None else said.id,
        meta=meta,
        accepted_at=tx.now,
        chain_id=chain_id or id_,
    )
    _insert(tx, turn)
    changes.emit(tx, "turn.accepted", id_)
    return Accepted(turn, said, created=True)


def _trace_of(message: EntryDraft | None) -> dict[str, Any]:
    """The trace that a turn goes on with, where its runner finds it without reading the message."""
    given = None if message is None else (message.source or {}).get("traceparent")
    return {"traceparent": given} if isinstance(given, str) and len(given) <= _MOST_TRACE else {}


def record(
    tx: Tx, session: Session, message: EntryDraft, outcome: Outcome, *, key: str, trigger: str
) -> Committed:
    """A turn that was answered at once, such as a command: accepted and committed together."""
    known = _known(tx, clean_text(key))
    if known is not None:
        return Committed(known.turn, _entries_of(tx, known.turn), duplicate=True)
    id_ = turn_id()
    said = _write_input(tx, session, message, id_, clean_text(key))
    turn = Turn(
        id=id_,
        key=clean_text(key),
        session_id=session.id,
        session_key=session.key,
        audience=session.audience,
        number=sessions.next_turn_number(tx, session.id),
        trigger=trigger,
        status=TurnStatus.RUNNING,
        attempt=1,
        input_id=said.id,
        accepted_at=tx.now,
        started_at=tx.now,
        chain_id=id_,
    )
    _insert(tx, turn)
    changes.emit(tx, "turn.accepted", id_)
    return commit(tx, turn, outcome)


def add(
    tx: Tx, turn: Turn, drafts: Sequence[EntryDraft], meta: Mapping[str, Any] | None = None
) -> tuple[Turn, list[Entry]]:
    """Write what a running attempt has done so far, and keep notes with the turn; a note that is None goes.

    `Conflict` if the turn has ended, or another attempt runs it now.
    """
    now = get(tx, turn.id)
    if now.status is not TurnStatus.RUNNING or now.attempt != turn.attempt:
        raise Conflict(f"turn {turn.id} is {now.status}, attempt {now.attempt}", code="turn_not_running")
    written = entries.append_many(tx, [_of_turn(draft, now) for draft in drafts]) if drafts else []
    merged = _merged(now.meta, meta)
    if merged != now.meta:
        _SET_META.run(tx, turn=turn.id, meta=merged)
    return replace(now, meta=merged), [w.entry for w in written]


def join(tx: Tx, turn: Turn, message: EntryDraft) -> Entry:
    """Write a message into a turn that has not ended; its id is among the turn's `steered` until answered."""
    if turn.status.ended and turn.status is not TurnStatus.INTERRUPTED:
        raise Conflict(f"turn {turn.id} is {turn.status}", code="turn_ended")
    done = entries.append(tx, _of_turn(message, turn))
    if done.created:
        waiting = [*(turn.meta or {}).get("steered", ()), done.entry.id]
        merged = _merged(turn.meta, {"steered": waiting})
        _SET_META.run(tx, turn=turn.id, meta=merged)
        changes.emit(tx, "turn.steered", turn.id)
    return done.entry


def note(tx: Tx, turn: Turn, meta: Mapping[str, Any]) -> Turn:
    """Keep notes with a turn; one that is None goes."""
    merged = _merged(turn.meta, meta)
    _SET_META.run(tx, turn=turn.id, meta=merged)
    return replace(turn, meta=merged)


def charge(tx: Tx, session_id: str, usage: Mapping[str, Any]) -> None:
    """Put what was used beside a session's turns down to the one that runs, else to the last that ran."""
    recent = [turn for turn in listing(tx, session_id) if turn.trigger != "command"]
    running = next((turn for turn in recent if turn.status is TurnStatus.RUNNING), None)
    turn = running or next((turn for turn in recent if turn.status.ended), None)
    if turn is not None:
        beside = added((turn.meta or {}).get(BESIDE), usage)
        turn = note(tx, turn, {BESIDE: beside})
    if turn is None or running is None:
        _add_usage(tx, session_id, usage)
    if turn is not None and running is None:
        chains.spend(tx, turn.chain_id, usage)
        _apply(tx, turn, {"usage": added(turn.usage, usage)}, "turn.charged")


def added(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> dict[str, Any]:
    """Two counts together; a price is in the sum if either has one."""
    names = {**(a or {}), **(b or {})}
    return {name: (a or {}).get(name, 0) + (b or {}).get(name, 0) for name in names}


def spent(turn: Turn) -> dict[str, Any]:
    """What a turn has used so far by the notes that its attempts left."""
    meta = turn.meta or {}
    return added(meta.get("spent"), meta.get(BESIDE))


def settle_usage(tx: Tx, turn: Turn) -> Turn:
    """Count what a turn used that ended without a result and may yet be gone on with."""
    used = spent(turn)
    if not used:
        return turn
    _count_usage(tx, turn, Outcome(usage=used))
    return _apply(tx, note(tx, turn, {COUNTED: used}), {"usage": used}, "turn.charged")


def leave_out(tx: Tx, turn: Turn, entry_id: str) -> Turn:
    """Take a message out of a turn that has not begun and has others; the oldest of those is its input."""
    rest = [str(id_) for id_ in (turn.meta or {}).get("steered") or () if id_ != entry_id]
    first = rest.pop(0) if turn.input_id == entry_id else turn.input_id
    values = {"input_id": first, "meta": _merged(turn.meta, {"steered": rest or None})}
    return _apply(tx, turn, values, "turn.steered")


def waiting(tx: Tx, lane: str) -> list[Waiting]:
    """The turns of people that wait in a session's lane and have not begun, as they came."""
    rows = _WAITING.rows(tx, lane=lane)
    return [Waiting(_read(row[:-1]), int(row[-1])) for row in rows]


def resume(tx: Tx, turn: Turn, *, max_attempts: int = 1) -> Turn:
    """Put an interrupted turn on the agenda again, because someone asked for it."""
    waits = None if turn.agenda_id is None else agenda.find(tx, turn.agenda_id)
    if turn.status is not TurnStatus.INTERRUPTED or (waits is not None and not waits.status.ended):
        raise Conflict(
            f"turn {turn.id} is {turn.status}", code="turn_not_resumable", hint="Send the message again."
        )
    kind = kind_of(turn.session_key)
    item = agenda.enqueue(tx, kind, {"turnId": turn.id}, lane=turn.session_key, max_attempts=max_attempts)
    return _apply(tx, turn, {"agenda_id": item.id}, "turn.resumed")


def hand_on(tx: Tx, left: Session, successor: Session) -> None:
    """Have the turns of a session that have not ended go on in its successor, with all that they have
    said."""
    live = (TurnStatus.ACCEPTED.value, TurnStatus.RUNNING.value)
    query = sa.select(table.c.id).where(table.c.session_id == left.id, table.c.status.in_(live))
    for id_ in tx.conn.execute(query.order_by(table.c.number)).scalars().all():
        values = {"session_id": successor.id, "number": sessions.next_turn_number(tx, successor.id)}
        tx.conn.execute(sa.update(table).where(table.c.id == id_).values(**values))
        own = entry_table.c.turn_id == id_
        tx.conn.execute(sa.update(entry_table).where(own).values(session_id=successor.id))


def kind_of(session_key: str) -> str:
    """The agenda's kind of a session's turns."""
    return SUBAGENT if parse_key(session_key).is_subagent else KIND


def get(tx: Tx, id_: str) -> Turn:
    row = _BY_ID.first(tx, id=id_)
    turn = None if row is None else _read(row)
    if turn is None or not _may_read(tx.reader, turn):
        raise NotFound(f"no turn {id_[:80]!r}", code="unknown_turn")
    return turn


def get_many(tx: Tx, ids: Sequence[str]) -> list[Turn]:
    return [turn for row in _BY_IDS.rows(tx, ids=ids) if _may_read(tx.reader, turn := _read(row))]


def by_key(tx: Tx, key: str) -> Turn | None:
    row = _BY_KEY.first(tx, key=clean_text(key))
    turn = None if row is None else _read(row)
    return turn if turn is not None and _may_read(tx.reader, turn) else None


def _may_read(reader: Reader, turn: Turn) -> bool:
    """A turn is its session's: the agent in the session's key is whose it is."""
    return reader.reads_all or reader.may_read_of(turn.audience, parse_key(turn.session_key).agent_id)


def inputs_among(tx: Tx, session_id: str, entry_ids: Sequence[str]) -> frozenset[str]:
    """Those of the entries that a turn of the session has as its input."""
    if not entry_ids:
        return frozenset()
    query = sa.select(table.c.input_id).where(
        table.c.session_id == session_id, table.c.input_id.in_(list(entry_ids))
    )
    return frozenset(row.input_id for row in tx.conn.execute(query))


def by_number(tx: Tx, session_id: str, number: int) -> Turn:
    query = sa.select(table).where(table.c.session_id == session_id, table.c.number == number)
    row = tx.conn.execute(query).mappings().first()
    turn = None if row is None else _turn(row)
    if turn is None or not _may_read(tx.reader, turn):
        raise NotFound(f"the session has no turn {number}", code="unknown_turn")
    return turn


def listing(tx: Tx, session_id: str, *, before: int | None = None, limit: int = 50) -> list[Turn]:
    """Newest first; `before` is a turn's number."""
    query = sa.select(table).where(table.c.session_id == session_id)
    if before is not None:
        query = query.where(table.c.number < before)
    query = query.order_by(table.c.number.desc()).limit(max(1, min(limit, 500)))
    found = [_turn(row) for row in tx.conn.execute(query).mappings()]
    return [turn for turn in found if _may_read(tx.reader, turn)]


def recent(
    tx: Tx, *, status: TurnStatus | None = None, since: Millis | None = None, limit: int = 50
) -> list[Turn]:
    """The newest turns of all sessions that the reader may read; ids are minted in order, so none is sorted.

    At most `MOST_LOOKED_AT` are looked through for a reader who may read few of them.
    """
    found: list[Turn] = []
    before: str | None = None
    for _ in range(MOST_LOOKED_AT // _STRETCH):
        query = sa.select(table).order_by(table.c.id.desc()).limit(_STRETCH)
        query = query if before is None else query.where(table.c.id < before)
        rows = [_turn(row) for row in tx.conn.execute(query).mappings()]
        found += [turn for turn in rows if _wanted(turn, status, since) and _may_read(tx.reader, turn)]
        over = since is not None and bool(rows) and rows[-1].accepted_at < since
        if len(found) >= limit or len(rows) < _STRETCH or over:
            break
        before = rows[-1].id
    return found[:limit]


def _wanted(turn: Turn, status: TurnStatus | None, since: Millis | None) -> bool:
    return (status is None or turn.status is status) and (since is None or turn.accepted_at >= since)


def start(tx: Tx, turn: Turn) -> Turn:
    """Begin an attempt; that it is not the first stands in the log."""
    if turn.status not in (TurnStatus.ACCEPTED, TurnStatus.INTERRUPTED):
        raise Conflict(f"turn {turn.id} is {turn.status}", code="turn_not_startable")
    if turn.attempt:
        _note(tx, turn, f"Turn {turn.number} was interrupted and begins again.")
    values = {
        "status": TurnStatus.RUNNING,
        "attempt": turn.attempt + 1,
        "started_at": tx.now,
        "ended_at": None,
        "error": None,
    }
    return _apply(tx, turn, values, "turn.started")


def commit(tx: Tx, which: str | Turn, outcome: Outcome, job: agenda.Job | None = None) -> Committed:
    """Write a turn's results and finish its agenda item, once; again with the same key is a duplicate.

    The turn is named by its key, or given as this very transaction has read it.
    """
    turn = by_key(tx, which) if isinstance(which, str) else which
    if turn is None:
        raise NotFound("no turn has this key", code="unknown_turn")
    if turn.status is TurnStatus.COMMITTED:
        return Committed(turn, _entries_of(tx, turn), duplicate=True)
    if turn.status is not TurnStatus.RUNNING:
        raise Conflict(f"turn {turn.id} is {turn.status}", code="turn_not_running")
    written = entries.append_many(tx, [_of_turn(draft, turn) for draft in outcome.entries])
    for parcel in outcome.parcels:
        outbox.post(tx, parcel)
    _count_usage(tx, turn, outcome)
    if job is not None:
        job.settle(tx)
    values = {
        "status": TurnStatus.COMMITTED,
        "reply_id": _reply_of([w.entry for w in written]) or outcome.reply_id,
        "model": outcome.model,
        "usage": dict(outcome.usage),
        "meta": _merged(turn.meta, {**(outcome.meta or {}), COUNTED: None}),
        "ended_at": tx.now,
    }
    done = _apply(tx, turn, values, "turn.committed")
    return Committed(done, [w.entry for w in written])


def end(
    tx: Tx, turn: Turn, status: TurnStatus, error: str, *, usage: Mapping[str, Any] | None = None
) -> Turn:
    """End a turn that brings no result: failed, cancelled or interrupted. What it used is counted."""
    if turn.status.ended and turn.status is not TurnStatus.INTERRUPTED:
        raise Conflict(f"turn {turn.id} is {turn.status} already", code="turn_ended")
    values: dict[str, Any] = {"status": status, "error": clean_text(error)[:4000], "ended_at": tx.now}
    if usage:
        values["usage"] = dict(usage)
        _count_usage(tx, turn, Outcome(usage=usage))
    chains.touch(tx, turn.chain_id)
    return _apply(tx, turn, values, f"turn.{status}")


def interrupted(tx: Tx, item: agenda.Item) -> None:
    """The agenda's word that this turn was cut off, or will not begin any more: make it visible."""
    turn = get(tx, str(item.payload["turnId"]))
    cancelled = item.status is agenda.Status.CANCELLED
    if cancelled and turn.status in (TurnStatus.ACCEPTED, TurnStatus.RUNNING, TurnStatus.INTERRUPTED):
        end(tx, turn, TurnStatus.CANCELLED, item.error or "cancelled", usage=spent(turn))
    elif turn.status is TurnStatus.RUNNING or (turn.status is TurnStatus.ACCEPTED and item.status.ended):
        end(tx, turn, TurnStatus.INTERRUPTED, item.error or agenda.INTERRUPTED)


def has_ended(tx: Tx, turn: Turn) -> bool:
    """Whether nothing more comes of it by itself: an interrupted turn whose item lives is about to go on."""
    if turn.status is not TurnStatus.INTERRUPTED or turn.agenda_id is None:
        return turn.status.ended
    item = agenda.find(tx, turn.agenda_id)
    return item is None or item.status.ended


def _known(tx: Tx, key: str) -> Accepted | None:
    turn = by_key(tx, key)
    if turn is None:
        return None
    said = None if turn.input_id is None else entries.get(tx, turn.input_id)
    return Accepted(turn, said, created=False)


def _merged(meta: Mapping[str, Any] | None, more: Mapping[str, Any] | None) -> dict[str, Any] | None:
    both = {**(meta or {}), **(more or {})}
    return {name: value for name, value in both.items() if value is not None} or None


def _write_input(tx: Tx, session: Session, message: EntryDraft, id_: TurnId, key: str) -> Entry:
    draft = replace(
        message,
        audience=session.audience,
        session_key=session.key,
        session_id=session.id,
        turn_id=id_,
        idempotency_key=message.idempotency_key or f"turn-input:{key}",
    )
    return entries.append(tx, draft).entry


def _of_turn(draft: EntryDraft, turn: Turn) -> EntryDraft:
    return replace(
        draft,
        audience=turn.audience,
        session_key=turn.session_key,
        session_id=turn.session_id,
        turn_id=turn.id,
    )


def _count_usage(tx: Tx, turn: Turn, outcome: Outcome) -> None:
    """Into the totals of session and chain, without what was counted when the turn was interrupted."""
    counted = (turn.meta or {}).get(COUNTED)
    _add_usage(tx, turn.session_id, outcome.usage, counted, outcome.context_tokens)
    chains.spend(tx, turn.chain_id, outcome.usage, counted)


def _add_usage(
    tx: Tx,
    session_id: str,
    usage: Mapping[str, Any],
    counted: Mapping[str, Any] | None = None,
    context: int | None = None,
) -> None:
    before = counted or {}
    sessions.add_usage(
        tx,
        session_id,
        input_tokens=int(usage.get("inputTokens", 0) - before.get("inputTokens", 0)),
        output_tokens=int(usage.get("outputTokens", 0) - before.get("outputTokens", 0)),
        context=context,
    )


def _entries_of(tx: Tx, turn: Turn) -> list[Entry]:
    page = entries.listing(tx, entry_model.EntryFilter(turn_id=turn.id), limit=entries.MAX_PAGE)
    return [e for e in reversed(page.entries) if e.id != turn.input_id]


def _reply_of(written: Sequence[Entry]) -> str | None:
    replies = [e.id for e in written if e.is_answer]
    return replies[-1] if replies else None


def _note(tx: Tx, turn: Turn, text: str) -> None:
    draft = EntryDraft(
        content=text,
        type=EntryType.SYSTEM,
        role="system",
        status=Classification.CLASSIFIED,
        code="filtered_non_semantic",
    )
    entries.append(tx, _of_turn(draft, turn))


def _apply(tx: Tx, turn: Turn, values: dict[str, Any], change: str) -> Turn:
    plain = {name: _plain(value) for name, value in values.items()}
    if _UPDATE.run(tx, plain, turn=turn.id, expected=turn.status.value) != 1:
        raise Conflict(f"turn {turn.id} changed meanwhile", code="stale_turn")
    changes.emit(tx, change, turn.id)
    return replace(turn, **values)


def _insert(tx: Tx, turn: Turn) -> None:
    _INSERT.run(tx, **{name: _plain(getattr(turn, name)) for name in _NAMES})


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, TurnStatus) else value


def _read(row: Row) -> Turn:
    return _turn(dict(zip(_COLUMN_NAMES, row, strict=True)))


def _turn(row: Mapping[Any, Any]) -> Turn:
    values = dict(row)
    values["status"] = TurnStatus(values["status"])
    return Turn(**values)


_COLUMN_NAMES = tuple(table.c.keys())
_INSERT = Statement(sa.insert(table))
_UPDATE = Update(table, table.c.id == sa.bindparam("turn"), table.c.status == sa.bindparam("expected"))
_BY_ID = Statement(sa.select(table).where(table.c.id == sa.bindparam("id")))
_BY_IDS = Statement(sa.select(table).where(among(table.c.id, "ids")))
_BY_KEY = Statement(sa.select(table).where(table.c.key == sa.bindparam("key")))
_WAITING = Statement(
    sa.select(table, agenda_table.c.due_at)
    .join(agenda_table, agenda_table.c.id == table.c.agenda_id)
    .where(
        agenda_table.c.lane == sa.bindparam("lane"),
        agenda_table.c.status == sa.literal_column("'queued'"),
        table.c.status == sa.literal_column("'accepted'"),
        table.c.trigger == sa.literal_column("'user'"),
    )
    .order_by(table.c.accepted_at, table.c.id)
)
_SET_META = Statement(
    sa.update(table)
    .where(table.c.id == sa.bindparam("turn"))
    .values(meta=sa.bindparam("meta", type_=table.c.meta.type))
)
