"""Files below a root, opened step by step: no link is followed, whatever is swapped meanwhile.

Every check is on the open file or folder itself. The root may be a link, since the operator chose it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.errors import Conflict, Forbidden, HoldfastError, InvalidInput, NotFound, Unavailable
from holdfast.ids import uuid7

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o644
_RIGHTS: Final = 0o777  # a program that ran as its owner does not go on so with other contents


@contextmanager
def folder_at(root: Path, steps: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder `root/steps`; `make` makes the folders that are missing."""
    shown = "/".join(steps) or "."
    with _told(shown):
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in steps:
            with _told(shown):
                inner = _descend(folder, step, make)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


@contextmanager
def opened(root: Path, steps: Sequence[str]) -> Iterator[BinaryIO]:
    """A regular file for reading."""
    *above, name = steps
    shown = "/".join(steps)
    with folder_at(root, above) as folder:
        with _told(shown):
            file = os.open(name, _READ, dir_fd=folder)
        with os.fdopen(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise InvalidInput(f"{shown!r} is not a regular file", code="path_refused")
            yield stream


def kind_at(root: Path, steps: Sequence[str]) -> os.stat_result | None:
    """What lies there, a link as itself; None if there is nothing."""
    if not steps:
        return root.stat()
    try:
        with folder_at(root, steps[:-1]) as folder:
            return _facts(folder, steps[-1])
    except NotFound:
        return None


def listed(root: Path, steps: Sequence[str], most: int) -> list[str]:
    """The names in a folder in order, folders with a slash behind them; at most `most` and one more."""
    with folder_at(root, steps) as folder, os.scandir(folder) as found:
        names = [f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name for e in found]
    return sorted(names)[: most + 1]


def write_at(root: Path, steps: Sequence[str], data: bytes, *, expected: bytes | None = None) -> bool:
    """Put a file in place at once, whole; its mode is kept. Gives whether it is new.

    With `expected`, a file that no longer holds just that is left as it is (`Conflict`).
    """
    *above, name = steps
    shown = "/".join(steps)
    with folder_at(root, above, make=True) as folder, _told(shown):
        before = _facts(folder, name)
        if before is not None and not stat.S_ISREG(before.st_mode):
            raise InvalidInput(f"{shown!r} is a link or not a regular file", code="path_refused")
        if expected is not None and _content(folder, name, len(expected) + 1) != expected:
            raise Conflict(f"{shown!r} changed meanwhile", code="file_changed", hint="Read it again.")
        draft = f".{name[:100]}.{uuid7()}.tmp"
        mode = _MODE if before is None else before.st_mode & _RIGHTS
        try:
            _write_new(folder, draft, data, mode, exact=before is not None)
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise
        return before is None


def delete_at(root: Path, steps: Sequence[str]) -> str:
    """Remove a file, a link (never what it leads to) or an empty folder; says which it was."""
    *above, name = steps
    with folder_at(root, above) as folder, _told("/".join(steps)):
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(facts.st_mode):
            os.rmdir(name, dir_fd=folder)
            return "empty folder"
        os.unlink(name, dir_fd=folder)
        return "link" if stat.S_ISLNK(facts.st_mode) else "file"


def _descend(folder: int, step: str, make: bool) -> int:
    try:
        return os.open(step, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(step, dir_fd=folder)
        return os.open(step, _FOLDER, dir_fd=folder)


def _write_new(folder: int, name: str, data: bytes, mode: int, *, exact: bool) -> None:
    file = os.open(name, _NEW, mode, dir_fd=folder)
    with os.fdopen(file, "wb") as stream:
        if exact:
            os.fchmod(file, mode)
        stream.write(data)
        stream.flush()
        os.fsync(file)


def _facts(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _content(folder: int, name: str, most: int) -> bytes:
    with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as stream:
        return stream.read(most)


@contextmanager
def _told(shown: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _meaning(error, shown) from error


def _meaning(error: OSError, shown: str) -> HoldfastError:
    match error.errno:
        case errno.ENOENT:
            return NotFound(f"there is no {shown!r}", code="unknown_file")
        case errno.ELOOP | errno.ENOTDIR:
            return InvalidInput(
                f"{shown!r} leads through a link or through something that is no folder",
                code="path_refused",
                hint="Links are not followed; name the file itself.",
            )
        case errno.EISDIR:
            return InvalidInput(f"{shown!r} is a folder", code="path_refused")
        case errno.ENOTEMPTY | errno.EEXIST:
            return Conflict(f"{shown!r} is a folder that is not empty", code="folder_not_empty")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return Forbidden(f"{shown!r} may not be touched: {error.strerror}", code="path_refused")
        case errno.ENAMETOOLONG:
            return InvalidInput("the path is too long", code="path_refused")
    return Unavailable(f"{shown!r} cannot be used: {error.strerror}", code="file_failed")
