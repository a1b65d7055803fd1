"""`holdfast store`: migrate, check, copy; and which store a home has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from sqlalchemy import URL

    from holdfast.config import Config
    from holdfast.home import Home
    from holdfast.log import Store


def store_address(text: str) -> str:
    """The address of a store that was given as a path or as an address."""
    from holdfast.log import sqlite_url

    if not text.strip():
        raise InvalidInput(
            "a store needs a path or an address", hint="Give a file, or postgresql+psycopg://…"
        )
    return text if "://" in text else sqlite_url(Path(text).expanduser().absolute())


def bare_store(text: str, *, must_exist: bool = True) -> Store:
    """A store as it stands, not brought up to date."""
    from holdfast.log import Store

    url = _parsed(store_address(text))
    try:
        store = Store(url.render_as_string(hide_password=False))
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"{error.name} is not installed", hint="pip install 'holdfast[postgres]' for PostgreSQL."
        ) from error
    file = None if store.postgres else Path(str(store.url.database))
    if must_exist and file is not None and not file.is_file():
        raise NotFound(
            f"there is no store at {file}", hint="Check the path; `holdfast up` makes a new store."
        )
    return store


def home_store(app: App) -> Store:
    """The store of the home as it stands, not brought up to date."""
    from holdfast.config import load_config

    home = app.home
    if not home.path.is_dir():
        raise NotFound(f"there is no home at {home.path}", hint="Make one with `holdfast init`.")
    return bare_store(url_in_use(home, load_config(home.config)), must_exist=False)


def url_in_use(home: Home, config: Config) -> str:
    """The address of the home's store: as this shell and the config say, unless its gateway runs on another.

    What a gateway was told by its environment is not in the config. Rather than begin a second store beside
    the one that it uses, a command uses that one, or says that it cannot.
    """
    from holdfast.cli.client import gateway_store
    from holdfast.runtime import configured_url

    own = configured_url(home, config)
    there = None if os.environ.get("HOLDFAST_STORE") else gateway_store(home)
    if there is None or same_store(own, there.url):
        return own
    if there.alive and "***" not in there.url:
        return there.url
    if there.alive or not _exists(own):
        raise Conflict(
            f"the gateway of this home {'uses' if there.alive else 'used'} {there.url}, not {public(own)}",
            code="store_differs",
            hint="Set HOLDFAST_STORE here as it was there, or have it kept: `holdfast up --store URL`.",
        )
    return own


def keep_store(home: Home, given: str) -> str | None:
    """Have the home use this store from now on: written into its config, which keeps its comments.

    A password goes into `credentials/store_password` (for the owner's eyes only), not into the config; an
    address with `${NAME}` is written as it is. Gives what is told of it, None if it was so already;
    `Conflict` where another store has what this one has not: nothing is left behind unsaid.
    """
    from holdfast.cli.commands.up import write_config
    from holdfast.config import ConfigStore, SecretUrl
    from holdfast.runtime import STORE_PASSWORD, configured_url

    wanted = store_address(given)
    revealed = SecretUrl(wanted).reveal(os.environ)
    url = _parsed(revealed)
    config = ConfigStore(home.config)
    if os.environ.get("HOLDFAST_STORE") and not same_store(configured_url(home, config.current), revealed):
        raise InvalidInput("HOLDFAST_STORE names another store", hint="Unset it, or leave out --store.")
    now = configured_url(home, config.current, {**os.environ, "HOLDFAST_STORE": ""})
    if _parsed(now) == url:
        return None
    if url.get_backend_name() != "sqlite":
        _newest(revealed, None)  # one that cannot be reached is not written down
    if not same_store(now, revealed):
        _require_nothing_left(now, revealed)
    home.prepare()
    write_config(home)
    if url.password is not None and wanted == revealed:
        home.keep_secret(STORE_PASSWORD, str(url.password))
        wanted = url._replace(password=None).render_as_string(hide_password=False)
    ConfigStore(home.config).patch({"store": {"url": wanted}})
    return public(revealed)


def same_store(one: str, other: str) -> bool:
    """Whether two addresses lead to one database, whoever logs in."""
    return _place(_parsed(one)) == _place(_parsed(other))


def public(url: str) -> str:
    """An address as it may be shown."""
    return _parsed(url).render_as_string(hide_password=True)


def _place(url: URL) -> tuple[object, ...]:
    engine = url.get_backend_name()
    if engine == "sqlite":
        return engine, Path(str(url.database)).expanduser().resolve()
    return engine, url.host or url.query.get("host") or "", url.port or 5432, url.database or url.username


def _parsed(text: str) -> URL:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        found = make_url(text)
        if found.get_backend_name() not in ("sqlite", "postgresql"):
            raise ArgumentError
    except (ArgumentError, ValueError) as error:
        raise InvalidInput(
            "not the address of a store", hint="Give a file, sqlite:///PATH or postgresql+psycopg://…"
        ) from error
    return found


def _exists(url: str) -> bool:
    found = _parsed(url)
    return found.get_backend_name() != "sqlite" or Path(str(found.database)).is_file()


def _require_nothing_left(old: str, new: str) -> None:
    """All that the old store holds is in the new one, as after `store copy`; an empty one holds nothing."""
    left = _newest(old, None) if _exists(old) else None
    if left is None or (_exists(new) and _newest(new, left) is not None):
        return
    raise Conflict(
        f"this home keeps its log in {public(old)}, and {public(new)} has not got it",
        code="store_differs",
        hint=f"Copy it: `holdfast store copy {public(old)} {public(new)}`; then start with --store again.",
    )


def _newest(url: str, wanted: str | None) -> str | None:
    """The newest entry of a store, or the one that is wanted; None if it has none."""
    import sqlalchemy as sa

    from holdfast.log import SYSTEM
    from holdfast.log.tables import entries

    store = bare_store(url)
    try:
        with store.read(SYSTEM) as tx:
            if not sa.inspect(tx.conn).has_table(entries.name):
                return None
            query = sa.select(entries.c.id).order_by(entries.c.position.desc()).limit(1)
            query = query if wanted is None else sa.select(entries.c.id).where(entries.c.id == wanted)
            found = tx.conn.execute(query).scalar()
            return None if found is None else str(found)
    finally:
        store.close()


@click.group(cls=Group)
def store() -> None:
    """Migrate, check, copy."""


@store.command()
@click.option("--no-copy", is_flag=True, help="Keep no copy of a SQLite store as it was.")
@json_option
@pass_app
def migrate(app: App, no_copy: bool, as_json: bool) -> None:
    """Bring the store of the home to the current schema."""
    from holdfast import migrations

    target = home_store(app)
    try:
        changed = migrations.migrate(target, copy=not no_copy)
    finally:
        target.close()
    if as_json:
        print_json({"version": migrations.HEAD, "changed": changed})
    else:
        click.echo(f"The store {'is now' if changed else 'was already'} at {migrations.HEAD}.")


@store.command()
@json_option
@pass_app
@click.pass_context
def check(ctx: click.Context, app: App, as_json: bool) -> None:
    """Say what is wrong with the store; exit 1 if anything is."""
    from holdfast.log import check as find_problems

    target = home_store(app)
    try:
        problems = find_problems(target)
    finally:
        target.close()
    if as_json:
        print_json({"ok": not problems, "problems": problems})
    else:
        click.echo("\n".join(problems) or "All is well.")
    ctx.exit(1 if problems else 0)


@store.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
def copy(source: str, target: str, as_json: bool) -> None:
    """Copy a whole store into an empty one, of either engine.

    \b
    Example:
      holdfast store copy ~/.holdfast/holdfast.db postgresql+psycopg://holdfast@localhost/holdfast
    """
    from holdfast.log import copy as copy_store

    old = bare_store(source)
    new = bare_store(target, must_exist=False)
    try:
        counts = copy_store(old, new, progress=None if as_json else _progress)
    finally:
        old.close()
        new.close()
    if as_json:
        print_json(counts)
    else:
        print_table(["table", "rows"], sorted(counts.items()), empty="Nothing to copy.")


def _progress(table: str, rows: int) -> None:
    if rows % 100_000 == 0:
        click.echo(f"{table}: {rows} rows", err=True)
