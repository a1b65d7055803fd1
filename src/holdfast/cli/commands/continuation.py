"""`holdfast continuation`: what agents have elected for themselves."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.groups import App, Group, json_option, pass_app
from holdfast.cli.output import print_json, print_table


@click.group(cls=Group)
def continuation() -> None:
    """What agents elected for themselves: list, cancel, stop."""


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
    """Take an election back, whatever it is at: a turn that runs for it is stopped, a delegate ended.

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


@continuation.command()
@click.argument("chain", metavar="CHAIN", required=False)
@click.option("--session", "session_key", metavar="KEY", help="Every chain that lives in this session.")
@click.option("--all", "every", is_flag=True, help="Every chain.")
@click.option("--reason", metavar="TEXT", default="stopped at the command line", help="Why, for the record.")
@json_option
@pass_app
def stop(
    app: App, chain: str | None, session_key: str | None, every: bool, reason: str, as_json: bool
) -> None:
    """Stop chains with all that lives in them: turns that run and wait, delegates, subagents.

    CHAIN is an id of `holdfast chains`, or at least the last four characters of one.

    \b
    Examples:
      holdfast continuation stop 9f3c
      holdfast continuation stop --session agent:main:main
    """
    from holdfast.cli.commands import stopping

    if [chain is not None, session_key is not None, every].count(True) != 1:
        raise click.UsageError("give a chain, --session KEY or --all")
    if chain is not None:
        done = stopping.stop_chain(app, chain, reason)
    elif session_key is not None:
        done = stopping.stop_session(app, session_key, reason)
    else:
        done = stopping.stop_every_chain(app, reason)
    if as_json:
        print_json(done)
    else:
        click.echo(done["text"])
