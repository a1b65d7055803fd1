"""`holdfast heartbeat`: the agents' pulse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.groups import App, Group, json_option, pass_app
from holdfast.cli.output import print_json, print_table

if TYPE_CHECKING:
    from holdfast.agents.heartbeat import Heartbeats
    from holdfast.runtime import Holdfast


@click.group(cls=Group)
def heartbeat() -> None:
    """The agents' pulse: status, now."""


@heartbeat.command()
@json_option
@pass_app
def status(app: App, as_json: bool) -> None:
    """How each agent's heartbeat stands: when it beats next, how it last went, what it cost today."""
    with app.open() as hold:
        found = _room(hold).statuses()
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
        item = _room(hold).now(agent)
    if as_json:
        print_json({"agentId": agent, "dueAt": iso(item.due_at), "agendaId": item.id})
    else:
        click.echo(f"The heartbeat of {agent} is due now.")


def _room(hold: Holdfast) -> Heartbeats:
    from holdfast.agents.heartbeat import Heartbeats, Parts

    return Heartbeats(
        Parts(store=hold.store, threads=hold.threads, config=lambda: hold.settings, workspace=hold.workspace)
    )


def _minute(at: str | None) -> str | None:
    return None if at is None else at[:16].replace("T", " ")
