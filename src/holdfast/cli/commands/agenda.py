"""`holdfast agenda`, `heartbeat` and `cron`: what is due, the agents' pulse, standing tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import print_json, print_table, when
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.agents.cron import CronService
    from holdfast.agents.heartbeat import Heartbeats
    from holdfast.runtime import Holdfast


@click.group(cls=Group)
def agenda() -> None:
    """What is due."""


@agenda.command("list")
@click.option("--all", "ended_too", is_flag=True, help="Also what is over.")
@click.option("--kind", help="Only this kind, such as turn.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@json_option
@pass_app
def list_(app: App, ended_too: bool, kind: str | None, limit: int, as_json: bool) -> None:
    """What waits and what runs; what is due first stands first."""
    from holdfast.clock import iso
    from holdfast.log import agenda as room

    wanted = list(room.Status) if ended_too else [room.Status.QUEUED, room.Status.RUNNING]
    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = room.listing(tx, statuses=wanted, kinds=None if kind is None else [kind], limit=limit)
    if as_json:
        rows = [
            {
                "id": item.id,
                "kind": item.kind,
                "lane": item.lane,
                "status": item.status,
                "dueAt": iso(item.due_at),
                "attempts": item.attempts,
                "maxAttempts": item.max_attempts,
                "error": item.error,
                "cancelRequested": item.cancel_requested,
            }
            for item in found
        ]
        print_json(rows)
        return
    cells = [
        (i.kind, i.lane, i.status, when(i.due_at), f"{i.attempts}/{i.max_attempts}", i.error) for i in found
    ]
    print_table(["kind", "lane", "status", "due", "tries", "error"], cells, empty="Nothing is due.")


@click.group(cls=Group)
def heartbeat() -> None:
    """The agents' pulse: status, now."""


@heartbeat.command()
@json_option
@pass_app
def status(app: App, as_json: bool) -> None:
    """How each agent's heartbeat stands: when it beats next, how it last went, what it cost today."""
    with app.open() as hold:
        found = _heartbeats(hold).statuses()
    if as_json:
        print_json(found)
        return
    rows = [
        (
            told["agentId"],
            told["every"] if told["enabled"] else "off",
            _minute(told["nextAt"]),
            _minute(told["lastAt"]),
            ": ".join(filter(None, (told["lastStatus"], told["lastReason"]))) or None,
            told["tokensToday"],
            f"{sum(item['due'] for item in told['items'])}/{len(told['items'])}",
        )
        for told in found
    ]
    print_table(["agent", "every", "next", "last", "how", "tokens today", "due"], rows, empty="No agents.")


@heartbeat.command()
@click.option("--agent", "agent_id", metavar="ID", help="The agent; else the default one.")
@json_option
@pass_app
def now(app: App, agent_id: str | None, as_json: bool) -> None:
    """A heartbeat at once, whatever the hour. It runs where a gateway serves this home.

    \b
    Example:
      holdfast heartbeat now --agent work
    """
    from holdfast.clock import iso

    with app.open() as hold:
        agent = agent_id or hold.settings.default_agent_id
        item = _heartbeats(hold).now(agent)
    if as_json:
        print_json({"agentId": agent, "dueAt": iso(item.due_at), "agendaId": item.id})
    else:
        click.echo(f"The heartbeat of {agent} is due now.")


def _heartbeats(hold: Holdfast) -> Heartbeats:
    from holdfast.agents.heartbeat import HeartbeatParts, Heartbeats

    return Heartbeats(
        HeartbeatParts(
            store=hold.store, threads=hold.threads, config=lambda: hold.settings, workspace=hold.workspace
        )
    )


def _minute(at: str | None) -> str | None:
    return None if at is None else at[:16].replace("T", " ")


@click.group(cls=Group)
def cron() -> None:
    """Standing tasks: list, add, remove, run."""


@cron.command("list")
@click.option("--agent", "agent_id", metavar="ID", help="Only of this agent.")
@json_option
@pass_app
def list_tasks(app: App, agent_id: str | None, as_json: bool) -> None:
    """What is to be done, when next, and how it last went."""
    with app.open() as hold:
        only = None if agent_id is None else frozenset((agent_id,))
        found = _standing(hold).listing(agent_ids=only, limit=500)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            *(task["id"], task["name"], task["agentId"], _when(task["schedule"])),
            _minute(task["nextDue"]) if task["enabled"] else "off",
            *(_minute(task["lastRun"]), task["lastStatus"], task["lastDelivery"]),
        )
        for task in found
    ]
    columns = ["id", "name", "agent", "schedule", "next", "last", "status", "delivery"]
    print_table(columns, rows, empty="No standing tasks.")


@cron.command()
@click.argument("prompt")
@click.option("--cron", "expr", metavar="EXPR", help="Five fields, such as '0 9 * * 1-5'.")
@click.option("--every", metavar="SPAN", help="Every so often, such as 2h.")
@click.option("--at", metavar="TIME", help="Once: 2026-01-31T09:30, or 20m from now.")
@click.option("--tz", metavar="ZONE", help="IANA zone; else cron.timezone.")
@click.option("--name", metavar="TEXT", default="", help="A short name; else the prompt's first line.")
@click.option("--agent", "agent_id", metavar="ID", help="The agent; else the default one.")
@click.option("--main", "in_main", is_flag=True, help="In the agent's main session, not in one of its own.")
@click.option("--model", metavar="REF", help="provider/model, for these runs.")
@click.option("--timeout", "timeout_seconds", type=click.IntRange(1), metavar="S", help="Longest run.")
@click.option(
    "--deliver", metavar="TO", default="last", show_default=True, help="last, none or a channel id."
)
@json_option
@pass_app
def add(app: App, /, prompt: str, expr: str | None, in_main: bool, as_json: bool, **given: Any) -> None:
    """Have an agent do something by itself, again and again or once.

    \b
    Examples:
      holdfast cron add 'Sum up what changed in the repository.' --cron '0 9 * * 1-5' --tz Europe/Berlin
      holdfast cron add 'Remind me to call Ada.' --at 20m
    """
    from holdfast.agents.cron import Wish

    wish = Wish(prompt=prompt, cron=expr, session="main" if in_main else "isolated", **given)
    with app.open() as hold:
        made = _standing(hold).add(wish, {"kind": "cli", "owner": True})
    if as_json:
        print_json(made)
    else:
        click.echo(f"{made['id']}: {_when(made['schedule'])}, next {_minute(made['nextDue'])} UTC")


@cron.command()
@click.argument("id_", metavar="ID")
@json_option
@pass_app
def remove(app: App, id_: str, as_json: bool) -> None:
    """End a standing task."""
    with app.open() as hold:
        gone = _standing(hold).remove(id_)
    if as_json:
        print_json({"ok": True, "deleted": True, "id": gone.id})
    else:
        click.echo(f"Removed: {gone.name}")


@cron.command()
@click.argument("id_", metavar="ID")
@json_option
@pass_app
def run(app: App, id_: str, as_json: bool) -> None:
    """Run a task at once, besides its schedule. It runs where a gateway serves this home."""
    from holdfast.clock import iso

    with app.open() as hold:
        item = _standing(hold).run_now(id_)
    if as_json:
        print_json({"id": id_, "dueAt": iso(item.due_at), "agendaId": item.id})
    else:
        click.echo(f"{id_} is due now.")


def _standing(hold: Holdfast) -> CronService:
    from holdfast.agents.cron import CronParts, CronService

    return CronService(CronParts(store=hold.store, threads=hold.threads, config=lambda: hold.settings))


def _when(schedule: dict[str, str]) -> str:
    match schedule["kind"]:
        case "cron":
            return f"{schedule['expr']} {schedule['tz']}"
        case "every":
            return f"every {schedule['every']}"
        case _:
            return f"at {_minute(schedule['at'])}"
