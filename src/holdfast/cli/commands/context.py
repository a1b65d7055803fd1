"""`holdfast context`: what a model was given, what changed, and whether it can be made again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.commands.sessions import find_session
from holdfast.cli.output import cell, print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.context import Manifest, Section, Stored, WhatIf
    from holdfast.context.replay import Row
    from holdfast.log import Session, Tx
    from holdfast.runtime import Holdfast

WIDTH: Final = 24
MOST_LINES: Final = 12
DEFAULT_SESSION: Final = "agent:main:main"

session_option = click.option(
    "--session", "key", default=DEFAULT_SESSION, show_default=True, help="The session, by key or id."
)


@click.group(cls=Group)
def context() -> None:
    """Show, diff, replay, what if: every byte that reached a model, explained."""


@context.command()
@session_option
@click.option("--turn", type=click.IntRange(1), help="The turn's number; else the newest.")
@click.option("--raw", is_flag=True, help="Print the messages themselves.")
@click.option("--summary", type=click.IntRange(1), help="A call that summarised; 1 is the newest.")
@json_option
@pass_app
def show(app: App, key: str, turn: int | None, raw: bool, summary: int | None, as_json: bool) -> None:
    """The manifest of a turn, with a bar for each section.

    \b
    Example:
      holdfast context show --turn 12
    """
    from holdfast.context import load_manifest, manifest_json, replay, wire
    from holdfast.context.manifest import summary_call

    with app.open() as hold, hold.store.read(OWNER) as tx:
        session = find_session(tx, key)
        stored = (
            load_manifest(tx, session.id, turn) if summary is None else summary_call(tx, session.id, summary)
        )
        found = replay(tx, stored) if raw else None
    if as_json:
        body: dict[str, Any] = {**manifest_json(stored.manifest)}
        print_json(body if found is None else body | {"messages": [wire(m) for m in found.messages]})
        return
    if found is not None:
        for message in found.messages:
            click.echo(f"── {message.kind} · {message.trust.label} · {cell(message.source)}")
            click.echo(_printable(message.text))
        return
    _print_manifest(stored.manifest)


@context.command("diff")
@click.argument("before", metavar="A", type=click.IntRange(1))
@click.argument("after", metavar="B", type=click.IntRange(1))
@session_option
@json_option
@pass_app
def diff_(app: App, before: int, after: int, key: str, as_json: bool) -> None:
    """What changed from one turn's context to another's, by their numbers."""
    from dataclasses import asdict

    from holdfast.context import diff

    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = diff(tx, _stored(tx, key, before), _stored(tx, key, after))
    if as_json:
        print_json(asdict(found))
        return
    rows = [("+", s.name, s.place, s.tokens) for s in found.added]
    rows += [("-", s.name, s.place, -s.tokens) for s in found.removed]
    rows += [("~", new.name, new.place, new.tokens - old.tokens) for old, new in found.changed]
    print_table(["", "section", "place", "tokens"], rows, empty="The sections are the same.")
    click.echo(
        f"messages: {found.kept_messages} kept, {found.new_messages} new, {found.dropped_messages} gone; "
        f"tokens: {found.tokens:+,}"
    )


@context.command("replay")
@click.argument("turn", type=click.IntRange(1))
@click.option("--call", type=click.IntRange(0), help="One of the turn's calls; else its last.")
@session_option
@json_option
@pass_app
@click.pass_context
def replay_(ctx: click.Context, app: App, turn: int, call: int | None, key: str, as_json: bool) -> None:
    """Have the engine build a turn's context again, from the log as it was and what else it was built
    from, and compare it byte by byte with what was sent; exit 1 if it differs.

    A context that an older version stored is joined from its parts instead.
    """
    with app.open() as hold:
        with hold.store.read(OWNER) as tx:
            session = find_session(tx, key)
        body = _replayed(hold, session, turn, call)
    if as_json:
        print_json(body)
    else:
        word = "identical" if body["identical"] else "DIFFERENT"
        how = "" if body["built"] else ", joined from its parts"
        click.echo(f"turn {turn}: {body['messages']} messages, {word}{how}")
        if body["difference"]:
            click.echo(cell(body["difference"]))
    ctx.exit(0 if body["identical"] else 1)


def _replayed(hold: Holdfast, session: Session, turn: int, call: int | None) -> dict[str, Any]:
    import asyncio

    from holdfast.errors import NotFound

    joined = hold.context.replay(session, turn, call)
    body: dict[str, Any] = {
        "turn": turn,
        "engine": joined.manifest.engine,
        "messages": len(joined.messages),
        "stored": joined.manifest.digest,
        "built": True,
    }
    try:
        found = asyncio.run(hold.context.hindsight.rebuild(session, turn, call))
    except NotFound as error:
        if error.code != "no_inputs":
            raise
        same, where = joined.identical, None
        body["built"] = False
    else:
        same, where = found.identical and joined.identical, found.difference
    return body | {"identical": same, "difference": where}


def _tokens(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A window: 32000, 32k or 1m."""
    if value is None:
        return None
    scale = {"k": 1_000, "m": 1_000_000}.get(value[-1:].lower(), 1)
    number = value[:-1] if scale > 1 else value
    if not number.isdecimal() or not 1_000 <= int(number) * scale <= 100_000_000:
        raise click.BadParameter(f"{value!r} is no window: use 32k, 200000 or 1m")
    return int(number) * scale


@context.command()
@click.option("--turn", type=click.IntRange(1), required=True, help="The turn's number.")
@click.option("--to", "last", type=click.IntRange(1), help="The last turn of a range, shown as a table.")
@click.option("--engine", help="Another engine, by its id.")
@click.option("--window", callback=_tokens, help="Another window: 32k, 200000, 1m.")
@click.option("--model", help="Another model, as provider/model; its window, unless one is given.")
@session_option
@json_option
@pass_app
def whatif(
    app: App,
    turn: int,
    last: int | None,
    engine: str | None,
    window: int | None,
    model: str | None,
    key: str,
    as_json: bool,
) -> None:
    """What the model would have seen of a turn under another engine, window or model, as a diff. No model is
    asked, and nothing is changed.

    \b
    Examples:
      holdfast context whatif --turn 12 --engine lossless --window 32k
      holdfast context whatif --turn 1 --to 40 --engine lossless
    """
    import asyncio

    with app.open() as hold:
        with hold.store.read(OWNER) as tx:
            session = find_session(tx, key)
        if model is not None and window is None:
            window = _window_of(hold, model)
        look = hold.context.hindsight
        given: dict[str, Any] = {"engine": engine, "window": window, "model": model}
        if last is not None:

            async def table() -> list[Row]:
                return [row async for row in look.what_ifs(session, turn, last, **given)]

            _print_rows(asyncio.run(table()), as_json)
            return
        found = asyncio.run(look.what_if(session, turn, **given))
    if as_json:
        from holdfast.context import what_if_json

        print_json(what_if_json(found))
        return
    _print_what_if(found)


def _window_of(hold: Holdfast, model: str) -> int:
    from holdfast.agents.models.types import ModelRef

    return hold.agency.models.about(ModelRef.parse(model)).window


def _print_rows(rows: list[Row], as_json: bool) -> None:
    if as_json:
        print_json([row.json() for row in rows])
        return
    shown = [
        (
            row.turn,
            f"{row.tokens[0]:,} → {row.tokens[1]:,}",
            "" if row.reuse is None else f"{row.reuse[0]:.0%} → {row.reuse[1]:.0%}",
            f"{row.facts[0]} → {row.facts[1]} of {row.of_facts}",
            "" if row.refused is None else "would not be sent",
        )
        for row in rows
    ]
    print_table(["turn", "tokens", "prefix reuse", "facts", ""], shown, empty="No turn there has a context.")


def _print_what_if(found: WhatIf) -> None:
    before, after = found.before, found.after
    kept, would = found.facts_kept
    click.echo(
        f"turn {before.number}: engine {before.engine} → {after.engine}, "
        f"model {before.model} → {after.model}, window {before.window:,} → {after.window:,}"
    )
    click.echo(f"tokens {before.used:,} → {after.used:,}; facts {kept} → {would} of {len(found.facts)}")
    if found.refused is not None:
        click.echo(f"would not be sent: {cell(found.refused)}")
    same = 0
    for op, message in found.steps():
        if op == "=":
            same += 1
            continue
        if same:
            click.echo(f"  … {same} messages the same …")
        same = 0
        click.echo(f"{op} {message.kind} · {cell(message.source)} · {len(message.text):,} characters")
        for line in _printable(message.text).splitlines()[:MOST_LINES]:
            click.echo(f"{op}   {line[:200]}")
    if same:
        click.echo(f"  … {same} messages the same …")


def _stored(tx: Tx, key: str, number: int) -> Stored:
    from holdfast.context import load_manifest

    return load_manifest(tx, find_session(tx, key).id, number)


def _print_manifest(found: Manifest) -> None:
    share = found.stable_tokens / max(1, found.used)
    click.echo(
        f"turn {found.number} of {cell(found.session_key)} · {cell(found.model)} · engine {found.engine}"
    )
    click.echo(
        f"{found.used:,} of {found.window:,} tokens ({found.used / found.window:.0%}), "
        f"{share:.0%} in the stable prefix"
    )
    if found.refused is not None:
        click.echo(f"not sent: {cell(found.refused)}")
    if found.sent_as:
        click.echo(f"sent as the model takes it: {', '.join(found.sent_as)}")
    largest = max((s.tokens for s in found.sections), default=1)
    rows = [_row(section, largest) for section in found.sections]
    print_table(["section", "tokens", "", "trust", "source"], rows, empty="Nothing was sent.")
    for warning in found.warnings:
        click.echo(f"warning: {cell(warning)}", err=True)


def _row(section: Section, largest: int) -> tuple[object, ...]:
    name = section.name if section.count == 1 else f"{section.name} ×{section.count}"
    return (
        name,
        f"{section.tokens:,}",
        bar(section.tokens / largest, section.stable),
        section.trust,
        section.source,
    )


def bar(share: float, stable: bool) -> str:
    """A bar of blocks; what lies in the stable prefix is solid, the rest is not."""
    full = max(1, round(share * WIDTH))
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") not in ("utf8", "utf16", "utf32")
    mark = ("#" if stable else "-") if ascii_only else ("█" if stable else "░")
    return mark * full


def _printable(text: str) -> str:
    """Text as it is, but for what a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
