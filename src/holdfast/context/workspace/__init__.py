"""The workspace's files as a session is given them: chosen by its kind, read live, within budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from holdfast.clock import Millis
from holdfast.config import AgentEntry
from holdfast.context.workspace.editing import EditableFiles, Version, WorkspaceFile
from holdfast.context.workspace.files import (
    FOR_ALL,
    OCCASIONAL,
    OPENABLE,
    ORDER,
    REQUIRED,
    AgentIdentity,
    FileReader,
    FileText,
    Fitted,
    Occasion,
    SessionKind,
    configured_identity,
    cut,
    daily_path,
    fit,
    identity_of,
    kind_of,
    local_time,
    merged,
    names_for,
    startup_paths,
    trust_of,
)

__all__ = [
    "FOR_ALL",
    "OCCASIONAL",
    "OPENABLE",
    "ORDER",
    "REQUIRED",
    "AgentIdentity",
    "EditableFiles",
    "FileReader",
    "Fitted",
    "Occasion",
    "SessionKind",
    "Version",
    "Workspace",
    "WorkspaceFile",
    "configured_identity",
    "daily_path",
    "identity_of",
    "kind_of",
    "local_time",
    "names_for",
    "trust_of",
]

MOST_EXTRA: Final = 20
DAILY_DAYS: Final = 2
DAILY_CHARS: Final = 2_800


@dataclass(frozen=True, slots=True)
class Workspace:
    """One agent's workspace folder, read through a shared cache."""

    path: Path
    reader: FileReader

    def files(
        self, names: Iterable[str], *, per_file: int, total: int, extra: Iterable[str] = ()
    ) -> list[Fitted]:
        """These files within their budgets, then extra ones of the same base names; each with a warning if it
        was cut."""
        wanted = tuple(names)
        texts = [self.reader.read(self.path, name) for name in wanted]
        more, refused = self._extra(extra, wanted)
        return [*fit([*texts, *more], per_file=per_file, total=total), *refused]

    def identity(self, agent: AgentEntry | None = None) -> AgentIdentity:
        """What IDENTITY.md says; of an agent, what the config says first."""
        own = identity_of(self.reader.read(self.path, "IDENTITY.md").text)
        return own if agent is None else merged(configured_identity(agent), own)

    def daily(
        self, now: Millis, zone: str, *, days: int = DAILY_DAYS, most: int = DAILY_CHARS
    ) -> Mapping[str, str]:
        """The notes of the last days, each cut to `most` characters; those that are there."""
        found = {name: self.reader.read(self.path, name) for name in startup_paths(now, zone, days)}
        return {name: cut(f.text, most, name) for name, f in found.items() if f.text.strip()} if most else {}

    def _extra(self, patterns: Iterable[str], wanted: Sequence[str]) -> tuple[list[FileText], list[Fitted]]:
        """Files of the `bootstrap-extra-files` hook: only recognised base names, only from within, and only
        those that a session of this kind gets at all."""
        found: dict[str, FileText] = {}
        refused: list[Fitted] = []
        for name in self._matches(patterns):
            if PurePosixPath(name).name not in ORDER:
                words = f"{name} is not a recognised workspace file and was left out."
                refused.append(Fitted(name, "", 0, words))
            elif len(found) < MOST_EXTRA and name not in ORDER and PurePosixPath(name).name in wanted:
                found[name] = self.reader.read(self.path, name)
        return list(found.values()), refused[:MOST_EXTRA]

    def _matches(self, patterns: Iterable[str]) -> list[str]:
        names: list[str] = []
        for pattern in patterns:
            if pattern.startswith("/") or ".." in PurePosixPath(pattern).parts:
                names.append(pattern)
            elif any(c in pattern for c in "*?["):
                found = islice(self.path.glob(pattern), 200)
                names += sorted(p.relative_to(self.path).as_posix() for p in found)
            else:
                names.append(pattern)
        return names[:200]
