"""`holdfast continuation`: what agents have elected for themselves."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.groups import App, Group, json_option, pass_app
from holdfast.cli.output import print_json, print_table


@click.group(cls=Group)
def continuation() -> None:
    """What agents elected for themselves: list, cancel."""


@continuation.command("list")
@click.option("--session", "session_key", metavar="KEY", help="Only of this session.")
@click.option("-n", "--limit", type=click.IntRange(1, 500), default=100, show_default=True)
@json_option
@pass_app
def list_(app: App, session_key: str | None, limit: int, as_json: bool) -> None:
    """Elected turns and delegates that have not ended, the next first."""
    with app.open() as hold:
        found = asyncio.run(hold.agency.continuation.listing(session_key=session_key, limit=limit))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["id"],
            one["kind"] + (f" ({one['mode']})" if one["mode"] else ""),
            one["sessionKey"],
            one["status"],
            (one["dueAt"] or "")[:19].replace("T", " "),
            one["hop"],
            one["text"],
        )
        for one in found
    ]
    print_table(["id", "what", "session", "status", "due", "hop", "for"], rows, empty="Nothing was elected.")


@continuation.command()
@click.argument("record_id", metavar="ID")
@json_option
@pass_app
def cancel(app: App, record_id: str, as_json: bool) -> None:
    """Take an election back. What runs already ends as it will, but not again.

    \b
    Example:
      holdfast continuation cancel cont-01a1…
    """
    with app.open() as hold:
        done = asyncio.run(hold.agency.continuation.cancel(record_id, reason="cancelled at the command line"))
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done['kind']} {done['id']} is {done['status']}.")
