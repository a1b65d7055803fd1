"""Copying files into a home: never over something that is there, never along a link that leads outside."""

from __future__ import annotations

import filecmp
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from holdfast.adopt.report import Area, Report
from holdfast.templates import is_template


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
