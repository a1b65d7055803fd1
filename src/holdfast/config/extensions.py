"""What can be added: skills, plugins and hooks."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal, Self

from pydantic import field_validator, model_validator

from holdfast.config.section import Section, key, part, table
from holdfast.config.values import Bytes, Count, Flag, FreeMap, Id, Ms, Names, Positive, Seconds, Secret

BOOTSTRAP_NAMES = (
    "AGENTS.md",
    "SOUL.md",
    "IDENTITY.md",
    "USER.md",
    "TOOLS.md",
    "HEARTBEAT.md",
    "BOOTSTRAP.md",
    "BOOT.md",
    "MEMORY.md",
)
EXTRA_FILES_HOOK = "bootstrap-extra-files"
TAKEN_PATHS = ("api", "v1", "ws", "mcp", "metrics", "healthz", "assets", "plugins")
INTERNAL_HOOKS = ("boot-md", EXTRA_FILES_HOOK)
LEGACY_ENGINE = "legacy"


class SkillEntry(Section):
    """Settings of one skill."""

    enabled: Flag = key(True, "Whether it is offered.")
    api_key: Secret | None = key(None, "Its key; `${NAME}` is taken from the environment.")
    env: dict[str, Secret] = table({}, "Environment it is given.")
    config: FreeMap = table({}, "Its own settings, free in form.")


class SkillLoading(Section):
    """Where skills are found besides the usual places."""

    extra_dirs: Names = key((), "Further folders, of lowest precedence.")


class SkillRegistry(Section):
    """A registry to search and install from."""

    url: str | None = key(None, "Its address; unset: no registry.")


class SkillInstall(Section):
    """How a skill's programs are installed."""

    prefer: tuple[Literal["apt", "brew", "uv", "node", "go", "download"], ...] = key(
        ("apt", "brew", "uv", "node", "go", "download"), "Kinds of installer, best first."
    )
    prefer_brew: Flag = key(False, "Whether brew goes before all others.")
    node_manager: Literal["npm", "pnpm", "yarn", "bun"] = key("npm", "Manager of Node packages.")


class SkillPrompt(Section):
    """The list of skills in the prompt."""

    max_chars: Count = key(18000, "Characters of the list.")
    max_skills: Positive = key(150, "Skills in the list.", le=10000)


class SkillsConfig(Section):
    """Skills."""

    entries: dict[str, SkillEntry] = table({}, "Settings by skill.")
    load: SkillLoading = part("Where skills are found.")
    allow_bundled: Names | None = key(None, "Only these of the bundled ones; unset: all.")
    registry: SkillRegistry = part("The registry.")
    install: SkillInstall = part("How programs are installed.")
    prompt: SkillPrompt = part("The list in the prompt.")


class PluginEntry(Section):
    """Settings of one plugin, or of a built-in engine."""

    enabled: Flag = key(True, "Whether it is used; in place of an engine that is not, `legacy` is.")
    config: FreeMap = table({}, "Its own settings, held against the schema in its manifest.")


class PluginSlots(Section):
    """What fills each exclusive place; without a name, the first plugin that claims it."""

    context_engine: str = key(LEGACY_ENGINE, "Context engine by id; none takes it by itself.", min_length=1)
    memory: str | None = key(
        None, "Plugin that answers searches in memory; `builtin`: none does.", min_length=1
    )
    sandbox: str | None = key(
        None,
        "Plugin that starts the commands of sandboxed sessions, in place of their `sandbox.backend`;"
        " `builtin`: none does.",
        min_length=1,
    )
    browser: str | None = key(None, "Plugin whose tool `browser` agents have; `builtin`: none.", min_length=1)

    def chosen(self, slot: str) -> str | None:
        """The plugin, or engine, that is named for a slot, by the slot's name in a manifest."""
        named = {"memory": self.memory, "sandbox": self.sandbox, "browser": self.browser}
        return self.context_engine if slot == "contextEngine" else named[slot]


class PluginLoading(Section):
    """Where plugins are found besides the usual places."""

    paths: Names = key((), "Folders of plugins, each with its manifest; of highest precedence.")


class EngineLimits(Section):
    """How long one call of a context engine may take, whoever wrote it."""

    bootstrap_ms: Ms = key(120_000, "Limit for `bootstrap`, which is given a whole history.", ge=1)
    tell_ms: Ms = key(
        60_000, "Limit for what tells it of turns: `commit_turn`, `ingest…`, `after_turn`.", ge=1
    )
    assemble_ms: Ms = key(
        60_000,
        "Limit for `assemble`; an engine that compacts by itself has `compactMs` if that is more.",
        ge=1,
    )
    compact_ms: Ms = key(900_000, "Limit for `compact`, which asks models.", ge=1)
    subagent_ms: Ms = key(30_000, "Limit for each call around a subagent.", ge=1)
    dispose_ms: Ms = key(5_000, "Limit for `dispose`, at shutdown.", ge=1)

    def seconds(self, call: str, *, owns_compaction: bool = False) -> float:
        """The limit for a call, by its name."""
        limits = {
            "bootstrap": self.bootstrap_ms,
            "assemble": max(self.assemble_ms, self.compact_ms * owns_compaction),
            "compact": self.compact_ms,
            "dispose": self.dispose_ms,
            **dict.fromkeys(("prepare_subagent_spawn", "rollback", "on_subagent_ended"), self.subagent_ms),
        }
        return limits.get(call, self.tell_ms) / 1000


class PluginLimits(Section):
    """How long plugins may take. Their code runs beside the gateway's, never in its place."""

    start_seconds: Seconds = key(10, "Limit for importing, registering, starting and stopping.", ge=1)
    hook_ms: Ms = key(2000, "Limit for one hook.", ge=1)
    call_seconds: Seconds = key(60, "Limit for one call of a tool, command or route.", ge=1)
    failures: Positive = key(5, "Failures in a row after which a hook, tool or route is left out.", le=1000)
    engine: EngineLimits = part("How long a context engine may take, call by call.")


class PluginsConfig(Section):
    """Plugins, and the engine that builds contexts."""

    enabled: Flag = key(True, "Whether plugins are loaded at all.")
    allow: Names | None = key(
        None,
        "Only these, by id. Unset: all but those in a workspace, which an agent may write: such a plugin is"
        " loaded only if it is named here.",
    )
    deny: Names = key((), "Never these, by id.")
    load: PluginLoading = part("Where plugins are found.")
    slots: PluginSlots = part("Exclusive places.")
    entries: dict[str, PluginEntry] = table({}, "Settings by plugin or engine.")
    limits: PluginLimits = part("How long plugins may take.")

    @property
    def engine(self) -> str:
        """The engine in use: the one that the slot names, unless it is switched off."""
        named = self.slots.context_engine
        entry = self.entries.get(named)
        return named if entry is None or entry.enabled else LEGACY_ENGINE

    def refusal(self, id_: str, *, from_workspace: bool = False, is_own: bool = False) -> str | None:
        """Why a plugin is not to be loaded; None if it is. One of Holdfast's own need not be allowed."""
        entry = self.entries.get(id_)
        if not self.enabled:
            return "plugins are switched off (plugins.enabled)"
        if id_ in self.deny:
            return "it is denied (plugins.deny)"
        if entry is not None and not entry.enabled:
            return f"it is switched off (plugins.entries.{id_}.enabled)"
        if self.allow is not None and id_ not in self.allow and not is_own:
            return "it is not among those allowed (plugins.allow)"
        if self.allow is None and from_workspace:
            return "it lies in a workspace, which an agent may write: name it in plugins.allow to load it"
        return None


class HookEntry(Section):
    """One hook."""

    enabled: Flag = key(True, "Whether it runs.")
    paths: Names = key((), f"Files or globs, for `{EXTRA_FILES_HOOK}`.")


class InternalHooks(Section):
    """Hooks that come with Holdfast."""

    enabled: Flag = key(True, "Whether they run.")
    entries: dict[str, HookEntry] = table(
        {}, f"Settings by hook: {', '.join(f'`{name}`' for name in INTERNAL_HOOKS)}."
    )

    @property
    def extra_files(self) -> tuple[str, ...]:
        """Paths and globs of further workspace files for every prompt, if that hook runs."""
        entry = self.entries.get(EXTRA_FILES_HOOK)
        return entry.paths if self.enabled and entry is not None and entry.enabled else ()

    @model_validator(mode="after")
    def _extra_files_have_known_names(self) -> Self:
        entry = self.entries.get(EXTRA_FILES_HOOK)
        for path in entry.paths if entry else ():
            if PurePosixPath(path).name not in BOOTSTRAP_NAMES:
                raise ValueError(
                    f"expected files of {EXTRA_FILES_HOOK} to be named one of "
                    f"{', '.join(BOOTSTRAP_NAMES)}, found {path[:80]!r}"
                )
        return self


class Webhook(Section):
    """One webhook: `POST /api/hooks/<name>`, signed, gives an agent a turn on what it brings."""

    enabled: Flag = key(True, "Whether it answers.")
    secret: Secret = key(..., "Key of its signatures; `${NAME}` is taken from the environment.")
    agent: Id | None = key(None, "The agent that takes the turn; unset: the default one.")
    session: str = key(
        "isolated", "`isolated` for one of its own, `main`, or a session's key.", min_length=1, max_length=512
    )
    prompt: str | None = key(None, "What the agent is to do with it, in your words.", max_length=16_000)
    template: str | None = key(
        None,
        "How what it brings is shown; `{{issue.title}}` stands for a field of the body. Unset: the body.",
        max_length=16_000,
    )
    deliver: str = key("none", "Where the reply goes: `last`, `none` or a channel id.", min_length=1)
    model: str | None = key(None, "Model for these turns; unset: the agent's own.")
    timeout_seconds: Seconds = key(600, "Limit for one turn.", ge=1)
    owner: Flag = key(False, "Whether its turns may use tools that are the owner's alone.")
    max_bytes: Bytes = key(262_144, "Largest body.", ge=1)
    per_minute: Positive = key(30, "Calls within a minute.", le=10_000)
    tolerance_seconds: Seconds = key(300, "How far a signed time may lie from ours.", ge=1)


class HooksConfig(Section):
    """Hooks."""

    enabled: Flag = key(False, "Whether webhooks answer.")
    webhooks: dict[Id, Webhook] = table({}, "Webhooks by name.")
    path: str = key(
        "/hooks",
        "Where they answer besides `/api/hooks`: `POST /hooks/<name>`.",
        pattern=r"^(/[A-Za-z0-9_-]+)+$",
        max_length=200,
    )
    token: Secret | None = key(
        None,
        "Token that every caller must send too, as `Authorization: Bearer`; unset: a signature is enough.",
    )
    internal: InternalHooks = part("Hooks within Holdfast.")

    @field_validator("path")
    @classmethod
    def _path_is_free(cls, value: str) -> str:
        if value.split("/")[1] in TAKEN_PATHS and value != "/api/hooks":
            raise ValueError(f"expected a path that is not the gateway's own, found {value!r}")
        return value
