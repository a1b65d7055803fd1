"""What holds for the caller of a tool: its settings, how much a result may be, what guests are given.

By default nothing: no identity, memory or daily files, no skills, no folder. The owner opens more for a
channel (`channels.<name>.guests`) or for one chat of it (`channels.<name>.guestsIn.<id>`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.agents.policy import Situation
from holdfast.agents.sandbox import is_sandboxed
from holdfast.agents.tools.types import Caller
from holdfast.config import Config, ToolsConfig
from holdfast.config.agents import Sandbox
from holdfast.config.channels import Guests
from holdfast.config.section import overlay
from holdfast.context import OPENABLE, Budgets, chars
from holdfast.log import FOR_OWNER, Session, for_space
from holdfast.log.audience import surface_of

_TEAM_KEY: Final = re.compile(r"agent:[^:]+:team:([a-z0-9][a-z0-9-]{0,62})")
NOTHING: Final = Guests()
ALL: Final = Guests(identity=True, skills=True, folder=True)


def open_to(config: Config, audience: str) -> Guests:
    """What is open to those who hear a session; everything for the owner alone."""
    if audience == FOR_OWNER:
        return ALL
    surface = surface_of(audience)
    if surface is None:
        return NOTHING
    channel = config.channels.get(surface.channel)
    if channel is None:
        return NOTHING
    rules = channel.of_account(surface.account)
    own = rules.guests_in.get(surface.id)
    return rules.guests if own is None else overlay(rules.guests, own)


def team_of(session: Session) -> str | None:
    """The team whose session it is, and who alone hears it; its files are worked on there."""
    found = _TEAM_KEY.fullmatch(session.key)
    return found[1] if found and session.audience == for_space(f"team-{found[1]}") else None


def opened_files(config: Config, audience: str) -> tuple[str, ...]:
    """The workspace files that the owner opened to them."""
    return tuple(sorted(OPENABLE)) if open_to(config, audience).identity else ()


def tools_of(caller: Caller) -> ToolsConfig:
    """Settings of tools as they hold for this agent; the lists of the policy are not merged here."""
    own = caller.config.agent(caller.agent_id).tools
    return caller.config.tools if own is None else overlay(caller.config.tools, own)


def sandbox_of(caller: Caller) -> Sandbox:
    """The sandbox of the caller's session. Where others than the owner hear it, there is always one, with a
    folder of that session and nothing else."""
    own = caller.settings.sandbox
    if caller.alone:
        return own
    return own.model_copy(update={"mode": "all", "scope": "session", "workspace_access": "none"})


def sandboxed(caller: Caller) -> bool:
    return is_sandboxed(sandbox_of(caller), caller.session.key)


def has_folder(caller: Caller) -> bool:
    """Whether the owner gave those who hear the session a folder of their own."""
    return open_to(caller.config, caller.session.audience).folder


def has_files(caller: Caller) -> bool:
    """Whether there are files for those who hear the session: a folder of the chat's, or their team's."""
    return has_folder(caller) or team_of(caller.session) is not None


def has_skills(caller: Caller) -> bool:
    return open_to(caller.config, caller.session.audience).skills


def situation_of(caller: Caller, *, elevated: bool = False) -> Situation:
    """The caller as the policy looks at it."""
    return Situation(
        provider=caller.provider or None,
        model=caller.model or None,
        channel=caller.channel,
        sender=caller.sender,
        is_owner=caller.owner,
        sandboxed=sandboxed(caller),
        subagent=caller.subagent,
        may_spawn=caller.depth < caller.settings.subagents.max_spawn_depth,
        elevated=elevated,
    )


ROOM_FOR_NOTE: Final = 320
_SMALL: Final = 16_000
_MIDDLE: Final = 32_000
_LARGE: Final = 64_000
_HEAD_SHARE: Final = 0.7


@dataclass(frozen=True, slots=True)
class Cut:
    """What a long text lost: `line` is the first that is not shown whole."""

    line: int
    chars: int


def cap_of(caller: Caller) -> int:
    """Characters of one result: as configured, else by the model's window."""
    own = tools_of(caller).result_max_chars
    if own is not None:
        return own
    window = caller.window
    most = _LARGE if window >= 200_000 else _MIDDLE if window >= 100_000 else _SMALL
    return min(most, chars(Budgets.for_window(window, caller.settings.compaction).result))


def shortened(text: str, limit: int, note: Callable[[Cut], str]) -> str:
    """At most `limit` characters of a text, with a note in the place of what was cut from its middle."""
    if len(text) <= limit:
        return text
    room = limit - ROOM_FOR_NOTE
    if room < ROOM_FOR_NOTE:
        return text[:limit]
    first = int(room * _HEAD_SHARE)
    head = _whole_head(text[:first])
    tail = _whole_tail(text[len(text) - (room - first) :])
    cut = Cut(head.count("\n") + 1, len(text) - len(head) - len(tail))
    told = note(cut)[: ROOM_FOR_NOTE - 2]
    before = "" if head.endswith("\n") else "\n"
    return f"{head}{before}{told}\n{tail}"


def _whole_head(part: str) -> str:
    """Up to the last line that is whole, unless that would throw half of it away."""
    end = part.rfind("\n") + 1
    return part[:end] if end > len(part) // 2 else part


def _whole_tail(part: str) -> str:
    start = part.find("\n") + 1
    return part[start:] if 0 < start <= len(part) // 2 else part
