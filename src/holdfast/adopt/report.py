"""What an adoption did, counted, and the copying of files: never over something that is there, never along a
link that leads outside.
"""

from __future__ import annotations

import filecmp
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.templates import is_template

Area = Literal["config", "workspace", "sessions", "credentials", "skills", "cron", "approvals", "home"]
Outcome = Literal["added", "grown", "unchanged", "differs", "refused", "left out", "damaged", "failed"]

MAX_NOTES: Final = 500


@dataclass(frozen=True, slots=True)
class Note:
    """One thing worth saying: what it is about, what became of it, and why."""

    area: Area
    outcome: Outcome
    what: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.area}: {self.what}: {self.outcome}{f' ({self.detail})' if self.detail else ''}"


@dataclass(slots=True)
class Report:
    """Filled while an adoption runs. Names of files and keys are in it, what they hold is not."""

    source: str
    dry_run: bool
    counts: Counter[tuple[Area, Outcome]] = field(default_factory=Counter)
    notes: list[Note] = field(default_factory=list)
    notes_left_off: int = 0
    entries_added: int = 0
    progress: Callable[[str], None] | None = None

    def count(self, area: Area, outcome: Outcome) -> None:
        self.counts[area, outcome] += 1

    def note(self, area: Area, outcome: Outcome, what: str, detail: str = "") -> None:
        """Count it, and keep the note while there is room."""
        self.count(area, outcome)
        self.remark(area, outcome, what, detail)

    def begin(self, what: str) -> None:
        """Tell whoever waits what is being looked at now."""
        if self.progress is not None:
            self.progress(what)

    def remark(self, area: Area, outcome: Outcome, what: str, detail: str = "") -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(Note(area, outcome, what, detail))
        else:
            self.notes_left_off += 1

    @property
    def changed(self) -> bool:
        """Whether anything was taken over, or would be."""
        return any(outcome in ("added", "grown") for _, outcome in self.counts)

    @property
    def failed(self) -> bool:
        return any(outcome == "failed" for _, outcome in self.counts)

    def as_json(self) -> dict[str, Any]:
        counts: dict[str, dict[str, int]] = {}
        for (area, outcome), number in sorted(self.counts.items()):
            counts.setdefault(area, {})[outcome] = number
        return {
            "source": self.source,
            "dryRun": self.dry_run,
            "changed": self.changed,
            "entriesAdded": self.entries_added,
            "counts": counts,
            "notes": [
                {"area": n.area, "outcome": n.outcome, "what": n.what, "detail": n.detail} for n in self.notes
            ],
            "notesLeftOff": self.notes_left_off,
        }


def copy_tree(
    source: Path,
    target: Path,
    report: Report,
    area: Area,
    *,
    mode: int | None = None,
    skip: frozenset[str] = frozenset(),
) -> None:
    """Copy what `target` lacks. A file of ours that nobody has written in yet gives way."""
    for path in _walk(source, report, area):
        inner = path.relative_to(source)
        if inner.as_posix() in skip:
            report.note(area, "refused", str(inner), "the name is one of Holdfast's own")
        else:
            copy_file(
                path, target / inner, report, area, name=f"{source.name}/{inner}", mode=mode, root=source
            )


def copy_file(
    source: Path,
    target: Path,
    report: Report,
    area: Area,
    *,
    name: str,
    mode: int | None = None,
    root: Path | None = None,
) -> None:
    """Copy one file, with the rights `mode` if given; what became of it goes into the report."""
    try:
        if source.is_symlink() and not _stays_within(source, root or source.parent):
            report.note(area, "refused", name, "a link that leads outside")
        elif not source.is_file():
            report.note(area, "left out", name, "not a regular file")
        elif target.is_symlink() or (target.exists() and not target.is_file()):
            report.note(area, "differs", name, "something else stands there; it was kept")
        elif target.exists() and filecmp.cmp(source, target, shallow=False):
            report.count(area, "unchanged")
        elif target.exists() and not is_template(target):
            report.note(area, "differs", name, "the one that was there was kept")
        else:
            if not report.dry_run:
                _place(source, target, mode)
            report.count(area, "added")
    except OSError as error:
        report.note(area, "failed", name, error.strerror or str(error))


def _walk(root: Path, report: Report, area: Area) -> Iterator[Path]:
    """Every file below a folder in a fixed order; linked folders are not entered."""

    def unreadable(error: OSError) -> None:
        report.note(area, "failed", str(error.filename), error.strerror or str(error))

    for folder, inner, files in os.walk(root, onerror=unreadable):
        inner.sort()
        for name in sorted(files):
            yield Path(folder, name)
        for name in [name for name in inner if Path(folder, name).is_symlink()]:
            inner.remove(name)
            report.note(area, "refused", str(Path(folder, name).relative_to(root)), "a linked folder")


def _stays_within(link: Path, root: Path) -> bool:
    return link.resolve().is_relative_to(root.resolve())


def _place(source: Path, target: Path, mode: int | None) -> None:
    """The file appears whole or not at all, and never with more rights than it shall have."""
    private = mode is not None
    target.parent.mkdir(mode=0o700 if private else 0o755, parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as out, source.open("rb") as data:
            shutil.copyfileobj(data, out, 1024 * 1024)
        shutil.copystat(source, draft)
        if mode is not None:
            draft.chmod(mode)
        if target.exists():
            os.replace(draft, target)
        else:
            os.link(draft, target)
    finally:
        draft.unlink(missing_ok=True)
