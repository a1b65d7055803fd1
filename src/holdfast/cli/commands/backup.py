"""`holdfast backup` and `holdfast restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import print_json, print_table, size
from holdfast.cli.root import App, Command, json_option, pass_app

if TYPE_CHECKING:
    from holdfast.backup import BackupResult, Restored
    from holdfast.home import Home
    from holdfast.log import Store

Folder = click.Path(path_type=Path)


@click.command(cls=Command)
@click.argument("folder", metavar="DIR", type=Folder)
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Remove all but the newest N backups.")
@click.option("--no-database", is_flag=True, help="Files alone, where the database has backups of its own.")
@click.option("--list", "listed", is_flag=True, help="List the backups in DIR.")
@click.option("--verify", is_flag=True, help="Read every backup in DIR again; exit 1 if one is damaged.")
@json_option
@pass_app
@click.pass_context
def backup(
    ctx: click.Context,
    app: App,
    folder: Path,
    keep: int | None,
    no_database: bool,
    listed: bool,
    verify: bool,
    as_json: bool,
) -> None:
    """Save the home and its store into DIR, while a gateway runs or not; only what changed is written.

    \b
    Examples:
      holdfast backup /mnt/backups/holdfast --keep 30
      holdfast backup /mnt/backups/holdfast --list
    """
    place = folder.expanduser().absolute()
    if listed:
        _list(place, as_json)
    elif verify:
        ctx.exit(_verify(place, as_json))
    else:
        _tell_taken(place, _take(app, place, keep, no_database), as_json)


@click.command(cls=Command)
@click.argument("folder", metavar="DIR", type=Folder)
@click.option("--to", "target", metavar="HOME", type=Folder, help="The home to make; else that of --home.")
@click.option("--backup", "id_", metavar="ID", help="Which backup; else the newest.")
@click.option("--store", "store_url", metavar="URL", help="Where the database goes; else where it was.")
@click.option("--force", is_flag=True, help="Also where something is; it is moved aside.")
@json_option
@pass_app
def restore(
    app: App,
    folder: Path,
    target: Path | None,
    id_: str | None,
    store_url: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Make a home from a backup in DIR.

    \b
    Example:
      holdfast restore /mnt/backups/holdfast --to ~/restored
    """
    from holdfast.backup import Repository
    from holdfast.backup import restore as put_back
    from holdfast.clock import SystemClock
    from holdfast.home import Home

    home = app.home if target is None else Home.locate(target)
    _require_stopped(home)
    repository = Repository.open(folder.expanduser().absolute())
    chosen = repository.manifest(id_)
    done = put_back(repository, chosen, home, SystemClock(), store_url=store_url, force=force)
    _tell_restored(done, as_json)


def _take(app: App, place: Path, keep: int | None, no_database: bool) -> BackupResult:
    from holdfast.backup import Repository, take
    from holdfast.cli.commands.store import home_store
    from holdfast.cli.workspaces import workspace_of
    from holdfast.clock import SystemClock
    from holdfast.config import load_config

    store = home_store(app)
    try:
        config = load_config(app.home.config)
        folders = {agent.id: workspace_of(app.home, config, agent.id) for agent in config.agent_list}
        chosen = None if no_database else _there(store)
        return take(Repository.create(place), app.home, chosen, SystemClock(), workspaces=folders, keep=keep)
    finally:
        store.close()


def _there(store: Store) -> Store | None:
    """The store, unless it is a file that has not been made yet."""
    return store if store.postgres or Path(str(store.url.database)).is_file() else None


def _tell_taken(place: Path, taken: BackupResult, as_json: bool) -> None:
    manifest = taken.manifest
    if as_json:
        print_json(
            {
                "id": manifest.id,
                "bytes": manifest.size,
                "writtenBytes": taken.written_bytes,
                "files": sum(1 for _ in manifest.all_files),
                "database": None if manifest.database is None else manifest.database.engine,
                "removed": list(taken.removed),
                "healedPieces": taken.healed,
                "problems": list(taken.problems),
                "changedWhileRead": list(taken.restless),
            }
        )
        return
    click.echo(
        f"Backup {manifest.id} is in {place}, and was read back: {size(manifest.size)} of home and store, "
        f"{size(taken.written_bytes)} written."
    )
    if manifest.database is None:
        click.echo("  The database is not in it.")
    if taken.healed:
        click.echo(f"  {taken.healed} damaged pieces of earlier backups were written anew: check that disk.")
    for problem in taken.problems:
        click.echo(f"  The store is saved as it is, with this in it: {problem}")
    for name in taken.restless[:10]:
        click.echo(f"  {name} changed each time it was read.")
    if taken.removed:
        click.echo(f"  Removed {len(taken.removed)} older ones.")


def _tell_restored(done: Restored, as_json: bool) -> None:
    manifest = done.manifest
    if as_json:
        print_json(
            {
                "id": manifest.id,
                "home": str(done.home),
                "store": done.store,
                "movedAside": None if done.moved is None else str(done.moved),
                "workspaces": {name: str(path) for name, path in done.workspaces.items()},
                "migrates": done.migrates,
            }
        )
        return
    click.echo(f"{done.home} is as it was at {manifest.created_at} (backup {manifest.id}).")
    click.echo(f"  store: {done.store or 'not in this backup; the files alone were restored'}")
    for name, path in done.workspaces.items():
        click.echo(f"  workspace of {name}: {path}")
    if done.moved is not None:
        click.echo(f"  What was there before is in {done.moved}.")
    if done.migrates:
        click.echo("  The store is of an older version; it is upgraded at the next start.")
    click.echo("  The search index is made anew when a gateway starts: holdfast up")


def _list(place: Path, as_json: bool) -> None:
    from holdfast.backup import Repository

    found = Repository.open(place).manifests()
    rows = [
        (one.id, one.created_at, one.version, "-" if one.database is None else one.database.engine, one.size)
        for one in found
    ]
    columns = ["id", "createdAt", "version", "database", "bytes"]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows, empty="No backups.")


def _verify(place: Path, as_json: bool) -> int:
    from holdfast.backup import Repository

    repository = Repository.open(place)
    found = {one.id: len(repository.damaged(one)) for one in repository.manifests()}
    if as_json:
        print_json([{"id": id_, "damagedPieces": count} for id_, count in found.items()])
    else:
        for id_, count in found.items():
            click.echo(f"{id_}  {'whole' if not count else f'{count} pieces are damaged or gone'}")
    return 1 if any(found.values()) else 0


def _require_stopped(home: Home) -> None:
    from holdfast.cli.client import running_gateway
    from holdfast.errors import Conflict

    if home.path.is_dir() and (home.path / "gateway.json").exists() and running_gateway(home) is not None:
        raise Conflict(f"a gateway runs on {home.path}", hint="Stop it first.")


@click.command(cls=Command)
@click.argument("folder", metavar="DIR", type=Folder)
@json_option
@pass_app
def export(app: App, folder: Path, as_json: bool) -> None:
    """Write everything of the home into DIR in open forms: JSON lines, Markdown, attachments, workspaces.

    `holdfast import export DIR --home NEW` makes a home of it again, without loss.

    \b
    Example:
      holdfast export ~/holdfast-export
    """
    from holdfast.backup.export import export as write
    from holdfast.cli.commands.adopt import progress

    with app.open() as hold:
        counts = write(hold, folder.expanduser().absolute(), progress)
    progress("")
    if as_json:
        print_json(counts)
    else:
        print_table(["table", "rows"], [row for row in counts.items() if row[1]], empty="There is nothing.")
