"""`holdfast context`: what a model was given, what changed, and whether it can be made again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.commands.sessions import find_session
from holdfast.cli.groups import App, Group, json_option, pass_app
from holdfast.cli.output import cell, print_json, print_table
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.context import Manifest, Section, Stored
    from holdfast.log import Tx

WIDTH: Final = 24
DEFAULT_SESSION: Final = "agent:main:main"

session_option = click.option(
    "--session", "key", default=DEFAULT_SESSION, show_default=True, help="The session, by key or id."
)


@click.group(cls=Group)
def context() -> None:
    """Show, diff, replay: every byte that reached a model, explained."""


@context.command()
@session_option
@click.option("--turn", type=click.IntRange(1), help="The turn's number; else the newest.")
@click.option("--raw", is_flag=True, help="Print the messages themselves.")
@json_option
@pass_app
def show(app: App, key: str, turn: int | None, raw: bool, as_json: bool) -> None:
    """The manifest of a turn, with a bar for each section.

    \b
    Example:
      holdfast context show --turn 12
    """
    from holdfast.context import load_manifest, manifest_json, replay, wire

    with app.open() as hold, hold.store.read(OWNER) as tx:
        stored = load_manifest(tx, find_session(tx, key).id, turn)
        found = replay(tx, stored) if raw else None
    if as_json:
        body: dict[str, Any] = manifest_json(stored.manifest)
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
@session_option
@json_option
@pass_app
@click.pass_context
def replay_(ctx: click.Context, app: App, turn: int, key: str, as_json: bool) -> None:
    """Make the context of a turn again and compare it byte by byte; exit 1 if it differs."""
    from holdfast.context import replay

    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = replay(tx, _stored(tx, key, turn))
    body = {
        "turn": turn,
        "identical": found.identical,
        "messages": len(found.messages),
        "stored": found.manifest.digest,
        "rebuilt": found.digest,
    }
    if as_json:
        print_json(body)
    else:
        word = "identical" if found.identical else "DIFFERENT"
        click.echo(f"turn {turn}: {len(found.messages)} messages, {word} ({found.digest})")
    ctx.exit(0 if found.identical else 1)


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
