"""`holdfast doctor`: what is wrong, and how to mend it."""

from __future__ import annotations

import click

from holdfast.cli.findings import Examined
from holdfast.cli.groups import App, Command, json_option, pass_app
from holdfast.cli.output import cell, print_json
from holdfast.errors import InvalidInput


@click.command(cls=Command)
@click.option("--fix", is_flag=True, help="Mend what can be mended.")
@click.option("--only", metavar="CHECK", help="Look at this alone, such as config.")
@json_option
@pass_app
@click.pass_context
def doctor(ctx: click.Context, app: App, fix: bool, only: str | None, as_json: bool) -> None:
    """Look at the home, config, store, token, port and more; exit 1 if anything fails.

    \b
    Example:
      holdfast doctor --fix
    """
    from holdfast.cli.checks import CHECKS
    from holdfast.cli.findings import examine

    chosen = [one for one in CHECKS if only in (None, one.name)]
    if not chosen:
        raise InvalidInput(f"no check {only!r}", hint=f"There are {', '.join(one.name for one in CHECKS)}.")
    found = examine(app.home, chosen, fix=fix)
    if as_json:
        print_json([_as_json(each) for each in found])
    else:
        for each in found:
            click.echo(_line(each))
    ctx.exit(1 if any(each.finding.level == "fail" for each in found) else 0)


def _line(each: Examined) -> str:
    finding = each.finding
    mend = f"\n        {cell(finding.mend)}" if finding.mend and finding.level != "ok" else ""
    return (
        f"{finding.level:<5} {each.check}: {cell(finding.message)}{' (mended)' if each.mended else ''}{mend}"
    )


def _as_json(each: Examined) -> dict[str, object]:
    finding = each.finding
    return {
        "check": each.check,
        "level": finding.level,
        "message": finding.message,
        "mend": finding.mend,
        "mended": each.mended,
        "fixable": finding.fix is not None and finding.level != "ok",
    }
