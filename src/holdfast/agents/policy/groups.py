"""The names of tools: groups that stand for several, profiles made of groups, globs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

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
