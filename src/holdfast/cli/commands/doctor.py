"""`holdfast doctor`: what is wrong and how to mend it; and what a finding is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import click

from holdfast.cli.output import cell, print_json
from holdfast.cli.root import App, Command, json_option, pass_app
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.home import Home


Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's: how bad, what, how to mend it; `fix` mends it, where that can be done."""

    level: Level
    message: str
    mend: str = ""
    fix: Callable[[], object] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Patient:
    """The home that is looked at. The config is read once; None where it cannot be used."""

    home: Home

    @cached_property
    def config(self) -> Config | None:
        from holdfast.config import load_config
        from holdfast.errors import ConfigError

        try:
            return load_config(self.home.config)
        except ConfigError:
            return None


Check = Callable[[Patient], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    check: Check


@dataclass(frozen=True, slots=True)
class Examined:
    """A finding under the name of its check, and whether it was mended just now."""

    check: str
    finding: Finding
    mended: bool = False


def examine(home: Home, checks: Iterable[Named], *, fix: bool = False) -> list[Examined]:
    """Run the checks in order; with `fix`, mend what can be mended and look again."""
    seen: list[Examined] = []
    for named in checks:
        found = _run(named, Patient(home))
        fixes = [finding for finding in found if fix and finding.level != "ok" and finding.fix is not None]
        if not fixes:
            seen += [Examined(named.name, finding) for finding in found]
            continue
        failed = [problem for finding in fixes if (problem := _mend(finding)) is not None]
        after = _run(named, Patient(home))
        seen += [Examined(named.name, finding, mended=finding.level == "ok") for finding in after]
        seen += [Examined(named.name, problem) for problem in failed]
    return seen


def _run(named: Named, patient: Patient) -> list[Finding]:
    from holdfast.errors import HoldfastError

    try:
        return list(named.check(patient))
    except HoldfastError as error:
        return [Finding("fail", error.message, error.hint)]
    except OSError as error:
        return [Finding("fail", f"{error.filename}: {error.strerror}", "Check its permissions.")]


def _mend(finding: Finding) -> Finding | None:
    from holdfast.errors import HoldfastError

    try:
        assert finding.fix is not None
        finding.fix()
    except HoldfastError as error:
        return Finding("fail", f"it could not be mended: {error.message}", error.hint)
    except OSError as error:
        return Finding("fail", f"it could not be mended: {error.strerror}", "Check the permissions.")
    return None


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
