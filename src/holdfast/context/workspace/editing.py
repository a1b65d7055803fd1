"""A workspace's files as a person edits them: saved against what was read, and no text before is lost."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from holdfast.context.workspace.files import ORDER
from holdfast.errors import Conflict, InvalidInput, NotFound, TooLarge, Unavailable
from holdfast.home import private_opener

MOST_BYTES: Final = 1_000_000
MOST_VERSIONS: Final = 50
MOST_FILES: Final = 2_000
_PATH: Final = re.compile(r"(?:memory/(?:[^/.\0\\][^/\0\\]*/)*)?[^/.\0\\][^/\0\\]*\.md")
_PLAIN: Final = re.compile(r"(?:[^/.\\][^/\\]*/){0,8}[^/.\\][^/\\]*")
MOST_PATH: Final = 200
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    path: str
    size: int
    at: int
    """When it was last changed, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Version:
    """A text that a file had, by the time from which it had it."""

    at: int
    size: int
    hash: str


class EditableFiles:
    """What an agent is told to be and what it notes: the files of its workspace that a person may edit.

    `kept` is where texts go that a file had before; each folder there is one file's.
    """

    def __init__(self, workspace: Path, kept: Path) -> None:
        self._workspace = workspace
        self._kept = kept

    def checked(self, path: str) -> str:
        """A path that may be edited here; `InvalidInput` for others."""
        return _checked(path)

    def is_kept(self, path: str) -> bool:
        return _PATH.fullmatch(path) is not None

    def listing(self) -> list[WorkspaceFile]:
        """Those that are there, the ones with a meaning of their own first."""
        found = [self._seen(name) for name in ORDER]
        notes = [self._seen(path) for path in self._notes()]
        return [one for one in (*found, *notes) if one is not None]

    def read(self, path: str) -> str:
        """The text; `NotFound` where the file is not there."""
        data = self._bytes(self.checked(path))
        if data is None:
            raise NotFound(
                f"no file {path!r}", code="unknown_file", hint="It is made when it is first saved."
            )
        return data.decode("utf-8", "replace")

    def save(self, path: str, text: str, *, before: str | None, now: int) -> None:
        """Write the whole text in one step, if the file is still what `before` is the digest of (None: not
        there)."""
        data = text.encode("utf-8", "replace")
        if len(data) > MOST_BYTES:
            raise TooLarge(f"a file has at most {MOST_BYTES} bytes", hint="Split it in two.")
        there = self._bytes(self.checked(path))
        if (None if there is None else _hash(there)) != before:
            raise Conflict(
                f"{path} was changed meanwhile",
                code="file_changed",
                hint="Read it again, and put your changes into what it is now.",
            )
        if there is not None:
            self.keep(path, there, now - 1)
        try:
            self._replace(path, data)
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be written: {error.strerror}", code="memory_readonly"
            ) from error
        self.keep(path, data, now)

    def keep(self, path: str, data: bytes, at: int) -> None:
        """Keep a text as one that the file had; the one that was kept last is not kept twice."""
        if not self.is_kept(path) or len(data) > MOST_BYTES:
            return
        folder = self._folder(path)
        versions = self.history(path)
        if versions and versions[0].hash == _hash(data):
            return
        for step in (*reversed(folder.parents), folder):
            step.mkdir(mode=0o700, exist_ok=True)
        at = max(at, versions[0].at + 1) if versions else at
        with open(folder / f"{at:015d}.md", "wb", opener=private_opener) as file:
            file.write(data)
        for old in versions[MOST_VERSIONS - 1 :]:
            (folder / f"{old.at:015d}.md").unlink(missing_ok=True)

    def history(self, path: str) -> list[Version]:
        """The texts that were kept, newest first."""
        folder = self._folder(self.checked(path))
        files = sorted(folder.glob("*.md"), reverse=True) if folder.is_dir() else []
        return [Version(int(one.stem), one.stat().st_size, _hash(one.read_bytes())) for one in files]

    def version(self, path: str, at: int) -> str:
        found = self._folder(self.checked(path)) / f"{at:015d}.md"
        if not found.is_file():
            raise NotFound(f"{path!r} has no such version", code="unknown_version")
        return found.read_text("utf-8", "replace")

    def forget(self, needle: str) -> int:
        """Take out of all that is kept the versions that hold a text; says how many."""
        held = [one for one in self._kept.glob("*/*.md") if needle in one.read_text("utf-8", "replace")]
        for one in held:
            one.unlink(missing_ok=True)
        return len(held)

    def _notes(self) -> Iterator[str]:
        for folder, names, files in os.walk(self._workspace / "memory"):
            names[:] = sorted(name for name in names if not name.startswith("."))
            below = Path(folder).relative_to(self._workspace).as_posix()
            for count, name in enumerate(sorted(files, reverse=True)):
                if count < MOST_FILES and _PATH.fullmatch(f"{below}/{name}"):
                    yield f"{below}/{name}"

    def _seen(self, path: str) -> WorkspaceFile | None:
        try:
            facts = os.lstat(self._workspace / path)
        except OSError:
            return None
        if not stat.S_ISREG(facts.st_mode):
            return None
        return WorkspaceFile(path, facts.st_size, facts.st_mtime_ns // 1_000_000)

    def _folder(self, path: str) -> Path:
        return self._kept / quote(path, safe="")

    def _bytes(self, path: str) -> bytes | None:
        with self._within(path, make=False) as (folder, name):
            if folder is None:
                return None
            try:
                file = os.open(
                    name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
                )
            except FileNotFoundError:
                return None
            except OSError as error:
                raise _refused(path) from error
            with os.fdopen(file, "rb") as stream:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise _refused(path)
                return stream.read(MOST_BYTES + 1)

    def _replace(self, path: str, data: bytes) -> None:
        self._workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._within(path, make=True) as (folder, name):
            if folder is None:  # else it would be written to wherever the program runs
                raise FileNotFoundError(errno.ENOENT, "its folder is not there")
            fresh = f".{name}.new"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(fresh, flags, 0o600, dir_fd=folder), "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)

    @contextlib.contextmanager
    def _within(self, path: str, *, make: bool) -> Iterator[tuple[int | None, str]]:
        """The folder of a file, opened step by step so that none can be a link to elsewhere."""
        *steps, name = path.split("/")
        opened: list[int] = []
        try:
            folder: int | None = None
            for step in (str(self._workspace), *steps):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(step, 0o700, dir_fd=folder)
                folder = os.open(step, _FOLDER if opened else _FOLDER & ~os.O_NOFOLLOW, dir_fd=folder)
                opened.append(folder)
        except FileNotFoundError:
            yield None, name
            return
        except OSError as error:
            raise _refused(path) from error
        else:
            yield opened[-1], name
        finally:
            for one in opened:
                os.close(one)


class TeamFiles(EditableFiles):
    """All plain files of a team's folder, as its members edit them; hidden ones and links are not."""

    def checked(self, path: str) -> str:
        if len(path) > MOST_PATH or not path.isprintable() or not _PLAIN.fullmatch(path):
            raise InvalidInput(
                f"{path[:200]!r} is no file of a team",
                code="path_refused",
                hint="Use plans/may.md.",
            )
        return path

    def is_kept(self, path: str) -> bool:
        return True

    def listing(self) -> list[WorkspaceFile]:
        return [one for path in self._paths() if (one := self._seen(path)) is not None]

    def _paths(self) -> list[str]:
        found: list[str] = []
        for folder, names, files in os.walk(self._workspace):
            names[:] = sorted(name for name in names if not name.startswith("."))
            below = Path(folder).relative_to(self._workspace)
            found += [(below / name).as_posix() for name in sorted(files) if not name.startswith(".")]
            if len(found) >= MOST_FILES:
                break
        return found[:MOST_FILES]


def digest(text: str) -> str:
    """What `save` compares by."""
    return _hash(text.encode("utf-8", "replace"))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checked(path: str) -> str:
    if len(path) > 512 or not _PATH.fullmatch(path) or any(ord(char) < 32 for char in path):
        raise InvalidInput(
            f"{path[:200]!r} is no file that can be edited here",
            code="path_refused",
            hint="Use a name such as MEMORY.md, or a path such as memory/2026-01-31.md.",
        )
    if not path.startswith("memory/") and path not in ORDER:
        raise InvalidInput(
            f"{path!r} has no meaning in a workspace",
            code="path_refused",
            hint=f"Those that have: {', '.join(ORDER)}, and whatever lies in memory/.",
        )
    return path


def _refused(path: str) -> InvalidInput:
    return InvalidInput(f"{path!r} is a link or not a plain file", code="path_refused")
