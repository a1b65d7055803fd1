"""The whole config, what must hold between its sections, and what may be shown of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final, LiteralString, Self

from pydantic import ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from holdfast.config.agents import AgentEntry, AgentsConfig, AgentSettings
from holdfast.config.board import BoardConfig
from holdfast.config.channels import FOR_WEB, WEB, ChannelConfig
from holdfast.config.extensions import INTERNAL_HOOKS, HooksConfig, PluginsConfig, SkillsConfig
from holdfast.config.memory import MemoryConfig
from holdfast.config.models import AuthConfig, ModelsConfig
from holdfast.config.runtime import (
    AgendaConfig,
    ConfigSource,
    CronConfig,
    GatewayConfig,
    LoggingConfig,
    MessagesConfig,
    RetentionConfig,
    StoreConfig,
    TeamsConfig,
)
from holdfast.config.section import Section, deep_merge, key, overlay, part, table
from holdfast.config.session import Binding, SessionConfig
from holdfast.config.tools import McpConfig, RootTools
from holdfast.config.values import without_password
from holdfast.errors import NotFound
from holdfast.keys import NOT_CHANNELS

DEFAULT_AGENT = "main"
SHORTCUTS = ("compaction", "contextPruning", "heartbeat", "continuation", "subagents")

# The type of an error for a setting that is known and does nothing.
NO_EFFECT: Final = "no_effect"
Fault = tuple[tuple[str | int, ...], str]


class Config(Section):
    """Everything that can be set. Frozen: a reload makes a new one."""

    agents: AgentsConfig = part("The agents.")
    bindings: tuple[Binding, ...] = key((), "Which agent a message goes to; most specific wins.")
    session: SessionConfig = part("Sessions.")
    messages: MessagesConfig = part("Messages.")
    memory: MemoryConfig = part("Memory.")
    board: BoardConfig = part("The board.")
    skills: SkillsConfig = part("Skills.")
    plugins: PluginsConfig = part("Plugins.")
    hooks: HooksConfig = part("Hooks.")
    tools: RootTools = part("Tools.")
    mcp: McpConfig = part("Servers of others, whose tools agents may use.")
    models: ModelsConfig = part("Models.")
    auth: AuthConfig = part("Credentials for providers.")
    channels: dict[str, ChannelConfig] = table({}, "Channels by name.")
    config: ConfigSource = part("Where the config lies.")
    gateway: GatewayConfig = part("The gateway.")
    store: StoreConfig = part("Where the log is kept.")
    agenda: AgendaConfig = part("What is due.")
    retention: RetentionConfig = part("How long rows are kept.")
    logging: LoggingConfig = part("The program's own log.")
    cron: CronConfig = part("Scheduled turns.")
    teams: TeamsConfig = part("Teams.")

    @model_validator(mode="before")
    @classmethod
    def _shortcuts(cls, data: Any) -> Any:
        """Top-level `compaction` and its like seed `agents.defaults`, where a given key wins."""
        return expand_shortcuts(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        faults = [
            *_agent_faults(self),
            *_overlay_faults(self),
            *_binding_faults(self),
            *_channel_faults(self),
        ]
        details = [_detail("config", *fault) for fault in faults]
        details += [_detail(NO_EFFECT, *fault) for fault in _settings_without_effect(self)]
        if details:
            raise ValidationError.from_exception_data("Config", details)
        return self

    @property
    def agent_list(self) -> tuple[AgentEntry, ...]:
        """The agents as written; one called `main` when none is."""
        return self.agents.list or _MAIN_ALONE

    @property
    def default_agent_id(self) -> str:
        """The agent marked default, else the first."""
        agents = self.agent_list
        return next((agent.id for agent in agents if agent.default), agents[0].id)

    @cached_property
    def _whole(self) -> dict[str, tuple[AgentsConfig, AgentEntry]]:
        """Agents' settings as they were put together, with what from: a copy of a config takes them along."""
        return {}

    def is_private(self, channel: str, id_: str) -> bool:
        """Whether the owner declared a group or channel to be read by nobody else."""
        known = self.channels.get(channel)
        return known is not None and known.is_private(id_)

    def agent(self, agent_id: str) -> AgentEntry:
        """One agent's settings in full: its own over `agents.defaults`; put together once and shared."""
        kept = self._whole.get(agent_id)
        if kept is None or kept[0] is not self.agents:
            kept = self._whole[agent_id] = (self.agents, self._put_together(agent_id))
        return kept[1]

    def _put_together(self, agent_id: str) -> AgentEntry:
        for entry in self.agent_list:
            if entry.id == agent_id:
                own = {name: getattr(entry, name) for name in _OWN_KEYS}
                base = AgentEntry.model_construct(**dict(self.agents.defaults), **own)
                return overlay(base, entry)
        raise NotFound(f"no agent {agent_id!r}", hint="See `holdfast agents list`.")

    def agent_dir(self, agent_id: str, usual: Path) -> Path:
        """Where an agent's state lies: where its settings say, else in the usual place."""
        given = next((agent.agent_dir for agent in self.agent_list if agent.id == agent_id), None)
        return Path(given).expanduser() if given else usual

    def memory_for(self, agent_id: str) -> MemoryConfig:
        """Memory settings of one agent: its own over `memory`."""
        own = self.agent(agent_id).memory
        return overlay(self.memory, own) if own else self.memory


_MAIN_ALONE = (AgentEntry(id=DEFAULT_AGENT, default=True),)
_NOT_SENDERS = frozenset(("owner", "token", "user"))
_OWN_KEYS = ("id", "default", "name", "agent_dir", "identity", "tools", "memory")


def expand_shortcuts(data: dict[str, Any]) -> dict[str, Any]:
    """The same data with each shortcut moved to its place under `agents.defaults`."""
    moved = {name: data[name] for name in SHORTCUTS if name in data}
    agents = data.get("agents", {})
    if not moved or not isinstance(agents, dict) or not isinstance(agents.get("defaults", {}), dict):
        return data
    rest = {name: value for name, value in data.items() if name not in moved}
    defaults = deep_merge(moved, agents.get("defaults", {}))
    return {**rest, "agents": {**agents, "defaults": defaults}}


def _detail(kind: LiteralString, loc: tuple[str | int, ...], message: str) -> InitErrorDetails:
    error = PydanticCustomError(kind, "{message}", {"message": message})
    return InitErrorDetails(type=error, loc=loc, input=None)


def _agent_faults(config: Config) -> Iterator[Fault]:
    seen: set[str] = set()
    default: str | None = None
    for index, agent in enumerate(config.agents.list):
        if agent.id in seen:
            yield ("agents", "list", index, "id"), f"agent {agent.id!r} is listed twice"
        seen.add(agent.id)
        if agent.default and default is not None:
            at = ("agents", "list", index, "default")
            yield at, f"agent {default!r} is the default already"
        elif agent.default:
            default = agent.id


def _overlay_faults(config: Config) -> Iterator[Fault]:
    """Each agent's own settings must also hold together with the defaults that they lie over."""
    shared = set(AgentSettings.model_fields)
    for index, entry in enumerate(config.agents.list):
        resolved = config.agent(entry.id).model_dump(by_alias=True, include=shared)
        try:
            AgentSettings.model_validate(resolved)
        except ValidationError as error:
            for item in error.errors(include_url=False, include_input=False):
                at = ("agents", "list", index, *item["loc"])
                yield at, f"{item['msg'].removeprefix('Value error, ')}, with agents.defaults"


def _binding_faults(config: Config) -> Iterator[Fault]:
    known = {agent.id for agent in config.agent_list}
    for index, binding in enumerate(config.bindings):
        if binding.agent_id not in known:
            names = ", ".join(sorted(known))
            at = ("bindings", index, "agentId")
            yield at, f"expected one of the agents ({names}), found {binding.agent_id!r}"


def _channel_faults(config: Config) -> Iterator[Fault]:
    """A channel's name stands in session keys and before who writes, where these words mean something else:
    whoever wrote on a channel `user` would be taken for the login of that name."""
    for name in sorted((NOT_CHANNELS | _NOT_SENDERS) & config.channels.keys()):
        yield ("channels", name), f"a channel cannot be called {name!r}: expected another name"
    web = config.channels.get(WEB)
    for field in () if web is None else sorted(web.model_fields_set - FOR_WEB):
        yield ("channels", WEB, to_camel(field)), "the pages' own chat has no such setting"


def _settings_without_effect(config: Config) -> Iterator[Fault]:
    """Keys that are known, and that nothing obeys as the rest of the config stands."""
    for name, channel in config.channels.items():
        if name == WEB:
            continue
        alone = "expected url, the address that it posts to, or adapter, the name that a plugin gave"
        for field in channel.unconnected:
            yield ("channels", name, to_camel(field)), f"does nothing here: nothing connects it; {alone}"
        if channel.url is None and not channel.model_fields_set - {"enabled"}:
            yield ("channels", name), f"does nothing here: nothing connects it; {alone}"
    for name in config.hooks.internal.entries.keys() - set(INTERNAL_HOOKS):
        known = ", ".join(INTERNAL_HOOKS)
        yield ("hooks", "internal", "entries", name), f"no hook has this name: expected one of {known}"
    yield from _judging_without_qmd(config)


def _judging_without_qmd(config: Config) -> Iterator[Fault]:
    places: list[tuple[tuple[str | int, ...], MemoryConfig]] = [((), config.memory)]
    places += [
        (("agents", "list", index), config.memory_for(agent.id))
        for index, agent in enumerate(config.agents.list)
        if agent.memory is not None and "search" in agent.memory.model_fields_set
    ]
    for at, memory in places:
        if memory.search.rerank.enabled and memory.backend != "qmd":
            said = "does nothing with memory.backend builtin: expected backend qmd, or false"
            yield (*at, "memory", "search", "rerank", "enabled"), said


def public_dump(config: Config) -> dict[str, Any]:
    """The config as it may be shown to anyone: camelCase, every secret masked."""
    dumped: dict[str, Any] = _without_passwords(config.model_dump(by_alias=True, mode="json"))
    return dumped


def _without_passwords(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_passwords(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_passwords(item) for item in value]
    return without_password(value) if isinstance(value, str) else value


def config_schema() -> dict[str, Any]:
    """JSON Schema of what `load_config` takes, the top-level shortcuts included."""
    schema = Config.model_json_schema(by_alias=True)
    defaults = schema["$defs"]["AgentDefaults"]["properties"]
    for name in SHORTCUTS:
        schema["properties"][name] = defaults[name] | {
            "description": f"Shortcut for `agents.defaults.{name}`."
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
