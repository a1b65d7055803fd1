"""`holdfast export-trajectory`: all that happened in a session, for programs that study it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.commands.sessions import destination, find_session
from holdfast.cli.groups import App, Command, pass_app
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.log import Session, Tx

PAGE: Final = 250


@click.command("export-trajectory", cls=Command)
@click.option("--session-key", "key", required=True, help="The session, by key or id.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file; else stdout.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@pass_app
def trajectory(app: App, key: str, output: Path | None, force: bool) -> None:
    """Write a session's turns and entries as JSON lines, each with its `record`.

    \b
    Example:
      holdfast export-trajectory --session-key agent:main:main -o run.jsonl
    """
    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = find_session(tx, key)
        with destination(output, force=force) as out:
            for row in _records(tx, found):
                out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def _records(tx: Tx, session: Session) -> Iterator[dict[str, Any]]:
    from holdfast.gateway.wire import entry_json, session_json, turn_json
    from holdfast.log import entries, turns

    yield {"record": "session"} | session_json(session)
    for first in range(1, session.turn_count + 1, PAGE):
        for turn in reversed(turns.listing(tx, session.id, before=first + PAGE, limit=PAGE)):
            if turn.number >= first:
                yield {"record": "turn"} | turn_json(turn, session.agent_id) | {"meta": turn.meta}
    after = 0
    while page := entries.transcript(tx, session.id, after=after, limit=PAGE):
        for entry in page:
            place = {"role": entry.role, "turnId": entry.turn_id, "position": entry.position}
            yield {"record": "entry"} | entry_json(entry, raw=True) | place
        after = page[-1].position
