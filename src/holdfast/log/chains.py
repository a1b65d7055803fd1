"""Chains: all that follows from one entry from outside, through every session that it reaches.

A chain is named by the turn that the entry got. Its row is written when something first follows from that
turn; from then on every step and every call is counted there, under the lock of the writing transaction, so
that a cap holds over all sessions and processes. What lives in a chain is looked up in the tables of the
rooms that take part (`takes_part`), never kept twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Final, Literal, Protocol

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import Conflict, NotFound
from holdfast.keys import parse_key
from holdfast.log import changes
from holdfast.log.audience import Audience
from holdfast.log.statements import Row, Statement, Update, among
from holdfast.log.store import Tx
from holdfast.log.tables import agenda as agenda_table
from holdfast.log.tables import chains as table
from holdfast.log.tables import turns as turns_table

MAX_PAGE: Final = 200
MOST_LOOKED_AT: Final = 5_000
"""How many of the newest chains are looked through for those that a limited reader may see."""
RETENTION_MS: Final = 30 * 24 * 3_600_000

Kind = Literal["step", "sent"]
State = Literal["live", "ended", "stopped"]


class ChainStopped(Conflict):
    code = "chain_stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """`steps` are the turns and delegates that were elected, `sent` what was spawned or said to others.

    `tokens` and `cost` are those of every call that any of its turns made.
    """

    id: str
    session_key: str
    agent_id: str | None
    audience: Audience
    trigger: str
    started_at: Millis
    updated_at: Millis
    sender: str | None = None
    entry_id: str | None = None
    steps: int = 0
    sent: int = 0
    tokens: int = 0
    cost: float = 0.0
    traceparent: str | None = None
    ended_at: Millis | None = None
    stopped_at: Millis | None = None
    stop_reason: str | None = None

    @property
    def stopped(self) -> bool:
        return self.stopped_at is not None

    @property
    def state(self) -> State:
        if self.stopped:
            return "stopped"
        return "live" if self.ended_at is None else "ended"


class Began(Protocol):
    """A turn, as far as a chain is made of it."""

    @property
    def id(self) -> str: ...
    @property
    def chain_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Part:
    """A table whose rows live in chains: where their chain, their session and their life stand.

    `at_work` says of which of them more comes by itself; unset: of all that live.
    """

    what: str
    chain_id: sa.ColumnElement[Any]
    session_key: sa.ColumnElement[Any]
    live: sa.ColumnElement[bool]
    at_work: sa.ColumnElement[bool] | None = None

    @property
    def rows(self) -> sa.Select[tuple[Any, Any]]:
        return sa.select(self.chain_id.label("chain_id"), self.session_key.label("session_key")).where(
            self.live, self.chain_id.is_not(None)
        )


_PARTS: dict[str, Part] = {}


def takes_part(part: Part) -> None:
    """Have the rows of a table count as what lives in a chain; each room says so of its own, once."""
    _PARTS[part.what] = part
    _any_alive.cache_clear()
    _any_at_work.cache_clear()


@cache
def _any_alive() -> Statement:
    """Whether anything of any room lives in a chain: asked at the end of every turn, so made once."""
    rows = [part.rows.where(part.chain_id == sa.bindparam("chain")) for part in _PARTS.values()]
    return Statement(sa.union_all(*rows).limit(sa.literal_column("1")))


@cache
def _any_at_work() -> Statement:
    here = [
        part.rows.where(
            part.chain_id == sa.bindparam("chain"),
            part.session_key == sa.bindparam("session"),
            *(() if part.at_work is None else (part.at_work,)),
        )
        for part in _PARTS.values()
    ]
    return Statement(sa.union_all(*here).limit(sa.literal_column("1")))


# A turn that was cut off lives as long as the agenda is going to try it again.
_UNENDED = turns_table.c.status.in_(
    [sa.literal_column(f"'{status}'") for status in ("accepted", "running", "interrupted")]
)
_TRIED_AGAIN = sa.exists().where(
    agenda_table.c.id == turns_table.c.agenda_id,
    agenda_table.c.status.in_([sa.literal_column("'queued'"), sa.literal_column("'running'")]),
)
takes_part(
    Part(
        "turn",
        turns_table.c.chain_id,
        turns_table.c.session_key,
        sa.and_(_UNENDED, sa.or_(turns_table.c.status != "interrupted", _TRIED_AGAIN)),
    )
)


def find(tx: Tx, id_: str) -> Chain | None:
    """The chain of which something followed; None for a turn that stands alone."""
    row = _BY_ID.first(tx, id=id_)
    return None if row is None else _read(row)


def get(tx: Tx, id_: str) -> Chain:
    """A chain by its id or that of one of its turns, as its reader may see it; a turn that stands alone is a
    chain of one."""
    found = find(tx, id_) or _named_by_turn(tx, id_)
    if found is None or not may_read(tx, found):
        raise NotFound(f"no chain {id_[:80]!r}", code="unknown_chain", hint="See `holdfast chains`.")
    return found


def may_read(tx: Tx, chain: Chain) -> bool:
    return tx.reader.reads_all or tx.reader.may_read_of(
        chain.audience, parse_key(chain.session_key).agent_id or chain.agent_id
    )


def readable(tx: Tx, ids: Sequence[str]) -> list[str]:
    """Those of the chains that the reader may see."""
    found = [(id_, find(tx, id_) or _of_turn(tx, id_)) for id_ in ids]
    return [id_ for id_, chain in found if chain is not None and may_read(tx, chain)]


def opened(tx: Tx, turn: Began) -> Chain:
    """The chain that a turn belongs to, with a row from now on: something is about to follow from it."""
    id_ = turn.chain_id or turn.id
    known = find(tx, id_)
    if known is not None:
        return known
    made = _of_turn(tx, id_) or _of_turn(tx, turn.id)
    if made is None:
        raise NotFound(f"no chain {id_[:80]!r}", code="unknown_chain")
    made = replace(made, id=id_)
    _INSERT.run(tx, **_values(made))
    changes.emit(tx, "chain.started", id_)
    touch(tx, id_)
    return made


def require_open(tx: Tx, id_: str) -> None:
    """`ChainStopped` if nothing more may come of a chain."""
    known = find(tx, id_)
    if known is not None and known.stopped:
        raise ChainStopped(f"this chain of work was stopped: {known.stop_reason}")


def count(tx: Tx, chain: Chain, kind: Kind = "step") -> Chain:
    """One more step, or one more thing sent off; `ChainStopped` if nothing more may come of it."""
    require_open(tx, chain.id)
    after = replace(chain, steps=chain.steps + (kind == "step"), sent=chain.sent + (kind == "sent"))
    _UPDATE.run(tx, {"steps": after.steps, "sent": after.sent, "updated_at": tx.now}, chain=chain.id)
    changes.emit(tx, "chain.stepped", chain.id)
    touch(tx, chain.id)
    return after


def traced(tx: Tx, chain: Chain, traceparent: str | None) -> Chain:
    """Keep the trace that all of a chain hangs from; the first one stays."""
    if chain.traceparent is not None or traceparent is None:
        return chain
    _UPDATE.run(tx, {"traceparent": traceparent}, chain=chain.id)
    return replace(chain, traceparent=traceparent)


def spend(
    tx: Tx, id_: str | None, usage: Mapping[str, Any], counted: Mapping[str, Any] | None = None
) -> None:
    """Put what calls used down to their chain; what was counted before is left out."""
    if id_ is None:
        return
    before = counted or {}
    tokens = sum(int(usage.get(name, 0) - before.get(name, 0)) for name in ("inputTokens", "outputTokens"))
    cost = float((usage.get("cost") or 0) - (before.get("cost") or 0))
    if _SPEND.run(tx, chain=id_, tokens_more=tokens, cost_more=cost, at=tx.now):
        touch(tx, id_)


def stop(tx: Tx, id_: str, reason: str) -> Chain:
    """Nothing more may come of a chain; what lives in it is for the rooms to end."""
    chain = find(tx, id_)
    if chain is None:
        chain = replace(get(tx, id_), id=id_)
        _INSERT.run(tx, **_values(chain))
    if not chain.stopped:
        why = reason[:400]
        _UPDATE.run(tx, {"stopped_at": tx.now, "stop_reason": why, "updated_at": tx.now}, chain=id_)
        changes.emit(tx, "chain.stopped", id_)
        touch(tx, id_)
        chain = replace(chain, stopped_at=tx.now, stop_reason=why, updated_at=tx.now)
    return chain


def touch(tx: Tx, id_: str | None) -> None:
    """Something of a chain began or ended: whether it still lives is looked at right before the commit."""
    if id_ is not None:
        tx.gather(_settle, id_)


def lives(tx: Tx, id_: str) -> bool:
    return _any_alive().first(tx, chain=id_) is not None


def at_work(tx: Tx, id_: str, session_key: str) -> bool:
    """Whether more comes by itself of what a chain has in a session."""
    return _any_at_work().first(tx, chain=id_, session=session_key) is not None


def live_in(tx: Tx, session_key: str) -> list[str]:
    """The chains that something lives of in a session, oldest first."""
    found = {
        str(row.chain_id)
        for part in _PARTS.values()
        for row in tx.conn.execute(part.rows.where(part.session_key == session_key).limit(MAX_PAGE * 5))
    }
    return sorted(found)


def all_live(tx: Tx) -> list[str]:
    """Every chain of which something lives, oldest first."""
    rows = [part.rows.with_only_columns(part.chain_id).distinct() for part in _PARTS.values()]
    return sorted({str(id_) for query in rows for id_ in tx.conn.execute(query).scalars()})


def living(tx: Tx, ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """How many of each sort live in each of these chains."""
    found: dict[str, dict[str, int]] = {id_: {} for id_ in ids}
    for part in _PARTS.values():
        query = sa.select(part.chain_id, sa.func.count()).where(part.live, part.chain_id.in_(list(ids)))
        for id_, count_ in tx.conn.execute(query.group_by(part.chain_id)):
            found[str(id_)][part.what] = int(count_)
    return found


def listing(tx: Tx, *, live: bool = False, limit: int = 50) -> list[Chain]:
    """Chains as their reader may see them: those that live first, then the last used."""
    alive = set(all_live(tx))
    known = {row[0]: _read(row) for row in _BY_IDS.rows(tx, ids=sorted(alive))}
    found = [known.get(id_) or _of_turn(tx, id_) for id_ in sorted(alive, reverse=True)]
    if not live:
        most = max(1, min(limit, MAX_PAGE)) if tx.reader.reads_all else MOST_LOOKED_AT
        found += [chain for row in _NEWEST.rows(tx, most=most) if (chain := _read(row)).id not in alive]
    return [chain for chain in found if chain is not None and may_read(tx, chain)][:limit]


def live_turns(tx: Tx, id_: str) -> list[str]:
    """The turns of a chain that run or wait."""
    query = sa.select(turns_table.c.id).where(_PARTS["turn"].live, turns_table.c.chain_id == id_)
    return list(tx.conn.execute(query.order_by(turns_table.c.id)).scalars())


def sessions_of(tx: Tx, id_: str) -> list[str]:
    """The sessions that a chain had a turn in."""
    query = sa.select(turns_table.c.session_key).where(turns_table.c.chain_id == id_).distinct()
    return sorted(tx.conn.execute(query.limit(MAX_PAGE * 5)).scalars())


def turns_of(tx: Tx, id_: str, *, limit: int = 500) -> list[str]:
    """The turns of a chain, as they came; the newest of more."""
    query = sa.select(turns_table.c.id).where(turns_table.c.chain_id == id_)
    return list(tx.conn.execute(query.order_by(turns_table.c.id.desc()).limit(limit)).scalars())[::-1]


def prune(tx: Tx, *, limit: int = 2_000) -> int:
    """Remove the rows of chains that ended long ago."""
    over = sa.and_(table.c.ended_at.is_not(None), table.c.updated_at < tx.now - RETENTION_MS)
    ids = sa.select(table.c.id).where(over).limit(limit)
    return tx.conn.execute(sa.delete(table).where(table.c.id.in_(ids))).rowcount


def _settle(tx: Tx, ids: Sequence[str]) -> None:
    """Write when a chain came to its end, or that it lives again."""
    for id_ in dict.fromkeys(ids):
        chain = find(tx, id_)
        if chain is None:
            continue
        alive = lives(tx, id_)
        if alive == (chain.ended_at is None):
            continue
        _UPDATE.run(tx, {"ended_at": None if alive else tx.now, "updated_at": tx.now}, chain=id_)
        changes.emit(tx, "chain.resumed" if alive else "chain.ended", id_)


def _named_by_turn(tx: Tx, turn_id: str) -> Chain | None:
    row = _CHAIN_OF.first(tx, id=turn_id)
    id_ = turn_id if row is None or row[0] is None else str(row[0])
    return find(tx, id_) or _of_turn(tx, id_)


def _of_turn(tx: Tx, id_: str) -> Chain | None:
    """A chain as its first turn tells of it, with what its turns have used so far."""
    row = _ROOT.first(tx, id=id_)
    if row is None:
        return None
    key, audience, trigger, input_id, meta, began, ended = row
    asked = (meta or {}).get("ask") or {}
    used = [usage or {} for (usage,) in _USED.rows(tx, chain=id_)]
    return Chain(
        id=id_,
        session_key=key,
        agent_id=asked.get("agentId") or parse_key(key).agent_id,
        audience=audience,
        trigger=trigger,
        sender=asked.get("sender"),
        entry_id=input_id,
        tokens=sum(int(u.get("inputTokens", 0)) + int(u.get("outputTokens", 0)) for u in used),
        cost=sum(float(u.get("cost") or 0) for u in used),
        started_at=Millis(began),
        updated_at=Millis(ended or began),
        ended_at=None if ended is None else Millis(ended),
    )


_NAMES: Final = tuple(f.name for f in fields(Chain))


def _values(chain: Chain) -> dict[str, Any]:
    return {name: getattr(chain, name) for name in _NAMES}


def _read(row: Row) -> Chain:
    return Chain(**dict(zip(_NAMES, row, strict=True)))


_ALL = sa.select(*(table.c[name] for name in _NAMES))
_BY_ID = Statement(_ALL.where(table.c.id == sa.bindparam("id")))
_BY_IDS = Statement(_ALL.where(among(table.c.id, "ids")))
_NEWEST = Statement(_ALL.order_by(table.c.updated_at.desc(), table.c.id.desc()).limit(sa.bindparam("most")))
_INSERT = Statement(sa.insert(table))
_UPDATE = Update(table, table.c.id == sa.bindparam("chain"))
_SPEND = Statement(
    sa.update(table)
    .where(table.c.id == sa.bindparam("chain"))
    .values(
        tokens=table.c.tokens + sa.bindparam("tokens_more", type_=sa.BigInteger),
        cost=table.c.cost + sa.bindparam("cost_more", type_=sa.Float),
        updated_at=sa.bindparam("at", type_=sa.BigInteger),
    )
)
_ROOT = Statement(
    sa.select(
        turns_table.c.session_key,
        turns_table.c.audience,
        turns_table.c.trigger,
        turns_table.c.input_id,
        turns_table.c.meta,
        turns_table.c.accepted_at,
        turns_table.c.ended_at,
    ).where(turns_table.c.id == sa.bindparam("id"))
)
_USED = Statement(sa.select(turns_table.c.usage).where(turns_table.c.chain_id == sa.bindparam("chain")))
_CHAIN_OF = Statement(sa.select(turns_table.c.chain_id).where(turns_table.c.id == sa.bindparam("id")))
