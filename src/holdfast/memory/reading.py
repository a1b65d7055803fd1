"""Opening a file of a collection so that nothing outside it can be read, whatever is swapped meanwhile."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from holdfast.errors import InvalidInput, NotFound

MAX_BYTES: Final = 16 * 1024 * 1024


def read_within(root: Path, path: str, *, most: int = MAX_BYTES) -> bytes:
    """The bytes of `root/path`. Each step is opened from the folder before it and may not be a link.

    Because the check and the read are on the same open file, a file that is swapped for a link, a device or
    another file in between cannot be used to get out.
    """
    folder = _open_folder(root)
    try:
        *steps, name = path.split("/")
        for step in steps:
            folder = _descend(folder, step, path)
        return _read(folder, name, path, most)
    finally:
        os.close(folder)


def _open_folder(root: Path) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(f"the folder of this collection is not there: {root}", code="unknown_file") from error


def _descend(folder: int, step: str, path: str) -> int:
    try:
        inner = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise _refusal(error, path) from error
    os.close(folder)
    return inner


def _read(folder: int, name: str, path: str, most: int) -> bytes:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise _refusal(error, path) from error
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            raise InvalidInput(f"{path!r} is not a regular file", code="path_refused")
        if facts.st_size > most:
            raise InvalidInput(f"{path!r} is larger than {most} bytes", code="file_too_large")
        with os.fdopen(file, "rb", closefd=False) as stream:
            return stream.read(most)
    finally:
        os.close(file)


def _refusal(error: OSError, path: str) -> InvalidInput | NotFound:
    if isinstance(error, FileNotFoundError):
        return NotFound(f"no file {path!r}", code="unknown_file", hint="See `holdfast memory search`.")
    return InvalidInput(f"{path!r} cannot be read: it is a link or not a plain file", code="path_refused")
