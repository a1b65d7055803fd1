"""`holdfast chains`: all that follows from one message, wherever it goes."""

from __future__ import annotations

import sys

import click

from holdfast.cli.groups import App, Group, json_option, pass_app
from holdfast.cli.output import print_json, print_table


@click.group(cls=Group, invoke_without_command=True)
@click.option("--live", is_flag=True, help="Only those of which something lives.")
@click.option("-n", "--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@json_option
@pass_app
@click.pass_context
def chains(ctx: click.Context, app: App, live: bool, limit: int, as_json: bool) -> None:
    """All that follows from one message: those that live first, then the last used.

    \b
    Examples:
      holdfast chains --live
      holdfast chains show 9f3c
    """
    if ctx.invoked_subcommand is not None:
        return
    from holdfast.cli.chain_words import COLUMNS, row
    from holdfast.cli.commands.stopping import listed, now

    found = listed(app, live=live, limit=limit)
    if as_json:
        print_json(found)
        return
    empty = "Nothing lives." if live else "No chains yet: nothing has followed from a message."
    print_table(COLUMNS, [row(chain, now()) for chain in found], empty=empty)


@chains.command()
@click.argument("chain", metavar="ID")
@json_option
@pass_app
def show(app: App, chain: str, as_json: bool) -> None:
    """One chain as a tree: what each turn elected or sent off, and what came of that.

    ID is that of the chain or of one of its turns, or at least the last four characters of a chain's.
    """
    from holdfast.cli.chain_words import print_tree
    from holdfast.cli.commands.stopping import now, shown

    found = shown(app, chain)
    if as_json:
        print_json(found)
    else:
        print_tree(found, now(), sys.stdout)
