"""The composition root: builds the rooms from the config and hands each what it needs of the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.agents import approvals
from holdfast.board import pending, routing, spaces_of_entries
from holdfast.board.classifier import Classifier
from holdfast.board.digests import KIND as DIGEST
from holdfast.board.digests import Digester
from holdfast.board.ingest import prepare
from holdfast.board.pending import KIND as CLASSIFY
from holdfast.clock import Clock, SystemClock
from holdfast.config import Config, ConfigStore
from holdfast.home import Home
from holdfast.log import (
    Bridge,
    EntryDraft,
    Feed,
    Retention,
    Store,
    Threads,
    Tx,
    agenda,
    entries,
    open_store,
    prune,
    sqlite_url,
    this_process,
)
from holdfast.log.ingest import INGEST, drafts_from
from holdfast.memory.cycles import MemoryCycles

if TYPE_CHECKING:
    from holdfast.board.context_room import Board
    from holdfast.config.board import BoardConfig
    from holdfast.config.memory import MemoryConfig
    from holdfast.context import ContextRoom
    from holdfast.memory import MemoryService
    from holdfast.memory.collections import Collection
    from holdfast.recall_bridge import IndexRecall

log = logging.getLogger(__name__)

RETENTION: Final = "log.retention"
DAY_KEEPERS: Final = ("agenda_days", "changes_days", "outbox_days", "deleted_days", "transcript_days")


class Holdfast:
    """One open home: the store and the rooms over it. Usable as it is from a Python program.

    with holdfast.open("~/.holdfast") as hold:
        with hold.store.write() as tx:
            ...
    """

    def __init__(self, home: Home, config: ConfigStore, store: Store, clock: Clock) -> None:
        self.home = home
        self.config = config
        self.store = store
        self.clock = clock
        self.threads = Threads(config.current.store.threads)
        self._lock = threading.Lock()
        self._board_lock = threading.Lock()
        self._memory: MemoryService | None = None
        self._board: Board | None = None
        self._context: ContextRoom | None = None

    @property
    def settings(self) -> Config:
        """The config as it stands now; read where it is used, so that a reload takes effect."""
        return self.config.current

    def settings_for_memory(self, agent_id: str) -> MemoryConfig:
        """The rules of an agent's memory as they hold, whichever backend serves."""
        from holdfast.memory.backend import rules_of

        return rules_of(self.settings.memory_for(agent_id))

    def workspace(self, agent_id: str) -> Path:
        """Where an agent's files are: as configured, else `workspace` in the home, or one of its own."""
        agent = self.settings.agent(agent_id)
        if agent.workspace is not None:
            return Path(agent.workspace).expanduser()
        return self.home.workspace(agent_id, default=agent_id == self.settings.default_agent_id)

    @property
    def memory(self) -> MemoryService:
        """The memory room, opened when it is first used; one process at a time has its index open."""
        with self._lock:
            if self._memory is None:
                self._memory = _open_memory(self)
            return self._memory

    @property
    def board(self) -> Board:
        """The board room, with the index of memory behind its search; that is opened when first searched."""
        with self._board_lock:
            if self._board is None:
                self._board = _open_board(self)
            return self._board

    @property
    def context(self) -> ContextRoom:
        """The context room: what a model sees. Its summariser is handed in by whoever has a model."""
        from holdfast.context import ContextRoom

        with self._lock:
            if self._context is None:
                self._context = ContextRoom(self.store, self.threads, self.home, lambda: self.settings)
            return self._context

    async def aclose(self) -> None:
        """Let the engines release what they hold; `close` does the rest."""
        if self._context is not None:
            await self._context.dispose()

    def collections(self, agent_id: str) -> list[Collection]:
        """The collections of an agent, without opening the index."""
        from holdfast.memory.collections import configured_collections

        return configured_collections(self.settings_for_memory(agent_id).search, self.workspace(agent_id))

    def close(self) -> None:
        self.threads.close()
        if self._board is not None:
            self._board.close()
        if self._memory is not None:
            self._memory.close()
        self.store.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Services:
    """What runs while a gateway serves: the runner of the agenda, the change feed, the bridge."""

    def __init__(self, hold: Holdfast) -> None:
        self.hold = hold
        options = hold.settings
        self.runner = agenda.Runner(
            hold.store,
            hold.threads,
            max_concurrent=options.agenda.max_concurrent,
            lease_ms=options.agenda.lease_seconds * 1000,
        )
        self.feed = Feed(
            hold.store,
            hold.threads,
            ping_seconds=options.gateway.stream.ping_seconds,
            replay_limit=options.gateway.stream.replay_limit,
        )
        self.stopping = asyncio.Event()
        self.runner.register(INGEST, agenda.Kind(self._ingest, limit=2))
        self.runner.register(RETENTION, agenda.Kind(self._retain, limit=1))
        self.cycles = MemoryCycles(
            hold.store,
            hold.threads,
            lambda: hold.memory,
            lambda: [agent.id for agent in hold.settings.agent_list],
            hold.settings_for_memory,
            hold.workspace,
        )
        self.cycles.register(self.runner)
        self._register_board()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Services]:
        """Serve until the block ends; then take no new work and let what runs finish or be marked."""
        bridge = Bridge(self.hold.store)
        bridge.start()
        await self.hold.threads(self._schedule_retention)
        await self.hold.threads(self.cycles.schedule_boot)
        await self.hold.threads(self._schedule_backlog)
        tasks = [
            asyncio.create_task(self.feed.run(), name="feed"),
            asyncio.create_task(self.runner.run(), name="runner"),
            asyncio.create_task(self.hold.config.watch(self.stopping), name="config"),
            asyncio.create_task(self.cycles.follow_log(), name="memory"),
            asyncio.create_task(self.cycles.watch_files(self.stopping), name="files"),
        ]
        try:
            yield self
        finally:
            self.begin_stop()
            await self.runner.stop(self.hold.settings.gateway.shutdown_grace_seconds)
            for task in tasks:
                task.cancel()
            for task, result in zip(tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
                if isinstance(result, Exception):
                    log.error("%s ended badly", task.get_name(), exc_info=result)
            await self.hold.aclose()
            bridge.stop()

    def begin_stop(self) -> None:
        """Refuse new work and end the live streams; safe to call from a signal handler."""
        self.stopping.set()
        self.feed.close()

    def _register_board(self) -> None:
        """Sorting and digests. A model that helps with them comes with the agents; rules alone serve."""
        hold = self.hold

        def options() -> BoardConfig:
            return hold.settings.board

        classifier = Classifier(hold.store, hold.threads, options, candidates=_index_recall(hold))
        self.runner.register(CLASSIFY, classifier.kind())
        self.runner.register(DIGEST, Digester(hold.store, hold.threads, options).kind())

    def _schedule_backlog(self) -> None:
        """What waits to be sorted, and was perhaps written by an older or another program."""
        options = self.hold.settings.board.classifier
        if options.enabled:
            with self.hold.store.write(ordered=False) as tx:
                pending.backlog(tx, options)

    def _sweep_rooms(self, tx: Tx) -> None:
        """What the rooms above the log keep for a while only."""
        settings = self.hold.settings
        routing.sweep(tx, settings.board.routing_memory)
        approvals.requests.expire(tx)
        if settings.teams.audit_days is not None:
            approvals.requests.prune(tx, settings.teams.audit_days)
            approvals.audit.prune(tx, settings.teams.audit_days)

    async def _ingest(self, job: agenda.Job) -> None:
        """Write what was accepted by `POST /api/ingest`, and finish its agenda item, in one transaction."""
        drafts = drafts_from(job.item.payload)

        def write() -> None:
            with self.hold.store.write() as tx:
                entries.load(tx, [prepare(tx, draft, self.hold.settings.board) for draft in drafts])
                job.settle(tx)

        await self.hold.threads(write)

    async def _retain(self, job: agenda.Job) -> None:
        removed = await self.hold.threads(prune, self.hold.store, _retention(self.hold.settings))
        if any(removed.values()):
            log.info("retention removed %s", {k: v for k, v in removed.items() if v})
        await self.hold.threads(self.hold.store.run, self._sweep_rooms)
        await self.hold.threads(self._schedule_retention, after=job)

    def _schedule_retention(self, after: agenda.Job | None = None) -> None:
        """One sweep waits at any time; the end of one and the wait for the next are one transaction."""
        with self.hold.store.write(ordered=False) as tx:
            due = int(tx.now)
            if after is not None:
                after.settle(tx)
                due += self.hold.settings.retention.sweep_minutes * 60_000
            agenda.enqueue(tx, RETENTION, {}, lane=RETENTION, key=RETENTION, due_at=due, max_attempts=5)


def _open_memory(hold: Holdfast) -> MemoryService:
    """The built-in index, with `qmd` before it for the agents that are configured so."""
    from holdfast.memory import LogFollower, open_memory
    from holdfast.memory.embedding import chain_from
    from holdfast.memory.fallback import FallbackMemory
    from holdfast.memory.qmd import QmdMemory
    from holdfast.recall_bridge import BoardPlaces, findable_text

    chain = chain_from(hold.settings.memory.search.embedding, os.environ)
    qmd = QmdMemory(
        lambda agent: hold.home.path / "agents" / agent / "qmd",
        config=hold.settings_for_memory,
        collections=hold.collections,
        store=hold.store,
        clock=hold.clock,
    )
    builtin = open_memory(
        hold.home.index,
        engine=hold.settings.memory.search.engine,
        chain=chain,
        workspace=hold.workspace,
        config=hold.settings_for_memory,
        follow=lambda index, catalogue: LogFollower(
            hold.store,
            index,
            catalogue,
            chain.base,
            text_of=findable_text(lambda: hold.settings.board),
            spaces_of=spaces_of_entries,
            places=BoardPlaces(),
        ),
        store=hold.store,
        clock=hold.clock,
        readable=qmd.exported,
    )
    return FallbackMemory(builtin, qmd, config=hold.settings_for_memory, clock=hold.clock)


def _open_board(hold: Holdfast) -> Board:
    from holdfast.board.audit import Audit
    from holdfast.board.context_room import Board

    audit = Audit(hold.home.path / "logs" / "board.jsonl", lambda: hold.settings.board.audit, hold.clock)
    return Board(hold.store, lambda: hold.settings.board, recall=_index_recall(hold), audit=audit)


def _index_recall(hold: Holdfast) -> IndexRecall:
    from holdfast.memory.scoring import Scoring
    from holdfast.recall_bridge import IndexRecall

    def scoring() -> Scoring:
        dense, lexical = hold.settings.memory.search.normalised
        return Scoring(dense=dense, lexical=lexical)

    return IndexRecall(lambda: hold.memory, lambda: hold.settings.board, scoring, hold.clock)


def open_home(
    home: str | os.PathLike[str] | None = None,
    *,
    store_url: str | None = None,
    clock: Clock | None = None,
) -> Holdfast:
    """Open a home, made if it is not there. The store is `store_url`, `$HOLDFAST_STORE`, or as configured."""
    place = Home.locate(home)
    place.prepare()
    clock = clock or SystemClock()
    config = ConfigStore(place.config, clock)
    settings = config.current.store
    store = open_store(
        store_url or configured_url(place, config.current),
        clock=clock,
        readers=settings.pool_size,
        busy_ms=settings.busy_timeout_ms,
    )
    return Holdfast(place, config, store, clock)


def open(home_or_url: str | os.PathLike[str] | None = None, *, clock: Clock | None = None) -> Holdfast:  # noqa: A001
    """Open Holdfast as a library, by its home folder or by the URL of its store."""
    if isinstance(home_or_url, str) and "://" in home_or_url:
        return open_home(store_url=home_or_url, clock=clock)
    return open_home(home_or_url, clock=clock)


def configured_url(home: Home, config: Config, env: Mapping[str, str] = os.environ) -> str:
    if env.get("HOLDFAST_STORE"):
        given = env["HOLDFAST_STORE"]
        return given if "://" in given else sqlite_url(Path(given).expanduser().absolute())
    if config.store.url is not None:
        return config.store.url.reveal(env)
    return sqlite_url(home.database)


def _retention(config: Config) -> Retention:
    kept: dict[str, Any] = {name: getattr(config.retention, name) for name in DAY_KEEPERS}
    rows = {name: getattr(config.retention, name) or None for name in ("agenda_rows", "changes_rows")}
    return Retention(**kept, **rows)


__all__ = ["EntryDraft", "Holdfast", "Services", "open", "open_home", "this_process"]
