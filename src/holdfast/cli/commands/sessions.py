"""`holdfast sessions` and `export-trajectory`: list, show, reset, export, import, archive."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from holdfast.cli.output import cell, print_fields, print_json, print_table, when
from holdfast.cli.root import App, Command, Group, json_option, pass_app
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.log import Session, Tx


@click.group(cls=Group)
def sessions() -> None:
    """List, show, reset, export, import, archive; the space of one."""


@sessions.command("list")
@click.option(
    "--status", type=click.Choice(["active", "archived", "all"]), default="active", show_default=True
)
@click.option("--agent", "agent_id", metavar="ID", help="Only sessions of this agent.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--offset", type=click.IntRange(0), default=0)
@json_option
@pass_app
def list_(app: App, status: str, agent_id: str | None, limit: int, offset: int, as_json: bool) -> None:
    """Sessions, most recently used first."""
    from holdfast.gateway.wire import session_out
    from holdfast.log import SessionStatus
    from holdfast.log import sessions as room

    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = room.listing(
            tx,
            status=None if status == "all" else SessionStatus(status),
            agent_ids=None if agent_id is None else frozenset((agent_id,)),
            limit=limit,
            offset=offset,
        )
    if as_json:
        print_json([session_out(each) for each in found])
        return
    rows = [
        (each.key, each.status, each.turn_count, each.total_tokens, when(each.updated_at)) for each in found
    ]
    print_table(["key", "status", "turns", "tokens", "used"], rows, empty="No sessions.")


@sessions.command()
@click.argument("key")
@click.option("--limit", type=click.IntRange(1, 500), default=10, show_default=True, help="Last entries.")
@json_option
@pass_app
def show(app: App, key: str, limit: int, as_json: bool) -> None:
    """One session, by key or id: what is known of it, its last turns and entries."""
    from holdfast.gateway.wire import entry_out, session_out, turn_out
    from holdfast.log import EntryFilter, entries, turns

    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = find_session(tx, key)
        last = entries.listing(tx, EntryFilter(session_id=found.id), limit=limit).entries[::-1]
        recent = turns.listing(tx, found.id, limit=limit)[::-1]
    if as_json:
        body = session_out(found) | {
            "turns": [turn_out(each, found.agent_id) for each in recent],
            "entries": [entry_out(each) | {"role": each.role} for each in last],
        }
        print_json(body)
        return
    print_fields({name: value for name, value in session_out(found).items() if value is not None})
    if recent:
        click.echo()
        rows = [
            (each.number, each.status, each.trigger, each.model, when(each.accepted_at)) for each in recent
        ]
        print_table(["turn", "status", "trigger", "model", "accepted"], rows, empty="")
    for each in last:
        click.echo(f"\n{when(each.created_at)} {each.role or each.type}: {cell(each.content)[:300]}")


@sessions.command()
@click.argument("key")
@json_option
@pass_app
def reset(app: App, key: str, as_json: bool) -> None:
    """Archive the session and begin its successor."""
    _end(app, key, as_json, successor=True)


@sessions.command()
@click.argument("key")
@json_option
@pass_app
def archive(app: App, key: str, as_json: bool) -> None:
    """End the session; the next message to its key begins a new one."""
    _end(app, key, as_json, successor=False)


@sessions.command()
@click.argument("key")
@click.argument("space_id", required=False, metavar="[SPACE]")
@click.option("--none", "take_out", is_flag=True, help="Take it out of its space.")
@json_option
@pass_app
def space(app: App, key: str, space_id: str | None, take_out: bool, as_json: bool) -> None:
    """Put a session into a space: all who hear it may then read what is shared with that space.

    \b
    Example:
      holdfast sessions space agent:main:discord:group:42 space-garden
    """
    from holdfast.board import spaces
    from holdfast.gateway.wire import session_out
    from holdfast.log import sessions as room

    if (space_id is None) != take_out:
        raise click.UsageError("Name a SPACE, or give --none.")
    with app.open() as hold, hold.store.write(OWNER) as tx:
        if space_id is not None:
            spaces.require(tx, space_id)
        now = room.give_space(tx, find_session(tx, key), space_id)
    if as_json:
        print_json(session_out(now))
    else:
        click.echo(f"{now.key} is in {'no space' if space_id is None else space_id} now.")


@sessions.command()
@click.argument("key")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file; else stdout.")
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "markdown"]), default="jsonl", show_default=True
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@pass_app
def export(app: App, key: str, output: Path | None, form: str, force: bool) -> None:
    """Write a session as an OpenClaw transcript, or to be read by people.

    \b
    Example:
      holdfast sessions export agent:main:main -o main.jsonl
    """
    from holdfast.log.transfer import export_markdown, export_transcript

    with app.open() as hold:
        with hold.store.read(OWNER) as tx:
            found = find_session(tx, key)
        with destination(output, force=force) as out:
            write: Callable[..., int] = export_transcript if form == "jsonl" else export_markdown
            count = write(hold.store, found, out)
    if output is not None:
        click.echo(f"{count} {'lines' if form == 'jsonl' else 'messages'} to {output}")


@sessions.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--key", required=True, help="The session key, such as agent:main:main.")
@click.option("--dry-run", is_flag=True, help="Only say what would be added.")
@json_option
@pass_app
def import_(app: App, file: Path, key: str, dry_run: bool, as_json: bool) -> None:
    """Take in an OpenClaw transcript; again, only what the file has gained is added.

    \b
    Example:
      holdfast sessions import 4f2c.jsonl --key agent:main:main
    """
    from holdfast.log.transfer import import_transcript

    with app.open(create=True) as hold:
        done = import_transcript(hold.store, file, key, dry_run=dry_run)
    if as_json:
        body = {
            "sessionId": done.session_id,
            "sessionKey": done.key,
            "created": done.created,
            "dryRun": dry_run,
        }
        print_json(body | {"lines": done.lines, "added": done.added, "badLines": done.bad_lines})
        return
    for fault in done.faults:
        click.echo(f"{file}, line {fault.lineno}: {fault.reason}; kept as it stands", err=True)
    verb = "would be added" if dry_run else "added"
    click.echo(f"{done.added} of {done.lines} lines {verb} to {done.key} ({done.session_id})")


@contextmanager
def destination(path: Path | None, *, force: bool = False) -> Iterator[IO[bytes]]:
    """A file to write, made whole or not at all; or standard output."""
    from holdfast.errors import Conflict, InvalidInput

    if path is None:
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    if path.exists() and not force:
        raise Conflict(f"{path} is there already", hint="Choose another name, or give --force.")
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as out:
            yield out
        draft.replace(path)
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written: {error.strerror}", hint="Choose another place."
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def find_session(tx: Tx, key: str) -> Session:
    """A session by its key, in any spelling of the agent's id, or by its own id."""
    from holdfast.errors import InvalidInput, NotFound
    from holdfast.keys import canonical_key
    from holdfast.log import sessions as room

    try:
        return room.find(tx, canonical_key(key))
    except (InvalidInput, NotFound):
        try:
            return room.find(tx, key)
        except NotFound as error:
            raise NotFound(
                error.message, code=error.code, hint="See `holdfast sessions list --status all`."
            ) from None


def _end(app: App, key: str, as_json: bool, *, successor: bool) -> None:
    """A turn that a gateway runs there is stopped by it, at its next look at the store."""
    import asyncio

    from holdfast.gateway.wire import session_out

    with app.open() as hold:
        with hold.store.read(OWNER) as tx:
            found = find_session(tx, key)
        end = hold.runs.reset if successor else hold.runs.archive
        now = asyncio.run(end(lambda tx: find_session(tx, found.id)))
    if as_json:
        print_json(session_out(now))
    elif successor:
        click.echo(f"{now.key}: {found.id} is archived, {now.id} begins.")
    else:
        click.echo(f"{now.key}: {now.id} is archived.")


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
    from holdfast.gateway.wire import full_entry_out, session_out, turn_out
    from holdfast.log import entries, turns

    yield {"record": "session"} | session_out(session)
    for first in range(1, session.turn_count + 1, PAGE):
        for turn in reversed(turns.listing(tx, session.id, before=first + PAGE, limit=PAGE)):
            if turn.number >= first:
                yield {"record": "turn"} | turn_out(turn, session.agent_id) | {"meta": turn.meta}
    after = 0
    while page := entries.transcript(tx, session.id, after=after, limit=PAGE):
        for entry in page:
            place = {"role": entry.role, "turnId": entry.turn_id, "position": entry.position}
            yield {"record": "entry"} | full_entry_out(entry, raw=True) | place
        after = page[-1].position
