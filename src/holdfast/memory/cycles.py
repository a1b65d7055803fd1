"""When the index is brought up to date: at start, at intervals, when files change, and as the log grows.

File updates and the catching up of better embedders are items on the agenda: there they are seen, retried,
and never run twice at once. The log is followed as it is written, a moment behind. What an update or the log
brought is embedded as soon as that is done; the cycle of embedding is for what failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.config.memory import MemoryConfig
from holdfast.log import SYSTEM, Pace, Pulse, Store, Threads, Tx, agenda, changes, ringing, rung
from holdfast.memory.backend import MemoryService
from holdfast.memory.catalogue import FILES_KNOWN
from holdfast.memory.collections import SUFFIXES, configured_collections
from holdfast.memory.indexing import Update

log = logging.getLogger(__name__)

UPDATE: Final = "memory.update"
EMBED: Final = "memory.embed"
UPDATED: Final = "memory.updated"
PROGRESS: Final = "memory.progress"
_PAUSE_SECONDS: Final = 0.2
_TROUBLE_SECONDS: Final = 1.0
_FOLLOWED_AT_ONCE: Final = 5_000
_MEND_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 10.0
_QUIET_SECONDS: Final = 300.0
"""When nothing was written for so long, the index is tidied: some CPU seconds at a million entries."""
_TELL_SECONDS: Final = 1.0
_LOOK_AGAIN_MS: Final = 30_000
_BATCH_MS: Final = 300_000
_GIVE_WAY_MS: Final = 1_000
_MOST_GIVEN_WAY_MS: Final = 300_000
_EMBEDDED_AT_ONCE: Final = 500
"""So much is embedded between two looks at what goes first."""

Sleep = Callable[[float], Awaitable[None]]


class MemoryCycles:
    """Runs the cycles of all agents while a gateway serves."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        memory: Callable[[], MemoryService],
        agents: Callable[[], Sequence[str]],
        config: Callable[[str], MemoryConfig],
        workspace: Callable[[str], Path],
        *,
        pace: Pace | None = None,
        before_embedding: Pace | None = None,
        sleep: Sleep = asyncio.sleep,
        look_again_ms: int = _LOOK_AGAIN_MS,
        quiet_seconds: float = _QUIET_SECONDS,
    ) -> None:
        """`before_embedding` feels work in a rush that embedding gives way to, for some minutes at most."""
        self._store = store
        self._threads = threads
        self._memory = memory
        self._agents = agents
        self._config = config
        self._workspace = workspace
        self._pace = pace
        self._before_embedding = before_embedding
        self._waits_since: int | None = None
        self._sleep = sleep
        self._look_again_ms = look_again_ms
        self._quiet_seconds = quiet_seconds
        self.pulse = Pulse("memory")
        self._asked: set[str] = set()
        self._embed_due = 0

    def register(self, runner: agenda.Runner) -> None:
        runner.register(UPDATE, agenda.Kind(self._update, limit=1, on_interrupt=self._not_the_last))
        runner.register(EMBED, agenda.Kind(self._embed, limit=1, on_interrupt=self._not_the_last))

    def schedule_boot(self) -> None:
        """Put the first round on the agenda: now where the config says so, else after the interval."""
        with self._store.write(SYSTEM, ordered=False, durable=False) as tx:
            for agent in self._agents():
                cycle = self._config(agent).search.update
                wait = 0 if cycle.on_boot else int(cycle.interval)
                _enqueue(tx, UPDATE, agent, tx.now + wait)
                _enqueue(tx, EMBED, agent, tx.now + wait + int(cycle.embed_interval))

    async def follow_log(self) -> None:
        """Take new entries into the index as they are written, several at a time; a rush goes first.

        Who searches meanwhile takes in what is new itself, so that nothing is missed. Once nothing is written
        any more, the index is tidied.
        """
        bell = asyncio.Event()
        unsubscribe = self._store.signals.subscribe(changes.SIGNAL, ringing(bell.set))
        more, is_tidy = True, False
        try:
            while True:
                work = self._keep_up
                if not more and is_tidy:
                    await bell.wait()
                elif not more and not await rung(bell, self._quiet_seconds):
                    work = self._tidy
                is_tidy = work == self._tidy
                if self._pace is not None:
                    await self._pace.gap(_PATIENCE_SECONDS)
                bell.clear()
                try:
                    more = await self._threads(work)
                    self.pulse.passed()
                except Exception as error:  # noqa: BLE001 - searches take in what is new themselves: told, and tried again
                    more = True
                    self.pulse.failed(error)
                await self._sleep(_PAUSE_SECONDS if self.pulse.error is None else _TROUBLE_SECONDS)
        finally:
            unsubscribe()

    def _keep_up(self) -> bool:
        """Take in some of what is new, and check and repair for a moment; true while there is more to do."""
        memory = self._memory()
        behind = memory.follow(_FOLLOWED_AT_ONCE)
        more = memory.mend(_MEND_SECONDS)
        self._read_files_again(memory)
        more = more or behind > 0 or memory.health.healing
        if not more:
            self._embed_soon(memory)
        return more

    def _tidy(self) -> bool:
        memory = self._memory()
        memory.whole(memory.index.tidy)
        return False

    def _embed_soon(self, memory: MemoryService) -> None:
        """What was said is embedded a moment later, many entries together; one round serves all agents."""
        agent, now = next(iter(self._agents()), None), self._store.clock.now()
        if agent is None or now < self._embed_due or not memory.chain.preferred:
            return
        if memory.awaits_embedding():
            self._embed_due = now + self._config(agent).search.update.debounce_ms
            with self._store.write(SYSTEM, ordered=False, durable=False) as tx:
                _enqueue(tx, EMBED, agent, self._embed_due)

    def _read_files_again(self, memory: MemoryService) -> None:
        """Where damage made the index forget files, they are read again now, not after the interval."""
        if not memory.health.damaged:
            return
        unknown = {agent for agent in self._agents() if memory.catalogue.fact(FILES_KNOWN + agent) is None}
        for agent in unknown - self._asked:
            self._bring_forward(agent)
        self._asked = unknown

    async def watch_files(self, stop: asyncio.Event) -> None:
        """Bring an agent's update forward when one of its files changes.

        What is to be watched is looked at again from time to time: agents, collections and folders come
        and go.
        """
        while not stop.is_set():
            watched = self._watched()
            folders = sorted({folder for places in watched.values() for folder in places})
            if folders:
                await self._watch(folders, watched, stop)
            else:
                await rung(stop, self._look_again_ms / 1000)

    async def _watch(
        self, folders: list[Path], watched: Mapping[str, list[Path]], stop: asyncio.Event
    ) -> None:
        from watchfiles import awatch

        quiet = max(self._config(agent).search.update.watch_debounce_ms for agent in watched)
        changed = awatch(
            *folders,
            stop_event=stop,
            debounce=quiet,
            step=min(200, max(quiet, 1)),
            rust_timeout=self._look_again_ms,
            yield_on_timeout=True,
        )
        async with contextlib.aclosing(changed) as batches:
            async for batch in batches:
                touched = [Path(path) for _, path in batch if path.lower().endswith(SUFFIXES)]
                for agent, places in watched.items():
                    if any(path.is_relative_to(place) for path in touched for place in places):
                        await self._threads(self._bring_forward, agent)
                if self._watched() != watched:
                    return

    def _watched(self) -> dict[str, list[Path]]:
        """The folders of each agent whose files are watched, as far as they are there."""
        found: dict[str, list[Path]] = {}
        for agent in self._agents():
            search = self._config(agent).search
            if search.update.watch:
                roots = {c.root for c in configured_collections(search, self._workspace(agent))}
                found[agent] = sorted(root.resolve() for root in roots if root.is_dir())
        return {agent: places for agent, places in found.items() if places}

    def _bring_forward(self, agent: str) -> None:
        if agent in self._agents():
            with self._store.write(SYSTEM, ordered=False, durable=False) as tx:
                _enqueue(tx, UPDATE, agent, tx.now + self._config(agent).search.update.debounce_ms)

    def _forget_those_who_left(self) -> None:
        """The files of an agent that is no longer configured leave the index in the next round of any."""
        memory, configured = self._memory(), set(self._agents())
        for owner in {owner for owner, _ in memory.catalogue.collections()} - configured:
            log.info("agent %s is gone: %s documents of its files too", owner, memory.forget(owner))

    async def _update(self, job: agenda.Job) -> None:
        agent = str(job.item.payload["agent"])
        await self._threads(self._forget_those_who_left)
        if agent in self._agents():
            told = Teller(self._store, agent)
            done = await self._threads(lambda: self._memory().update(agent, progress=told.progress))
            for problem in done.problems:
                log.warning("memory of agent %s: %s", agent, problem)
            embed_now = await self._threads(self._memory().awaits_embedding)
            await self._again(job, int(self._config(agent).search.update.interval), done, embed_now=embed_now)

    async def _embed(self, job: agenda.Job) -> None:
        agent = str(job.item.payload["agent"])
        if agent not in self._agents():
            return
        if self._gives_way():
            await self._again(job, _GIVE_WAY_MS)
            return
        told = Teller(self._store, agent)
        made = await self._threads(
            lambda: self._memory().refine(agent, limit=_EMBEDDED_AT_ONCE, progress=told.progress)
        )
        await self._again(job, await self._threads(self._embed_wait, agent, made))

    def _gives_way(self) -> bool:
        """Whether what is sorted in a rush goes first: a model that runs here would take all of its time."""
        if self._before_embedding is None or not self._before_embedding.busy:
            self._waits_since = None
            return False
        now = self._store.clock.now()
        self._waits_since = now if self._waits_since is None else self._waits_since
        return now - self._waits_since < _MOST_GIVEN_WAY_MS

    def _embed_wait(self, agent: str, made: int) -> int:
        """How long until the next round: soon where an embedder failed, at once where more has come."""
        memory, usual = self._memory(), int(self._config(agent).search.update.embed_interval)
        if memory.batches.pending():
            return min(usual, _BATCH_MS)
        again = memory.chain.retry_seconds
        if again is not None:
            return min(usual, round(again * 1000))
        return 0 if made and memory.awaits_embedding() else usual

    async def _again(
        self, job: agenda.Job, wait_ms: int, done: Update | None = None, *, embed_now: bool = False
    ) -> None:
        """End this round and put the next on the agenda, in one transaction."""

        def write() -> None:
            agent = str(job.item.payload["agent"])
            told = _summary(done) if done is not None and done.changed else None
            with self._store.write(SYSTEM, ordered=told is not None, durable=False) as tx:
                job.settle(tx)
                _enqueue(tx, job.item.kind, agent, tx.now + wait_ms)
                if embed_now:
                    _enqueue(tx, EMBED, agent, tx.now)
                if told is not None:
                    changes.emit(tx, UPDATED, agent, {"agentId": agent, **told})

        await self._threads(write)

    def _not_the_last(self, tx: Tx, item: agenda.Item) -> None:
        """A round that failed for good stays on the agenda to be seen; the next comes after the interval."""
        agent = str(item.payload["agent"])
        if item.status is agenda.Status.FAILED and agent in self._agents():
            cycle = self._config(agent).search.update
            wait = cycle.interval if item.kind == UPDATE else cycle.embed_interval
            _enqueue(tx, item.kind, agent, tx.now + int(wait))


class Teller:
    """Tells pages how far long work has come, at most once a second; short work says nothing."""

    def __init__(self, store: Store, agent: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._agent = agent
        self._now = now
        self._next = now() + _TELL_SECONDS

    def progress(self, stage: str, done: int, total: int) -> None:
        now = self._now()
        if now < self._next:
            return
        self._next = now + _TELL_SECONDS
        told = {"agentId": self._agent, "stage": stage, "done": done, "total": total}
        with self._store.write(SYSTEM, durable=False) as tx:
            changes.emit(tx, PROGRESS, self._agent, told)


def _summary(done: Update) -> dict[str, Any]:
    return {
        "files": done.seen,
        "indexed": done.indexed,
        "removed": done.removed,
        "chunks": done.chunks,
        "problems": done.problems[:10],
    }


def _enqueue(tx: Tx, kind: str, agent: str, due_at: int) -> None:
    agenda.enqueue(
        tx,
        kind,
        {"agent": agent},
        lane=f"{kind}:{agent}",
        key=f"{kind}:{agent}",
        due_at=due_at,
        max_attempts=5,
    )
