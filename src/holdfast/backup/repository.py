"""A folder of backups: what was saved lies there in pieces, each kept once under its hash, and one manifest
for each backup says which pieces make which file.

    DIR/holdfast-backups.json    what this folder is
    DIR/manifests/ID.json        one backup each
    DIR/pieces/ab/abcd…          zlib, named by the SHA-256 of what is in it

Everything in it is for its owner only: it holds the credentials of the home.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from holdfast.errors import Conflict, InvalidInput, NotFound, Unavailable
from holdfast.home import private_opener

FORMAT: Final = 1
MARKER: Final = "holdfast-backups.json"
_COMPRESSION: Final = 3


Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class SavedFile(_Record):
    """One file; `stamp` tells whether the file on disk is still the one that was read."""

    path: str
    mode: int
    size: int
    mtime_ns: int
    stamp: str
    sha256: Digest
    pieces: tuple[Digest, ...]


class SavedFolder(_Record):
    path: str
    mode: int


class SavedLink(_Record):
    path: str
    target: str


class Tree(_Record):
    """A folder with all that is in it, by paths relative to it."""

    folders: tuple[SavedFolder, ...] = ()
    files: tuple[SavedFile, ...] = ()
    links: tuple[SavedLink, ...] = ()


class SavedDatabase(_Record):
    """The store: SQLite's file, or the folder that `pg_dump` wrote. A `path` in the home is from there on."""

    engine: Literal["sqlite", "postgresql"]
    revision: str
    path: str | None
    tree: Tree


class SavedWorkspace(_Record):
    """A workspace that is configured to lie outside of the home."""

    path: str
    tree: Tree


class Manifest(_Record):
    """One backup."""

    format: int
    id: str
    created_at: str
    version: str
    home: str
    files: Tree
    database: SavedDatabase | None
    workspaces: dict[str, SavedWorkspace] = {}

    @property
    def trees(self) -> list[Tree]:
        database = [] if self.database is None else [self.database.tree]
        return [*database, self.files, *(one.tree for one in self.workspaces.values())]

    @property
    def all_files(self) -> Iterator[SavedFile]:
        return (file for tree in self.trees for file in tree.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.all_files)


class DamagedPiece(Exception):
    """A piece that is not there, or is not what its name says."""


class Repository:
    """Pieces and manifests under one folder. One process at a time writes: see `locked`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._manifests = path / "manifests"
        self._pieces = path / "pieces"
        self.written_bytes = 0
        self.written_pieces = 0

    @classmethod
    def create(cls, path: Path) -> Repository:
        """The repository at `path`, made if there is nothing yet; a folder of other things is refused."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(path.iterdir()) and not (path / MARKER).is_file():
                raise Conflict(
                    f"{path} is not a folder of backups and is not empty", hint="Give an empty folder."
                )
            found = cls(path)
            for folder in (found._manifests, found._pieces):
                folder.mkdir(mode=0o700, exist_ok=True)
            if not (path / MARKER).exists():
                _write(path / MARKER, json.dumps({"format": FORMAT}).encode())
        except OSError as error:
            raise _unusable(path, error) from error
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Repository:
        try:
            known = json.loads((path / MARKER).read_bytes())["format"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise NotFound(
                f"there are no backups at {path}", hint="Make one with `holdfast backup DIR`."
            ) from error
        if known != FORMAT:
            raise _newer(f"the backups at {path}")
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes or removes meanwhile."""
        with open(self.path / "lock", "ab", opener=private_opener) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Unavailable(
                    f"another backup to {self.path} is under way",
                    code="backup_running",
                    hint="Wait until it is done.",
                ) from error
            yield

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A private folder beside the pieces, gone at the end."""
        import shutil

        folder = self.path / f"scratch-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def put(self, data: bytes) -> str:
        """Keep a piece; one that is there is not written again."""
        name = hashlib.sha256(data).hexdigest()
        path = self._piece(name)
        if not path.exists():
            packed = zlib.compress(data, _COMPRESSION)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write(path, packed)
            self.written_pieces += 1
            self.written_bytes += len(packed)
        return name

    def has(self, pieces: Iterable[str]) -> bool:
        return all(self._piece(name).exists() for name in pieces)

    def get(self, name: str) -> bytes:
        """A piece, held against its name."""
        try:
            data = zlib.decompress(self._piece(name).read_bytes())
        except (OSError, zlib.error) as error:
            raise DamagedPiece(name) from error
        if hashlib.sha256(data).hexdigest() != name:
            raise DamagedPiece(name)
        return data

    def discard(self, names: Iterable[str]) -> None:
        for name in names:
            self._piece(name).unlink(missing_ok=True)

    def manifests(self) -> list[Manifest]:
        """All backups, the oldest first."""
        return [self._read(path) for path in sorted(self._manifests.glob("*.json"))]

    def manifest(self, id_: str | None = None) -> Manifest:
        """The backup of this id, or the newest."""
        known = sorted(path.stem for path in self._manifests.glob("*.json"))
        chosen = id_ or (known[-1] if known else None)
        if chosen not in known:
            said = "there is no backup" if chosen is None else f"there is no backup {chosen}"
            raise NotFound(f"{said} at {self.path}", hint=f"See `holdfast backup {self.path} --list`.")
        return self._read(self._manifests / f"{chosen}.json")

    def add(self, manifest: Manifest) -> None:
        """Make a backup known, once all its pieces are on the disk."""
        os.sync()
        _write(self._manifests / f"{manifest.id}.json", manifest.model_dump_json().encode())
        _sync_folder(self._manifests)

    def damaged(self, manifest: Manifest) -> set[str]:
        """Read every piece of a backup again; those that do not hold."""
        bad: set[str] = set()
        for file in manifest.all_files:
            whole = hashlib.sha256()
            for name in file.pieces:
                try:
                    whole.update(self.get(name))
                except DamagedPiece:
                    bad.add(name)
            if not bad.intersection(file.pieces) and whole.hexdigest() != file.sha256:
                bad.update(file.pieces)
        return bad

    def keep(self, count: int) -> list[str]:
        """Remove all but the newest `count` backups, and every piece that none of those needs."""
        known = self.manifests()
        gone = [manifest.id for manifest in known[:-count]]
        for id_ in gone:
            (self._manifests / f"{id_}.json").unlink()
        needed = {name for each in known[-count:] for file in each.all_files for name in file.pieces}
        for path in self._pieces.glob("*/*"):
            if path.name not in needed:
                path.unlink()
        return gone

    def _piece(self, name: str) -> Path:
        return self._pieces / name[:2] / name

    def _read(self, path: Path) -> Manifest:
        try:
            raw = json.loads(path.read_bytes())
            if isinstance(raw, dict) and raw.get("format") != FORMAT:
                raise _newer(f"the backup {path.stem}")
            return Manifest.model_validate(raw)
        except (OSError, ValueError, ValidationError) as error:
            raise Unavailable(
                f"the manifest {path} cannot be read: {error}",
                code="backup_damaged",
                hint="Use another backup of the folder: --list.",
            ) from error


def _write(path: Path, data: bytes) -> None:
    """A file that appears whole or not at all, for its owner only."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(draft, "wb", opener=private_opener) as file:
            file.write(data)
            if path.suffix == ".json":
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _newer(what: str) -> Conflict:
    return Conflict(
        f"{what} have another format than this version of Holdfast knows ({FORMAT})",
        code="backup_newer",
        hint="Use the version of Holdfast that wrote them, or a newer one.",
    )


@contextmanager
def disk_trouble(doing: str) -> Iterator[None]:
    """What the disk says, in words."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{doing} was broken off: {error.strerror or error}"
            + (f" ({error.filename})" if error.filename else ""),
            code="disk_trouble",
            hint="Free some space or mend the disk, and run it again.",
        ) from error


def _unusable(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"{path} cannot be used for backups: {error.strerror}", hint="Give a folder that can be written."
    )
