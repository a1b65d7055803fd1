"""Agents: settings for all of them, and each one's own."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from holdfast.config.autonomy import Continuation, Heartbeat, Subagents
from holdfast.config.context import Compaction, ContextPruning
from holdfast.config.memory import MemoryConfig
from holdfast.config.secret import Secret
from holdfast.config.section import Section, key, part, table
from holdfast.config.tools import ToolsConfig
from holdfast.config.values import Count, Flag, Id, Names, Num, Positive, Seconds, Zone

Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh"]


class ModelChoice(Section):
    """A model and what to try when it fails; a plain string is the primary."""

    primary: str | None = key(
        None, "`provider/model`; unset: the first that is found, else the built-in recall model."
    )
    fallbacks: Names = key((), "Tried in order when the primary fails.")

    @model_validator(mode="before")
    @classmethod
    def _string_is_primary(cls, data: Any) -> Any:
        return {"primary": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        full = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [{"type": "string"}, full]}


class Identity(Section):
    """How the agent presents itself, before what its IDENTITY.md says."""

    name: str | None = key(None, "Display name.")
    emoji: str | None = key(None, "An emoji.")
    creature: str | None = key(None, "What it is.")
    vibe: str | None = key(None, "How it comes across.")
    theme: str | None = key(None, "Colour theme.")
    avatar: str | None = key(None, "Picture, as a path or an address.")


class DockerSandbox(Section):
    """The container of a sandboxed tool, where Docker is the backend."""

    image: str = key("debian:stable-slim", "Image to run.", min_length=1)
    network: str = key("none", "Docker network.", min_length=1)
    memory: str | None = key(None, "Memory limit in Docker's form.")
    cpus: Num | None = key(None, "Processor limit.", gt=0)
    env: dict[str, Secret] = table({}, "Environment of the container.")


class Sandbox(Section):
    """Where tools run."""

    mode: Literal["off", "non-main", "all"] = key("off", "Which sessions are sandboxed.")
    scope: Literal["session", "agent", "shared"] = key("agent", "What shares one sandbox.")
    workspace_access: Literal["none", "ro", "rw"] = key("none", "Access to the workspace.")
    backend: Literal["auto", "bubblewrap", "docker"] = key("auto", "What makes the sandbox.")
    network: Flag = key(False, "Whether a bubblewrap sandbox reaches the network.")
    docker: DockerSandbox = part("The container.")


class AgentSettings(Section):
    """What can be set for all agents and for each."""

    model: ModelChoice = part("Model and fallbacks; a string is the model.")
    workspace: str | None = key(
        None, "Workspace folder; unset: `workspace`, or `workspace-<id>` for a further agent."
    )
    thinking_default: Thinking | None = key(None, "Thinking level; unset: the model's own.")
    context_tokens: Positive | None = key(None, "Cap on the context window; unset: the model's.")
    timeout_seconds: Seconds = key(172800, "Limit for one turn.", ge=1)
    max_tool_rounds: Positive = key(100, "Rounds of tool calls in one turn.", le=10000)
    bootstrap_max_chars: Count = key(
        12000,
        "Characters per workspace file (12 KB, read as 12,000); the rest is cut with a marker.",
    )
    bootstrap_total_max_chars: Count = key(60000, "Characters of all workspace files together.")
    skip_bootstrap: Flag = key(False, "Do not write template files into a new workspace.")
    user_timezone: Zone = key("local", "The user's zone: `local` or an IANA name.")
    skills: Names | None = key(None, "Only these skills; unset: all that are eligible.")
    sandbox: Sandbox = part("Where tools run.")
    subagents: Subagents = part("Sessions that this agent spawns.")
    compaction: Compaction = part("Summarising older history.")
    context_pruning: ContextPruning = part("Trimming old tool results.")
    heartbeat: Heartbeat = part("A periodic turn.")
    continuation: Continuation = part("Turns that the agent elects.")

    @field_validator("user_timezone")
    @classmethod
    def _zone_is_real(cls, value: str) -> str:
        if value == "user":
            raise ValueError('expected "local" or a zone such as "Europe/Rome"')
        return value

    @model_validator(mode="before")
    @classmethod
    def _subagent_is_subagents(cls, data: Any) -> Any:
        if isinstance(data, dict) and "subagent" in data and "subagents" not in data:
            return {("subagents" if name == "subagent" else name): v for name, v in data.items()}
        return data


class AgentDefaults(AgentSettings):
    """Settings of every agent that does not have its own."""

    max_concurrent: Positive = key(
        4, "Turns that run at once over all sessions; those that wait do not count.", le=1000
    )


class AgentEntry(AgentSettings):
    """One agent; whatever it leaves out comes from `agents.defaults`."""

    id: Id = key(..., "Its id, in session keys and folders.")
    default: Flag = key(False, "Whether it answers what no binding claims.")
    name: str | None = key(None, "Display name.")
    agent_dir: str | None = key(None, "State folder; unset: `agents/<id>/agent`.")
    identity: Identity = part("How it presents itself.")
    tools: ToolsConfig | None = key(None, "Its own layer of tool policy, over `tools`.")
    memory: MemoryConfig | None = key(None, "Its own memory settings, over `memory`.")


class AgentsConfig(Section):
    """The agents."""

    defaults: AgentDefaults = part("Settings of every agent.")
    list: tuple[AgentEntry, ...] = key((), "The agents; empty: one, `main`.")
