"""Taking a backup of a home, while a gateway runs or not."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from holdfast import __version__
from holdfast.backup.databases import dump_postgres, revision_of, snapshot_sqlite
from holdfast.backup.repository import (
    FORMAT,
    Manifest,
    Repository,
    SavedDatabase,
    SavedWorkspace,
    Tree,
    disk_trouble,
)
from holdfast.backup.trees import PAGES_PIECE, Saver, at_lines, in_pieces
from holdfast.clock import Clock, iso
from holdfast.errors import InvalidInput, Unavailable
from holdfast.home import Home
from holdfast.log import Store

DUMP: Final = "dump"
_ROUNDS: Final = 2
_DERIVED: Final = ("index", "logs", "gateway.json", "upgrades")
_SIDE_FILES: Final = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup that was taken and verified; `restless` are files that changed each time they were read."""

    manifest: Manifest
    written_bytes: int
    removed: tuple[str, ...]
    healed: int
    problems: tuple[str, ...]
    restless: tuple[str, ...]


def take(
    repository: Repository,
    home: Home,
    store: Store | None,
    clock: Clock,
    *,
    workspaces: Mapping[str, Path],
    keep: int | None = None,
) -> Taken:
    """Save the home and its store, and read all of it again; with None for a store, its files alone.

    A piece of an earlier backup that has been damaged since is written anew.
    """
    if repository.path.resolve().is_relative_to(home.path.resolve()):
        raise InvalidInput("the backups would lie in the home itself", hint="Give a folder outside of it.")
    with disk_trouble("the backup"), repository.locked(), repository.scratch() as scratch:
        healed = 0
        for number in range(_ROUNDS):
            round_ = _Round(repository, home, store, scratch / str(number))
            manifest = round_.manifest(clock, workspaces)
            bad = repository.damaged(manifest)
            if not bad:
                repository.add(manifest)
                removed = repository.keep(keep) if keep else []
                return Taken(
                    manifest,
                    repository.written_bytes,
                    tuple(removed),
                    healed,
                    tuple(round_.problems),
                    tuple(round_.restless),
                )
            healed += len(bad)
            repository.discard(bad)
    raise Unavailable(
        f"what was written to {repository.path} does not read back as it was written",
        code="backup_damaged",
        hint="Check that disk, or give a folder on another.",
    )


class _Round:
    """One reading of all that is saved: the store first, since files are there before rows name them."""

    def __init__(self, repository: Repository, home: Home, store: Store | None, scratch: Path) -> None:
        self._repository = repository
        self._home = home
        self._store = store
        self._scratch = scratch
        scratch.mkdir(mode=0o700)
        known = repository.manifests()
        self._last = known[-1] if known else None
        self.problems: list[str] = []
        self.restless: list[str] = []

    def manifest(self, clock: Clock, workspaces: Mapping[str, Path]) -> Manifest:
        at = clock.now()
        stamp = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y%m%dT%H%M%S%f")[:-3]
        database = self._database()
        last = self._last.files if self._last is not None else Tree()
        files = self._save(Saver(self._repository, last), self._home.path)
        return Manifest(
            format=FORMAT,
            id=f"{stamp}Z-{secrets.token_hex(3)}",
            created_at=iso(at),
            version=__version__,
            home=str(self._home.path),
            database=database,
            files=files,
            workspaces={name: self._workspace(name, path) for name, path in self._outside(workspaces)},
        )

    def _database(self) -> SavedDatabase | None:
        store = self._store
        if store is None:
            return None
        revision = revision_of(store)
        if store.postgres:
            dump_postgres(store, self._scratch / DUMP)
            tree = Saver(self._repository, cut=at_lines).save(self._scratch / DUMP)
            return SavedDatabase(engine="postgresql", revision=revision, path=None, tree=tree)
        copy = self._scratch / "copy"
        copy.mkdir(mode=0o700)
        self.problems += snapshot_sqlite(store, copy / "holdfast.db")
        tree = Saver(self._repository, cut=in_pieces(PAGES_PIECE)).save(copy)
        path = _from_home(self._home, Path(str(store.url.database)))
        return SavedDatabase(engine="sqlite", revision=revision, path=path, tree=tree)

    def _workspace(self, name: str, path: Path) -> SavedWorkspace:
        last = self._last.workspaces.get(name) if self._last is not None else None
        saver = Saver(self._repository, last.tree if last is not None else Tree())
        return SavedWorkspace(path=str(path), tree=self._save(saver, path))

    def _save(self, saver: Saver, root: Path) -> Tree:
        tree = saver.save(root, self._left_out if root == self._home.path else lambda _: False)
        self.restless += saver.restless
        return tree

    def _outside(self, workspaces: Mapping[str, Path]) -> list[tuple[str, Path]]:
        home = self._home.path.resolve()
        return [(n, p) for n, p in workspaces.items() if p.is_dir() and not p.resolve().is_relative_to(home)]

    def _left_out(self, path: PurePosixPath) -> bool:
        """What is derived, what is said elsewhere, and the store's own files, which are saved apart."""
        first = path.parts[0]
        if first in _DERIVED or first.startswith(("before-restore-", ".restoring-")):
            return True
        if first == "agents" and len(path.parts) == 3 and path.name == "qmd":
            return True
        return self._home.path / path in self._store_files()

    def _store_files(self) -> set[Path]:
        places = {self._home.database}
        if self._store is not None and not self._store.postgres:
            places.add(Path(str(self._store.url.database)))
        return {place.with_name(place.name + end) for place in places for end in _SIDE_FILES}


def _from_home(home: Home, file: Path) -> str:
    return str(file.relative_to(home.path)) if file.is_relative_to(home.path) else str(file)
