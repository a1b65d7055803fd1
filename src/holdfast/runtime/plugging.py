"""What plugins registered, put in its place in the rooms. What cannot be is refused and told of."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.agents.loop import TurnHook
from holdfast.agents.loop.asks import Terms
from holdfast.agents.models.types import ModelRef
from holdfast.agents.plugin_hooks import HookBus, SessionEnd, SessionStart, SubagentEnded
from holdfast.agents.subagents.registry import Run
from holdfast.channels import (
    Abilities,
    Changed,
    ChannelContext,
    Inbound,
    Message,
    Pressed,
    Received,
    Said,
    SendFailed,
    Surface,
)
from holdfast.config.channels import ChannelConfig
from holdfast.config.values import reveal_all
from holdfast.errors import HoldfastError, Unavailable
from holdfast.log import FOR_OWNER, Session, Turn, Tx, sessions
from holdfast.memory.collections import Collection
from holdfast.plugins import Part, Plugin, PluginFailed
from holdfast.plugins.backends import (
    GuardedEmbedder,
    GuardedMemory,
    GuardedModel,
    GuardedSandbox,
    MemoryContext,
)
from holdfast.plugins.guarded import guarded_command, guarded_tool
from holdfast.plugins.host import BUILTIN
from holdfast.text import clean_text

if TYPE_CHECKING:
    from holdfast.runtime import Holdfast
    from holdfast.runtime.agency import Agency

G = TypeVar("G")
T = TypeVar("T")

_OWN_EMBEDDERS: Final = frozenset({"openai", "gemini", "local"})
_BY_HAND: Final = ("new", "reset", "archive")


def plug_in(hold: Holdfast, agency: Agency) -> None:
    """Give the rooms of an open home what its plugins bring."""
    for plugin in hold.plugins.load():
        if plugin.is_in:
            _tools(hold, plugin, agency)
            _commands(hold, plugin, agency)
            _channels(hold, plugin, agency)
    hold.plugins.initialised()


def call_seconds(hold: Holdfast) -> Callable[[], float]:
    return lambda: hold.settings.plugins.limits.call_seconds


def _tools(hold: Holdfast, plugin: Plugin, agency: Agency) -> None:
    for tool in plugin.registered.tools:
        part = hold.plugins.part(plugin, f"tool {tool.name}")
        try:
            made = guarded_tool(tool, part, lambda: hold.plugins.usable(plugin), call_seconds(hold))
            agency.tools.register(made)
        except HoldfastError as error:
            plugin.registered.refused.append(f"tool {tool.name}: {error.message}")


def _commands(hold: Holdfast, plugin: Plugin, agency: Agency) -> None:
    for command in plugin.registered.commands:
        part = hold.plugins.part(plugin, f"command /{command.name}")
        made = guarded_command(command, part, lambda: hold.plugins.usable(plugin), call_seconds(hold))
        try:
            agency.runs.commands.register(made)
        except ValueError as error:
            plugin.registered.refused.append(str(error))


def _channels(hold: Holdfast, plugin: Plugin, agency: Agency) -> None:
    for name, factory in plugin.registered.channels.items():
        part = hold.plugins.part(plugin, f"channel {name}")
        adapter = PluggedAdapter(hold, plugin, part, factory)
        agency.plugged_channels[name] = adapter
        agency.channels.plug_in(name, adapter)


@dataclass
class PluggedAdapter:
    """The channels that a plugin's factory makes, each account of each once."""

    hold: Holdfast
    plugin: Plugin
    part: Part
    factory: Callable[[ChannelContext], Any]
    made: dict[tuple[str, str | None], GuardedChannel] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, name: str, config: ChannelConfig, account: str | None = None) -> GuardedChannel:
        if not self.hold.plugins.usable(self.plugin):
            raise SendFailed(f"channel {name}: plugin {self.plugin.id} is out: {self.plugin.reason}")
        with self.lock:
            if (name, account) not in self.made:
                self.made[name, account] = self._make(name, config, account)
            return self.made[name, account]

    def _make(self, name: str, config: ChannelConfig, account: str | None) -> GuardedChannel:
        seconds = call_seconds(self.hold)
        try:
            context = self._context(name, config, account)
            theirs: Any = self.part.call_here(self.factory, context, seconds=seconds())
            return GuardedChannel(name, theirs, self.part, seconds)
        except HoldfastError as error:
            raise SendFailed(error.message) from error

    def _context(self, name: str, config: ChannelConfig, account: str | None) -> ChannelContext:
        limits = self.hold.settings.board.attachments
        return ChannelContext(
            name=name,
            settings=config,
            receive=self._receive,
            changed=self._changed,
            pressed=self._pressed,
            account=account,
            options=reveal_all(config.options, os.environ),
            folder=self.hold.plugins.data_dir(self.plugin) / name / (account or "default"),
            most_file_bytes=limits.max_bytes,
            most_files=limits.max_files,
        )

    async def _receive(self, message: Inbound) -> Received:
        """From the plugin's loop into ours, where turns are accepted."""
        if not isinstance(message, Inbound):
            raise TypeError(f"expected an Inbound, found {type(message).__name__}")
        return await self._on_ours(self.hold.agency.channels.receive, message)

    async def _changed(self, change: Changed) -> bool:
        if not isinstance(change, Changed):
            raise TypeError(f"expected a Changed, found {type(change).__name__}")
        return await self._on_ours(self.hold.agency.channels.changed, change)

    async def _pressed(self, press: Pressed) -> str:
        if not isinstance(press, Pressed):
            raise TypeError(f"expected a Pressed, found {type(press).__name__}")
        return await self._on_ours(self.hold.agency.channels.pressed, press)

    async def _on_ours(self, work: Callable[[G], Coroutine[Any, Any, T]], given: G) -> T:
        if self.loop is None:
            raise Unavailable("no gateway serves", code="not_serving")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(given), self.loop))

    async def run(self, name: str, account: str | None = None) -> None:
        """Keep the connection of a channel, or of one account of it, that has one to keep."""
        self.loop = asyncio.get_running_loop()
        config = self.hold.settings.channels[name].of_account(account)
        channel = await self.hold.threads(self, name, config, account)
        run = getattr(channel.theirs, "run", None)
        if run is None:
            await asyncio.Event().wait()
        else:
            await asyncio.wrap_future(self.part.loop.begin(run))


class GuardedChannel:
    """A plugin's channel. What it fails at is a message that was not sent, and is tried again."""

    def __init__(self, name: str, theirs: Any, part: Part, seconds: Callable[[], float]) -> None:
        self.name = name
        self.theirs = theirs
        self._part = part
        self._seconds = seconds
        self.abilities = part.call_here(lambda: theirs.abilities, seconds=seconds(), check=_abilities)

    async def send(self, message: Message) -> str | None:
        found: str | None = await self._called("send", message, check=_id)
        return found

    async def edit(self, message_id: str, message: Message) -> None:
        await self._called("edit", message_id, message)

    async def react(self, message_id: str, message: Message) -> None:
        await self._called("react", message_id, message)

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        found: str | None = await self._called("open_thread", surface, name, key, about, check=_id)
        if found is None:
            raise SendFailed(f"channel {self.name} opened no thread")
        return found

    async def find(self, message: Message, known: Sequence[str]) -> str | None:
        found: str | None = await self._called("find", message, tuple(known), check=_id)
        return found

    async def history(self, surface: Surface, limit: int) -> Sequence[Said]:
        found: list[Said] = await self._called("history", surface, limit, check=_history)
        return found[-limit:]

    async def typing(self, surface: Surface) -> None:
        await self._called("typing", surface)

    async def _called(self, method: str, *args: Any, check: Callable[[Any], Any] = lambda found: None) -> Any:
        try:
            return await self._part.call(
                getattr(self.theirs, method), *args, seconds=self._seconds(), check=check
            )
        except PluginFailed as error:
            raise SendFailed(error.message, unsure=True) from error
        except AttributeError as error:
            raise SendFailed(f"channel {self.name} cannot {method}", final=True) from error


def _history(found: Any) -> list[Said]:
    said = list(found)
    if not all(isinstance(one, Said) for one in said):
        raise TypeError("expected a list of Said")
    return [replace(one, text=clean_text(one.text), who=clean_text(one.who)) for one in said]


def _abilities(found: Any) -> Abilities:
    if not isinstance(found, Abilities):
        raise TypeError(f"expected `abilities` to be Abilities, found {type(found).__name__}")
    if found.most_chars < 100:
        raise ValueError("messages of less than 100 characters")
    return found


def _id(found: Any) -> str | None:
    if found is not None and not isinstance(found, str):
        raise TypeError(f"expected a message's id or nothing, found {type(found).__name__}")
    return None if found is None else found[:256]


class PluggedModels:
    """Models of plugins, by provider; each is made once."""

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold
        self._made: dict[ModelRef, GuardedModel] = {}

    def find(self, ref: ModelRef) -> GuardedModel | None:
        """The model of a plugin; None for a provider that no plugin in use has registered."""
        for plugin in self._hold.plugins.load():
            factory = plugin.registered.providers.get(ref.provider)
            if factory is None or not self._hold.plugins.usable(plugin):
                continue
            if ref not in self._made:
                part = self._hold.plugins.part(plugin, f"provider {ref}")
                seconds = call_seconds(self._hold)
                theirs: Any = part.call_here(factory, ref.model, seconds=seconds())
                self._made[ref] = GuardedModel(ref, theirs, part, seconds)
            return self._made[ref]
        return None


class PluggedSandbox:
    """The sandbox of the plugin that holds that slot, made once."""

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold
        self._made: GuardedSandbox | None = None

    def find(self) -> GuardedSandbox | None:
        """None where no plugin is to serve; one that is named and is not there is an error, since who named
        it wants no other."""
        plugin = self._hold.plugins.holder("sandbox")
        if plugin is None or not self._hold.plugins.usable(plugin):
            named = self._hold.settings.plugins.slots.sandbox
            if named in (None, BUILTIN):
                return None
            raise Unavailable(
                f"there is no sandbox: plugins.slots.sandbox names {named!r}, which serves none",
                code="no_sandbox",
                hint="See `holdfast plugins doctor`, or take the key out.",
            )
        if self._made is None and plugin.registered.sandbox is not None:
            part = self._hold.plugins.part(plugin, "sandbox")
            seconds = call_seconds(self._hold)
            theirs: Any = part.call_here(plugin.registered.sandbox, plugin.config, seconds=seconds())
            self._made = GuardedSandbox(theirs, part, seconds)
        return self._made


def plugged_embedders(hold: Holdfast) -> dict[str, Callable[[], GuardedEmbedder]]:
    """Embedders of plugins by name, each made when the config names it; where it names none of theirs, no
    plugin is run."""
    if set(hold.settings.memory.search.embedding.providers) <= _OWN_EMBEDDERS:
        return {}
    found: dict[str, Callable[[], GuardedEmbedder]] = {}
    for plugin in hold.plugins.load():
        for name, factory in plugin.registered.embedders.items() if plugin.is_in else ():
            part = hold.plugins.part(plugin, f"embedder {name}")

            def make(plugin: Plugin = plugin, part: Part = part, factory: Any = factory) -> GuardedEmbedder:
                theirs: Any = part.call_here(factory, plugin.config, seconds=call_seconds(hold)())
                return GuardedEmbedder(theirs, part, call_seconds(hold))

            found.setdefault(name, make)
    return found


class PluggedMemory:
    """Backends of plugins, each made once: the one that holds the slot, for all agents, else the one that an
    agent's `memory.backend` names."""

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold
        found = hold.plugins.find()
        self._holder = next((one.id for one in found if one.is_in and "memory" in one.slots), BUILTIN)
        self._made: dict[str, GuardedMemory | None] = {BUILTIN: None}

    def of(self, agent: str) -> GuardedMemory | None:
        """Whom to ask before the built-in index; None where nobody is, or it cannot be made."""
        for id_ in (self._holder, self._hold.settings.memory_for(agent).backend):
            if id_ not in self._made:
                self._made[id_] = self._make(id_)
            backend = self._made[id_]
            if backend is not None:
                return backend
        return None

    def collections(self, agent: str) -> list[Collection]:
        backend = self.of(agent)
        return [] if backend is None else backend.collections(agent)

    def _make(self, id_: str) -> GuardedMemory | None:
        hold = self._hold
        plugin = hold.plugins.loaded(id_)
        if plugin is None or not plugin.is_in or plugin.registered.memory is None:
            return None
        part = hold.plugins.part(plugin, "memory")
        context = MemoryContext(
            workspace=hold.workspace,
            collections=hold.collections,
            settings=hold.settings_for_memory,
            agent_dir=lambda agent: hold.home.path / "agents" / agent,
            data_dir=hold.plugins.data_dir(plugin),
            store=hold.store,
            clock=hold.clock,
        )
        seconds = call_seconds(hold)
        try:
            theirs: Any = part.call_here(plugin.registered.memory, context, seconds=seconds())
            return GuardedMemory(theirs, part, context, seconds)
        except HoldfastError:
            return None


class SessionNews(TurnHook):
    """Tells plugins of sessions that begin and end, once the log has it."""

    name = "plugins"

    def __init__(self, bus: HookBus) -> None:
        self._bus = bus

    def begun(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        if turn.number != 1 or turn.attempt != 1:
            return
        before = sessions.before(tx, session) if self._bus.wants(SessionEnd) else None
        if before is not None and before.archive_cause not in _BY_HAND:
            self._ended(tx, before, before.archive_cause or "")
        if self._bus.wants(SessionStart):
            event = SessionStart(
                audience=session.audience,
                session_key=session.key,
                session_id=session.id,
                agent_id=session.agent_id,
            )
            tx.on_commit(lambda: self._bus.tell(event))

    def reset(self, tx: Tx, left: Session) -> None:
        if self._bus.wants(SessionEnd):
            self._ended(tx, left, "left")

    def _ended(self, tx: Tx, session: Session, reason: str) -> None:
        event = SessionEnd(
            audience=session.audience,
            session_key=session.key,
            session_id=session.id,
            agent_id=session.agent_id,
            reason=reason,
        )
        tx.on_commit(lambda: self._bus.tell(event))


class SubagentNews:
    """Tells plugins of subagents that ended."""

    def __init__(self, bus: HookBus) -> None:
        self._bus = bus

    def run_stopping(self, tx: Tx, run: Run) -> None:
        return None

    def run_ended(self, tx: Tx, run: Run) -> None:
        if not self._bus.wants(SubagentEnded):
            return
        asked = sessions.active(tx, run.requester_key)
        event = SubagentEnded(
            audience=FOR_OWNER if asked is None else asked.audience,
            session_key=run.requester_key,
            agent_id=run.requester_agent,
            child_key=run.child_key,
            run_id=run.id,
            outcome="" if run.outcome is None else run.outcome.value,
        )
        tx.on_commit(lambda: self._bus.tell(event))
