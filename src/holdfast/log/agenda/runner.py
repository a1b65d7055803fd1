"""Runs what is due: claims it, keeps its lease alive, and writes how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.log import owner as owners
from holdfast.log.agenda import store as agenda
from holdfast.log.agenda.state import (
    Event,
    Expire,
    Fail,
    Finish,
    IllegalTransition,
    Item,
    Postpone,
    Renew,
    Retry,
    Status,
)
from holdfast.log.store import Store, Tx
from holdfast.log.threads import Threads

log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 15.0


class Job:
    """One running item in the hands of its handler."""

    def __init__(self, item: Item) -> None:
        self.item = item

    @property
    def settled(self) -> bool:
        return self.item.status is not Status.RUNNING

    def settle(self, tx: Tx, event: Event | None = None) -> None:
        """End the item within the handler's own transaction, so that result and completion are one."""
        assert self.item.owner is not None
        self.item = agenda.apply(tx, self.item, event or Finish(self.item.owner))


class PostponeJob(Exception):
    """Raised by a handler: not now, come back at `due_at`; it costs no attempt."""

    def __init__(self, due_at: int, reason: str = "") -> None:
        super().__init__(reason)
        self.due_at = due_at
        self.reason = reason


Handler = Callable[[Job], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """How items of one kind are run. `on_interrupt` writes, in the same transaction, that one was cut off."""

    handler: Handler
    limit: int = 4
    retry: Retry = field(default_factory=Retry)
    on_interrupt: Callable[[Tx, Item], None] | None = None


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
    ) -> None:
        self._store = store
        self._threads = threads
        self._max = max_concurrent
        self._lease_ms = lease_ms
        self.owner = owner or owners.this_process()
        self._kinds: dict[str, Kind] = {}
        self._jobs: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._wake = asyncio.Event()
        self._stopping = False

    def register(self, name: str, kind: Kind) -> None:
        if name in self._kinds:
            raise ValueError(f"agenda kind {name!r} is registered already")
        self._kinds[name] = kind

    @property
    def running(self) -> list[Item]:
        return [job.item for job, _ in self._jobs.values()]

    async def run(self) -> None:
        """Serve the agenda until `stop`; wakes at once for new work, and by the clock for what falls due."""
        loop = asyncio.get_running_loop()
        ring = self._wake.set
        unsubscribe = self._store.signals.subscribe(agenda.SIGNAL, lambda: _quietly(loop, ring))
        keeper = asyncio.create_task(self._keep_leases())
        try:
            await self.recover()
            while not self._stopping:
                self._wake.clear()
                pause = await self._dispatch()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)
        finally:
            unsubscribe()
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def drain(self) -> None:
        """Run all that is due now, and what follows from it, to the end; for one-shot use and tests."""
        await self.recover()
        while True:
            await self._dispatch()
            if not self._jobs:
                return
            await asyncio.wait([task for _, task in self._jobs.values()])

    async def recover(self) -> list[Item]:
        """Take back what dead owners left running."""
        return await self._threads(self._recover)

    async def cancel(self, id_: str, *, reason: str = "cancelled") -> Item:
        """Cancel an item; if it runs here its handler is stopped now, elsewhere at the next renewal."""
        item = await self._threads(self._store.run, lambda tx: agenda.cancel(tx, id_, reason=reason))
        if id_ in self._jobs:
            job, task = self._jobs[id_]
            job.item = item
            task.cancel()
        return item

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """Claim nothing more, let what runs finish; what does not in time is marked interrupted."""
        self._stopping = True
        self._wake.set()
        tasks = [task for _, task in self._jobs.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _dispatch(self) -> float:
        """Start what can start; returns how long it is until something may be due."""
        while not self._stopping:
            free = self._free()
            claimed, due = await self._threads(self._claim, free)
            for item in claimed:
                self._start(item)
            if not claimed:
                return self._pause(due)
        return 0.0

    def _start(self, item: Item) -> None:
        job = Job(item)
        task = asyncio.create_task(self._run(job))
        self._jobs[item.id] = (job, task)

        def gone(_: asyncio.Task[None]) -> None:
            self._jobs.pop(item.id, None)
            self._wake.set()

        task.add_done_callback(gone)

    def _pause(self, due: int | None) -> float:
        if due is None:
            return _IDLE_SECONDS
        ahead = (due - self._store.clock.now()) / 1000
        # Due already but not claimable: its lane or its kind is busy, and the end of that rings the bell.
        return _IDLE_SECONDS if ahead <= 0 else min(ahead, _IDLE_SECONDS)

    def _free(self) -> dict[str, int]:
        used = Counter(job.item.kind for job, _ in self._jobs.values())
        left = self._max - len(self._jobs)
        return {name: min(kind.limit - used[name], left) for name, kind in self._kinds.items()}

    def _claim(self, free: Mapping[str, int]) -> tuple[list[Item], int | None]:
        if max(free.values(), default=0) <= 0:
            return [], None
        with self._store.read() as tx:
            due = agenda.next_due(tx, list(self._kinds))
        if due is None or due > self._store.clock.now():
            return [], due
        most = self._max - len(self._jobs)

        def take(tx: Tx) -> list[Item]:
            return agenda.claim(tx, free, owner=self.owner, lease_ms=self._lease_ms, most=most)

        return self._store.run(take, ordered=False), due

    async def _run(self, job: Job) -> None:
        kind = self._kinds[job.item.kind]
        try:
            await kind.handler(job)
            event: Event = Finish(self.owner)
        except PostponeJob as later:
            event = Postpone(self.owner, later.due_at, later.reason)
        except asyncio.CancelledError:
            event = Expire(owner_dead=True, retry=kind.retry)
        except HoldfastError as error:
            event = Fail(self.owner, error.message, kind.retry)
        except Exception as error:
            log.exception("agenda item %s (%s) failed", job.item.id, job.item.kind)
            event = Fail(self.owner, f"{type(error).__name__}: {error}", kind.retry)
        try:
            if not job.settled:
                await asyncio.shield(self._threads(self._settle, job, kind, event))
        except (HoldfastError, OSError):
            log.exception("the end of agenda item %s could not be written", job.item.id)

    def _settle(self, job: Job, kind: Kind, event: Event) -> None:
        def write(tx: Tx) -> None:
            try:
                job.settle(tx, event)
            except IllegalTransition:
                job.item = agenda.get(tx, job.item.id)
                if job.settled or job.item.owner != self.owner:
                    return
                job.settle(tx, event)
            if isinstance(event, Expire) and kind.on_interrupt is not None:
                kind.on_interrupt(tx, job.item)

        self._store.run(write)

    def _recover(self) -> list[Item]:
        retries = {name: kind.retry for name, kind in self._kinds.items()}

        def write(tx: Tx) -> list[Item]:
            back = agenda.expire(tx, dead=owners.is_dead, retries=retries)
            for item in back:
                kind = self._kinds.get(item.kind)
                if kind is not None and kind.on_interrupt is not None:
                    kind.on_interrupt(tx, item)
            return back

        return self._store.run(write)

    async def _keep_leases(self) -> None:
        """Renew what runs here, stop what was cancelled elsewhere, and take back what others dropped."""
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            try:
                for id_ in await self._threads(self._renew_all):
                    if id_ in self._jobs:
                        self._jobs[id_][1].cancel()
                await self.recover()
            except HoldfastError:
                log.exception("leases could not be renewed; trying again")

    def _renew_all(self) -> list[str]:
        """Returns the items whose handlers must stop: cancelled, or taken over by another process."""
        stop: list[str] = []
        jobs = [job for job, _ in list(self._jobs.values()) if not job.settled]

        def write(tx: Tx) -> None:
            for job in jobs:
                now = agenda.get(tx, job.item.id)
                if now.status is not Status.RUNNING or now.owner != self.owner:
                    stop.append(now.id)
                    continue
                job.item = agenda.apply(tx, now, Renew(self.owner, tx.now + self._lease_ms))
                if now.cancel_requested:
                    stop.append(now.id)

        if jobs:
            self._store.run(write, ordered=False)
        return stop


def _quietly(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
