"""`holdfast config`: the config as it stands, and its versions where it lies in the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.output import print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from holdfast.config import ConfigStore
    from holdfast.log import Tx
    from holdfast.log.versions import Version

SURFACE: Final = "cli"


@click.group(cls=Group)
def config() -> None:
    """Show, use, history, diff, rollback, import, export."""


@config.command()
@click.argument("where", type=click.Choice(["store", "files"]))
@click.option("--take", "choice", flag_value="take", help="Use what the store has; yours is kept as .bak.")
@click.option("--replace", "choice", flag_value="replace", help="Make yours the next version there.")
@pass_app
def use(app: App, where: str, choice: str | None) -> None:
    """Say where the config, and skills for all agents, lie: in this home's files, or in the store.

    In the store they are one for every gateway on it, with versions. `config`, `store`, `gateway` and
    `logging` stay in each gateway's own holdfast.json. Secrets must be ${NAME} there.

    \b
    Example:
      holdfast config use store
    """
    from holdfast.runtime.shared_home import move_in, move_out

    found = _config(app)
    if (where == "store") == found.is_shared:
        click.echo(f"The config lies in the {where} already." if where == "store" else "It does already.")
    elif where == "store":
        move_in(app.shared_home(), found, _author(), choice)  # type: ignore[arg-type]
        click.echo(
            "The config lies in the store now. What was in holdfast.json is kept as holdfast.json.bak."
        )
    else:
        move_out(app.shared_home(), found)
        click.echo("The config lies in holdfast.json of this home again.")


@config.command()
@click.option("--version", "number", type=int, help="As it was then.")
@json_option
@pass_app
def show(app: App, number: int | None, as_json: bool) -> None:
    """The config as it is written, with every secret masked."""
    found = _config(app)
    text = found.shown_text() if number is None else _text(app, found, number)
    if as_json:
        print_json({"path": str(found.path), "shared": found.is_shared, "version": number, "text": text})
    else:
        click.echo(text, nl=not text.endswith("\n"))


@config.command()
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@json_option
@pass_app
def history(app: App, limit: int, as_json: bool) -> None:
    """Who changed the config in the store, when and through which surface; the newest first."""
    from holdfast.log import versions

    with _reading(app, _config(app)) as tx:
        print_versions(versions.history(tx, versions.CONFIG, "", limit=limit), as_json)


@config.command()
@click.argument("number", type=int)
@click.argument("other", type=int, required=False)
@pass_app
def diff(app: App, number: int, other: int | None) -> None:
    """What a version changed, or what is other in a second one."""
    from holdfast.runtime.shared_home import config_diff

    found = _config(app)
    with _reading(app, found) as tx:
        first, second = (number - 1, number) if other is None else (number, other)
        click.echo(config_diff(tx, found, first, second), nl=False)


@config.command()
@click.argument("number", type=int)
@json_option
@pass_app
def rollback(app: App, number: int, as_json: bool) -> None:
    """Make an earlier version the newest, in every gateway; nothing of the history is lost."""
    found = _shared(_config(app))
    app.shared_home().roll_back_config(found, number, _author())
    _tell(app, as_json, f"The config is as it was in version {number}.")


@config.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@json_option
@pass_app
def import_(app: App, file: Any, as_json: bool) -> None:
    """Take a whole config from a file (`-`: what comes in), checked first. In the store: as a new version."""
    from holdfast.config import merge_text
    from holdfast.config.source import OWN, parse_object

    found, text = _config(app), file.read()
    if found.is_shared:
        app.shared_home().refresh()
        found.reload()
        text = merge_text(text, dict.fromkeys(OWN & parse_object(text, file.name).keys()))
    found.save_text(text, before=found.shown_text())
    _tell(app, as_json, "The config is taken over.")


@config.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--version", "number", type=int, help="As it was then.")
@pass_app
def export(app: App, file: Path | None, number: int | None) -> None:
    """Write the config to a file, or print it: as it is, with what secrets it holds."""
    from holdfast.config.source import read_text
    from holdfast.config.store import write_text
    from holdfast.log import versions

    found = _config(app)
    if found.is_shared or number is not None:
        with _reading(app, found) as tx:
            newest = versions.newest(tx, versions.CONFIG, "")
            wanted = number if number is not None else (0 if newest is None else newest.number)
            text = (versions.get(tx, versions.CONFIG, "", wanted)[1] or b"").decode()
    else:
        text = read_text(found.path) or ""
    if file is None:
        sys.stdout.write(text)
    else:
        write_text(file, text)
        click.echo(f"Written to {file}.", err=True)


def print_versions(found: list[Version], as_json: bool) -> None:
    from holdfast.clock import iso

    if as_json:
        print_json([{**one.told(), "at": iso(one.at)} for one in found])
        return
    rows = [(one.number, iso(one.at), one.actor, one.surface, one.what) for one in found]
    print_table(["version", "at", "by", "through", "what"], rows, empty="No versions.")


def _config(app: App) -> ConfigStore:
    if not app.home.path.is_dir():
        raise NotFound(f"there is no home at {app.home.path}", hint="Make one with `holdfast init`.")
    return app.config_store()


def _shared(found: ConfigStore) -> ConfigStore:
    if not found.is_shared:
        raise InvalidInput(
            "the config lies in a file, which has no versions", hint="`holdfast config use store` keeps them."
        )
    return found


@contextmanager
def _reading(app: App, found: ConfigStore) -> Iterator[Tx]:
    _shared(found)
    with app.shared_home().reading() as tx:
        yield tx


def _text(app: App, found: ConfigStore, number: int) -> str:
    from holdfast.log import versions

    with _reading(app, found) as tx:
        return found.shown((versions.get(tx, versions.CONFIG, "", number)[1] or b"").decode())


def _author() -> Any:
    from holdfast.config import Author

    return Author(surface=SURFACE)


def _tell(app: App, as_json: bool, said: str) -> None:
    """In the store a change has a number; a file has none."""
    number = None
    if app.config_store().is_shared:
        from holdfast.log import versions

        with app.shared_home().reading() as tx:
            newest = versions.newest(tx, versions.CONFIG, "")
            number = None if newest is None else newest.number
    if as_json:
        print_json({"version": number})
    else:
        click.echo(said if number is None else f"{said} It is version {number} now.")
