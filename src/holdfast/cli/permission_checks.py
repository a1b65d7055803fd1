"""Whether others on this machine may look into what Holdfast keeps: its home, and its files in workspaces."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from holdfast.cli.findings import Finding, Patient

MOST_FILES: Final = 100_000
_NAMED: Final = 5
_OTHERS: Final = 0o077


def check_permissions(patient: Patient) -> Iterator[Finding]:
    """What the owner may do stays as it is; what others may is taken away."""
    if not patient.home.path.is_dir():
        return
    found = [path for path in islice(_kept(patient), MOST_FILES) if _is_open(path)]
    if not found:
        yield Finding("ok", "the files of the home are for their owner only")
        return
    named = ", ".join(f"{path} (mode {_mode(path):04o})" for path in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    said = f"others may look into {named}{more}"
    yield Finding("warn", said, "Run `holdfast doctor --fix`.", partial(_close, found))


def _kept(patient: Patient) -> Iterator[Path]:
    """The home and what lies in it, workspaces aside: of those, what Holdfast itself put there."""
    home = patient.home.path
    workspaces = _workspaces(patient)
    yield home
    for folder, folders, files in os.walk(home):
        here = Path(folder)
        folders[:] = [name for name in folders if here / name not in workspaces]
        yield from (here / name for name in (*folders, *files))
    for workspace in workspaces:
        yield from _of_workspace(workspace)


def _workspaces(patient: Patient) -> list[Path]:
    from holdfast.cli.workspaces import workspace_of

    config = patient.config
    usual = {path for path in patient.home.path.glob("workspace*") if path.is_dir()}
    if config is not None:
        usual |= {workspace_of(patient.home, config, agent.id) for agent in config.agent_list}
    return sorted(path for path in usual if path.is_dir())


def _of_workspace(workspace: Path) -> Iterator[Path]:
    from holdfast.templates import FILES

    notes = workspace / "memory"
    own = (workspace / name for name in FILES)
    yield from (path for path in (workspace, *own, workspace / "MEMORY.md", notes) if path.exists())
    yield from (path for path in notes.rglob("*.md"))


def _is_open(path: Path) -> bool:
    """A link says nothing of its own, and what it leads to is not ours to close."""
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISLNK(found) and bool(found & _OTHERS)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def _close(paths: list[Path]) -> None:
    for path in paths:
        if _is_open(path):
            path.chmod(_mode(path) & ~_OTHERS)
