"""The plugins of one home: found, checked, registered, started and stopped, each apart from the others.

A plugin that fails at any of that is out with its reason, which `doctor`, `status` and `GET /api/plugins`
tell; it takes nothing else down with it.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from holdfast.config import Config
from holdfast.config.values import reveal_all
from holdfast.context import EngineContext, EngineFactory
from holdfast.context.engine import Registry, engines
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.home import Home
from holdfast.log import OWNER, Reader
from holdfast.log.audience import heard_by, parse_audience
from holdfast.plugins.api import PluginApi, Registrations
from holdfast.plugins.guarded import GuardedEngine
from holdfast.plugins.manifest import SLOTS, Found, Origin, Slot, discover
from holdfast.plugins.running import Part, PluginLoop
from holdfast.text import clip

log = logging.getLogger(__name__)
BUILTIN: Final = "builtin"
_MOST_REASON: Final = 400
_NONE: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})


class Phase(StrEnum):
    """How far a plugin has come."""

    FOUND = "found"
    VALIDATED = "validated"
    REGISTERED = "registered"
    INITIALISED = "initialised"
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass
class Plugin:
    """One plugin. `reason` says why it is out, if it is; `failed` that this was not the owner's wish."""

    found: Found
    phase: Phase = Phase.FOUND
    reason: str = ""
    failed: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    registered: Registrations = field(default_factory=Registrations)
    slots: tuple[Slot, ...] = ()
    parts: list[Part] = field(default_factory=list)
    loop: PluginLoop = field(init=False)
    shutdown: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        self.loop = PluginLoop(self.found.id)

    @property
    def id(self) -> str:
        return self.found.id

    @property
    def is_in(self) -> bool:
        return not self.reason

    @property
    def reader(self) -> Reader:
        """What its hooks may hear of."""
        manifest = self.found.manifest
        return OWNER if manifest is None else heard_by(parse_audience(manifest.audience))

    @property
    def troubles(self) -> list[str]:
        """What failed while it was in use, and what it was refused."""
        said = [
            f"{part.name} {part.last_error} ({part.failures} times)" for part in self.parts if part.failures
        ]
        return [*self.registered.refused, *said]

    @property
    def state(self) -> str:
        """In a word: how far it is, that it failed, that it is off, or that parts of it fail."""
        if not self.is_in:
            return "failed" if self.failed else "off"
        return "failing" if any(part.is_out for part in self.parts) else self.phase.value

    def json(self, engines: Mapping[str, Mapping[str, Any]] = _NONE) -> dict[str, Any]:
        """As it is shown to its owner; its settings are not in it. `engines` is how engines fare, by id."""
        manifest = self.found.manifest
        own = [engines[id_] for id_ in self.registered.engines if id_ in engines]
        return {
            "id": self.id,
            "name": self.id if manifest is None else manifest.title,
            "version": None if manifest is None else manifest.version,
            "description": "" if manifest is None else manifest.description,
            "from": self.found.origin.label,
            "phase": self.phase.value,
            "state": self.state,
            "reason": self.reason or None,
            "capabilities": [] if manifest is None else list(manifest.capabilities),
            "slots": list(self.slots),
            "registered": self.registered.summary(),
            "troubles": [*self.troubles, *(_failing(one) for one in own if one["failures"])],
            "runnable": manifest is not None and not manifest.foreign,
        }

    def put_out(self, reason: str, *, failed: bool = True) -> None:
        self.reason = clip(" ".join(reason.split()), _MOST_REASON)
        self.failed = failed
        if failed:
            log.error("plugin %s is out: %s", self.id, self.reason)


def _failing(engine: Mapping[str, Any]) -> str:
    """What the context room counted, over all processes and since ever."""
    said = f"{engine['failures']} of {engine['calls']} calls of its engine failed"
    waiting = f"{engine['queue']['waiting']} turns wait for it"
    return f"{said}; {waiting}; the last: {engine['lastError']}"


class PluginHost:
    """One for an open home. `load` is done once, by whoever first needs what plugins register."""

    def __init__(
        self,
        home: Home,
        config: Callable[[], Config],
        workspaces: Callable[[], Iterable[Path]] = tuple,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self._home = home
        self._config = config
        self._workspaces = workspaces
        self._env = env
        self._lock = threading.Lock()
        self._loaded = False
        self._plugins: dict[str, Plugin] = {}
        self.hidden: list[Found] = []
        self.engines = Registry(below=engines)

    def find(self) -> list[Plugin]:
        """Those that there are, each as far as it comes without running anything of it."""
        settings = self._config().plugins
        if not settings.enabled:
            return []
        found, self.hidden = discover(
            paths=settings.load.paths, workspaces=self._workspaces(), home=self._home.plugins
        )
        asked_for = self._asked_for()
        made = [Plugin(one) for one in found if one.origin is not Origin.BUNDLED or one.id in asked_for]
        for plugin in made:
            self._validate(plugin)
        _share_out_slots(made, settings.slots.chosen)
        return made

    def load(self) -> list[Plugin]:
        """Import and register those that are in; once for the process."""
        with self._lock:
            if not self._loaded:
                self._plugins = {plugin.id: plugin for plugin in self.find()}
                for plugin in self._plugins.values():
                    if plugin.is_in:
                        self._register(plugin)
                self._loaded = True
            return list(self._plugins.values())

    def loaded(self, id_: str) -> Plugin | None:
        """The plugin of an id, loaded; one that the config asks for only since then is loaded now."""
        self.load()
        with self._lock:
            if id_ not in self._plugins:
                found = next((one for one in self.find() if one.id == id_), None)
                if found is not None:
                    self._plugins[id_] = found
                    if found.is_in:
                        self._register(found)
            return self._plugins.get(id_)

    @property
    def plugins(self) -> list[Plugin]:
        """Those that were loaded; nothing is loaded by looking."""
        return list(self._plugins.values())

    def get(self, id_: str) -> Plugin:
        if id_ not in self._plugins:
            raise NotFound(f"no plugin {id_[:64]!r}", hint="See `holdfast plugins list`.")
        return self._plugins[id_]

    def usable(self, plugin: Plugin) -> bool:
        """Whether it is in, also by what the config says now."""
        return plugin.is_in and self._refusal(plugin.found) is None

    def part(self, plugin: Plugin, name: str) -> Part:
        """A guard for one thing that a plugin registered."""
        made = Part(plugin.id, name, plugin.loop, lambda: self._config().plugins.limits.failures)
        plugin.parts.append(made)
        return made

    def data_dir(self, plugin: Plugin) -> Path:
        """A folder of the plugin's own; what it keeps there outlives it."""
        return self._home.plugins / ".data" / plugin.id

    def holder(self, slot: Slot) -> Plugin | None:
        """The plugin that fills a slot, if one does."""
        return next((one for one in self._plugins.values() if one.is_in and slot in one.slots), None)

    @property
    def skill_folders(self) -> list[Path]:
        return [path for one in self._plugins.values() if self.usable(one) for path in one.registered.skills]

    def initialised(self) -> None:
        """What was registered is in its place."""
        for plugin in self._plugins.values():
            if plugin.is_in and plugin.phase is Phase.REGISTERED:
                plugin.phase = Phase.INITIALISED

    def started(self) -> None:
        for plugin in self._plugins.values():
            if plugin.is_in:
                plugin.phase = Phase.RUNNING

    def stop(self) -> None:
        """Call every `shutdown`, all at once and within one time for all; then end the plugins' loops."""
        until = time.monotonic() + self._config().plugins.limits.start_seconds
        asked = [
            (self.part(plugin, "shutdown"), plugin.loop.begin(plugin.shutdown))
            for plugin in self._plugins.values()
            if plugin.is_in and plugin.shutdown is not None and plugin.phase is not Phase.STOPPED
        ]
        for part, begun in asked:
            with contextlib.suppress(HoldfastError):
                part.wait_here(begun, max(0.0, until - time.monotonic()))
        for plugin in self._plugins.values():
            plugin.phase = Phase.STOPPED if plugin.is_in else plugin.phase
            plugin.loop.close()

    def _asked_for(self) -> set[str]:
        """Those of Holdfast's own that the config names; the others are as if they were not there."""
        config = self._config()
        services = {channel.adapter or name for name, channel in config.channels.items()}
        return services | {config.memory_for(agent.id).backend for agent in config.agent_list}

    def _refusal(self, found: Found) -> str | None:
        return self._config().plugins.refusal(
            found.id,
            from_workspace=found.origin is Origin.WORKSPACE,
            is_own=found.origin is Origin.BUNDLED,
        )

    def _validate(self, plugin: Plugin) -> None:
        refusal = self._refusal(plugin.found)
        manifest = plugin.found.manifest
        if refusal is not None:
            plugin.put_out(refusal, failed=False)
        elif manifest is None:
            plugin.put_out(plugin.found.problem)
        elif (unmet := manifest.unmet(self._env)) is not None:
            plugin.put_out(unmet)
        else:
            entry = self._config().plugins.entries.get(plugin.id)
            try:
                given = {} if entry is None else reveal_all(entry.config, self._env)
                plugin.config = manifest.settings(given)
                parse_audience(manifest.audience)
                plugin.phase = Phase.VALIDATED
            except HoldfastError as error:
                plugin.put_out(error.message)

    def _register(self, plugin: Plugin) -> None:
        manifest = plugin.found.manifest
        assert manifest is not None
        api = PluginApi(manifest, plugin.config, plugin.found.folder, self.data_dir(plugin))
        plugin.registered = api.registered
        api.registered.skills.extend(plugin.found.skill_folders)
        if manifest.module is not None and not manifest.foreign:
            seconds = self._config().plugins.limits.start_seconds
            try:
                plugin.shutdown = self.part(plugin, "register").call_here(
                    _imported_and_registered, plugin.found, api, seconds=seconds
                )
            except HoldfastError as error:
                plugin.put_out(error.message.removeprefix(f"plugin {plugin.id}: "))
                return
            finally:
                api.close()
        empty = [slot for slot in plugin.slots if not api.registered.fills(slot)]
        if empty:
            plugin.put_out(f"it claims the slot {empty[0]}, and registers nothing for it")
            return
        plugin.phase = Phase.REGISTERED
        self._take_engines(plugin)

    def _take_engines(self, plugin: Plugin) -> None:
        """Each is made with the plugin's own settings, within the time that a start may take."""
        for id_, factory in plugin.registered.engines.items():
            part = self.part(plugin, f"engine {id_}")

            def make(context: EngineContext, part: Part = part, factory: EngineFactory = factory) -> Any:
                seconds = self._config().plugins.limits.start_seconds
                return GuardedEngine(factory, part, context, plugin.config, seconds)

            try:
                self.engines.register(id_, make)
            except Conflict as error:
                plugin.registered.refused.append(error.message)


def _share_out_slots(plugins: list[Plugin], chosen: Callable[[str], str | None]) -> None:
    """Each slot to the plugin that the config names, else to the first that claims it; others are out.

    Any number of plugins may bring engines: which one builds contexts is the config's to say."""
    for slot in SLOTS:
        claims = [one for one in plugins if one.is_in and slot in _claimed(one)]
        if slot == "contextEngine":
            for plugin in claims:
                plugin.slots = (*plugin.slots, slot)
            continue
        named = chosen(slot)
        holder = next((one for one in claims if named is None or one.id == named), None)
        for plugin in claims:
            if plugin is holder:
                plugin.slots = (*plugin.slots, slot)
            else:
                held = named if holder is None else holder.id
                plugin.put_out(f"the slot {slot} is held by {held}", failed=False)


def _claimed(plugin: Plugin) -> tuple[Slot, ...]:
    return () if plugin.found.manifest is None else plugin.found.manifest.slots


def _imported_and_registered(found: Found, api: PluginApi) -> Callable[[], Any] | None:
    """Run the plugin's own code for the first time; gives its `shutdown`, if it has one."""
    manifest = found.manifest
    assert manifest is not None
    assert manifest.module is not None
    _put_on_path(found.root)
    module = importlib.import_module(manifest.module)
    _require_own(module, found)
    register = getattr(module, found.attribute, None)
    if not callable(register):
        raise NotFound(f"its module {manifest.module} has no {found.attribute}(api)", code="no_register")
    register(api)
    shutdown = getattr(module, "shutdown", None)
    return shutdown if callable(shutdown) else None


def _require_own(module: Any, found: Found) -> None:
    """A module of the same name that was loaded from elsewhere is not this plugin's."""
    place = getattr(module, "__file__", None)
    root = found.root
    if root is not None and (place is None or not Path(place).resolve().is_relative_to(root.resolve())):
        raise Conflict(
            f"its module is called as another that is loaded already, from {place}", code="module_taken"
        )


def _put_on_path(root: Path | None) -> None:
    """Behind everything else on the path, for good: a plugin imports parts of itself later too."""
    if root is not None and str(root) not in sys.path:
        sys.path.append(str(root))
        importlib.invalidate_caches()
