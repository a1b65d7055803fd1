"""What changed, told to whoever follows: noted with each write, fed in order, carried between processes.

A change names an entity; what the entity is now is looked up when the change is read, so that the feed
stays small. Only facts that cannot be looked up later (what a deleted thing was) travel in the payload.

The feed keeps the newest changes in memory for those who are up to date; one who has fallen behind reads
from the store; one who is too far behind, or asks for what was pruned, is told to start over.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import Transient
from holdfast.log import changes
from holdfast.log.audience import SYSTEM
from holdfast.log.statements import Insert, Statement
from holdfast.log.store import Store, Tx
from holdfast.log.tables import changes as table
from holdfast.log.threads import Pulse, Threads, ringing, rung

SIGNAL: Final = "changes"
MAX_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Change:
    seq: int
    type: str
    entity_id: str
    payload: Mapping[str, Any] | None
    created_at: Millis


def emit(tx: Tx, type_: str, entity_id: str, payload: Mapping[str, Any] | None = None) -> None:
    """Tell of a change; all of a transaction are written together at its end."""
    row = {"type": type_, "entity_id": entity_id, "payload": payload, "created_at": tx.now}
    tx.gather(_INSERT.many, row)
    tx.wake(SIGNAL)


def emit_for(tx: Tx, type_: str, ids: sa.Select[tuple[str]], given: Mapping[str, Any]) -> None:
    """One change for each id that the query finds, in its order, without reading them out first."""
    tx.write_gathered()
    chosen = ids.add_columns(sa.literal(type_), sa.literal(int(tx.now)))
    tx.conn.execute(sa.insert(table).from_select(["entity_id", "type", "created_at"], chosen), given)
    tx.wake(SIGNAL)


def since(tx: Tx, seq: int, *, limit: int = MAX_PAGE) -> list[Change]:
    """The changes behind `seq`, oldest first, at most `MAX_PAGE`."""
    return [Change(*row) for row in _SINCE.rows(tx, after=seq, most=max(1, min(limit, MAX_PAGE)))]


def bounds(tx: Tx) -> tuple[int, int]:
    """The oldest change that is still kept and the newest one; (1, 0) when there never was any."""
    low, high = _BOUNDS.first(tx) or (None, None)
    return (low or 1, high or 0)


_INSERT = Insert(table)
_SINCE = Statement(
    sa.select(*(table.c[field.name] for field in fields(Change)))
    .where(table.c.seq > sa.bindparam("after"))
    .order_by(table.c.seq)
    .limit(sa.bindparam("most"))
)
_BOUNDS = Statement(
    sa.select(
        sa.select(sa.func.min(table.c.seq)).scalar_subquery().label("low"),
        sa.select(sa.func.max(table.c.seq)).scalar_subquery().label("high"),
    )
)


RING: Final = 1_000
BATCH: Final = 200
_TROUBLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ping:
    """Nothing happened for a while."""

    seq: int


@dataclass(frozen=True, slots=True)
class Reset:
    """What was asked for is gone: read the state anew, then follow from `seq`."""

    seq: int


class Waiter:
    """Waits for a bell or a time-out; tests hand in one with its own idea of time."""

    async def wait(self, bell: asyncio.Event, seconds: float) -> bool:
        return await rung(bell, seconds)


class Feed:
    """The shared end of the change feed in one process."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        *,
        ping_seconds: float = 25.0,
        replay_limit: int = 5_000,
        waiter: Waiter | None = None,
    ) -> None:
        self._store = store
        self._threads = threads
        self._ping = ping_seconds
        self._replay = replay_limit
        self._waiter = waiter or Waiter()
        self._ring: deque[Change] = deque(maxlen=RING)
        self._head = 0
        self._bells: set[asyncio.Event] = set()
        self._new = asyncio.Event()
        self._closed = False
        self.pulse = Pulse("feed")

    @property
    def head(self) -> int:
        return self._head

    async def run(self) -> None:
        """Keep the ring up to date while anyone follows; runs for as long as the gateway does."""
        unsubscribe = self._store.signals.subscribe(changes.SIGNAL, ringing(self._new.set))
        try:
            _, self._head = await self._threads(self._bounds)
            # Whoever follows already may have looked before the newest of these was there.
            self._ring_bells()
            while True:
                await self._new.wait()
                self._new.clear()
                if not self._bells:
                    continue
                self.pulse.begin()
                try:
                    await self._take_in()
                    self.pulse.passed()
                except Exception as error:  # noqa: BLE001 - readers wait for what comes: told, and tried again
                    self.pulse.failed(error)
                    self._new.set()
                    await asyncio.sleep(_TROUBLE_SECONDS)
        finally:
            unsubscribe()

    def close(self) -> None:
        """End every reader once it has seen what there is."""
        self._closed = True
        self._ring_bells()

    def _ring_bells(self) -> None:
        for bell in self._bells:
            bell.set()

    async def follow(self, after: int | None) -> AsyncGenerator[Change | Ping | Reset]:
        """Every change behind `after`, until the feed closes; None begins with what happens next."""
        bell = asyncio.Event()
        self._bells.add(bell)
        self._new.set()
        try:
            low, high = await self._threads(self._bounds)
            seq = high if after is None else after
            if seq > high or seq < low - 1 or high - seq > self._replay:
                seq = high
                yield Reset(seq)
            while True:
                bell.clear()
                batch = await self._behind(seq)
                if batch and batch[0].seq > seq + 1 and await self._pruned(seq):
                    seq = (await self._threads(self._bounds))[1]
                    yield Reset(seq)
                    continue
                for change in batch:
                    seq = change.seq
                    yield change
                if batch:
                    continue
                if self._closed:
                    return
                if not await self._waiter.wait(bell, self._ping):
                    yield Ping(seq)
        finally:
            self._bells.discard(bell)

    async def _take_in(self) -> None:
        while True:
            batch = await self._threads(self._read, self._head)
            self._ring.extend(batch)
            self._head = batch[-1].seq if batch else self._head
            if batch:
                self._ring_bells()
            if len(batch) < BATCH:
                return

    async def _behind(self, seq: int) -> list[Change]:
        if self._ring and self._ring[0].seq <= seq + 1:
            return [c for c in self._ring if c.seq > seq][:BATCH]
        return await self._threads(self._read, seq)

    async def _pruned(self, seq: int) -> bool:
        low, _ = await self._threads(self._bounds)
        return low > seq + 1

    def _bounds(self) -> tuple[int, int]:
        with self._store.read(SYSTEM) as tx:
            return changes.bounds(tx)

    def _read(self, seq: int) -> list[Change]:
        with self._store.read(SYSTEM) as tx:
            return changes.since(tx, seq, limit=BATCH)


_RECONNECT_SECONDS: Final = 2.0
_POOLED_SECONDS: Final = 1.0
_BEAT_SECONDS: Final = 1.0


class Bridge:
    """Rings this process's bells when another process has committed something; a store rings its own.

    On PostgreSQL it listens. Through a pooler nobody can: it then listens at `listen_url`, or rings every
    second where there is none.
    """

    def __init__(self, store: Store, *, poll_seconds: float = 0.5) -> None:
        self._store = store
        self._poll = poll_seconds
        self._stop = threading.Event()
        self._stopped, self._tell_stopped = socket.socketpair()
        self.pulse = Pulse("bridge")
        self._thread = self._made()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin, or begin anew after its thread has ended."""
        if self._thread.ident is not None:
            self._thread = self._made()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._tell_stopped.close()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)
        self._stopped.close()

    def _made(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="holdfast-bridge", daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                (self._listen if self._store.postgres else self._watch)()
            except Exception as error:  # noqa: BLE001 - others' commits would be seen late: told, and connected again
                self.pulse.failed(error)
                self._stop.wait(_RECONNECT_SECONDS)
                self._store.signals.notify_all()

    def _watch(self) -> None:
        """SQLite tells each connection, for next to nothing, whether others have written."""
        with self._store.raw() as connection:
            seen = _data_version(connection)
            while not self._stop.wait(self._poll):
                version = _data_version(connection)
                self.pulse.passed()
                if version != seen:
                    seen = version
                    self._store.signals.notify_all()

    def _listen(self) -> None:
        import psycopg

        try:
            self._listen_or_poll()
        except psycopg.Error as error:
            lost = (str(error).splitlines() or [""])[0]
            raise Transient(f"the notification channel is lost: {lost}") from error

    def _listen_or_poll(self) -> None:
        import psycopg

        direct = self._store.listen_url
        if direct is not None:
            address = direct.set(drivername="postgresql").render_as_string(hide_password=False)
            with psycopg.connect(address) as connection:
                self._follow(connection)
            return
        with self._store.raw() as connection:
            if not self._store.pooled:
                self._follow(connection)
                return
        while not self._stop.wait(_POOLED_SECONDS):
            self.pulse.passed()
            self._store.signals.notify_all()

    def _follow(self, connection: Any) -> None:
        connection.autocommit = True
        connection.execute("LISTEN holdfast")
        self._store.signals.notify_all()
        while not self._stop.is_set():
            self.pulse.passed()
            for notice in connection.notifies(timeout=0):
                sender, _, names = notice.payload.rpartition("|")
                if sender != self._store.sender:
                    for name in names.split(","):
                        self._store.signals.notify(name)
            select.select([connection, self._stopped], [], [], _BEAT_SECONDS)


def _data_version(connection: Any) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
