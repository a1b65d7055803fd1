"""What a plugin's `register(api)` is given: its settings, its folder, a way to register each kind of part.

A registration is looked at before it counts: one that the manifest does not declare, or whose shape is wrong,
is refused with the reason. Nothing can be registered once `register` has returned.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel

from holdfast.agents.plugin_hooks import EVENTS, HookEvent
from holdfast.agents.tools.types import Tool, always, never
from holdfast.context import EngineFactory
from holdfast.effects import Effect
from holdfast.errors import Forbidden
from holdfast.plugins.manifest import Capability, Manifest, Slot

if TYPE_CHECKING:
    import click

    from holdfast.log import Reader

MOST_REGISTERED: Final = 200
BROWSER: Final = "browser"
_TOOL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_COMMAND: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Refused(Forbidden):
    """A registration that was not declared, or has the wrong shape."""

    code = "registration_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRequest:
    """A call of a plugin's route. Who calls was let in by a token; `reader` is what they may read."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    reader: Reader
    caller: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginResponse:
    """An answer: JSON, or text of a kind that no browser runs."""

    body: Any = None
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """A slash command as it was typed: what stood behind its name, where, and by whom."""

    args: str
    session_key: str
    agent_id: str
    owner: bool


@runtime_checkable
class Service(Protocol):
    """Something that runs for as long as the gateway; begun again, after a growing pause, when it ends."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None: ...


Handler: TypeAlias = Callable[[Any], Any]
Factory: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: Handler
    for_limited: bool


@dataclass(frozen=True, slots=True)
class SlashHandler:
    name: str
    handler: Handler
    help: str
    owner_only: bool


@dataclass(frozen=True, slots=True)
class HookHandler:
    event: type[HookEvent]
    handler: Handler
    priority: int


@dataclass
class Registrations:
    """All that one plugin registered, and what was refused."""

    engines: dict[str, EngineFactory] = field(default_factory=dict)
    tools: list[Tool[Any]] = field(default_factory=list)
    memory: Factory | None = None
    sandbox: Factory | None = None
    channels: dict[str, Factory] = field(default_factory=dict)
    providers: dict[str, Factory] = field(default_factory=dict)
    embedders: dict[str, Factory] = field(default_factory=dict)
    commands: list[SlashHandler] = field(default_factory=list)
    cli: dict[str, click.Command] = field(default_factory=dict)
    routes: list[Route] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    skills: list[Path] = field(default_factory=list)
    hooks: list[HookHandler] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, list[str]]:
        """Names by kind, of those that there are."""
        named: dict[str, list[str]] = {
            "contextEngine": list(self.engines),
            "tools": [tool.name for tool in self.tools],
            "memory": ["memory"] if self.memory is not None else [],
            "sandbox": ["sandbox"] if self.sandbox is not None else [],
            "channels": list(self.channels),
            "providers": list(self.providers),
            "embedders": list(self.embedders),
            "commands": [f"/{command.name}" for command in self.commands],
            "cli": list(self.cli),
            "http": [f"{route.method} {route.path}" for route in self.routes],
            "services": [service.name for service in self.services],
            "skills": [str(folder) for folder in self.skills],
            "hooks": [hook.event.hook for hook in self.hooks],
        }
        return {kind: names for kind, names in named.items() if names}

    def fills(self, slot: Slot) -> bool:
        """Whether there is something in it for a slot that its plugin claims."""
        has_browser = any(tool.name == BROWSER for tool in self.tools)
        return has_browser if slot == "browser" else slot in self.summary()


class PluginApi:
    """What a plugin registers by. `id`, `config`, `log`, `data_dir` stay; the rest ends with `register`."""

    def __init__(self, manifest: Manifest, config: Mapping[str, Any], folder: Path, data: Path) -> None:
        self.id = manifest.id
        self.config = config
        self.log = logging.getLogger(f"holdfast.plugin.{manifest.id}")
        self._manifest = manifest
        self._folder = folder
        self._data = data
        self._open = True
        self.registered = Registrations()

    @property
    def data_dir(self) -> Path:
        """A folder of the plugin's own in the home, made when it is first asked for."""
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._data

    def close(self) -> None:
        """Registering is over."""
        self._open = False

    def register_context_engine(self, id_: str, factory: EngineFactory) -> None:
        """`factory(EngineContext)` makes the engine; `plugins.slots.contextEngine` chooses it by this id."""
        self._require("contextEngine", f"context engine {id_!r}")
        self._add(self.registered.engines, self._name(id_, "an engine"), self._callable(factory))

    def register_tool(self, tool: Tool[Any]) -> None:
        """A tool for agents, within what policy allows. It says what it does (`effect`, `repeatable`)."""
        self._require("tools", f"tool {getattr(tool, 'name', '')!r}")
        why = _no_tool(tool)
        if why is not None:
            raise self._refusal(f"tool {getattr(tool, 'name', '')!s:.80}: {why}")
        if tool.name == BROWSER and "browser" not in self._manifest.slots:
            raise self._refusal(f"tool {BROWSER}: only who claims the slot {BROWSER!r} registers it")
        if any(tool.name == other.name for other in self.registered.tools):
            raise self._refusal(f"tool {tool.name}: it is registered already")
        self._append(self.registered.tools, tool)

    def register_memory(self, factory: Factory) -> None:
        """`factory(MemoryContext)` makes what answers searches where this plugin holds the memory slot."""
        self._require("memory", "a memory backend")
        if self.registered.memory is not None:
            raise self._refusal("a second memory backend")
        self.registered.memory = self._callable(factory)

    def register_sandbox(self, factory: Factory) -> None:
        """`factory(config)` makes a `holdfast.agents.sandbox.Backend`, which starts the commands of sandboxed
        sessions where this plugin holds the sandbox slot."""
        self._require("sandbox", "a sandbox")
        if self.registered.sandbox is not None:
            raise self._refusal("a second sandbox")
        self.registered.sandbox = self._callable(factory)

    def register_channel(self, name: str, factory: Factory) -> None:
        """`factory(ChannelContext)` makes the adapter of each channel whose `adapter` is this name."""
        self._require("channels", f"channel {name!r}")
        self._add(self.registered.channels, self._name(name, "a channel"), self._callable(factory))

    def register_provider(self, name: str, factory: Factory) -> None:
        """`factory(model_name)` makes a model, which is then asked for as `name/model_name`."""
        self._require("providers", f"provider {name!r}")
        self._add(self.registered.providers, self._name(name, "a provider"), self._callable(factory))

    def register_embedder(self, name: str, factory: Factory) -> None:
        """`factory(config)` makes an embedder, named in `memory.search.embedding.providers`."""
        self._require("embedders", f"embedder {name!r}")
        self._add(self.registered.embedders, self._name(name, "an embedder"), self._callable(factory))

    def register_command(
        self,
        name: str,
        handler: Handler,
        *,
        help: str = "",  # noqa: A002 - as click and argparse call it
        owner_only: bool = True,
    ) -> None:
        """`/name` in a chat: `handler(CommandCall)` gives the answer's text."""
        self._require("commands", f"command {name!r}")
        if not isinstance(name, str) or _COMMAND.fullmatch(name) is None:
            raise self._refusal(f"command {name!r:.80}: expected lower-case letters, digits, - and _")
        if not isinstance(help, str) or not isinstance(owner_only, bool):
            raise self._refusal(f"command {name}: expected help to be text and owner_only a bool")
        made = SlashHandler(name, self._callable(handler), help[:200], owner_only)
        self._append(self.registered.commands, made)

    def register_cli(self, group: click.Command) -> None:
        """A command or group of click's, called as `holdfast <its name>`."""
        import click

        self._require("cli", f"command {getattr(group, 'name', '')!r}")
        if not isinstance(group, click.Command) or not group.name:
            raise self._refusal(f"a command: expected one of click's with a name, found {group!r:.80}")
        self._add(self.registered.cli, self._name(group.name, "a command"), group)

    def register_http_route(
        self, method: str, path: str, handler: Handler, *, for_limited: bool = False
    ) -> None:
        """`/plugins/<id><path>`: `handler(PluginRequest)` gives a `PluginResponse`, or JSON.

        With `for_limited` also for tokens that are limited to spaces or agents: the handler then keeps to
        `request.reader`.
        """
        self._require("http", f"route {method} {path}")
        if not isinstance(method, str) or method.upper() not in METHODS:
            raise self._refusal(f"route {method!r:.20}: expected one of {', '.join(METHODS)}")
        if not isinstance(path, str) or len(path) > 200 or _PATH.fullmatch(path) is None:
            raise self._refusal(f"route {path!r:.80}: expected a path such as /state")
        if not isinstance(for_limited, bool):
            raise self._refusal(f"route {path}: expected for_limited to be a bool")
        made = Route(method.upper(), "/" + path.strip("/"), self._callable(handler), for_limited)
        if any((made.method, made.path) == (one.method, one.path) for one in self.registered.routes):
            raise self._refusal(f"route {made.method} {made.path}: it is registered already")
        self._append(self.registered.routes, made)

    def register_service(self, service: Service) -> None:
        """Something with a `name` and `async def run()`, which runs for as long as the gateway does."""
        self._require("services", "a service")
        name, run = getattr(service, "name", None), getattr(service, "run", None)
        if not isinstance(name, str) or _NAME.fullmatch(name) is None or not inspect.iscoroutinefunction(run):
            raise self._refusal("a service: expected `name` and `async def run()`")
        if any(name == other.name for other in self.registered.services):
            raise self._refusal(f"service {name}: it is registered already")
        self._append(self.registered.services, service)

    def register_skills(self, folder: str | Path) -> None:
        """A folder of skills within the plugin's own."""
        self._require("skills", "skills")
        if not isinstance(folder, str | Path):
            raise self._refusal(f"skills: expected a folder, found {type(folder).__name__}")
        place = self._folder / folder
        if len(str(folder)) > 1_000 or not place.is_dir() or not _is_within(place, self._folder):
            raise self._refusal(f"skills: {folder!s:.200} is no folder of the plugin's own")
        self._append(self.registered.skills, place.resolve())

    def on(self, hook: str, handler: Handler, priority: int = 0) -> None:
        """Have `handler(event)` called; of several, those of higher priority first."""
        self._require("hooks", f"hook {hook!r}")
        event = EVENTS.get(hook) if isinstance(hook, str) else None
        if event is None:
            raise self._refusal(f"hook {hook!r:.80}: there is none; there are {', '.join(EVENTS)}")
        if not isinstance(priority, int):
            raise self._refusal(f"hook {hook}: expected priority to be a number")
        self._append(self.registered.hooks, HookHandler(event, self._callable(handler), priority))

    def _require(self, capability: Capability, what: str) -> None:
        if not self._open:
            raise self._refusal(f"{what}: registering is over")
        if capability not in self._manifest.capabilities:
            raise self._refusal(f"{what}: the manifest does not declare {capability!r}")

    def _refusal(self, why: str) -> Refused:
        self.registered.refused.append(why[:300])
        return Refused(f"plugin {self.id}: {why}"[:400], hint="See docs/plugins.md.")

    def _name(self, name: Any, what: str) -> str:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise self._refusal(f"{what} {name!r:.80}: expected lower-case letters, digits, - and _")
        return name

    def _callable(self, given: Any) -> Any:
        if not callable(given):
            raise self._refusal(f"expected something that can be called, found {type(given).__name__}")
        return given

    def _add(self, kept: dict[str, Any], name: str, made: Any) -> None:
        if name in kept:
            raise self._refusal(f"{name}: it is registered already")
        if len(kept) >= MOST_REGISTERED:
            raise self._refusal(f"more than {MOST_REGISTERED} of a kind")
        kept[name] = made

    def _append(self, kept: list[Any], made: Any) -> None:
        if len(kept) >= MOST_REGISTERED:
            raise self._refusal(f"more than {MOST_REGISTERED} of a kind")
        kept.append(made)


def _is_within(place: Path, folder: Path) -> bool:
    return place.resolve().is_relative_to(folder.resolve())


def _no_tool(tool: Any) -> str | None:
    """What is wrong with what was given as a tool. It cannot decide by code of its own where it is offered:
    that is asked in the gateway's own loop."""
    if not isinstance(tool, Tool):
        return f"expected a Tool, found {type(tool).__name__}"
    given: Any = tool
    return _misshapen(given)


def _misshapen(tool: Any) -> str | None:
    if not isinstance(tool.name, str) or _TOOL.fullmatch(tool.name) is None:
        return "expected a name of letters, digits and _"
    if not isinstance(tool.effect, Effect) or not isinstance(tool.repeatable, bool):
        return "it does not say what it does: give effect and repeatable"
    if not (isinstance(tool.input, type) and issubclass(tool.input, BaseModel)):
        return "expected input to be a pydantic model"
    if tool.offered is not always or tool.for_others not in (always, never):
        return "expected offered to be left out, and for_others to be `always` or `never`"
    return None if callable(tool.run) else "expected run to be a function"
