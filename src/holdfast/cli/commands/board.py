"""`holdfast board`: topics, tasks, spaces, search, context, log, laid out for a terminal.

In a pipe (`width` None) each thing is one line, and nothing of it is cut. Pure: what to print, not where.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlencode

import click

from holdfast.cli.output import cell, print_fields, print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app

LEAST_WIDTH: Final = 40
MOST_WIDTH: Final = 120
TEXT_LINES: Final = 4
_INDENT: Final = "  "


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of a list: its name, what is told of it at the right, its id, and what stands beside that."""

    name: str
    id: str
    right: str = ""
    beside: str = ""


def listed(items: Iterable[Item], width: int) -> Iterator[str]:
    """Two lines for each: name and state, then the id that other commands take."""
    room = _room(width)
    for one in items:
        yield _spread(cell(one.name), one.right, room)
        yield _clip(f"{_INDENT}{one.id}{_INDENT}{one.beside}".rstrip(), room)


def hits(found: Sequence[Mapping[str, Any]], width: int | None, *, explain: bool = False) -> Iterator[str]:
    """What a search found, best first: the score, what it says, and the id."""
    for hit in found:
        text = _flat(hit.get("name") or hit.get("title") or hit.get("content") or "")
        parts = _INDENT.join(f"{name} {value:.2f}" for name, value in hit["parts"].items())
        if width is None:
            yield f"{hit['score']:.2f}  {hit['id']}  {text}"
        else:
            room = _room(width)
            yield from _wrapped(text, room, f"  {hit['score']:.2f}  ", " " * 8, most=2)
            yield _clip(f"        {hit['id']}", room)
        if explain:
            yield from textwrap.wrap(parts, _room(width or MOST_WIDTH) - 8, initial_indent=" " * 8,
                                     subsequent_indent=" " * 8)  # fmt: skip


def thread(found: Sequence[Mapping[str, Any]], width: int | None) -> Iterator[str]:
    """Who said what and when: a line for the speaker, the words below it."""
    for one in found:
        who = cell(one["agentLabel"] or one["agentId"] or "-")
        at = moment(one["createdAt"])
        if width is None:
            yield f"{at}  {one['id']}  {who}: {_flat(one['content'])}"
        else:
            room = _room(width)
            yield _spread(f"{at}  {who}", one["id"], room)
            yield from _wrapped(_flat(one["content"]), room, _INDENT, _INDENT, most=TEXT_LINES)


def moment(text: str | None) -> str | None:
    """A time to the minute, in UTC."""
    return None if text is None else text[:16].replace("T", " ")


def _room(width: int) -> int:
    return max(LEAST_WIDTH, min(width, MOST_WIDTH))


def _spread(left: str, right: str, room: int) -> str:
    """Left and right on one line; the left gives way."""
    right = _clip(right, room // 2 if len(right) + 8 > room else len(right))
    left = _clip(left, room - len(right) - 2)
    return f"{left}{' ' * (room - len(left) - len(right))}{right}".rstrip()


def _wrapped(text: str, room: int, first: str, others: str, *, most: int) -> list[str]:
    return textwrap.wrap(
        text, room, initial_indent=first, subsequent_indent=others, max_lines=most, placeholder=" …"
    ) or [first.rstrip()]


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(0, most - 1)].rstrip()}…"


def _flat(text: str) -> str:
    return cell(" ".join(text.split()))


space_option = click.option("--space", "space_id", metavar="ID", help="Look from this space.")
session_option = click.option("--session", "session_key", metavar="KEY", help="As it is for this session.")
topic_option = click.option("--topic", "topic_id", metavar="ID", help="Only within this topic.")
status_option = click.option("--status", help="Only those of this status.")


F = TypeVar("F", bound=Callable[..., Any])


def limit_option(usual: int) -> Callable[[F], F]:
    return click.option("-n", "--limit", type=click.IntRange(1, 500), default=usual, help="How many at most.")


class Board(Protocol):
    """The board's HTTP interface, whoever answers it."""

    def get(self, path: str) -> Any: ...


@click.group(cls=Group)
def board() -> None:
    """Spaces, topics and tasks; search; the block as an agent gets it."""


@board.command("spaces")
@json_option
@pass_app
def spaces(app: App, as_json: bool) -> None:
    """List the spaces, and which others each of them sees."""
    found = _asked(app, "/api/spaces")
    if as_json:
        print_json(found)
        return
    rows = [(one["id"], one["name"], _visible(one["connectivity"])) for one in found]
    print_table(["id", "name", "sees"], rows, empty="There are no spaces yet.")


@board.command("topics")
@click.argument("topic_id", required=False, metavar="[ID]")
@status_option
@space_option
@limit_option(50)
@json_option
@pass_app
def topics(
    app: App, topic_id: str | None, status: str | None, space_id: str | None, limit: int, as_json: bool
) -> None:
    """List topics, or show one with its thread."""
    if topic_id is not None:
        _thread(app, topic_id, limit, as_json=as_json)
        return
    found = _asked(app, "/api/topics", status=status, spaceId=space_id, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [(one["id"], one["name"], _state(one), one["spaceId"], moment(one["updatedAt"])) for one in found]
    _print_list(["id", "name", "state", "space", "changed"], rows, empty="There are no topics yet.")


@board.command("tasks")
@click.argument("task_id", required=False, metavar="[ID]")
@topic_option
@status_option
@space_option
@limit_option(50)
@json_option
@pass_app
def tasks(app: App, /, task_id: str | None, as_json: bool, limit: int, **only: str | None) -> None:
    """List tasks, or show one."""
    if task_id is not None:
        found = _asked(app, f"/api/tasks/{quote(task_id, safe='')}")
        print_json(found) if as_json else _print_work(found)
        return
    wanted = {"topicId": only["topic_id"], "status": only["status"], "spaceId": only["space_id"]}
    rows = _asked(app, "/api/tasks", limit=limit, **wanted)
    if as_json:
        print_json(rows)
        return
    cells = [(one["id"], one["title"], _state(one), one["topicId"], moment(one["dueDate"])) for one in rows]
    _print_list(["id", "title", "state", "topic", "due"], cells, empty="There are no tasks.")


@board.command("search")
@click.argument("query")
@topic_option
@space_option
@session_option
@limit_option(10)
@click.option("--explain", is_flag=True, help="Show how each score came about.")
@json_option
@pass_app
def search(app: App, /, query: str, limit: int, explain: bool, as_json: bool, **only: str | None) -> None:
    """Search topics, tasks, conversations and notes."""
    places = {"topicId": only["topic_id"], "spaceId": only["space_id"], "sessionKey": only["session_key"]}
    few = min(limit, 5)
    found = _asked(app, "/api/search", q=query, limitLogs=limit, limitTopics=few, limitTasks=few, **places)
    if as_json:
        print_json(found)
        return
    kinds = ("topics", "tasks", "notes", "logs")
    for kind in kinds:
        _print_hits(kind, found[kind], explain=explain)
    if not any(found[kind] for kind in kinds):
        click.echo("Nothing was found.")
    click.echo(f"{found['mode']} search in {found['took']} ms", err=True)


@board.command("context")
@click.argument("query", required=False, default="")
@session_option
@space_option
@click.option("--mode", type=click.Choice(["auto", "cheap", "full", "patient"]), help="Else as configured.")
@click.option("--max-chars", type=click.IntRange(400, 12_000), help="Else as configured.")
@json_option
@pass_app
def context(
    app: App, /, query: str, mode: str | None, max_chars: int | None, as_json: bool, **only: str | None
) -> None:
    """The continuity block as an agent would get it now."""
    places = {"sessionKey": only["session_key"], "spaceId": only["space_id"]}
    found = _asked(app, "/api/context", q=query or None, mode=mode, maxChars=max_chars, **places)
    if as_json:
        print_json(found)
        return
    for line in found["block"].splitlines():
        click.secho(cell(line), bold=line.endswith(":") and not line.startswith("- "))
    told = ", ".join(found["layers"]) or "no layers"
    click.echo(f"{len(found['block'])} characters; {told}", err=True)


@board.command("log")
@click.argument("entry_id", required=False, metavar="[ID]")
@click.option("--why", is_flag=True, help="Say why the entry lies where it lies.")
@topic_option
@session_option
@space_option
@limit_option(20)
@json_option
@pass_app
def log(app: App, /, entry_id: str | None, why: bool, limit: int, as_json: bool, **only: str | None) -> None:
    """List entries, or show one, or tell why it was sorted as it was."""
    if entry_id is not None:
        _entry(app, entry_id, why=why, as_json=as_json)
        return
    if why:
        raise click.UsageError("--why needs the ID of an entry.")
    places = {"topicId": only["topic_id"], "sessionKey": only["session_key"], "spaceId": only["space_id"]}
    found = _asked(app, "/api/log", limit=limit, **places)
    print_json(found) if as_json else _print_entries(found[::-1])


@board.command("share")
@click.argument("kind", type=click.Choice(["topic", "entry", "session"]))
@click.argument("id_", metavar="ID")
@click.option("--with", "audience", required=True, metavar="AUDIENCE", help="space:<id>, group:…, anyone.")
@click.option("--entries", is_flag=True, help="With a topic: what was said under it, too.")
@json_option
@pass_app
def share(app: App, kind: str, id_: str, audience: str, entries: bool, as_json: bool) -> None:
    """Let more people read something. That cannot be taken back, and stands in the audit trail.

    \b
    Example:
      holdfast board share topic topic-1 --with space:space-garden --entries
    """
    from holdfast.gateway.routes.share import ShareIn, share_in
    from holdfast.log import OWNER

    if entries and kind != "topic":
        raise click.UsageError("--entries goes with a topic.")
    name = {"topic": "topicId", "entry": "entryId", "session": "sessionKey"}[kind]
    asked = ShareIn.model_validate({name: id_, "audience": audience, "withEntries": entries})
    with app.open() as hold, hold.store.write(OWNER) as tx:
        done = share_in(tx, asked, actor="cli")
    if as_json:
        print_json(done.json())
    else:
        click.echo(f"{done.kind} {done.id}: {done.before} -> {done.after}; {done.entries} entries.")


def _entry(app: App, entry_id: str, *, why: bool, as_json: bool) -> None:
    part = quote(entry_id, safe="")
    found = _asked(app, f"/api/classifier/decisions/{part}" if why else f"/api/log/{part}")
    if as_json:
        print_json(found)
    elif why:
        _print_why(found)
    else:
        _print_entry(found)


def _thread(app: App, topic_id: str, limit: int, *, as_json: bool) -> None:
    part = quote(topic_id, safe="")
    with _board(app) as asked:
        topic = asked.get(f"/api/topics/{part}")
        said = asked.get(f"/api/topics/{part}/thread?limit={limit}")
    if as_json:
        print_json({**topic, "thread": said})
        return
    _print_work(topic)
    click.echo()
    _print_entries(said[::-1])


def _print_work(one: Mapping[str, Any]) -> None:
    click.secho(cell(one.get("name") or one.get("title")), bold=True)
    print_fields(
        {
            "id": one["id"],
            "state": _state(one),
            "spaces": ", ".join(one["spaceIds"]),
            "read by": one["audience"],
            "tags": ", ".join(one["tags"]) or None,
            "due": moment(one["dueDate"]),
            "changed": moment(one["updatedAt"]),
        }
    )
    for line in (one["digest"] or "").splitlines():
        click.echo(f"  {cell(line)}")


def _print_list(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], *, empty: str) -> None:
    """A table in a pipe; in a terminal, whose width the ids alone would fill, two lines for each."""
    width = _width()
    if width is None or not rows:
        print_table(columns, rows, empty=empty)
        return
    for id_, name, state, place, at in rows:
        head, below = listed([Item(name, id_, state, f"{place}  {at or ''}")], width)
        click.secho(head, bold=True)
        click.echo(below)


def _print_hits(kind: str, found: Sequence[Mapping[str, Any]], *, explain: bool) -> None:
    if found:
        click.secho(kind.capitalize(), bold=True)
    for line in hits(found, _width(), explain=explain):
        click.echo(line)


def _print_entries(found: Sequence[Mapping[str, Any]]) -> None:
    for line in thread(found, _width()):
        click.echo(line)
    if not found:
        click.echo("There are no entries.")


def _width() -> int | None:
    """The columns of the terminal; None in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _print_entry(one: Mapping[str, Any]) -> None:
    names = ("id", "type", "agentId", "topicId", "taskId", "spaceId", "audience", "createdAt", "summary")
    code = f" ({one['classificationCode']})" if one["classificationCode"] else ""
    print_fields({name: one[name] for name in names} | {"status": f"{one['classificationStatus']}{code}"})
    click.echo()
    for line in one["content"].splitlines():
        click.echo(cell(line))


def _print_why(made: Mapping[str, Any]) -> None:
    reasons = dict(made["reasons"] or {})
    others = reasons.pop("others", None) or []
    click.secho(f"{made['method']}: {cell(reasons.pop('text', 'no reason was kept'))}", bold=True)
    fields = {"topic": "topicId", "task": "taskId", "confidence": "confidence", "decided": "decidedAt"}
    print_fields({name: made[key] for name, key in fields.items()})
    print_fields({name: value for name, value in reasons.items() if value not in (None, [], "")})
    if others:
        rows = [(one.get("topicId") or "a new topic", one.get("score")) for one in others]
        print_table(["other way", "score"], rows, empty="")


def _visible(edges: Mapping[str, bool]) -> str:
    return ", ".join(sorted(to for to, on in edges.items() if on)) or "itself alone"


def _state(one: Mapping[str, Any]) -> str:
    marks = [str(one["status"])] + (["pinned"] if one["pinned"] else [])
    return ", ".join(marks + (["high"] if one["priority"] == "high" else []))


def _asked(app: App, path: str, **query: Any) -> Any:
    given = {name: value for name, value in query.items() if value is not None}
    with _board(app) as asked:
        return asked.get(f"{path}?{urlencode(given)}" if given else path)


@contextmanager
def _board(app: App) -> Iterator[Board]:
    """A running gateway of this home, else the same interface served by this process for one command."""
    from holdfast.cli.client import Client, find_gateway

    found = find_gateway(app.home, None)
    if found.state == "ours":
        yield Client(found.url, app.home.admin_token())
        return
    with app.open() as hold:
        yield _InProcess(hold)


class _InProcess:
    """The gateway's own routes without a network, and without the services that run beside them."""

    def __init__(self, hold: Any) -> None:
        from holdfast.gateway.app import create_app

        self._app = create_app(hold)
        self._token = hold.home.admin_token()

    def get(self, path: str) -> Any:
        import asyncio

        return asyncio.run(self._get(path))

    async def _get(self, path: str) -> Any:
        import httpx

        from holdfast.errors import InvalidInput, NotFound, Unavailable

        transport = httpx.ASGITransport(app=self._app)
        headers = {"Authorization": f"Bearer {self._token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://board", headers=headers) as client:
            answer = await client.get(path)
        told = answer.json()
        if answer.status_code < 400:
            return told
        kind = {404: NotFound, 422: InvalidInput}.get(answer.status_code, Unavailable)
        raise kind(str(told.get("detail")), code=str(told.get("code")), hint=str(told.get("hint", "")))
