"""Which files a caller's tools reach, and by what names: the workspace, or what its sandbox has of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agents.sandbox import SCRATCH, WORKSPACE, scope_name
from holdfast.agents.tools.settings import sandbox_of, sandboxed, team_of, tools_of
from holdfast.agents.tools.types import Caller
from holdfast.errors import Forbidden, InvalidInput
from holdfast.home import Home

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
