"""The composition root: builds the rooms from the config and hands each what it needs of the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.clock import Clock, SystemClock
from holdfast.config import Config, ConfigStore
from holdfast.home import Home
from holdfast.log import Pace, Store, Threads, open_store, sqlite_url

if TYPE_CHECKING:
    from holdfast.agents.loop import Runs
    from holdfast.board.audit import Audit
    from holdfast.board.context_room import Board
    from holdfast.config.memory import MemoryConfig
    from holdfast.context import ContextRoom
    from holdfast.memory import MemoryService
    from holdfast.memory.collections import Collection
    from holdfast.plugins import PluginHooks, PluginHost
    from holdfast.runtime.agency import Agency
    from holdfast.runtime.shared_home import SharedHome


__all__ = ["Holdfast", "configured_url", "open", "open_home"]


class Holdfast:
    """One open home: the store and the rooms over it. Usable as it is from a Python program.

    with holdfast.open("~/.holdfast") as hold:
        with hold.store.write(SYSTEM) as tx:
            ...
    """

    def __init__(
        self,
        home: Home,
        config: ConfigStore,
        store: Store,
        clock: Clock,
        *,
        reads_only: bool = False,
        may_follow: bool = False,
    ) -> None:
        self.home = home
        self.reads_only = reads_only
        self.may_follow = may_follow
        self.config = config
        self.store = store
        self.clock = clock
        self.threads = Threads(config.current.store.threads)
        self.pace = Pace()
        self.stopping = False
        self._memory_lock = threading.Lock()
        self._board_lock = threading.Lock()
        self._context_lock = threading.Lock()
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
        with self._memory_lock:
            if self._memory is None:
                from holdfast.runtime.rooms import open_memory_room

                self._memory = open_memory_room(self)
            return self._memory

    @property
    def opened_memory(self) -> MemoryService | None:
        """The memory room if it is open already, for those who only look at how it is."""
        return self._memory

    @property
    def board(self) -> Board:
        """The board room, with the index of memory behind its search; that is opened when first searched."""
        with self._board_lock:
            if self._board is None:
                from holdfast.runtime.rooms import open_board

                self._board = open_board(self)
            return self._board

    @cached_property
    def board_audit(self) -> Audit:
        """Where the board accounts for what it recalled and decided, when that is switched on."""
        from holdfast.board.audit import Audit

        return Audit(self.home.logs / "board.jsonl", lambda: self.settings.board.audit, self.clock)

    @property
    def context(self) -> ContextRoom:
        """The context room: what a model sees. Its summariser is handed in by whoever has a model."""
        from holdfast.board.ingest import prepare
        from holdfast.context import ContextRoom

        with self._context_lock:
            if self._context is None:
                self.plugins.load()
                self._context = ContextRoom(
                    self.store,
                    self.threads,
                    self.home,
                    lambda: self.settings,
                    registry=self.plugins.engines,
                    prepare=lambda tx, draft: prepare(tx, draft, self.settings.board),
                )
            return self._context

    @cached_property
    def shared(self) -> SharedHome:
        """What the gateways of this store share: its versions, and the copies here."""
        from holdfast.runtime.shared_home import SharedHome

        return SharedHome.over(self.home, self.store)

    @cached_property
    def plugins(self) -> PluginHost:
        """The plugins of the home. They are loaded with the first room that takes something of them."""
        from holdfast.plugins import PluginHost

        return PluginHost(self.home, lambda: self.settings, self._workspaces)

    @cached_property
    def plugin_hooks(self) -> PluginHooks:
        """Where plugins hear of what happens in this home."""
        from holdfast.plugins import PluginHooks

        self.plugins.load()
        hooks = PluginHooks(self.plugins, lambda: self.settings.plugins.limits.hook_ms)
        hooks.listen()
        return hooks

    def _workspaces(self) -> list[Path]:
        return list(dict.fromkeys(self.workspace(agent.id) for agent in self.settings.agent_list))

    @cached_property
    def agency(self) -> Agency:
        """Models, skills, tools and the turn loop, composed; importing them is what costs."""
        from holdfast.runtime.agency import Agency

        return Agency(self)

    @property
    def runs(self) -> Runs:
        """Turns: accepted, followed, waited for. They run where a runner serves the agenda."""
        return self.agency.runs

    async def aclose(self) -> None:
        """Let the engines and the agents' side release what they hold; `close` does the rest."""
        if "agency" in self.__dict__:
            await self.agency.aclose()
        if self._context is not None:
            await self._context.dispose()
        if "plugins" in self.__dict__:
            await self.threads(self.plugins.stop)

    def collections(self, agent_id: str) -> list[Collection]:
        """The collections of an agent, without opening the index."""
        from holdfast.memory.collections import configured_collections

        return configured_collections(self.settings_for_memory(agent_id).search, self.workspace(agent_id))

    def close(self) -> None:
        """Close all rooms; long work that still runs ends with the piece it is at."""
        self.stopping = True
        self.threads.close()
        if "plugins" in self.__dict__:
            self.plugins.stop()
        if self._board is not None:
            self._board.close()
        if self._memory is not None:
            self._memory.close()
        self.store.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_home(
    home: str | os.PathLike[str] | None = None,
    *,
    store_url: str | None = None,
    clock: Clock | None = None,
    reads_only: bool = False,
    may_follow: bool = False,
) -> Holdfast:
    """Open a home, made if it is not there. The store is `store_url`, `$HOLDFAST_STORE`, or as configured.

    With `reads_only` its search index is followed, not written: another process has it open. With
    `may_follow` it is so only if another process has it open when it is first used.
    """
    place = Home.locate(home)
    place.prepare()
    own = clock or SystemClock()
    config = ConfigStore(place.config, own)
    settings = config.current.store
    store = open_store(
        store_url or configured_url(place, config.current),
        used=place.was_used(),
        clock=clock,
        readers=settings.pool_size,
        busy_ms=settings.busy_timeout_ms,
        lock_ms=settings.lock_timeout_ms,
        durability=settings.durability,
        listen_url=None if settings.listen_url is None else settings.listen_url.reveal(os.environ),
    )
    hold = Holdfast(place, config, store, own, reads_only=reads_only, may_follow=may_follow)
    if config.is_shared:
        _take_up(hold)
    return hold


def _take_up(hold: Holdfast) -> None:
    """Begin with what the store has, and write changes of the config there."""
    from holdfast.runtime.shared_home import take_up

    hold.config.publisher = hold.shared
    try:
        if not hold.reads_only:
            take_up(hold.home, hold.store)
        hold.config.reload()
        if hold.config.last_error is not None:
            raise hold.config.last_error
    except BaseException:
        hold.close()
        raise


def open(home_or_url: str | os.PathLike[str] | None = None, *, clock: Clock | None = None) -> Holdfast:  # noqa: A001
    """Open Holdfast as a library, by its home folder or by the URL of its store."""
    if isinstance(home_or_url, str) and "://" in home_or_url:
        return open_home(store_url=home_or_url, clock=clock)
    return open_home(home_or_url, clock=clock)


STORE_PASSWORD: Final = "store_password"


def configured_url(home: Home, config: Config, env: Mapping[str, str] = os.environ) -> str:
    """`$HOLDFAST_STORE`, else as configured, with the password that is kept apart from the config."""
    if env.get("HOLDFAST_STORE"):
        given = env["HOLDFAST_STORE"]
        return given if "://" in given else sqlite_url(Path(given).expanduser().absolute())
    if config.store.url is not None:
        return _with_password(home, config.store.url.reveal(env))
    return sqlite_url(home.database)


def _with_password(home: Home, text: str) -> str:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    kept = home.kept_secret(STORE_PASSWORD)
    if kept is None or not text.startswith("postgresql"):
        return text
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return text
    if url.password is not None or url.username is None:
        return text
    return url.set(password=kept).render_as_string(hide_password=False)
