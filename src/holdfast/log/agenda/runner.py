"""Runs what is due: claims it, keeps its lease alive, and writes how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.clock import JUMP_MS
from holdfast.errors import HoldfastError, Transient, Unavailable
from holdfast.log import leases as owners
from holdfast.log.agenda import store as agenda
from holdfast.log.agenda.places import Places
from holdfast.log.agenda.state import (
    Advance,
    Event,
    Expire,
    Fail,
    Finish,
    IllegalTransition,
    Item,
    Postpone,
    Retry,
    Status,
)
from holdfast.log.audience import SYSTEM
from holdfast.log.store import Store, Tx
from holdfast.log.threads import Pulse, Threads, ringing, rung, to_the_end

log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 15.0
_TROUBLE_SECONDS: Final = 1.0
_HELD_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = 0.1
_MOST_AGAIN_SECONDS: Final = 2.0
_TRIES_AT_STOP: Final = 4
_PERMANENT: Final = frozenset(("store_damaged", "store_newer", "store_refused", "store_pooler"))


class Job:
    """One running item in the hands of its handler."""

    def __init__(self, item: Item, places: Places | None = None) -> None:
        self.item = item
        self._owner = item.owner or ""  # whoever claimed it, also once it has ended by another hand
        self.stopping = False
        self.lost = False
        self.heard = False
        self._places = places

    def alive(self) -> None:
        """The work gave a sign of life; it is written down with the next renewal of the lease."""
        self.heard = True

    def waiting(self, after: float = 0.0) -> contextlib.AbstractAsyncContextManager[None]:
        """A block in which the job only waits, and another may run in its place; its lane stays its own."""
        return contextlib.nullcontext() if self._places is None else self._places.waiting(self, after)

    @property
    def settled(self) -> bool:
        return self.item.status is not Status.RUNNING

    def settle(self, tx: Tx, event: Event | None = None) -> None:
        """End the item within the handler's own transaction, so that result and completion are one;
        `IllegalTransition` where it was cancelled or taken over meanwhile."""
        after = agenda.settle(tx, self.item, event or Finish(self._owner))
        tx.on_commit(lambda: self.became(after))

    def advance(self, tx: Tx) -> None:
        """A part of the work is written with this transaction: what was lost before it counts no more."""
        if self.item.losses and not self.settled:
            after = agenda.settle(tx, self.item, Advance(self._owner))
            tx.on_commit(lambda: self.became(after))

    def became(self, item: Item) -> None:
        """Take in what was committed, in whatever order the news arrives."""
        if item.revision > self.item.revision:
            self.item = item


_current: Final[ContextVar[Job | None]] = ContextVar("job", default=None)


def waiting(after: float = 0.0) -> contextlib.AbstractAsyncContextManager[None]:
    """A block in which the job that runs here only waits; once it has waited `after` seconds, another may run
    in its place. Outside of a job it is any other block."""
    job = _current.get()
    return contextlib.nullcontext() if job is None else job.waiting(after)


def alive() -> None:
    """The job that runs here, if any, gave a sign of life."""
    job = _current.get()
    if job is not None:
        job.alive()


def is_store_trouble(error: BaseException) -> bool:
    """Whether the store is in trouble, not the work: what failed by that is done again, at no cost."""
    if not isinstance(error, Unavailable):
        return False
    return isinstance(error, Transient) or (error.code.startswith("store_") and error.code not in _PERMANENT)


class PostponeJob(Exception):
    """Raised by a handler: not now, come back at `due_at`; it costs no attempt."""

    def __init__(self, due_at: int, reason: str = "") -> None:
        super().__init__(reason)
        self.due_at = due_at
        self.reason = reason


Handler = Callable[[Job], Awaitable[None]]
OnInterrupt = Callable[[Tx, Item], None]
SetBack = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """How items of one kind are run.

    `limit` is how many run at once, read anew each time where it is a callable.
    `on_interrupt` writes, in the same transaction, that an attempt was cut off, failed or was cancelled.
    `held` says how many may begin now at most, for work that gives way to what somebody waits for.
    `halts` says that it is an agent's work, none of which is begun while the home is halted.
    `relative` says that its due times are delays, not times of the day: they follow a clock that is set back.
    """

    handler: Handler
    limit: int | Callable[[], int] = 4
    retry: Retry = field(default_factory=Retry)
    on_interrupt: OnInterrupt | None = None
    held: Callable[[], int] | None = None
    halts: bool = False
    relative: bool = False

    @property
    def most(self) -> int:
        return self.limit if isinstance(self.limit, int) else self.limit()


class Runner:
    """Takes due items from the agenda and runs their handlers, within the caps of their kinds."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        *,
        max_concurrent: int = 32,
        lease_ms: int = 60_000,
        owner: str | None = None,
        idle_seconds: float = _IDLE_SECONDS,
        caps: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._store = store
        self._threads = threads
        self._lease_ms = lease_ms
        self._idle = idle_seconds
        self._caps = caps
        self.owner = owner or owners.this_process()
        self._kinds: dict[str, Kind] = {}
        self._jobs: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._wake = asyncio.Event()
        self._places = Places(lambda kind: self._kinds[kind].most, max_concurrent, self._wake.set)
        self._cancelled = asyncio.Event()
        self._dispatching = asyncio.Lock()
        self._clock_seen = (store.clock.now(), store.clock.monotonic())
        self._looked_ahead = False
        self._claim_lost = False
        self._on_set_back: list[SetBack] = []
        self._stopping = False
        self.pulse = Pulse("agenda")
        self.lease_pulse = Pulse("leases")
        self._cancel_pulse = Pulse("cancellations")

    def register(self, name: str, kind: Kind) -> None:
        if name in self._kinds:
            raise ValueError(f"agenda kind {name!r} is registered already")
        self._kinds[name] = replace(kind, limit=lambda: self._caps().get(name, kind.most))

    def on_clock_set_back(self, callback: SetBack) -> None:
        """Have a room called, on a thread, with the milliseconds by which the clock was set back, and since
        when by the clock as it is now. Every runner of a store tells its own rooms."""
        self._on_set_back.append(callback)

    @property
    def running(self) -> list[Item]:
        return [job.item for job, _ in self._jobs.values()]

    async def run(self) -> None:
        """Serve the agenda until `stop`; wakes at once for new work, and by the clock for what falls due.

        A store that cannot be used for a while is no reason to end.
        """
        unsubscribe = self._store.signals.subscribe(agenda.SIGNAL, ringing(self._wake.set))
        try:
            async with self._leases_kept():
                recovered = False
                while not self._stopping:
                    self._wake.clear()
                    self.pulse.begin()
                    try:
                        if self._claim_lost or not recovered:
                            await self.recover()
                            recovered = True
                        await self._heed_clock()
                        pause = await self._dispatch()
                        self.pulse.passed()
                    except Exception as error:  # noqa: BLE001 - told, and tried again: what is due must be run
                        self.pulse.failed(error)
                        pause = _TROUBLE_SECONDS
                    await rung(self._wake, pause)
                await self._all_done()
        finally:
            unsubscribe()

    async def _heed_clock(self) -> None:
        """A clock that was set back must not make delays longer: they are brought forward.

        At the first look the agenda tells how late it was when somebody last wrote in it: the clock may have
        been set back while nobody served it.
        """
        clock = self._store.clock
        now, ticks = clock.now(), clock.monotonic()
        seen, ticks_then = self._clock_seen
        passed = ticks - ticks_then
        back, since = seen + passed - now, now - passed
        if not self._looked_ahead:
            ahead = await self._threads(self._ahead)
            back, since = (ahead, now) if ahead > max(back, JUMP_MS) else (back, since)
            self._looked_ahead = True
        if back > JUMP_MS:
            log.warning("the clock was set back by %d ms; what waits is brought forward", back)
            await self._threads(self._bring_forward, back, since)
        self._clock_seen = (now, ticks)

    def _ahead(self) -> int:
        with self._store.read(SYSTEM) as tx:
            return agenda.written_ahead(tx)

    def _bring_forward(self, ms: int, since: int) -> None:
        relative = [name for name, kind in self._kinds.items() if kind.relative]
        self._store.run(
            SYSTEM,
            lambda tx: agenda.bring_forward(tx, relative, ms=ms, since=since),
            ordered=False,
            durable=False,
        )
        for callback in self._on_set_back:
            callback(ms, since)

    async def drain(self) -> None:
        """Run all that is due now, and what follows from it, to the end; for one-shot use and tests."""
        async with self._leases_kept():
            await self.recover()
            while True:
                await self._dispatch()
                if not self._jobs:
                    return
                await asyncio.wait([task for _, task in self._jobs.values()])

    async def recover(self) -> list[Item]:
        """Take back what dead owners left running, and what was claimed here without our being told."""
        async with self._dispatching:
            lost, self._claim_lost = self._claim_lost, False
            try:
                return await self._threads(self._recover, frozenset(self._jobs) if lost else None)
            except BaseException:
                self._claim_lost = lost
                raise

    async def cancel(self, id_: str, *, reason: str = "cancelled") -> Item:
        """Cancel an item; the handler that runs it is stopped; elsewhere as soon as the bell rings there."""
        item = await self._threads(self._store.run, SYSTEM, lambda tx: self._cancel(tx, id_, reason))
        await self._stop_handler(item)
        return item

    async def _stop_handler(self, item: Item) -> None:
        """Once: a handler that winds up is not to be disturbed."""
        if item.id not in self._jobs and item.status is Status.RUNNING and item.owner == self.owner:
            async with self._dispatching:
                pass  # what was claimed just now has its job after this
        await asyncio.sleep(0)  # a job that was made just now begins, else it could not write how it ended
        if item.id in self._jobs:
            job, task = self._jobs[item.id]
            job.became(item)
            if not job.settled and not job.stopping:
                job.stopping = True
                task.cancel()

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """Claim nothing more, let what runs finish; what does not in time is marked interrupted."""
        self._stopping = True
        self._wake.set()
        async with self._dispatching:
            tasks = [task for _, task in self._jobs.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _all_done(self) -> None:
        while self._jobs:
            await asyncio.wait([task for _, task in self._jobs.values()])

    async def _dispatch(self) -> float:
        """Start what can start; returns how long it is until something more falls due."""
        async with self._dispatching:
            while not self._stopping:
                with self._places.claiming():
                    free = self._free()
                    most = min(self._places.left, sum(free.values()))
                    claimed, due = await self._threads(self._claim, free, most)
                    for item in claimed:
                        self._start(item)
                if len(claimed) < most and not self._crowded(free, claimed):
                    return min(self._pause(due), self._until_let_go())
                if not claimed:
                    return min(self._idle, self._until_let_go())
            return 0.0

    def _until_let_go(self) -> float:
        """Whoever is held back is looked after soon: nothing rings a bell when the rush is over."""
        held = any(kind.held is not None and kind.held() < kind.most for kind in self._kinds.values())
        return _HELD_SECONDS if held else self._idle

    def _crowded(self, free: Mapping[str, int], claimed: Sequence[Item]) -> bool:
        """Whether a kind took all its places, so that items of another may have stood behind it."""
        taken = Counter(item.kind for item in claimed)
        return any(taken[kind] >= places for kind, places in free.items() if kind in taken)

    def _start(self, item: Item) -> None:
        """Begin a job; if an earlier claim of the same item is still winding up here, after that."""
        job = Job(item, self._places)
        self._places.begin(job, item.kind)
        before = self._jobs.get(item.id)
        task = asyncio.create_task(self._run(job, None if before is None else before[1]))
        self._jobs[item.id] = (job, task)

        def gone(_: asyncio.Task[None]) -> None:
            if self._jobs.get(item.id) == (job, task):
                del self._jobs[item.id]
            if self._places.end(job) or item.is_suspect:  # that its lane is free was told by its commit
                self._wake.set()

        task.add_done_callback(gone)

    def _pause(self, due: int | None) -> float:
        if due is None:
            return self._idle
        return min(max(due - self._store.clock.now(), 0) / 1000, self._idle)

    def _free(self) -> dict[str, int]:
        return {
            name: max(0, min(self._places.free(name), agenda.MAX_CLAIM, *_let(kind)))
            for name, kind in self._kinds.items()
        }

    def _claim(self, free: Mapping[str, int], most: int) -> tuple[list[Item], int | None]:
        """What was claimed, and when the next item falls due that is not due yet.

        What is due but was not claimed needs no time: its lane or its kind is busy, and the end of that
        rings the bell.
        """
        room = [kind for kind, places in free.items() if places > 0]
        if most <= 0 or not room:
            return [], None
        with self._store.read(SYSTEM) as tx:
            soonest = agenda.next_due(tx, room)
            if soonest is None or soonest > tx.now:
                return [], soonest

        def take(tx: Tx) -> tuple[list[Item], int | None]:
            wanted = free if agenda.halted(tx) is None else self._not_halted(free)
            claimed = agenda.claim(
                tx, wanted, owner=self.owner, lease_ms=self._lease_ms, most=most, suspects=no_suspect_runs
            )
            return claimed, agenda.next_due(tx, room, after=tx.now)

        no_suspect_runs = not any(job.item.is_suspect for job, _ in tuple(self._jobs.values()))
        self._claim_lost = True
        done = self._store.run(SYSTEM, take, ordered=False, durable=False)
        self._claim_lost = False
        return done

    def _not_halted(self, free: Mapping[str, int]) -> dict[str, int]:
        return {name: 0 if self._kinds[name].halts else places for name, places in free.items()}

    async def _run(self, job: Job, before: asyncio.Task[None] | None = None) -> None:
        kind = self._kinds[job.item.kind]
        try:
            if before is not None:
                before.cancel()
                await asyncio.wait([before])
            _current.set(job)
            await kind.handler(job)
            event: Event = Finish(self.owner)
        except PostponeJob as later:
            event = Postpone(self.owner, later.due_at, later.reason)
        except asyncio.CancelledError:
            event = Expire(owner_dead=True, planned=True)
        except HoldfastError as error:
            event = Fail(self.owner, error.message, kind.retry)
            if is_store_trouble(error):
                log.warning(
                    "agenda item %s (%s) is given back: %s", job.item.id, job.item.kind, error.message
                )
                event = Expire(owner_dead=True, planned=True)  # the item has no part in it
                await _rest(_TROUBLE_SECONDS)
        except Exception as error:  # a handler's bug must not end the runner: it is logged
            log.exception("agenda item %s (%s) failed", job.item.id, job.item.kind)
            event = Fail(self.owner, f"{type(error).__name__}: {error}", kind.retry)
        await self._write_end(job, kind.on_interrupt, event)

    async def _write_end(self, job: Job, on_interrupt: OnInterrupt | None, event: Event) -> None:
        """Write how a job ended: tried until it is written, the lease is another's, or this process ends.

        Until then the lease is renewed as ever, so that nobody takes for abandoned what is done.
        """
        tries = 0
        while not job.settled:
            try:
                await to_the_end(self._threads(self._settle, job, on_interrupt, event))
                return
            except Exception as error:  # the item must end, without its hook if that is at fault
                if not is_store_trouble(error):
                    log.exception("the end of agenda item %s could not be written", job.item.id)
                    if on_interrupt is None:
                        return
                    on_interrupt = None
                elif not tries:
                    log.warning("the end of agenda item %s cannot be written yet: %s", job.item.id, error)
            tries += 1
            on = await _rest(min(_AGAIN_SECONDS * 2 ** min(tries, 5), _MOST_AGAIN_SECONDS))
            if job.lost or (self._stopping and (not on or tries > _TRIES_AT_STOP)):
                log.warning("the end of agenda item %s was not written", job.item.id)
                return

    def _settle(self, job: Job, on_interrupt: OnInterrupt | None, event: Event) -> None:
        def write(tx: Tx) -> None:
            try:
                job.settle(tx, event)
            except IllegalTransition:
                log.warning("agenda item %s has ended or was taken over; its end is not ours", job.item.id)
                return
            if isinstance(event, Expire | Fail) and on_interrupt is not None:
                on_interrupt(tx, agenda.get(tx, job.item.id))

        self._store.run(SYSTEM, write)

    def _cancel(self, tx: Tx, id_: str, reason: str) -> Item:
        item = agenda.cancel(tx, id_, reason=reason)
        kind = self._kinds.get(item.kind)
        if item.status is Status.CANCELLED and kind is not None and kind.on_interrupt is not None:
            kind.on_interrupt(tx, item)
        return item

    def _recover(self, known: frozenset[str] | None) -> list[Item]:
        """`known` are the items that run here, where the agenda may think that there are more."""

        def write(tx: Tx) -> list[Item]:
            mine = () if known is None else agenda.held_by(tx, self.owner)
            orphans = {item.id for item in mine if item.id not in (known or ())}
            back = agenda.expire(tx, dead=owners.is_dead, orphans=orphans)
            for item in back:
                kind = self._kinds.get(item.kind)
                if kind is not None and kind.on_interrupt is not None:
                    kind.on_interrupt(tx, item)
            return back

        return self._store.run(SYSTEM, write, durable=False)

    @contextlib.asynccontextmanager
    async def _leases_kept(self) -> AsyncIterator[None]:
        unsubscribe = self._store.signals.subscribe(agenda.CANCEL_SIGNAL, ringing(self._cancelled.set))
        keepers = [asyncio.create_task(self._keep_leases()), asyncio.create_task(self._heed_cancellations())]
        try:
            yield
        finally:
            unsubscribe()
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _heed_cancellations(self) -> None:
        """Stop what was cancelled elsewhere, when the bell rings for it."""
        while True:
            await self._cancelled.wait()
            self._cancelled.clear()
            try:
                for item in await self._threads(self._asked_to_stop) if self._jobs else ():
                    await self._stop_handler(item)
                self._cancel_pulse.passed()
            except Exception as error:  # noqa: BLE001 - the next renewal of leases tells of them too
                self._cancel_pulse.failed(error)

    def _asked_to_stop(self) -> list[Item]:
        with self._store.read(SYSTEM) as tx:
            return agenda.asked_to_stop(tx, self.owner)

    async def _keep_leases(self) -> None:
        """Renew what runs here, stop what was cancelled elsewhere, and take back what others dropped."""
        while True:
            await asyncio.sleep(_TROUBLE_SECONDS if self.lease_pulse.error else self._lease_ms / 3000)
            self.lease_pulse.begin()
            try:
                await self._renew_all()
                await self.recover()
                self.lease_pulse.passed()
            except Exception as error:  # noqa: BLE001 - who renews no more loses all that runs here: told, and tried again
                self.lease_pulse.failed(error)

    async def _renew_all(self) -> None:
        """Renew what runs here; the handler of what was cancelled or taken over elsewhere is stopped."""
        jobs = {job.item.id: (job, task) for job, task in self._jobs.values() if not job.settled}
        if not jobs:
            return
        items = [job.item for job, _ in jobs.values()]
        heard = [id_ for id_, (job, _) in jobs.items() if job.heard]
        for id_ in heard:
            jobs[id_][0].heard = False

        def write(tx: Tx) -> list[Item]:
            return agenda.renew(tx, items, owner=self.owner, lease_ms=self._lease_ms, heard=heard)

        renewed = await self._threads(self._store.run, SYSTEM, write, ordered=False, durable=False)
        held = {item.id: item for item in renewed}
        for id_, (job, task) in jobs.items():
            job.lost = id_ not in held
            if id_ in held:
                job.became(held[id_])
            if not job.settled and (id_ not in held or held[id_].cancel_requested):
                task.cancel()


async def _rest(seconds: float) -> bool:
    """False if told to stop meanwhile."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return False
    return True


def _let(kind: Kind) -> tuple[int, ...]:
    return () if kind.held is None else (kind.held(),)
