"""Files that go along with a delegate, in the workspace that it works in: there while it runs, gone after.

Each delegate has a folder of its own below `attachments`, so that nothing of anyone else's is ever touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from holdfast.continuation.payloads import Attachment
from holdfast.errors import Forbidden, InvalidInput, Unavailable

FOLDER: Final = "attachments"


@dataclass(frozen=True, slots=True)
class Placed:
    """A file as the delegate finds it: its path within the workspace."""

    path: str
    size: int
    mime_type: str | None


def checked_mount(path: str | None) -> str | None:
    """Where within the delegate's folder; `InvalidInput` for a path that could lead out of it."""
    if path is None:
        return None
    parts = path.split("/")
    if path.startswith("/") or ":" in parts[0] or ".." in parts:
        raise InvalidInput(
            f"mountPath {path[:80]!r} leads out of the workspace", hint="Use a relative path without `..`."
        )
    return str(PurePosixPath(path))


def place(
    workspace: Path, record_id: str, files: Sequence[Attachment], mount_path: str | None
) -> list[Placed]:
    """Write the files of a delegate; a repeat writes the same."""
    folder = workspace / FOLDER / record_id / (checked_mount(mount_path) or "")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _require_within(workspace, folder)
        return [_written(workspace, folder / file.name, file) for file in files]
    except OSError as error:
        raise Unavailable(
            f"the attachments could not be written: {error.strerror or error}", code="attachments_unwritten"
        ) from error


def remove(workspace: Path, record_id: str) -> None:
    """Take away what was placed, and whatever the delegate left beside it."""
    folder = workspace / FOLDER / record_id
    if folder.is_symlink() or not folder.is_dir():
        return
    _require_within(workspace, folder)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # it has others' files in it, or is gone already
        folder.parent.rmdir()


def told(task: str, placed: Sequence[Placed]) -> str:
    """A task with the word of where its files are."""
    if not placed:
        return task
    lines = [f"- {file.path} ({_about(file)})" for file in placed]
    head = "Files for this task, in your workspace until it ends (keep nothing there):"
    return "\n".join([task, "", head, *lines])


def _about(file: Placed) -> str:
    size = f"{file.size:,} bytes"
    return size if file.mime_type is None else f"{file.mime_type}, {size}"


def _written(workspace: Path, path: Path, file: Attachment) -> Placed:
    data = file.data
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "wb") as target:
        target.write(data)
    return Placed(path.relative_to(workspace).as_posix(), len(data), file.mime_type)


def _require_within(workspace: Path, folder: Path) -> None:
    """A link that someone laid there leads nowhere of ours."""
    if not folder.resolve().is_relative_to(workspace.resolve()):
        raise Forbidden("the folder for attachments leads out of the workspace", code="attachments_outside")
