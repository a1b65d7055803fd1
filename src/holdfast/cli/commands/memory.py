"""`holdfast memory`: what an agent can recall."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from holdfast.cli.output import cell, print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app

if TYPE_CHECKING:
    from holdfast.cli.client import Client
    from holdfast.log import Reader
    from holdfast.runtime import Holdfast

_SIGHT_SECONDS = 2.0
_ANSWER_SECONDS = 6.0
_STARTING_SECONDS = 60.0

agent_option = click.option("--agent", "agent_id", metavar="ID", help="The agent; else the default one.")


@click.group(cls=Group)
def memory() -> None:
    """What an agent can recall."""


@memory.command("index")
@agent_option
@click.option("--force", is_flag=True, help="Read every file again.")
@click.option("--embed/--no-embed", default=True, help="Also let the better embedder catch up.")
@click.option("--batch", is_flag=True, help="Have OpenAI embed many texts within a day, for half the price.")
@click.option("--yes", is_flag=True, help="Take the price of --batch without being asked.")
@json_option
@pass_app
def index(
    app: App, agent_id: str | None, force: bool, embed: bool, batch: bool, yes: bool, as_json: bool
) -> None:
    """Bring files and log into the index: what changed since the last time, and nothing else."""
    with _local(app) as hold, _progress() as progress:
        agent = _agent(hold, agent_id)
        while hold.memory.mend(1.0):
            pass
        done = hold.memory.update(agent, progress=progress, force=force)
        behind = hold.memory.follow()
        while behind or hold.memory.health.healing:
            behind = hold.memory.follow()
        embed = embed and (not batch or _batch_begun(hold, yes))
        embedded = hold.memory.refine(progress=progress) if embed else 0
        done.problems += _troubles(hold)
    told = {
        "files": done.seen,
        "indexed": done.indexed,
        "removed": done.removed,
        "chunks": done.chunks,
        "embedded": embedded,
        "logBehind": behind,
        "problems": done.problems,
    }
    if as_json:
        print_json(told)
        return
    click.echo(f"{done.seen} files, {done.indexed} indexed in {done.chunks} chunks, {done.removed} removed.")
    for problem in done.problems:
        click.echo(f"warning: {problem}", err=True)


@memory.command("search")
@click.argument("query")
@agent_option
@click.option("-n", "--limit", type=click.IntRange(1, 100), help="Results at most.")
@click.option("--min-score", type=click.FloatRange(0, 1), help="Leave out what scores less.")
@click.option("--session", "session_key", metavar="KEY", help="As an agent would find it in this session.")
@click.option("--explain", is_flag=True, help="Show how each score came about.")
@json_option
@pass_app
def search(
    app: App,
    query: str,
    agent_id: str | None,
    limit: int | None,
    min_score: float | None,
    session_key: str | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Look for something in notes, daily logs and conversations."""
    asked = {"q": query, "agentId": agent_id, "maxResults": limit, "minScore": min_score}
    asked["sessionKey"] = session_key

    def here(hold: Holdfast) -> Any:
        from holdfast.memory import Ask, Chat

        chat, reader = Chat.of(session_key), _reader(hold, session_key)
        ask = Ask(query, _agent(hold, agent_id), reader, chat, max_results=limit, min_score=min_score)
        return hold.memory.search(ask).json(explain=True)

    found = _either(app, "/api/memory/search", {**asked, "explain": "true"}, here)
    if as_json:
        print_json(found)
    elif explain:
        _print_parts(found)
    else:
        _print_hits(found)


@memory.command("get")
@click.argument("path")
@agent_option
@click.option("--from", "start", type=click.IntRange(1), default=1, help="First line.")
@click.option("--lines", type=click.IntRange(1, 10_000), help="How many lines.")
@json_option
@pass_app
def get(app: App, path: str, agent_id: str | None, start: int, lines: int | None, as_json: bool) -> None:
    """Read lines of a memory file, or the conversation around something that was found."""

    def here(hold: Holdfast) -> Any:
        from holdfast.log import OWNER

        return hold.memory.read(_agent(hold, agent_id), path, OWNER, start=start, lines=lines)

    asked = {"path": path, "agentId": agent_id, "from": start, "lines": lines}
    read = _either(app, "/api/memory/get", asked, here)
    if as_json:
        print_json(read)
        return
    click.echo(read["text"])
    if read["more"]:
        click.echo(
            f"… {read['totalLines']} lines in all; go on with --from {start + read['lines']}", err=True
        )


@memory.command("status")
@agent_option
@json_option
@pass_app
def status(app: App, agent_id: str | None, as_json: bool) -> None:
    """What is indexed, who embeds it, how fresh it is."""

    def here(hold: Holdfast) -> Any:
        return hold.memory.status(_agent(hold, agent_id))

    told = _either(app, "/api/memory/status", {"agentId": agent_id}, here)
    if as_json:
        print_json(told)
        return
    click.echo(f"{told['documents']} documents of agent {told['agent']}, backend {told['backend']}")
    for one in told["health"]["damaged"]:
        click.echo(f"{one['part']} was damaged ({one['why']}) and set aside")
    if told["health"]["healing"]:
        click.echo(f"being made again; {told['health']['unsearched']} documents are not searched yet")
    files = [(c["name"], c["files"], c["chunks"]) for c in told["collections"]]
    print_table(["collection", "files", "chunks"], files, empty="No collections.")
    who = [(e["provider"], e["model"], e["dims"], f"{e['covered']:.0%}") for e in told["embedders"]]
    print_table(["embedder", "model", "dims", "covered"], who, empty="No embedders.")


@memory.group("collection", cls=Group)
def collection() -> None:
    """Further sets of files to search."""


@collection.command("add")
@click.argument("path", type=click.Path(file_okay=False))
@click.option("--name", required=True, help="Its name; letters, digits and hyphens.")
@click.option("--mask", default="**/*.md", show_default=True, help="Which files.")
@pass_app
def add(app: App, path: str, name: str, mask: str) -> None:
    """Search the markdown files of a folder too."""
    from pathlib import Path

    from holdfast.errors import Conflict
    from holdfast.memory.collections import DEFAULT_NAMES, collection_name

    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {folder}", param_hint="PATH")
    with app.open() as hold:
        known = _paths(hold)
        chosen = collection_name(name)
        if chosen in DEFAULT_NAMES or any(one["name"] == chosen for one in known):
            raise Conflict(f"there is a collection {chosen!r} already", hint="Choose another --name.")
        known.append({"path": str(folder), "name": chosen, "mask": mask})
        hold.config.patch({"memory": {"search": {"paths": known}}})
    click.echo(f"Added {chosen}: {folder}/{mask}. Index it with `holdfast memory index`.")


@collection.command("list")
@agent_option
@json_option
@pass_app
def list_(app: App, agent_id: str | None, as_json: bool) -> None:
    """The collections of an agent."""
    with app.open() as hold:
        agent = _agent(hold, agent_id)
        found = [{"name": c.name, "path": str(c.root), "mask": c.mask} for c in hold.collections(agent)]
    if as_json:
        print_json(found)
    else:
        rows = [(c["name"], c["path"], c["mask"]) for c in found]
        print_table(["name", "path", "mask"], rows, empty="No collections.")


@collection.command("remove")
@click.argument("name")
@pass_app
def remove(app: App, name: str) -> None:
    """Search a folder no longer; its files are left alone."""
    from holdfast.errors import NotFound

    with app.open() as hold:
        known = _paths(hold)
        left = [one for one in known if one["name"] != name]
        if len(left) == len(known):
            raise NotFound(f"no collection {name!r} was added", hint="See `holdfast memory collection list`.")
        hold.config.patch({"memory": {"search": {"paths": left}}})
    click.echo(f"Removed {name}.")


def _paths(hold: Holdfast) -> list[dict[str, Any]]:
    return [one.model_dump(by_alias=True) for one in hold.settings.memory.search.paths]


def _batch_begun(hold: Holdfast, yes: bool) -> bool:
    """Send what waits as a batch, if it is worth it and the price is taken; False where it is not taken."""
    from holdfast.errors import InvalidInput
    from holdfast.memory.embedders.batch import WORTHWHILE

    if hold.memory.batches.pending():
        click.echo("A batch is under way; what is done of it is taken in now.", err=True)
        return True
    offer = hold.memory.batches.offer()
    if offer is None:
        raise InvalidInput(
            "--batch needs OpenAI as the first embedder",
            hint="Set memory.search.embedding.providers and a key; see docs/memory.md.",
        )
    if offer.texts < WORTHWHILE:
        click.echo(f"Only {offer.texts} texts wait: they are embedded at once.", err=True)
        return True
    price = "at a price that is not known here" if offer.dollars is None else f"about ${offer.dollars:.2f}"
    click.echo(
        f"{offer.texts} texts, about {offer.tokens:,} tokens, go to {offer.model}: {price}, within 24 hours.",
        err=True,
    )
    if not yes and not click.confirm("Send them?", err=True):
        return False
    sent = hold.memory.batches.begin()
    click.echo(
        f"{sent} texts were sent. A running gateway takes in what is done, and so does"
        " `holdfast memory index`; until then the static embedder serves.",
        err=True,
    )
    return True


def _troubles(hold: Holdfast) -> list[str]:
    """Which embedders failed, and why; what they did not embed is embedded another time."""
    known = [(one.id, hold.memory.chain.trouble(one)) for one in hold.memory.chain.preferred]
    return [f"{id_.provider}/{id_.model}: {why.why}" for id_, why in known if why is not None]


def _reader(hold: Holdfast, session_key: str | None) -> Reader:
    """Who reads: the owner, or all who hear the session that is asked for."""
    from holdfast.log import OWNER, surfaces

    if session_key is None:
        return OWNER
    with hold.store.read(OWNER) as tx:
        return surfaces.reader_under(tx, session_key, hold.settings.is_private)


def _agent(hold: Holdfast, agent_id: str | None) -> str:
    return hold.settings.agent(agent_id or hold.settings.default_agent_id).id


def _gateway(app: App, patience: float) -> Client | None:
    """A running gateway has the index open; it is asked, if it is seen that soon."""
    from holdfast.cli.client import Client, find_gateway

    found = find_gateway(app.home, None, patience=patience)
    return (
        Client(found.url, app.home.admin_token(), timeout=_ANSWER_SECONDS) if found.state == "ours" else None
    )


def _either(app: App, path: str, query: Mapping[str, Any], here: Callable[[Holdfast], Any]) -> Any:
    """What the gateway answers; if none runs or it is busy, what its index says when it is read from here."""
    from holdfast.errors import Unavailable

    client = _gateway(app, _SIGHT_SECONDS)
    given = {name: value for name, value in query.items() if value is not None}
    if client is not None:
        try:
            return client.get(f"{path}?{urlencode(given)}")
        except Unavailable as error:
            if error.code != "no_gateway":
                raise
    with app.open() as hold:
        return here(hold)


@contextmanager
def _local(app: App) -> Iterator[Holdfast]:
    from holdfast.errors import Conflict

    if _gateway(app, _STARTING_SECONDS) is not None:
        raise Conflict(
            "the running gateway keeps the index up to date by itself",
            hint="Stop it first to index by hand.",
        )
    with app.open(writes_index=True) as hold:
        yield hold


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar on a terminal, nothing in a pipe."""
    import sys

    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield show


def _print_hits(found: Mapping[str, Any]) -> None:
    for number, hit in enumerate(found["results"], 1):
        lines = f":{hit['startLine']}-{hit['endLine']}" if hit["startLine"] else ""
        click.secho(f"{number}. {hit['path']}{lines}  ({hit['score']:.2f})", bold=True)
        text = hit["snippet"].partition("\n\nSource: ")[0]
        click.echo("\n".join(_wrapped(text)))
        click.echo()
    if not found["results"]:
        click.echo(f"Nothing was found: {found['diagnostics']['note']}.")
    elif found["fallback"]:
        click.echo(f"note: {found['fallback']}", err=True)
    if found["diagnostics"].get("healing"):
        click.echo(f"note: {found['diagnostics']['healing']}", err=True)


def _wrapped(text: str) -> Iterator[str]:
    """The lines of a snippet, set in, none longer than the terminal is wide."""
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size((80, 24)).columns)
    for line in text.splitlines():
        pieces = textwrap.wrap(cell(line), width, initial_indent="   ", subsequent_indent="   ")
        yield from pieces or [""]


def _print_parts(found: Mapping[str, Any]) -> None:
    names = list(dict.fromkeys(name for hit in found["results"] for name in hit["parts"]))
    rows = [
        (hit["path"], f"{hit['score']:.3f}", *(f"{hit['parts'].get(name, 0):.3f}" for name in names))
        for hit in found["results"]
    ]
    print_table(["path", "score", *names], rows, empty=f"Nothing: {found['diagnostics']['note']}.")
    told = found["diagnostics"]
    click.echo(
        f"{told['mode']} search of {told['searched']} documents by {found['provider']}/{found['model']}"
        f" in {told['tookMs']} ms"
    )
