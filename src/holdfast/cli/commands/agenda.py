"""`holdfast agenda`: what is due."""

from __future__ import annotations

import click

from holdfast.cli.groups import App, Group, json_option, pass_app
from holdfast.cli.output import print_json, print_table, when
from holdfast.log import OWNER


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
