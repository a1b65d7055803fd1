"""The composition root: builds the rooms from the config and hands each what it needs of the others.

A room is imported when it is first used, so that a command that needs one of them does not load them all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import Clock, SystemClock
from holdfast.config import Config, ConfigStore
from holdfast.home import Home
from holdfast.log import Pace, Store, Threads, open_store, sqlite_url

if TYPE_CHECKING:
    from holdfast.board.audit import Audit
    from holdfast.board.context_room import Board
    from holdfast.config.memory import MemoryConfig
    from holdfast.context import ContextRoom
    from holdfast.memory import MemoryService
    from holdfast.memory.collections import Collection
    from holdfast.recall_bridge import IndexRecall


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
        self.pace = Pace()
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

    @cached_property
    def board_audit(self) -> Audit:
        """Where the board accounts for what it recalled and decided, when that is switched on."""
        from holdfast.board.audit import Audit

        return Audit(self.home.path / "logs" / "board.jsonl", lambda: self.settings.board.audit, self.clock)

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


def _open_memory(hold: Holdfast) -> MemoryService:
    """The built-in index, with `qmd` before it for the agents that are configured so."""
    from holdfast.board import spaces_of_entries
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
    from holdfast.board.context_room import Board

    recall = index_recall(hold)
    return Board(hold.store, lambda: hold.settings.board, recall=recall, audit=hold.board_audit)


def index_recall(hold: Holdfast) -> IndexRecall:
    """Memory's index as the board searches it."""
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
