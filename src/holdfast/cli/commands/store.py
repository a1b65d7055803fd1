"""`holdfast store`: looking after the database."""

from __future__ import annotations

import click

from holdfast.cli.groups import App, Group, json_option, pass_app
from holdfast.cli.output import print_json, print_table
from holdfast.cli.stores import bare_store, home_store


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
