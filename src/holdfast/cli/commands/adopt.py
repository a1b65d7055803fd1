"""`holdfast import`: adopting the home of another program."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import cell, print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app

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
        report = adopt_openclaw_home(hold, folder, dry_run=dry_run, progress=progress)
    progress("")
    if as_json:
        print_json(report.as_json())
    else:
        _print(report, "log entries added. Stop OpenClaw before you connect its channels here.")
    ctx.exit(1 if report.failed else 0)


def progress(what: str) -> None:
    """One line on a terminal that each step writes over; nothing in a pipe."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{cell(what)[-78:]}", nl=False, err=True)


def _run(ctx: click.Context, app: App, work: Callable[[Holdfast, Report], None], what: Asked) -> None:
    """Open the home, have it filled, and say what became of everything."""
    from holdfast.adopt import Report

    report = Report(what.source, what.dry_run, progress=progress)
    with _opened(app, what.dry_run) as hold:
        work(hold, report)
    progress("")
    if what.as_json:
        print_json(report.as_json())
    else:
        _print(report, "log entries added.")
    ctx.exit(1 if report.failed else 0)


@dataclass(frozen=True, slots=True)
class Asked:
    """What every import is told."""

    source: str
    dry_run: bool
    as_json: bool


def _from_sessions(host: str, default: str) -> None:
    """The command that reads the session files of a coding agent."""

    @import_.command(host, help=_SESSIONS_HELP.format(host=host, default=default))
    @click.argument("folder", metavar="[DIR]", default=default, type=click.Path(path_type=Path))
    @click.option("--dry-run", is_flag=True, help="Only say what would be taken over.")
    @json_option
    @pass_app
    @click.pass_context
    def sessions(ctx: click.Context, app: App, folder: Path, dry_run: bool, as_json: bool) -> None:
        from holdfast.adopt.coding_agents import sessions_of
        from holdfast.adopt.conversations import take_over

        place = folder.expanduser()

        def work(hold: Holdfast, report: Report) -> None:
            take_over(hold, sessions_of(host, place), report, dry_run=dry_run)

        _run(ctx, app, work, Asked(str(place), dry_run, as_json))


_SESSIONS_HELP = """Take over the sessions of {host} from its own files. They are only read.

Run it again at any time: only what is new is added, and nothing that its hooks have logged.

\b
Example:
  holdfast import {host} {default} --dry-run
"""

_EXPORT_HELP = """Take over {what}. It is only read; run again, only what is new is added.

\b
Example:
  holdfast import {name} {example} --dry-run
"""


def _from_export(name: str, what: str, example: str) -> None:
    """The command that reads what another program gave out of itself."""

    @import_.command(name, help=_EXPORT_HELP.format(name=name, what=what, example=example))
    @click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
    @click.option("--dry-run", is_flag=True, help="Only say what would be taken over.")
    @json_option
    @pass_app
    @click.pass_context
    def export(ctx: click.Context, app: App, path: Path, dry_run: bool, as_json: bool) -> None:
        from holdfast.adopt.conversations import take_over
        from holdfast.adopt.exports import conversations_in

        def work(hold: Holdfast, report: Report) -> None:
            take_over(hold, conversations_in(name, path.expanduser()), report, dry_run=dry_run)

        _run(ctx, app, work, Asked(str(path), dry_run, as_json))


_from_sessions("claude-code", "~/.claude/projects")
_from_sessions("codex", "~/.codex/sessions")
_from_export("chatgpt", "an export of ChatGPT: its archive, a folder, or conversations.json", "export.zip")
_from_export("claude", "an export of Claude: its archive, a folder, or conversations.json", "export.zip")
_from_export("mem0", "memories exported from mem0, as notes", "memories.json")
_from_export("letta", "an agent file of Letta: blocks and passages as notes, and its messages", "agent.af")


@import_.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
@pass_app
def from_export(app: App, folder: Path, as_json: bool) -> None:
    """Make a home from what `holdfast export` wrote: every row and file as it was. The home must be new.

    \b
    Example:
      holdfast import export ~/holdfast-export --home ~/new-home
    """
    from holdfast.backup.export import load

    counts = load(folder.expanduser().absolute(), app.home, progress)
    progress("")
    if as_json:
        print_json(counts)
    else:
        print_table(["table", "rows"], [row for row in counts.items() if row[1]], empty="There was nothing.")


@import_.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", default=None, help="The folder in memory/; else that of the vault.")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken over.")
@json_option
@pass_app
@click.pass_context
def vault(ctx: click.Context, app: App, folder: Path, name: str | None, dry_run: bool, as_json: bool) -> None:
    """Copy the notes of a Markdown vault (Obsidian, Logseq) into the agent's memory, where they are indexed.

    \b
    Example:
      holdfast import vault ~/Notes --dry-run
    """
    from holdfast.adopt.exports import take_vault
    from holdfast.memory.collections import collection_name

    place = folder.expanduser()

    def work(hold: Holdfast, report: Report) -> None:
        take_vault(hold, place, report, name=collection_name(name or place.name), dry_run=dry_run)

    _run(ctx, app, work, Asked(str(place), dry_run, as_json))


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


def _print(report: Report, added: str) -> None:
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
        click.echo(f"{report.entries_added} {added}")
