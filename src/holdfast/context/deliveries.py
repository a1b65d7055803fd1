"""What an engine is told of a session: its history once, then every turn that ended, in order and by its key.

A turn's place in the outbox is written with the turn's own end, so that neither is there without the other.
It goes when the engine has taken the turn in; until then the turn is told again, later and later, whatever is
killed in between. The log waits for nobody: an engine that fails holds up what it is told, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakValueDictionary

import sqlalchemy as sa

from holdfast.context import states
from holdfast.context.engine import (
    AfterTurnParams,
    BootstrapParams,
    CommitParams,
    CommitResult,
    IngestBatchParams,
    IngestParams,
)
from holdfast.context.engine_records import (
    Kind,
    Told,
    Waiting,
    enqueue,
    first_waiting,
    known_to,
    remove,
    save_health,
    save_told,
)
from holdfast.context.history import History, not_before
from holdfast.context.host import HostedEngine
from holdfast.context.messages import Message
from holdfast.context.tables import engine_outbox, engine_sessions
from holdfast.context.transcript import message_of
from holdfast.errors import HoldfastError, NotFound
from holdfast.log import (
    SYSTEM,
    Entry,
    EntryFilter,
    Reader,
    Session,
    Store,
    Threads,
    Turn,
    TurnStatus,
    Tx,
    agenda,
    entries,
    sessions,
    turns,
)
from holdfast.log.tables import entries as entry_table

log = logging.getLogger(__name__)

TOLD: Final = (TurnStatus.COMMITTED, TurnStatus.FAILED, TurnStatus.CANCELLED)
HISTORY_TOKENS: Final = 200_000
MOST_WAITING: Final = 1_000
_MOST_LOOSE: Final = 500
_RETRY: Final = agenda.Retry(base_ms=1_000, ceiling_ms=600_000)

# Which of an engine's methods takes a thing in: the first that the engine has.
_WAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "turn": ("commit_turn", "ingest_batch", "ingest"),
    "batch": ("ingest_batch", "ingest", "commit_turn"),
    "message": ("ingest", "ingest_batch", "commit_turn"),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One call's worth: messages under a key."""

    kind: Kind
    key: str
    messages: tuple[Message, ...]
    turn_id: str | None = None
    is_heartbeat: bool = False


@dataclass(frozen=True, slots=True)
class Parcel:
    """All that is told with one row: what was said outside turns before it, turns that nobody had told the
    engine of, and the thing itself."""

    row: Waiting
    pieces: tuple[Piece, ...]
    told: Told
    due: bool


class Deliverer:
    """Tells engines of sessions. One at a time for a session in this process; between processes the key makes
    a repeat harmless."""

    def __init__(self, store: Store, threads: Threads, history: History) -> None:
        self._store = store
        self._threads = threads
        self._history = history
        self._met: set[tuple[str, str, str]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def meet(self, hosted: HostedEngine, session: Session, *, number: int | None = None) -> None:
        """Bootstrap the engine with a session, once for each version of it. `number` is the turn that is
        about to run: what it says is no history yet."""
        if not hosted.hears or self._known(hosted, session.id):
            return
        async with self._alone(session.id):
            await self._meet(hosted, session, number)

    async def deliver(self, hosted: HostedEngine, session: Session, *, urgent: bool = False) -> None:
        """Tell all that waits for a session, in order; raises where the engine failed. What failed before
        waits for its time, unless somebody asks for it now (`urgent`)."""
        if not hosted.hears:
            return
        async with self._alone(session.id):
            parcel = await self._threads(self._next, hosted, session)
            while parcel is not None and (parcel.due or urgent):
                await self._met_before(hosted, session, parcel)
                parcel = await self._told(hosted, session, parcel)

    async def _met_before(self, hosted: HostedEngine, session: Session, parcel: Parcel) -> None:
        if not self._known(hosted, session.id):
            try:
                await self._meet(hosted, session, parcel.row.number if parcel.row.kind == "turn" else None)
            except HoldfastError as error:
                await self._threads(self._failed, hosted, parcel, error.message, False)
                raise

    async def _told(self, hosted: HostedEngine, session: Session, parcel: Parcel) -> Parcel | None:
        taken_in = bool(parcel.row.body.get("takenIn"))
        try:
            if not taken_in:
                for piece in parcel.pieces:
                    await tell(hosted, session, piece)
                taken_in = True
            await self._after(hosted, session, parcel)
        except HoldfastError as error:
            await self._threads(self._failed, hosted, parcel, error.message, taken_in)
            raise
        return await self._threads(self._done, hosted, session, parcel)

    async def _after(self, hosted: HostedEngine, session: Session, parcel: Parcel) -> None:
        body = parcel.row.body
        if parcel.row.kind == "turn" and body.get("committed") and "after_turn" in hosted.has:
            await hosted.after_turn(
                AfterTurnParams(
                    session_id=session.id,
                    session_key=session.key,
                    turn_id=str(body["turnId"]),
                    messages=parcel.pieces[-1].messages,
                    prompt_tokens=body.get("promptTokens"),
                    token_budget=body.get("tokenBudget"),
                    is_heartbeat=bool(body.get("isHeartbeat")),
                )
            )

    async def _meet(self, hosted: HostedEngine, session: Session, number: int | None) -> None:
        told, history = await self._threads(self._introduction, hosted, session, number)
        if told is None:
            params = BootstrapParams(session_id=session.id, session_key=session.key, messages=history)
            await hosted.bootstrap(params)
            await self._threads(self._introduced, hosted, session, number)
        self._met.add(_met(hosted, session.id))

    def _introduction(
        self, hosted: HostedEngine, session: Session, number: int | None
    ) -> tuple[Told | None, tuple[Message, ...]]:
        with self._store.read(session.reader) as tx:
            known = known_to(tx, hosted.id, session.id)
            if known is not None and known.version == hosted.info.version:
                return known, ()
            if "bootstrap" not in hosted.has or not hosted.info.wants_messages:
                return None, ()
            state = replace(states.of(tx, session, hosted.id), floor=0, cut=0)
            skip = frozenset() if number is None else not_before(tx, session.id, number)
            return None, tuple(self._history.newest(tx, state, {}, budget=HISTORY_TOKENS, skip=skip))

    def _introduced(self, hosted: HostedEngine, session: Session, number: int | None) -> None:
        """It knows all turns before this one now; what waited of those is no longer to be told."""
        with self._store.write(SYSTEM, ordered=False) as tx:
            last = sessions.get(tx, session.id).turn_count if number is None else number - 1
            save_told(tx, hosted.id, session.id, Told(hosted.info.version, last, entries.head(tx)))
            c = engine_outbox.c
            known = (c.engine == hosted.id, c.session_id == session.id, c.kind == "turn", c.number <= last)
            tx.conn.execute(sa.delete(engine_outbox).where(*known))

    def _next(self, hosted: HostedEngine, session: Session) -> Parcel | None:
        with self._store.read(SYSTEM) as tx:
            return self._found(tx, hosted, session)

    def _found(self, tx: Tx, hosted: HostedEngine, session: Session) -> Parcel | None:
        row = first_waiting(tx, hosted.id, session.id)
        if row is None:
            return None
        known = known_to(tx, hosted.id, session.id)
        told = known or Told(hosted.info.version, row.number - 1, entries.head(tx))
        if hosted.info.wants_messages:
            pieces, position = _pieces(tx, row, told, session)
        else:
            pieces, position = [_wordless(row)], told.position
        reached = replace(told, turn=max(told.turn, row.number), position=max(told.position, position))
        return Parcel(row, tuple(pieces), reached, row.next_at <= tx.now)

    def _done(self, hosted: HostedEngine, session: Session, parcel: Parcel) -> Parcel | None:
        with self._store.write(SYSTEM, ordered=False, durable=False) as tx:
            remove(tx, parcel.row)
            save_told(tx, hosted.id, session.id, parcel.told)
            if hosted.health.unsaved_calls >= 100:
                save_health(tx, hosted.id, hosted.health)
            return self._found(tx, hosted, session)

    def _failed(self, hosted: HostedEngine, parcel: Parcel, error: str, taken_in: bool) -> None:
        """Shown where it waits, and tried again on the agenda. An engine that is down for very long is given
        the history anew when it is back, instead of each turn of it."""
        row = parcel.row
        c = engine_outbox.c
        own = (c.engine == row.engine, c.session_id == row.session_id)
        with self._store.write(SYSTEM, ordered=False) as tx:
            due = int(tx.now) + _RETRY.delay(row.attempts + 1)
            body = {**row.body, "takenIn": True} if taken_in else row.body
            values = {"attempts": row.attempts + 1, "error": error[:1_000], "next_at": due, "body": body}
            tx.conn.execute(sa.update(engine_outbox).where(*own, c.key == row.key).values(**values))
            count = tx.conn.execute(
                sa.select(sa.func.count()).select_from(engine_outbox).where(*own)
            ).scalar()
            if count is not None and count > MOST_WAITING:
                self._start_over(tx, hosted, row.session_id)
            save_health(tx, hosted.id, hosted.health)
            enqueue(tx, row.engine, row.session_id, due)
        log.warning("%s; session %s is told again", error, row.session_id)

    def _start_over(self, tx: Tx, hosted: HostedEngine, session_id: str) -> None:
        for table in (engine_outbox, engine_sessions):
            own = (table.c.engine == hosted.id, table.c.session_id == session_id)
            tx.conn.execute(sa.delete(table).where(*own))
        self._met.discard(_met(hosted, session_id))

    def _known(self, hosted: HostedEngine, session_id: str) -> bool:
        return _met(hosted, session_id) in self._met

    @asynccontextmanager
    async def _alone(self, session_id: str) -> AsyncIterator[None]:
        lock = self._locks.get(session_id)
        if lock is None:
            lock = self._locks[session_id] = asyncio.Lock()
        async with lock:
            yield

    def kind(self, hosted: Callable[[str | None], HostedEngine]) -> agenda.Kind:
        """How what failed is tried again. What waits for an engine that is no longer in the slot waits on."""

        async def handle(job: agenda.Job) -> None:
            payload = job.item.payload
            session = await self._threads(self._session, str(payload["sessionId"]))
            engine = None if session is None else hosted(session.agent_id)
            if session is None or engine is None or engine.id != payload["engine"]:
                return
            try:
                await self.deliver(engine, session)
            except HoldfastError as error:
                if agenda.is_store_trouble(error):
                    raise
            later = await self._threads(self._next, engine, session)
            if later is not None:
                raise agenda.PostponeJob(later.row.next_at, later.row.error or "")

        return agenda.Kind(handle, limit=2, relative=True)

    def recover(self) -> int:
        """Put back on the agenda what a process that is gone had not told; how many sessions that
        concerns."""
        c = engine_outbox.c
        with self._store.write(SYSTEM, ordered=False, durable=False) as tx:
            owed = sa.select(c.engine, c.session_id, sa.func.min(c.next_at)).group_by(c.engine, c.session_id)
            found = tx.conn.execute(owed.limit(10_000)).all()
            for engine, session_id, due in found:
                enqueue(tx, engine, session_id, due)
        return len(found)

    def _session(self, session_id: str) -> Session | None:
        with self._store.read(SYSTEM) as tx:
            try:
                return sessions.get(tx, session_id)
            except NotFound:
                return None


async def tell(hosted: HostedEngine, session: Session, piece: Piece) -> CommitResult | None:
    """Give an engine messages through the first of its methods that takes them; nothing if it has none."""
    way = next((name for name in _WAYS[piece.kind] if name in hosted.has), None)
    if not piece.messages and hosted.info.wants_messages:
        return None
    of = {"session_id": session.id, "session_key": session.key}
    match way:
        case "commit_turn":
            return await hosted.commit_turn(
                CommitParams(
                    **of,
                    advancement_key=piece.key,
                    messages=piece.messages,
                    turn_id=piece.turn_id,
                    is_heartbeat=piece.is_heartbeat,
                )
            )
        case "ingest_batch":
            params = IngestBatchParams(
                **of, messages=piece.messages, key=piece.key, is_heartbeat=piece.is_heartbeat
            )
            await hosted.ingest_batch(params)
        case "ingest":
            several = piece.kind != "message"
            for index, message in enumerate(piece.messages):
                key = f"{piece.key}:{index}" if several else piece.key
                await hosted.ingest(
                    IngestParams(**of, message=message, key=key, is_heartbeat=piece.is_heartbeat)
                )
    return None


def _pieces(tx: Tx, row: Waiting, told: Told, session: Session) -> tuple[list[Piece], int]:
    """What is told with a row, and how far in the log what belongs to no turn is told by then."""
    reader = session.reader
    if row.kind != "turn":
        found = entries.get_many(tx, list(row.body["entries"]))
        kind: Kind = "turn" if row.body.get("host") else row.kind
        own = Piece(kind, row.key, _spoken(found, reader), None, bool(row.body.get("isHeartbeat")))
        return [own], max((entry.position for entry in found), default=0)
    missed = [
        Piece("turn", str(turn.id), _spoken(turn_entries(tx, turn), reader), str(turn.id))
        for turn in _between(tx, session.id, told.turn, row.number)
    ]
    turn = turns.get(tx, str(row.body["turnId"]))
    said = turn_entries(tx, turn)
    until = max((entry.position for entry in said), default=told.position)
    loose = [
        Piece("message", str(e.id), _spoken([e], reader))
        for e in _loose(tx, session.id, told.position, until)
    ]
    own = Piece("turn", row.key, _spoken(said, reader), str(turn.id), bool(row.body.get("isHeartbeat")))
    return [*loose, *missed, own], until


def _between(tx: Tx, session_id: str, told: int, number: int) -> list[Turn]:
    """Turns that an engine was not told of before this one: another was in the slot then."""
    count = number - 1 - told
    if count <= 0:
        return []
    found = turns.listing(tx, session_id, before=number, limit=min(count, _MOST_LOOSE))
    return [turn for turn in reversed(found) if turn.status in TOLD and turn.trigger != "command"]


def _wordless(row: Waiting) -> Piece:
    """For an engine that reads the log itself: that something happened, under its key."""
    turn_id = row.body.get("turnId")
    return Piece(row.kind, row.key, (), turn_id, bool(row.body.get("isHeartbeat")))


def turn_entries(tx: Tx, turn: Turn) -> list[Entry]:
    """All that a turn put into the log, its input first; not what became another turn's."""
    found = entries.listing(tx, EntryFilter(turn_id=turn.id), limit=entries.MAX_PAGE, raw=True).entries
    if turn.input_id is not None and turn.input_id not in {entry.id for entry in found}:
        found = [*found, *entries.get_many(tx, [turn.input_id])]
    others = turns.inputs_among(tx, turn.session_id, [e.id for e in found if e.role == "user"])
    kept = (e for e in found if e.id == turn.input_id or e.id not in others)
    return sorted(kept, key=lambda entry: (entry.id != turn.input_id, entry.position))


def _loose(tx: Tx, session_id: str, after: int, until: int) -> list[Entry]:
    """What was said in a session outside any turn, between two places of the log."""
    c = entry_table.c
    query = sa.select(c.id).where(
        c.session_id == session_id,
        c.turn_id.is_(None),
        c.position > after,
        c.position <= until,
        c.deleted_at.is_(None),
    )
    ids = list(tx.conn.execute(query.order_by(c.position).limit(_MOST_LOOSE)).scalars())
    return entries.get_many(tx, ids) if ids else []


def _spoken(found: Sequence[Entry], reader: Reader) -> tuple[Message, ...]:
    """Of these what all may read who hear the session: an engine could show it to them."""
    readable = (entry for entry in found if reader.may_read(entry.audience))
    return tuple(m for entry in readable if (m := message_of(entry)) is not None)


def _met(hosted: HostedEngine, session_id: str) -> tuple[str, str, str]:
    return hosted.id, hosted.info.version, session_id
