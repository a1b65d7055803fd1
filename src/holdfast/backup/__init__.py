"""Backups of a home: taken while a gateway runs, as large as what changed, verified, and restored."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from sqlalchemy.engine.url import URL, make_url

from holdfast import __version__, migrations
from holdfast.backup.databases import (
    dump_postgres,
    require_empty,
    restore_postgres,
    revision_of,
    snapshot_sqlite,
)
from holdfast.backup.repository import (
    FORMAT,
    Manifest,
    Repository,
    SavedDatabase,
    SavedWorkspace,
    Tree,
    disk_trouble,
)
from holdfast.backup.trees import PAGES_PIECE, Saver, at_lines, in_pieces, inside, write_file, write_tree
from holdfast.clock import Clock, iso
from holdfast.config import load_config
from holdfast.errors import Conflict, InvalidInput, Unavailable
from holdfast.home import Home
from holdfast.log import Store
from holdfast.runtime import configured_url

__all__ = ["BackupResult", "Manifest", "Repository", "Restored", "restore", "take"]


DUMP: Final = "dump"
_ROUNDS: Final = 2
_DERIVED: Final = ("index", "logs", "gateway.json", "upgrades")
_SIDE_FILES: Final = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class BackupResult:
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
) -> BackupResult:
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
                return BackupResult(
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


@dataclass(frozen=True, slots=True)
class Restored:
    """Where everything went; `moved` is where what was in the home before lies now."""

    manifest: Manifest
    home: Path
    store: str | None
    moved: Path | None
    workspaces: dict[str, Path]
    migrates: bool


def restore(
    repository: Repository,
    manifest: Manifest,
    home: Home,
    clock: Clock,
    *,
    store_url: str | None = None,
    force: bool = False,
) -> Restored:
    """Put a backup into a home that is empty; with `force` what is there is moved aside, never deleted."""
    require_known(manifest)
    _require_place(home, force=force)
    bad = repository.damaged(manifest)
    if bad:
        raise Unavailable(
            f"{len(bad)} pieces of the backup {manifest.id} are damaged or gone; nothing was restored",
            code="backup_damaged",
            hint=f"Restore another one: see `holdfast backup {repository.path} --list`.",
        )
    with disk_trouble("restoring"):
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        stage = home.path / f".restoring-{secrets.token_hex(4)}"
        stage.mkdir(mode=0o700)
        try:
            return _Restoring(repository, manifest, home, clock, stage, store_url, force).run()
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def require_known(manifest: Manifest) -> None:
    """Refuse a store that a newer Holdfast wrote, before anything is touched."""
    database = manifest.database
    if database is not None and database.revision and not migrations.is_known(database.revision):
        raise Conflict(
            f"the backup {manifest.id} was made by Holdfast {manifest.version} and its store is at revision "
            f"{database.revision}; this is Holdfast {__version__}, which knows up to {migrations.HEAD}",
            code="store_newer",
            hint="Restore it with that version of Holdfast, or a newer one.",
        )


class _Restoring:
    def __init__(
        self,
        repository: Repository,
        manifest: Manifest,
        home: Home,
        clock: Clock,
        stage: Path,
        store_url: str | None,
        force: bool,
    ) -> None:
        self._repository = repository
        self._manifest = manifest
        self._home = home
        self._clock = clock
        self._stage = stage
        self._store_url = store_url
        self._force = force

    def run(self) -> Restored:
        files = self._stage / "home"
        files.mkdir(mode=0o700)
        write_tree(self._repository, self._manifest.files, files)
        database = self._manifest.database
        store = None if database is None else self._database(database, files)
        moved = self._change_places(files)
        if isinstance(store, _Outside):
            store.put()
        return Restored(
            manifest=self._manifest,
            home=self._home.path,
            store=None if store is None else str(store),
            moved=moved,
            workspaces={name: self._workspace(name) for name in self._manifest.workspaces},
            migrates=database is not None and database.revision != migrations.HEAD,
        )

    def _database(self, database: SavedDatabase, files: Path) -> str | _Outside:
        """PostgreSQL is filled here, and SQLite's file written beside the others or near its own place."""
        if database.engine == "postgresql":
            return self._postgres(database, files)
        [file] = database.tree.files
        place = Path(database.path or "holdfast.db")
        if self._store_url is not None:
            place = _sqlite_path(self._store_url)
        if not place.is_absolute():
            target = inside(files, str(place))
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self._repository, file, target)
            return str(self._home.path / place)
        outside = _Outside(place, self._clock)
        outside.require(force=self._force)
        write_file(self._repository, file, outside.draft)
        return outside

    def _postgres(self, database: SavedDatabase, files: Path) -> str:
        url = self._postgres_url(files)
        if not self._force:
            require_empty(url)
        dump = self._stage / "dump"
        dump.mkdir(mode=0o700)
        write_tree(self._repository, database.tree, dump)
        restore_postgres(url, dump, replace=self._force)
        return url.render_as_string(hide_password=True)

    def _postgres_url(self, files: Path) -> URL:
        given = self._store_url or configured_url(Home(files), load_config(Home(files).config))
        url = make_url(given)
        if url.get_backend_name() != "postgresql":
            raise InvalidInput(
                "the backup holds a PostgreSQL database, and no address to restore it to is known",
                hint="Give one with --store postgresql+psycopg://…",
            )
        return url

    def _change_places(self, files: Path) -> Path | None:
        """What was there goes aside, what was restored comes in its place, on the same disk."""
        home = self._home.path
        old = [path for path in home.iterdir() if path != self._stage]
        aside = home / f"before-restore-{self._clock.now()}"
        if old:
            aside.mkdir(mode=0o700)
            for path in old:
                path.rename(aside / path.name)
        for path in list(files.iterdir()):
            path.rename(home / path.name)
        return aside if old else None

    def _workspace(self, name: str) -> Path:
        """To where it was if nothing is there now; else into the home. Nothing outside is overwritten."""
        saved = self._manifest.workspaces[name]
        place = Path(saved.path)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            place = self._home.path / f"restored-workspace-{name}"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_tree(self._repository, saved.tree, place)
        return place


class _Outside:
    """The file of a store that does not lie in the home."""

    def __init__(self, place: Path, clock: Clock) -> None:
        self.place = place
        self.draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        self._aside = place.with_name(f"{place.name}.before-restore-{clock.now()}")

    def require(self, *, force: bool) -> None:
        if self.place.exists() and not force:
            raise Conflict(
                f"there is a store at {self.place} already",
                hint="Give another place with --store, or --force to move it aside.",
            )
        self.place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self) -> None:
        for end in _SIDE_FILES:
            old = self.place.with_name(self.place.name + end)
            if old.exists():
                old.rename(self._aside.with_name(self._aside.name + end))
        self.draft.rename(self.place)

    def __str__(self) -> str:
        return str(self.place)


def _require_place(home: Home, *, force: bool) -> None:
    path = home.path
    if path.exists() and not path.is_dir():
        raise InvalidInput(f"{path} is not a folder", hint="Give another with --to.")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise Conflict(
            f"the home {path} is not empty",
            hint="Give another with --to, or --force: what is there is then moved aside.",
        )


def _sqlite_path(text: str) -> Path:
    if "://" not in text:
        return Path(text).expanduser().absolute()
    url = make_url(text)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise InvalidInput(
            "the backup holds a SQLite store, which can only be restored to a file",
            hint="Restore it, then move it over with `holdfast store copy`.",
        )
    return Path(url.database).absolute()
