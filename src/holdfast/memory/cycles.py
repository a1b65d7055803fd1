"""When the index is brought up to date: at start, at intervals, when files change, and as the log grows.

File updates and the catching up of better embedders are items on the agenda: there they are seen, retried,
and never run twice at once. The log is followed as it is written, a moment behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from holdfast.config.memory import MemoryConfig
from holdfast.errors import HoldfastError
from holdfast.log import Store, Threads, Tx, agenda, changes
from holdfast.memory.service import Memory

log = logging.getLogger(__name__)

UPDATE: Final = "memory.update"
EMBED: Final = "memory.embed"
_PAUSE_SECONDS: Final = 0.3
_MOST_PAUSES: Final = 10

Sleep = Callable[[float], Awaitable[None]]


class MemoryCycles:
    """Runs the cycles of all agents while a gateway serves."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        memory: Callable[[], Memory],
        agents: Callable[[], Sequence[str]],
        config: Callable[[str], MemoryConfig],
        workspace: Callable[[str], Path],
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._store = store
        self._threads = threads
        self._memory = memory
        self._agents = agents
        self._config = config
        self._workspace = workspace
        self._sleep = sleep

    def register(self, runner: agenda.Runner) -> None:
        runner.register(UPDATE, agenda.Kind(self._update, limit=1))
        runner.register(EMBED, agenda.Kind(self._embed, limit=1))

    def schedule_boot(self) -> None:
        """Put the first round on the agenda: now where the config says so, else after the interval."""
        with self._store.write(ordered=False) as tx:
            for agent in self._agents():
                cycle = self._config(agent).search.update
                wait = 0 if cycle.on_boot else int(cycle.interval)
                _enqueue(tx, UPDATE, agent, tx.now + wait)
                _enqueue(tx, EMBED, agent, tx.now + wait)

    async def follow_log(self) -> None:
        """Take new entries into the index as they are written, several at a time."""
        loop = asyncio.get_running_loop()
        bell = asyncio.Event()
        bell.set()

        def ring() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(bell.set)

        unsubscribe = self._store.signals.subscribe(changes.SIGNAL, ring)
        try:
            while True:
                await bell.wait()
                await self._until_quiet(bell)
                try:
                    await self._threads(lambda: self._memory().follow())
                except HoldfastError:
                    log.exception("the log could not be taken into the index; trying again")
                    bell.set()
        finally:
            unsubscribe()

    async def _until_quiet(self, bell: asyncio.Event) -> None:
        """Let those who write go first; a search that comes meanwhile takes in what it needs itself."""
        for _ in range(_MOST_PAUSES):
            bell.clear()
            await self._sleep(_PAUSE_SECONDS)
            if not bell.is_set():
                return

    async def watch_files(self, stop: asyncio.Event) -> None:
        """Bring an agent's update forward when one of its memory files changes."""
        from watchfiles import awatch

        cycles = {agent: self._config(agent).search.update for agent in self._agents()}
        folders = {agent: self._workspace(agent) for agent, cycle in cycles.items() if cycle.watch}
        present = [folder for folder in folders.values() if folder.is_dir()]
        if not present:
            return
        quiet = max((cycles[agent].watch_debounce_ms for agent in folders), default=1500)
        async for batch in awatch(*present, stop_event=stop, debounce=quiet, step=200):
            touched = {Path(path) for _, path in batch if path.endswith((".md", ".markdown"))}
            for agent, folder in folders.items():
                if any(path.is_relative_to(folder) for path in touched):
                    await self._threads(self._bring_forward, agent, cycles[agent].debounce_ms)

    def _bring_forward(self, agent: str, wait_ms: int) -> None:
        with self._store.write(ordered=False) as tx:
            _enqueue(tx, UPDATE, agent, tx.now + wait_ms)

    async def _update(self, job: agenda.Job) -> None:
        agent = str(job.item.payload["agent"])
        if agent in self._agents():
            done = await self._threads(lambda: self._memory().update(agent))
            for problem in done.problems:
                log.warning("memory of agent %s: %s", agent, problem)
            await self._again(job, int(self._config(agent).search.update.interval))

    async def _embed(self, job: agenda.Job) -> None:
        agent = str(job.item.payload["agent"])
        if agent in self._agents():
            await self._threads(lambda: self._memory().refine())
            await self._again(job, int(self._config(agent).search.update.embed_interval))

    async def _again(self, job: agenda.Job, wait_ms: int) -> None:
        """End this round and put the next on the agenda, in one transaction."""

        def write() -> None:
            with self._store.write(ordered=False) as tx:
                job.settle(tx)
                _enqueue(tx, job.item.kind, str(job.item.payload["agent"]), tx.now + wait_ms)

        await self._threads(write)


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
