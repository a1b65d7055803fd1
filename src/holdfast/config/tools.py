"""Tools: which an agent may use, and how commands are approved."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from holdfast.config.section import Section, key, part, table
from holdfast.config.values import Bytes, Count, Flag, Ms, Names, Positive, Seconds, Secret

ToolProfile = Literal["minimal", "coding", "messaging", "full"]
SAFE_BINS = ("cat", "cut", "grep", "head", "jq", "ls", "pwd", "sort", "tail", "tr", "uniq", "wc")


class ToolPolicy(Section):
    """Lists of tools and `group:` names; `deny` always wins."""

    profile: ToolProfile | None = key(None, "Base set of tools; unset: the layer below decides.")
    allow: Names = key((), "Only these; merged with `alsoAllow` when both are given.")
    also_allow: Names = key((), "These besides the profile's.")
    deny: Names = key((), "Never these.")

    @model_validator(mode="before")
    @classmethod
    def _merge_allows(cls, data: Any) -> Any:
        """Both lists in one scope become one `allow`, in order and without repeats."""
        if not isinstance(data, dict):
            return data
        also = data.get("alsoAllow", data.get("also_allow"))
        allow = data.get("allow")
        if not (allow and also and isinstance(allow, list | tuple) and isinstance(also, list | tuple)):
            return data
        rest = {name: v for name, v in data.items() if name not in ("alsoAllow", "also_allow")}
        return {**rest, "allow": [*allow, *(item for item in also if item not in allow)]}


class Elevated(Section):
    """Commands outside the sandbox, for senders who are named."""

    enabled: Flag = key(True, "Whether elevated commands exist at all.")
    allow_from: dict[str, Names] = table({}, "Senders by channel who may ask for them.")


class Exec(Section):
    """Running commands."""

    security: Literal["deny", "allowlist", "full"] = key(
        "allowlist", "`deny` none, `allowlist` those approved before, `full` all."
    )
    ask: Literal["off", "on-miss", "always"] = key(
        "on-miss", "When a person is asked: never, for what is not on the list, or always."
    )
    ask_timeout_seconds: Seconds = key(600, "How long an approval is waited for.", ge=1)
    safe_bins: Names = key(SAFE_BINS, "Read-only programs that need no approval.")
    allowlist: Names = key((), "Command patterns (globs) that need no approval.")
    allow_changed_files: Flag = key(
        False, "Whether patterns also cover commands that run files of the workspace which nobody was shown."
    )
    timeout_seconds: Seconds = key(1800, "Limit for one command.", ge=1)
    background_ms: Ms = key(10000, "A command that runs longer goes on in the background.")
    max_output_chars: Positive = key(200000, "Output kept of one command.")
    env: dict[str, Secret] = table({}, "Environment added to commands.")


class FileTools(Section):
    """Reading and writing files."""

    workspace_only: Flag = key(True, "Whether files outside the workspace are out of reach.")
    max_read_bytes: Bytes = key(1024**2, "Limit for one read.")


class WebSearch(Section):
    """Searching the web."""

    enabled: Flag = key(False, "Whether the tool is offered.")
    provider: str | None = key(None, "Search service.")
    api_key: Secret | None = key(None, "Key; `${NAME}` is taken from the environment.")
    max_results: Positive = key(5, "Results per search.", le=50)
    timeout_seconds: Seconds = key(30, "Limit for one search.", ge=1)


class WebFetch(Section):
    """Fetching pages."""

    enabled: Flag = key(True, "Whether the tool is offered.")
    max_chars: Positive = key(50000, "Characters kept of a page.")
    max_bytes: Bytes = key(2 * 1024**2, "Bytes read of a page.")
    max_redirects: Count = key(3, "Redirects followed.", le=20)
    timeout_seconds: Seconds = key(30, "Limit for one page.", ge=1)
    allow_private_network: Flag = key(False, "Whether addresses of the local network may be fetched.")


class Web(Section):
    """The web."""

    search: WebSearch = part("Searching.")
    fetch: WebFetch = part("Fetching.")


class LayerTools(Section):
    """A further restriction by lists."""

    allow: Names = key((), "Only these; empty: no restriction.")
    deny: Names = key((), "Never these.")


class ToolLayer(Section):
    """A further restriction for some sessions."""

    tools: LayerTools = part("The lists.")


class AgentToAgent(Section):
    """Messages from one agent to another."""

    enabled: Flag = key(False, "Whether agents may write to each other's sessions.")
    allow: Names = key((), 'Agents that may; "*" for any.')


class LoopDetection(Section):
    """Stopping an agent that repeats the same call."""

    enabled: Flag = key(True, "Whether repeats are watched.")
    warn_after: Positive = key(5, "Same call and result so often: the agent is told.", le=1000)
    stop_after: Positive = key(10, "So often: the call is refused.", le=1000)


class ToolsConfig(ToolPolicy):
    """Tools."""

    by_provider: dict[str, ToolPolicy] = table({}, "Further policy by model provider or `provider/model`.")
    owner_only: Names = key(("whatsapp_login",), "Tools for the owner alone.")
    elevated: Elevated = part("Commands outside the sandbox.")
    exec: Exec = part("Running commands.")
    fs: FileTools = part("Reading and writing files.")
    web: Web = part("The web.")
    sandbox: ToolLayer = part("Further restriction in a sandbox.")
    subagents: ToolLayer = part("Further restriction for subagents.")
    agent_to_agent: AgentToAgent = part("Messages between agents.")
    loop_detection: LoopDetection = part("Stopping repeats.")
    catalogue: Literal["auto", "all", "core"] = key(
        "auto",
        "Which tools a model is told of: `all`, `core` (it finds the others with `tool_search`), or as its "
        "window allows.",
    )
    result_max_chars: Positive | None = key(
        None, "Characters kept of one result; unset: at most 16k, 32k or 64k by the model's window."
    )


class McpServer(Section):
    """A server of somebody else's whose tools agents may use: a program that is started, or an address."""

    enabled: Flag = key(True, "Whether it is connected.")
    command: str | None = key(None, "Program to start; it speaks on stdin and stdout.", min_length=1)
    args: tuple[str, ...] = key((), "Its arguments.")
    env: dict[str, Secret] = table({}, "Environment that it is given, besides the least that programs need.")
    url: str | None = key(
        None, "Address of a server that runs, if it is not started here.", pattern="^https?://"
    )
    headers: dict[str, Secret] = table({}, "Headers sent to it, such as Authorization.")
    auth: Literal["oauth"] | None = key(None, "`oauth`: log in with `holdfast mcp login NAME`.")
    tools: Names = key(("*",), "Which of its tools are taken, as globs.")
    unasked: Names = key((), "Which of its tools run without asking a person, as globs.")
    trusted: Flag = key(
        False, "Whether its own word is taken for which tools only read; those run without asking."
    )
    connect_seconds: Seconds = key(30, "Time for it to start and answer.", ge=1, le=3600)
    timeout_seconds: Seconds = key(60, "Limit for one call.", ge=1, le=86_400)
    max_chars: Positive = key(20_000, "Characters kept of one answer.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("expected either command or url")
        return self


class McpConfig(Section):
    """Servers of others, over the Model Context Protocol."""

    servers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,31}$")], McpServer] = table(
        {}, "Servers by name; their tools are called `mcp_<name>_<tool>`."
    )


class RootTools(ToolsConfig):
    """Tools, for all agents."""

    profile: ToolProfile | None = key("full", "Base set of tools.")
