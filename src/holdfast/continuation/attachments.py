"""Files that go along with a delegate: beside the store until its record ends, where it works while it runs.

Each delegate has a folder of its own below `attachments`, so that nothing of anyone else's is ever touched.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from holdfast.errors import Forbidden, InvalidInput, NotFound, TooLarge, Unavailable

MAX_BYTES: Final = 8 * 1024 * 1024
MOST_FILES: Final = 50
_FRESH_SECONDS: Final = 3_600
_NAME: Final = re.compile(r"[^/\\\x00-\x1f]{1,255}")


@dataclass(frozen=True, slots=True)
class Attachment:
    """One file for a delegate; `name` is a bare file name."""

    name: str
    content: str
    encoding: Literal["utf8", "base64"] = "utf8"
    mime_type: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in (".", ".."):
            raise InvalidInput(f"not a file name: {self.name[:80]!r}", hint="Use a name without a path.")
        if self.encoding == "base64":
            try:
                base64.b64decode(self.content, validate=True)
            except (binascii.Error, ValueError) as error:
                raise InvalidInput(
                    f"{self.name[:80]!r} is not base64", hint='Use encoding "utf8".'
                ) from error

    @property
    def data(self) -> bytes:
        if self.encoding == "base64":
            return base64.b64decode(self.content)
        return self.content.encode("utf-8", "surrogatepass")


class Payloads:
    """A folder of them, one file for each record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, record_id: str, attachments: Sequence[Attachment]) -> None:
        """On disk before this returns; a repeat writes the same."""
        data = json.dumps([asdict(one) for one in attachments]).encode()
        if len(data) > MAX_BYTES or len(attachments) > MOST_FILES:
            raise TooLarge(
                f"the attachments have {len(data):,} bytes; {MAX_BYTES:,} are the most",
                hint="Write large things to a file in the workspace and name it in the task.",
            )
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = self._path(record_id).with_suffix(".partial")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path(record_id))

    def read(self, record_id: str) -> tuple[Attachment, ...]:
        try:
            found = json.loads(self._path(record_id).read_bytes())
        except FileNotFoundError as error:
            raise NotFound("the attachments of this delegate are gone", code="attachments_gone") from error
        return tuple(Attachment(**one) for one in found)

    def ids(self) -> list[str]:
        """The records whose attachments are here."""
        return [path.stem for path in self._folder.glob("*.json")]

    def is_old(self, record_id: str) -> bool:
        """Whether they were not written just now: then their record is there, if it ever will be."""
        try:
            return self._path(record_id).stat().st_mtime < time.time() - _FRESH_SECONDS
        except FileNotFoundError:
            return False

    def scrub(self, record_ids: Iterable[str]) -> None:
        for id_ in record_ids:
            self._path(id_).unlink(missing_ok=True)

    def _path(self, record_id: str) -> Path:
        return self._folder / f"{re.sub(r'[^A-Za-z0-9-]', '_', record_id)}.json"


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


def task_with_files(task: str, placed: Sequence[Placed]) -> str:
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
