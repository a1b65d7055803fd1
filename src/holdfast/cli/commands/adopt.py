"""`holdfast import`: adopting the home of another program."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.groups import App, Group, json_option, pass_app
from holdfast.cli.output import cell, print_json, print_table

if TYPE_CHECKING:
    from holdfast.adopt import Report
    from holdfast.runtime import Holdfast


@click.group("import", cls=Group)
def import_() -> None:
    """Adopt the home of another program."""


@import_.command()
@click.argument("folder", metavar="[DIR]", default="~/.openclaw", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would be taken over.")
@json_option
@pass_app
@click.pass_context
def openclaw(ctx: click.Context, app: App, folder: Path, dry_run: bool, as_json: bool) -> None:
    """Take over an OpenClaw home: config, workspaces, sessions, credentials. It is only read.

    Run it again at any time: only what is new there is added.

    \b
    Example:
      holdfast import openclaw ~/.openclaw --dry-run
    """
    from holdfast.adopt import adopt_openclaw_home

    with _opened(app, dry_run) as hold:
        report = adopt_openclaw_home(hold, folder, dry_run=dry_run, progress=_progress)
    _progress("")
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    ctx.exit(1 if report.failed else 0)


def _progress(what: str) -> None:
    """One line on a terminal that each step writes over; nothing in a pipe."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{cell(what)[-78:]}", nl=False, err=True)


@contextmanager
def _opened(app: App, dry_run: bool) -> Iterator[Holdfast]:
    """The home; a dry run where there is none looks at an empty one that is gone afterwards."""
    from holdfast.runtime import open_home

    if dry_run and not app.home.path.exists():
        with tempfile.TemporaryDirectory() as folder, open_home(folder) as hold:
            yield hold
    else:
        with app.open(create=True) as hold:
            yield hold


def _print(report: Report) -> None:
    rows = [(area, outcome, number) for (area, outcome), number in sorted(report.counts.items())]
    print_table(["what", "became", "number"], rows, empty="There was nothing to take over.")
    for note in report.notes:
        click.echo(cell(str(note)))
    if report.notes_left_off:
        click.echo(f"… and {report.notes_left_off} notes more")
    if not report.changed:
        click.echo("Nothing changed: all of it is here already.")
    elif report.dry_run:
        click.echo(f"A dry run: {report.entries_added} log entries would be added, nothing was written.")
    else:
        click.echo(
            f"{report.entries_added} log entries added. Stop OpenClaw before you connect its channels here."
        )
