"""The audit trail: who did what, when, from where, through which surface and on whose behalf.

Acts are only ever added, and each holds the digest of the one before it: one that is changed, taken out or
slipped in shows in `verify`. The oldest are let go by age; the act that tells of it holds the digest that
they ended with, so that the chain goes on from there. Whoever keeps the last digest elsewhere can also tell
whether the end was cut off.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

import sqlalchemy as sa
from typing_extensions import TypedDict

from holdfast.clock import DAY_MS, Millis, iso
from holdfast.log.audience import Origin
from holdfast.log.store import Tx
from holdfast.log.tables import audit_trail as table
from holdfast.records import Iso, record
from holdfast.text import clean_text, clip

MAX_PAGE: Final = 500
MAX_VALUE: Final = 2_000
LET_GO: Final = "audit.let_go"
_LOCK: Final = 0x486F6C66
_BATCH: Final = 1_000
_BEGINNING: Final = ""


LOCAL: Final = Origin("local")


@record
class ActOut(TypedDict):
    seq: int
    at: Iso
    act: str
    actor: str
    surface: str
    address: str | None
    onBehalfOf: str | None
    target: str
    details: dict[str, str]
    before: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    seq: int
    at: Millis
    act: str
    actor: str
    surface: str
    address: str | None
    behalf_of: str | None
    target: str
    details: Mapping[str, str]
    before: str
    digest: str

    def json(self) -> ActOut:
        return {
            "seq": self.seq,
            "at": iso(self.at),
            "act": self.act,
            "actor": self.actor,
            "surface": self.surface,
            "address": self.address,
            "onBehalfOf": self.behalf_of,
            "target": self.target,
            "details": dict(self.details),
            "before": self.before,
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ActFilter:
    """Which acts are asked for; `act` takes a whole kind too: `login` finds `login.failed`."""

    act: str | None = None
    actor: str | None = None
    target: str | None = None
    surface: str | None = None
    behalf_of: str | None = None
    since: int | None = None
    until: int | None = None


EVERY_ACT: Final = ActFilter()


@dataclass(frozen=True, slots=True)
class Verified:
    """What going over the whole trail found; `faults` name the acts at which it is not whole."""

    acts: int
    last_seq: int
    digest: str
    faults: list[str] = field(default_factory=list)


def note(
    tx: Tx, act: str, target: str = "", *, by: str | None = None, behalf_of: str | None = None, **details: str
) -> None:
    """Write down an act with the transaction that does it. Where it comes from the transaction knows.

    The trail is locked right before the commit and not earlier: acts wait for each other, work does not.
    """
    origin = tx.origin or LOCAL
    draft = {
        "at": tx.now,
        "act": act,
        "actor": _kept(by or tx.reader.name),
        "surface": origin.surface,
        "address": origin.address,
        "behalf_of": None if behalf_of is None else _kept(behalf_of),
        "target": _kept(target),
        "details": {name: _kept(value) for name, value in details.items()},
    }
    tx.gather(_append, draft)


def listing(
    tx: Tx, which: ActFilter = EVERY_ACT, *, before: int | None = None, limit: int = 100
) -> list[Act]:
    """The newest first."""
    query = sa.select(table).order_by(table.c.seq.desc()).limit(max(1, min(limit, MAX_PAGE + 1)))
    if before is not None:
        query = query.where(table.c.seq < before)
    if which.act is not None:
        kind = sa.or_(table.c.act == which.act, table.c.act.startswith(f"{which.act}.", autoescape=True))
        query = query.where(kind)
    for name in ("actor", "target", "surface", "behalf_of"):
        if (wanted := getattr(which, name)) is not None:
            query = query.where(table.c[name] == wanted)
    if which.since is not None:
        query = query.where(table.c.at >= which.since)
    if which.until is not None:
        query = query.where(table.c.at < which.until)
    return [Act(**row) for row in tx.conn.execute(query).mappings()]


def in_order(tx: Tx) -> Iterator[Act]:
    """Every act that is kept, oldest first, a page at a time."""
    last = 0
    while True:
        query = sa.select(table).where(table.c.seq > last).order_by(table.c.seq).limit(_BATCH)
        rows = tx.conn.execute(query).mappings().all()
        yield from (Act(**row) for row in rows)
        if len(rows) < _BATCH:
            return
        last = rows[-1]["seq"]


def verify(tx: Tx) -> Verified:
    """Go over the trail from its first act that is kept to its last."""
    faults: list[str] = []
    count, last, digest = 0, 0, _BEGINNING
    first: Act | None = None
    let_go: dict[int, str] = {}
    for act in in_order(tx):
        if first is None:
            first = act
        elif act.seq != last + 1:
            faults.append(f"between {last} and {act.seq}: {act.seq - last - 1} missing")
        elif act.before != digest:
            faults.append(f"at {act.seq}: it does not follow on {last}")
        if act.digest != _digest(act.json()):
            faults.append(f"at {act.seq}: its words are not those that were written")
        if act.act == LET_GO:
            let_go[int(act.details.get("through", "0"))] = act.details.get("digest", "")
        count, last, digest = count + 1, act.seq, act.digest
    if first is not None and first.before != let_go.get(first.seq - 1, _BEGINNING):
        faults.insert(
            0, f"before {first.seq}: what came first is missing, and no act tells that it was let go"
        )
    return Verified(count, last, digest, faults)


def prune(tx: Tx, days: int) -> int:
    """Let a batch of what is older go, and say so in the trail; how many went.

    The newest stays whatever its age: numbers and digests go on from it.
    """
    newest = sa.select(sa.func.max(table.c.seq)).scalar_subquery()
    kept = sa.select(table.c.seq, table.c.at, table.c.digest).where(table.c.seq < newest)
    oldest = kept.order_by(table.c.seq).limit(_BATCH)
    before = tx.now - days * DAY_MS
    old = list(takewhile(lambda row: row.at < before, tx.conn.execute(oldest)))
    if not old:
        return 0
    through, _, digest = old[-1]
    tx.conn.execute(sa.delete(table).where(table.c.seq <= through))
    note(tx, LET_GO, by="system", through=str(through), digest=digest, days=str(days))
    return len(old)


def _append(tx: Tx, drafts: list[dict[str, Any]]) -> None:
    if tx.postgres:
        tx.conn.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    newest = sa.select(table.c.seq, table.c.digest).order_by(table.c.seq.desc()).limit(1)
    seq, before = tx.conn.execute(newest).one_or_none() or (0, _BEGINNING)
    rows = []
    for draft in drafts:
        seq += 1
        act = Act(**draft, seq=seq, before=before, digest="")
        before = _digest(act.json())
        rows.append({**draft, "seq": seq, "before": act.before, "digest": before})
    tx.conn.execute(sa.insert(table), rows)


def _digest(told: Mapping[str, Any]) -> str:
    """Over what an act says, in the form in which it is exported: a line of that is enough to check it."""
    text = {name: value for name, value in told.items() if name != "digest"}
    whole = json.dumps(text, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def _kept(text: str) -> str:
    return clip(clean_text(text), MAX_VALUE)
