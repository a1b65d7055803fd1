"""`holdfast chains`, `continuation` and `stop-all`: all that follows from one message, and ending it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from holdfast.cli.output import cell, print_json, print_table
from holdfast.cli.root import App, Command, Group, json_option, pass_app
from holdfast.clock import parse_iso

if TYPE_CHECKING:
    from holdfast.runtime import Holdfast


SHORT: Final = 8
_UNCUT: Final = 20_000
_WORTH_TELLING: Final = 0.00005
_SAID_ABOVE: Final = ("continuation", "delegate", "subagent", "subagent-return")
"""Turns that the runtime asked for: what they are about stands in what brought them about."""
_KINDS: Final = {"work": "elected turn", "post_compaction": "delegate after a compaction"}


def halted_line(halt: Mapping[str, Any]) -> str:
    since, reason = str(halt["since"])[:19].replace("T", " "), cell(halt["reason"])
    return f"EVERYTHING IS STOPPED since {since} UTC ({reason}). Release it: holdfast stop-all --release"


def chains_line(told: Mapping[str, Any]) -> str:
    """`2 live (main: chain 3/10, 1 election, next in 12 s)`."""
    if not told["live"]:
        return "none live"
    shown = [_in_short(chain, told["asOf"]) for chain in told["listed"]]
    more = told["live"] - len(shown)
    return f"{told['live']} live ({'; '.join([*shown, *([f'and {more} more'] if more > 0 else [])])})"


def _in_short(chain: Mapping[str, Any], now: str) -> str:
    said = [f"{chain['origin']['agentId'] or '-'}: chain {chain['steps']}/{chain['maxSteps']}"]
    said += [text for text in (lives(chain), next_due(chain["nextDueAt"], now)) if text]
    return ", ".join(said)


def lives(chain: Mapping[str, Any]) -> str:
    """`1 turn, 2 subagents`; empty if nothing lives."""
    found = [(count, sort) for sort, count in chain["live"].items() if count]
    return ", ".join(f"{count} {sort}{'' if count == 1 else 's'}" for count, sort in found)


def next_due(at: str | None, now: str) -> str:
    if at is None:
        return ""
    seconds = (parse_iso(at) - parse_iso(now)) // 1000
    if seconds <= 0:
        return "due now"
    if seconds < 120:
        return f"next in {seconds} s"
    return f"next in {seconds // 60} min" if seconds < 7_200 else f"next in {seconds // 3_600} h"


def asker(chain: Mapping[str, Any]) -> str:
    """Who asked, and where."""
    origin = chain["origin"]
    who = origin["sender"] or ("somebody" if origin["trigger"] == "user" else origin["trigger"])
    return f"{who} in {origin['sessionKey']}"


def row(chain: Mapping[str, Any], now: str) -> Sequence[object]:
    return (
        chain["state"],
        chain["id"][-SHORT:],
        asker(chain),
        f"{chain['steps']}/{chain['maxSteps']}",
        f"{chain['tokens']:,}",
        f"${chain['cost']:.4f}" if chain["cost"] else None,
        next_due(chain["nextDueAt"], now).removeprefix("next ") or None,
        lives(chain) or None,
    )


COLUMNS: Final = ("state", "id", "asked by", "steps", "tokens", "cost", "next", "lives")


def print_tree(chain: Mapping[str, Any], now: str, out: IO[str]) -> None:
    """On a terminal it fits the width, in a pipe nothing is cut."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    top = Tree(Text("\n".join(heading(chain, now))))
    branches = {None: top}
    for node in chain["nodes"]:
        above = branches.get(node["parentId"], top)
        branches[node["id"]] = above.add(Text(node_line(node, now)))
    if chain["cut"]:
        top.add(Text("… more than this were left out; the newest are shown"))
    Console(file=out, highlight=False, width=None if out.isatty() else _UNCUT).print(top)


def heading(chain: Mapping[str, Any], now: str) -> list[str]:
    most = f" of {chain['maxTokens']:,}" if chain["maxTokens"] else ""
    cost = f", ${chain['cost']:.4f}" if chain["cost"] else ""
    used = f"steps {chain['steps']}/{chain['maxSteps']}, sent off {chain['sent']}/{chain['maxSent']}"
    lines = [
        f"{chain['id']} is {chain['state']}: asked by {cell(asker(chain))}, {chain['startedAt'][:19]}Z",
        f"{used}, {chain['tokens']:,}{most} tokens{cost}",
    ]
    if chain["stopReason"]:
        lines.append(f"stopped at {chain['stoppedAt'][:19]}Z: {cell(chain['stopReason'])}")
    alive = [text for text in (lives(chain), next_due(chain["nextDueAt"], now)) if text]
    return [*lines, *([f"lives: {', '.join(alive)}"] if alive else [])]


def node_line(node: Mapping[str, Any], now: str) -> str:
    """What it is, how it stands, where, what it cost, and what it is about."""
    detail = node["trigger"] if node["kind"] == "turn" else node["mode"]
    kind = _KINDS.get(node["kind"], node["kind"]) + (f" ({detail})" if detail else "")
    where = "in a session that you may not read" if node["hidden"] else node["sessionKey"]
    facts = [f"{kind} {node['state']}", where]
    facts += [f"{node['tokens']:,} tokens"] if node["tokens"] else []
    facts += [f"${node['cost']:.4f}"] if node["cost"] >= _WORTH_TELLING else []
    facts += [due] if (due := next_due(node["dueAt"], now)) else []
    facts += [f"failed: {node['error']}"] if node["error"] else []
    facts += [f"“{node['text']}”"] if node["text"] and node["trigger"] not in _SAID_ABOVE else []
    facts += [f"→ “{node['reply']}”"] if node["reply"] else []
    return cell(" · ".join(facts))


_SHORTEST: Final = 4
_MOST: Final = 200


@click.command("stop-all", cls=Command)
@click.option("--reason", metavar="TEXT", default="stopped at the command line", help="Why, for the record.")
@click.option("--release", "releases", is_flag=True, help="Let work begin again.")
@json_option
@pass_app
def stop_all(app: App, reason: str, releases: bool, as_json: bool) -> None:
    """Stop everything, and let no agent begin anything until it is released, after any restart too.

    Messages that come meanwhile are kept, and answered once it is released.

    \b
    Examples:
      holdfast stop-all --reason 'it mails the whole world'
      holdfast stop-all --release
    """
    done = _released(app) if releases else _halted(app, reason)
    if as_json:
        print_json(done)
    elif releases:
        click.echo("Released: agents work again." if done["released"] else "Nothing was stopped.")
    else:
        click.echo(f"{done['stopped']['text']} Nothing begins until: holdfast stop-all --release")


def listed(app: App, *, live: bool, limit: int) -> list[dict[str, Any]]:
    def here(hold: Holdfast) -> Any:
        from holdfast.log import OWNER
        from holdfast.runtime import chain_view

        with hold.store.read(OWNER) as tx:
            return chain_view.listing(tx, hold.settings, live=live, limit=limit)

    path = f"/api/chains?live={'true' if live else 'false'}&limit={limit}"
    found: list[dict[str, Any]] = _asked(app, "GET", path, None, here)
    return found


def shown(app: App, given: str) -> dict[str, Any]:
    id_ = _whole_id(app, given)

    def here(hold: Holdfast) -> Any:
        from holdfast.log import OWNER
        from holdfast.runtime import chain_view

        with hold.store.read(OWNER) as tx:
            return chain_view.whole(tx, hold.settings, id_)

    found: dict[str, Any] = _asked(app, "GET", f"/api/chains/{quote(id_, safe='')}", None, here)
    return found


def stop_chain(app: App, given: str, reason: str) -> dict[str, Any]:
    id_ = _whole_id(app, given)
    path = f"/api/chains/{quote(id_, safe='')}/stop"

    def here(hold: Holdfast) -> Any:
        return asyncio.run(hold.runs.stop_chain(id_, reason=reason)).json()

    done: dict[str, Any] = _asked(app, "POST", path, {"reason": reason}, here)
    return done


def stop_session(app: App, key: str, reason: str) -> dict[str, Any]:
    def here(hold: Holdfast) -> Any:
        from holdfast.log import OWNER, sessions

        with hold.store.read(OWNER) as tx:
            session = sessions.find(tx, key)
        return asyncio.run(hold.runs.stop_session(session, reason=reason)).json()

    body = {"sessionKey": key, "reason": reason}
    done: dict[str, Any] = _asked(app, "POST", "/api/chains/stop", body, here)
    return done


def stop_every_chain(app: App, reason: str) -> dict[str, Any]:
    def here(hold: Holdfast) -> Any:
        return asyncio.run(hold.runs.stop_all(reason=reason)).json()

    body = {"all": True, "reason": reason}
    done: dict[str, Any] = _asked(app, "POST", "/api/chains/stop", body, here)
    return done


def now() -> str:
    from holdfast.clock import SystemClock, iso

    return iso(SystemClock().now())


def _halted(app: App, reason: str) -> dict[str, Any]:
    def here(hold: Holdfast) -> Any:
        stopped = asyncio.run(hold.runs.halt(reason=reason))
        return _halt_of(hold) | {"stopped": stopped.json()}

    done: dict[str, Any] = _asked(app, "POST", "/api/halt", {"reason": reason}, here)
    return done


def _released(app: App) -> dict[str, Any]:
    def here(hold: Holdfast) -> Any:
        before = _halt_of(hold)
        asyncio.run(hold.runs.release())
        return before | {"halted": False, "released": before["halted"]}

    done: dict[str, Any] = _asked(app, "DELETE", "/api/halt", None, here)
    return done


def _halt_of(hold: Holdfast) -> dict[str, Any]:
    from holdfast.clock import iso
    from holdfast.log import OWNER, agenda

    with hold.store.read(OWNER) as tx:
        found = agenda.halted(tx)
    if found is None:
        return {"halted": False, "since": None, "reason": None}
    return {"halted": True, "since": iso(found.since), "reason": found.reason}


def _whole_id(app: App, given: str) -> str:
    """A chain's id as it was given, or the one that ends so."""
    from holdfast.errors import InvalidInput, NotFound
    from holdfast.ids import turn_id

    if len(given) >= len(turn_id()):
        return given
    if len(given) < _SHORTEST:
        raise InvalidInput(f"{given!r} is too short", hint="Give the last four characters, or more.")
    found = [chain["id"] for chain in listed(app, live=False, limit=_MOST) if chain["id"].endswith(given)]
    if not found:
        raise NotFound(
            f"no chain ends in {given[:80]!r}", code="unknown_chain", hint="See `holdfast chains`."
        )
    if len(found) > 1:
        raise InvalidInput(f"{len(found)} chains end in {given!r}", hint="Give more of the id.")
    return str(found[0])


def _asked(
    app: App, method: str, path: str, body: dict[str, Any] | None, here: Callable[[Holdfast], Any]
) -> Any:
    """What the gateway of this home says; where none runs, or it goes away meanwhile, what the store does."""
    from holdfast.cli.client import PATIENT_SECONDS, running_gateway
    from holdfast.errors import Unavailable

    gateway = running_gateway(app.home, timeout=PATIENT_SECONDS)
    if gateway is not None:
        try:
            return gateway.call(method, path, body)
        except Unavailable:
            click.echo("The gateway does not answer; the store is used.", err=True)
    with app.open() as hold:
        return here(hold)


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

    found = shown(app, chain)
    if as_json:
        print_json(found)
    else:
        print_tree(found, now(), sys.stdout)


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

    if [chain is not None, session_key is not None, every].count(True) != 1:
        raise click.UsageError("give a chain, --session KEY or --all")
    if chain is not None:
        done = stop_chain(app, chain, reason)
    elif session_key is not None:
        done = stop_session(app, session_key, reason)
    else:
        done = stop_every_chain(app, reason)
    if as_json:
        print_json(done)
    else:
        click.echo(done["text"])
