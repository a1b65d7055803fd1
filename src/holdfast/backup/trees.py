"""Folders into pieces and back: cut so that a small change costs little, modes and links as they were."""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Final

from holdfast.backup.repository import Repository, SavedFile, SavedFolder, SavedLink, Tree
from holdfast.errors import Unavailable
from holdfast.home import private_opener

Cut = Callable[[IO[bytes]], Iterator[bytes]]

FILE_PIECE: Final = 1024**2
PAGES_PIECE: Final = 64 * 1024
MOST_PIECE: Final = 4 * 1024**2
_LINES: Final = 0x1FF
_READINGS: Final = 3


def in_pieces(size: int) -> Cut:
    """Cut every `size` bytes: for files that grow at their end, and databases that change page by page."""

    def cut(file: IO[bytes]) -> Iterator[bytes]:
        while data := file.read(size):
            yield data

    return cut


def at_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Cut where a line's own bytes say so, about every 500 lines: one put in between moves no other cut."""
    held: list[bytes] = []
    size = 0
    while line := file.readline(MOST_PIECE):
        held.append(line)
        size += len(line)
        if size >= MOST_PIECE or zlib.crc32(line) & _LINES == 0:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


class Saver:
    """Saves folders into a repository. A file that is as it was in the last backup is not read again."""

    def __init__(self, repository: Repository, known: Tree = Tree(), *, cut: Cut | None = None) -> None:  # noqa: B008
        self._repository = repository
        self._known: Mapping[str, SavedFile] = {file.path: file for file in known.files}
        self._cut = cut or in_pieces(FILE_PIECE)
        self.restless: list[str] = []

    def save(self, root: Path, leave_out: Callable[[PurePosixPath], bool] = lambda _: False) -> Tree:
        """All of a folder but what is left out; sockets and the like are not files and stay behind."""
        folders: list[SavedFolder] = []
        files: list[SavedFile] = []
        links: list[SavedLink] = []
        waiting = [PurePosixPath()]
        while waiting:
            at = waiting.pop()
            for entry in _entries(root / at):
                path = at / entry.name
                if leave_out(path):
                    continue
                if entry.is_symlink():
                    links.append(SavedLink(path=str(path), target=os.readlink(entry.path)))
                elif entry.is_dir(follow_symlinks=False):
                    mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
                    folders.append(SavedFolder(path=str(path), mode=mode))
                    waiting.append(path)
                elif entry.is_file(follow_symlinks=False):
                    files += self._file(Path(entry.path), str(path))
        by_path = sorted(folders, key=lambda one: one.path)
        return Tree(folders=tuple(by_path), files=tuple(files), links=tuple(links))

    def _file(self, path: Path, name: str) -> list[SavedFile]:
        """One file as it stood at one moment; nothing if it is gone meanwhile."""
        known = self._known.get(name)
        try:
            for _ in range(_READINGS):
                with open(path, "rb", opener=_not_followed) as file:
                    before = os.fstat(file.fileno())
                    if (
                        known is not None
                        and known.stamp == _stamp(before)
                        and self._repository.has(known.pieces)
                    ):
                        return [known]
                    found = self._read(file, name, before)
                    if _stamp(os.fstat(file.fileno())) == found.stamp:
                        return [found]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be read: {error.strerror}",
                code="backup_unreadable",
                hint="Mend its owner and permissions, or move it out of the home.",
            ) from error
        self.restless.append(name)
        return [found]

    def _read(self, file: IO[bytes], name: str, about: os.stat_result) -> SavedFile:
        whole = hashlib.sha256()
        pieces: list[str] = []
        size = 0
        for data in self._cut(file):
            whole.update(data)
            size += len(data)
            pieces.append(self._repository.put(data))
        return SavedFile(
            path=name,
            mode=stat.S_IMODE(about.st_mode),
            size=size,
            mtime_ns=about.st_mtime_ns,
            stamp=_stamp(about),
            sha256=whole.hexdigest(),
            pieces=tuple(pieces),
        )


def write_tree(repository: Repository, tree: Tree, root: Path) -> None:
    """Write a tree into a new folder: links last, so that no file is written through one."""
    for folder in tree.folders:
        inside(root, folder.path).mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in tree.files:
        write_file(repository, file, inside(root, file.path))
    for link in tree.links:
        inside(root, link.path).symlink_to(link.target)
    for folder in reversed(tree.folders):
        inside(root, folder.path).chmod(folder.mode & 0o777)


def write_file(repository: Repository, saved: SavedFile, path: Path) -> None:
    """Write one file, with the mode and the time that it had."""
    with open(path, "xb", opener=private_opener) as file:
        for name in saved.pieces:
            file.write(repository.get(name))
        file.flush()
        os.fchmod(file.fileno(), saved.mode & 0o777)
        os.utime(file.fileno(), ns=(saved.mtime_ns, saved.mtime_ns))


def inside(root: Path, name: str) -> Path:
    """A path that a manifest names, which may not lead out of its folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Unavailable(f"the backup names a path outside of its folder: {name}", code="backup_damaged")
    return root / path


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unavailable(
            f"{folder} cannot be read: {error.strerror}",
            code="backup_unreadable",
            hint="Mend its owner and permissions, or move it out of the home.",
        ) from error


def _not_followed(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _stamp(about: os.stat_result) -> str:
    return f"{about.st_size}.{about.st_mtime_ns}.{about.st_ctime_ns}.{about.st_ino}"
