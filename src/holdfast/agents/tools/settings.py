"""What the config says of tools for an agent, and how far they reach into the file system.

By default nothing: no identity, memory or daily files, no skills, no folder. The owner opens more for a
channel (`channels.<name>.guests`) or for one chat of it (`channels.<name>.guestsIn.<id>`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agents.policy import Situation
from holdfast.agents.sandbox import SCRATCH, WORKSPACE, is_sandboxed, scope_name
from holdfast.agents.tools.types import Caller
from holdfast.config import Config, ToolsConfig
from holdfast.config.agents import Sandbox
from holdfast.config.channels import Guests
from holdfast.config.section import overlay
from holdfast.context import OPENABLE, Budgets, chars
from holdfast.errors import Forbidden, InvalidInput
from holdfast.home import Home
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


MOST_PATH: Final = 4_096


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that is reached under a name; `inside` is where commands in a sandbox find it."""

    path: Path
    inside: str
    writable: bool = True


@dataclass(frozen=True, slots=True)
class Spot:
    """A path within a root, without links or steps upwards."""

    root: Root
    steps: tuple[str, ...]

    @property
    def shown(self) -> str:
        return "/".join(self.steps) or "."

    @property
    def real(self) -> Path:
        return self.root.path.joinpath(*self.steps)

    @property
    def inside(self) -> str:
        return "/".join((self.root.inside.rstrip("/"), *self.steps))


@dataclass(frozen=True, slots=True)
class Reach:
    """The roots, the first of which is where paths begin. `everywhere` leads out of them, by choice."""

    roots: tuple[Root, ...]
    home: Path
    workspace: Path
    everywhere: bool = False

    def spot(self, path: str) -> Spot:
        """Where a path leads; `Forbidden` if that is out of reach."""
        if not path.strip() or "\0" in path or len(path) > MOST_PATH:
            raise InvalidInput(
                f"not a path: {path[:80]!r}", hint="Give one from the workspace, such as notes/plan.md."
            )
        found = self._within(path) or self._outside(path)
        if self._private(found.real):
            raise Forbidden(f"{path[:200]!r} is Holdfast's own and out of reach", code="path_refused")
        return found

    def _within(self, path: str) -> Spot | None:
        first = self.roots[0]
        full = os.path.normpath(os.path.join(first.inside, os.path.expanduser(path)))
        for root in self.roots:
            for name in dict.fromkeys((root.inside, os.path.realpath(root.path))):
                if full == name or full.startswith(name.rstrip("/") + "/"):
                    rest = os.path.relpath(full, name)
                    return Spot(root, () if rest == "." else tuple(rest.split("/")))
        return None

    def _outside(self, path: str) -> Spot:
        if not self.everywhere:
            raise Forbidden(
                f"{path[:200]!r} is outside the workspace",
                code="outside_workspace",
                hint=f"Files are reached below {' and '.join(root.inside for root in self.roots)}.",
            )
        full = os.path.realpath(os.path.join(self.workspace, os.path.expanduser(path)))
        return Spot(Root(Path("/"), "/"), tuple(step for step in full.split("/") if step))

    def _private(self, path: Path) -> bool:
        """Settings, secrets and the log of Holdfast are not an agent's files, its own folders aside."""
        own = [os.path.realpath(root.path) for root in self.roots]
        home, place = os.path.realpath(self.home), os.path.normpath(path)
        place = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
        if not _below(place, home):
            return False
        return not any(_below(root, home) and _below(place, root) for root in own if root != home)


def reach_of(caller: Caller, home: Home) -> Reach:
    """What the caller's session reaches. In a sandbox the config's `workspaceAccess` decides."""
    team = team_of(caller.session)
    if team is not None:
        return _of_team(home, team)
    folder = caller.workspace.absolute()
    if not sandboxed(caller):
        everywhere = not tools_of(caller).fs.workspace_only
        return Reach((Root(folder, str(folder)),), home.path, folder, everywhere)
    access = sandbox_of(caller).workspace_access
    scratch = Root(_scratch(caller, home), SCRATCH)
    if access == "none":
        return Reach((scratch,), home.path, folder)
    shared = Root(folder, WORKSPACE, writable=access == "rw")
    return Reach((shared, scratch), home.path, folder)


def _of_team(home: Home, team: str) -> Reach:
    """In a team's session files are the team's, whichever agent of theirs it is; nothing else is reached."""
    folder = home.team_workspace(team)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Reach((Root(folder, WORKSPACE),), home.path, folder)


def sandboxes(home: Home) -> Path:
    return home.path / "sandboxes"


def _scratch(caller: Caller, home: Home) -> Path:
    settings = sandbox_of(caller)
    name = scope_name(settings, agent_id=caller.agent_id, session_key=caller.session.key)
    folder = sandboxes(home) / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
