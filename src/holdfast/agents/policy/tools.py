"""Which tools an agent may use in a given situation: groups, seven layers of rules, and why.

The profile is the base and an `allow` list names the set anew; every later layer can only refuse. A
refusal at any layer stands, whatever another layer says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from holdfast.config.section import overlay

if TYPE_CHECKING:
    from holdfast.config import Config, ToolPolicy, ToolsConfig
    from holdfast.config.tools import Exec, ToolLayer


GROUP: Final = "group:"
ALL: Final = "*"

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "group:memory": ("memory_search", "memory_get", "memory_write"),
    "group:web": ("web_search", "web_fetch", "web_browse"),
    "group:fs": ("file_read", "file_write", "file_edit", "file_delete"),
    "group:runtime": ("exec", "shell", "code_run"),
    "group:sessions": (
        "sessions_list",
        "sessions_history",
        "sessions_send",
        "sessions_spawn",
        "session_status",
        "subagents",
    ),
    "group:ui": ("ui_notify", "ui_prompt", "ui_confirm"),
    "group:automation": ("cron_create", "webhook_create"),
    "group:messaging": ("message", "channel_send", "dm_send"),
    "group:nodes": ("node_list", "node_command"),
    "group:board": (
        "clawboard_search",
        "clawboard_context",
        "clawboard_get_topic",
        "clawboard_get_task",
        "clawboard_get_log",
        "clawboard_create_note",
        "clawboard_update_task",
    ),
    "group:context": ("context_read", "context_search"),
    "group:continuation": ("continue_work", "continue_delegate", "request_compaction"),
    "group:skills": ("skill_read",),
}

_READING: Final = ("group:memory", "group:context", "group:skills")
_WORKING: Final = (*_READING, "group:board", "group:continuation")
PROFILES: Final[Mapping[str, tuple[str, ...]]] = {
    "minimal": _READING,
    "coding": (*_WORKING, "group:fs", "group:runtime"),
    "messaging": (*_WORKING, "group:messaging", "group:sessions"),
    "full": (ALL,),
}

# Names what may be used and nothing else, so that no profile or allow list has to name it.
FINDERS: Final = frozenset(("tool_search",))
CATALOGUE: Final = frozenset(name for names in GROUPS.values() for name in names) | FINDERS
HIGH_RISK: Final = frozenset(GROUPS["group:runtime"])
LOST_BY_SUBAGENTS: Final = frozenset(
    (*GROUPS["group:automation"], *GROUPS["group:messaging"], "sessions_send", "gateway", "agents_list")
)
LOST_BY_LEAVES: Final = frozenset(
    ("sessions_list", "sessions_history", "sessions_spawn", "subagents", "continue_delegate")
)


@dataclass(frozen=True, slots=True)
class Expansion:
    """The tools that a list of names stands for, and the names that stand for none."""

    tools: frozenset[str]
    unknown: tuple[str, ...] = ()


def expand(names: Iterable[str], known: frozenset[str]) -> Expansion:
    """Groups first, then globs over what is known; a name that finds nothing is told, never guessed."""
    return _expanded(tuple(names), known)


@lru_cache(maxsize=4096)
def _expanded(names: tuple[str, ...], known: frozenset[str]) -> Expansion:
    tools: set[str] = set()
    unknown: list[str] = []
    for name in names:
        found = _matching(name.strip(), known)
        tools |= found
        if not found and name.strip() != ALL:
            unknown.append(name)
    return Expansion(frozenset(tools), tuple(dict.fromkeys(unknown)))


def profile_tools(profile: str, known: frozenset[str]) -> frozenset[str]:
    """The tools of a profile among those that are known."""
    return expand(PROFILES[profile], known | CATALOGUE).tools & known


def _matching(name: str, known: frozenset[str]) -> frozenset[str]:
    if name.startswith(GROUP):
        members = [member for group, tools in GROUPS.items() if fnmatchcase(group, name) for member in tools]
        return frozenset(members)
    if name in known:
        return frozenset((name,))
    return frozenset(tool for tool in known if fnmatchcase(tool, name))


Layer = Literal["profile", "allow", "deny", "owner", "provider", "elevated", "session"]
LAYERS: Final[tuple[Layer, ...]] = ("profile", "allow", "deny", "owner", "provider", "elevated", "session")
ANYONE: Final = "*"


@dataclass(frozen=True, slots=True)
class Rules:
    """The lists of one scope. `place` is where they are written, such as `tools` or `agents.work.tools`."""

    place: str
    profile: str | None = None
    allow: tuple[str, ...] = ()
    also_allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Elevation:
    """Who may have a command run outside the sandbox: senders by channel, in every scope that has a say."""

    place: str
    enabled: bool = True
    allow_from: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything the config says about one agent's tools, as plain lists."""

    scopes: tuple[Rules, ...] = (Rules("tools", profile="full"),)
    by_provider: Mapping[str, tuple[Rules, ...]] = field(default_factory=dict)
    owner_only: tuple[str, ...] = ()
    elevation: tuple[Elevation, ...] = ()
    sandbox: tuple[Rules, ...] = ()
    subagents: tuple[Rules, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """Who asks, through what, and where it would run."""

    provider: str | None = None
    model: str | None = None
    channel: str | None = None
    sender: str | None = None
    is_owner: bool = False
    sandboxed: bool = False
    subagent: bool = False
    may_spawn: bool = False
    elevated: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What one layer says of a tool; `says` None is no opinion."""

    layer: Layer
    says: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    tool: str
    allowed: bool
    layer: Layer
    reason: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name in a list that stands for no tool, and where it is written."""

    place: str
    name: str


def decide(tool: str, policy: Policy, situation: Situation, known: Iterable[str] = ()) -> Decision:
    """Whether this tool may be used now. `known` are the tools that are registered besides the built-in."""
    return _decide(tool, policy, situation, frozenset(known) | CATALOGUE | {tool})


def allowed(policy: Policy, situation: Situation, tools: Iterable[str]) -> tuple[str, ...]:
    """Those of the tools that may be used, in their order."""
    given = tuple(tools)
    known = frozenset(given) | CATALOGUE
    return tuple(tool for tool in given if _decide(tool, policy, situation, known).allowed)


def explain(decision: Decision) -> tuple[str, ...]:
    """A line for every layer, and a last one for the outcome."""
    said = {None: "-", True: "yes", False: "no"}
    lines = [
        f"{n}. {step.layer}: {said[step.says]} ({step.reason})" for n, step in enumerate(decision.steps, 1)
    ]
    verdict = "allowed" if decision.allowed else "refused"
    return (*lines, f"{decision.tool} is {verdict} by {decision.layer}: {decision.reason}")


def unknown_names(policy: Policy, known: Iterable[str] = ()) -> tuple[Unknown, ...]:
    """Every name in the policy that stands for no tool: a typing error, or a plugin that is not there."""
    every = frozenset(known) | CATALOGUE
    lists = [
        (f"{rules.place}.{name}", names)
        for rules in _all_rules(policy)
        for name, names in (("allow", rules.allow), ("alsoAllow", rules.also_allow), ("deny", rules.deny))
    ]
    return tuple(Unknown(place, name) for place, names in lists for name in expand(names, every).unknown)


def _decide(tool: str, policy: Policy, situation: Situation, known: frozenset[str]) -> Decision:
    look = _Look(tool, policy, situation, known)
    steps = tuple(Step(layer, *_SPEAKERS[layer](look)) for layer in LAYERS)
    decisive = _decisive(steps)
    return Decision(tool, bool(decisive.says), decisive.layer, decisive.reason, steps)


def _decisive(steps: tuple[Step, ...]) -> Step:
    """The word of profile and lists if it is no, else the first refusal behind them, else their yes."""
    base = next(step for step in reversed(steps[:2]) if step.says is not None)
    refusals = (step for step in steps[2:] if step.says is False)
    return next(refusals, base) if base.says else base


Said = tuple[bool | None, str]
_NO_LIST: Final[Said] = (None, "no list names it")


@dataclass(frozen=True, slots=True)
class _Look:
    """One tool before the policy; `has` is the one way in which a list is asked about it."""

    tool: str
    policy: Policy
    situation: Situation
    known: frozenset[str]

    def has(self, names: Iterable[str]) -> bool:
        return self.tool in expand(names, self.known).tools


def _profile(look: _Look) -> Said:
    if look.tool in FINDERS:
        return True, "it only finds what may be used"
    rules = next((r for r in reversed(look.policy.scopes) if r.profile is not None), None)
    name = "full" if rules is None or rules.profile is None else rules.profile
    where = "the default" if rules is None else f"{rules.place}.profile"
    inside = look.tool in profile_tools(name, look.known)
    return inside, f"{where} is {name}, which {'has' if inside else 'does not have'} it"


def _allow(look: _Look) -> Said:
    """An `allow` list says yes or no to everything and bounds the scopes within; `alsoAllow` adds.

    A scope's own profile speaks for itself again, within the outer `allow` and beside the outer `alsoAllow`.
    """
    if look.tool in FINDERS:
        return _NO_LIST
    said: Said = _NO_LIST
    added: Said | None = None
    ceiling = True
    for rules in look.policy.scopes:
        if rules.profile is not None:
            said = added or (_NO_LIST if ceiling else (False, "an outer allow list does not name it"))
        if rules.allow:
            named = look.has(rules.allow)
            said, added = _by_list(rules, named, ceiling), None
            ceiling = ceiling and named
        if look.has(rules.also_allow):
            said = added = (True, f"{rules.place}.alsoAllow names it")
    return said


def _by_list(rules: Rules, named: bool, ceiling: bool) -> Said:
    if named and not ceiling:
        return False, f"{rules.place}.allow names it, but an outer allow list does not"
    return named, f"{rules.place}.allow {'names it' if named else 'does not name it'}"


def _deny(look: _Look) -> Said:
    for rules in look.policy.scopes:
        if look.has(rules.deny):
            return False, f"{rules.place}.deny names it"
    return None, "no deny list names it"


def _owner(look: _Look) -> Said:
    if not look.has(look.policy.owner_only):
        return None, "not for the owner alone"
    if look.situation.is_owner:
        return None, "for the owner alone, who asks"
    return False, "for the owner alone, and another asks"


def _provider(look: _Look) -> Said:
    """What is written for the model's provider, and for the model itself, can only take away."""
    for name in _provider_names(look.situation):
        for rules in look.policy.by_provider.get(name, ()):
            refusal = _refused_by(look, rules)
            if refusal is not None:
                return False, refusal
    return None, "nothing is written for this provider that refuses it"


def _provider_names(situation: Situation) -> tuple[str, ...]:
    if situation.provider is None:
        return ()
    if situation.model is None:
        return (situation.provider,)
    return (situation.provider, f"{situation.provider}/{situation.model}")


def _refused_by(look: _Look, rules: Rules) -> str | None:
    if look.has(rules.deny):
        return f"{rules.place}.deny names it"
    if look.tool in FINDERS or look.has((*rules.allow, *rules.also_allow)):
        return None
    if rules.allow:
        return f"{rules.place}.allow does not name it"
    if rules.profile is not None and look.tool not in profile_tools(rules.profile, look.known):
        return f"{rules.place}.profile is {rules.profile}, which does not have it"
    return None


def _elevated(look: _Look) -> Said:
    """Only a call that asks to leave the sandbox is looked at; then every scope must name the sender."""
    situation = look.situation
    if not situation.elevated:
        return None, "not asked to run elevated"
    if look.tool not in HIGH_RISK:
        return False, "only commands can run elevated"
    if not look.policy.elevation:
        return False, "nobody may run elevated"
    for scope in look.policy.elevation:
        if not scope.enabled:
            return False, f"{scope.place} is switched off"
        named = scope.allow_from.get(situation.channel or "", ())
        if situation.sender is None or not {situation.sender, ANYONE} & set(named):
            return False, f"{scope.place}.allowFrom does not name this sender"
    return None, "this sender may run elevated"


def _session(look: _Look) -> Said:
    if look.situation.subagent:
        if look.tool in LOST_BY_SUBAGENTS:
            return False, "a subagent speaks to nobody but who sent it, and plans nothing for later"
        if look.tool in LOST_BY_LEAVES and not look.situation.may_spawn:
            return False, "a subagent that may not spawn has no session tools"
    subagents = look.policy.subagents if look.situation.subagent else ()
    sandbox = look.policy.sandbox if look.situation.sandboxed else ()
    for rules in (*subagents, *sandbox):
        refusal = _refused_by(look, rules)
        if refusal is not None:
            return False, refusal
    return None, "no restriction of this session refuses it"


_SPEAKERS: Final[Mapping[Layer, Callable[[_Look], Said]]] = {
    "profile": _profile,
    "allow": _allow,
    "deny": _deny,
    "owner": _owner,
    "provider": _provider,
    "elevated": _elevated,
    "session": _session,
}


def _all_rules(policy: Policy) -> tuple[Rules, ...]:
    """The owner-only list is left out: it may well name tools of channels that are not there."""
    by_provider = tuple(rules for group in policy.by_provider.values() for rules in group)
    return (*policy.scopes, *by_provider, *policy.sandbox, *policy.subagents)


def policy_of(config: Config, agent_id: str) -> Policy:
    """What `tools` says for all agents, and what this agent's own `tools` says over it."""
    scopes = _scopes(config, agent_id)
    by_provider: dict[str, tuple[Rules, ...]] = {}
    for place, tools in scopes:
        for name, rules in tools.by_provider.items():
            by_provider[name] = (
                *by_provider.get(name, ()),
                _rules(f"{place}.byProvider.{name}", rules),
            )
    return Policy(
        scopes=tuple(_rules(place, tools) for place, tools in scopes),
        by_provider=by_provider,
        owner_only=tuple(dict.fromkeys(name for _, tools in scopes for name in tools.owner_only)),
        elevation=tuple(
            Elevation(f"{place}.elevated", tools.elevated.enabled, dict(tools.elevated.allow_from))
            for place, tools in scopes
            if place == "tools" or "elevated" in tools.model_fields_set
        ),
        sandbox=tuple(_restriction(f"{place}.sandbox.tools", tools.sandbox) for place, tools in scopes),
        subagents=tuple(_restriction(f"{place}.subagents.tools", tools.subagents) for place, tools in scopes),
    )


def exec_settings(config: Config, agent_id: str) -> Exec:
    """How this agent's commands are approved: its own settings over those of all."""
    own = config.agent(agent_id).tools
    return config.tools.exec if own is None else overlay(config.tools.exec, own.exec)


def _scopes(config: Config, agent_id: str) -> list[tuple[str, ToolsConfig]]:
    own = config.agent(agent_id).tools
    shared: list[tuple[str, ToolsConfig]] = [("tools", config.tools)]
    return shared if own is None else [*shared, (f"agents.{agent_id}.tools", own)]


def _rules(place: str, tools: ToolPolicy) -> Rules:
    return Rules(place, tools.profile, tools.allow, tools.also_allow, tools.deny)


def _restriction(place: str, layer: ToolLayer) -> Rules:
    return Rules(place, allow=layer.tools.allow, deny=layer.tools.deny)
