"""`holdfast token` and `tokens`: who may call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import print_json, print_table, when
from holdfast.cli.root import App, Command, Group, json_option, pass_app
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.gateway.tokens import Token


@click.command(cls=Command)
@click.option("--link", is_flag=True, help="Print a link that logs a browser in, once, instead.")
@pass_app
def token(app: App, link: bool) -> None:
    """Print the home's own admin token, and nothing else."""
    click.echo(_link(app) if link else app.home.admin_token())


def _link(app: App) -> str:
    from holdfast.cli.client import find_gateway
    from holdfast.clock import SystemClock
    from holdfast.errors import Unavailable
    from holdfast.gateway.page_sessions import login_link

    found = find_gateway(app.home, None)
    if found.state != "ours":
        raise Unavailable("no gateway of this home runs", code="no_gateway", hint="Start it: `holdfast up`.")
    return login_link(app.home, SystemClock(), found.url)


@click.group(cls=Group)
def tokens() -> None:
    """Add, list, revoke."""


@tokens.command()
@click.argument("name")
@click.option("--scope", default="write", show_default=True, help="read, write or admin.")
@click.option("--space", "spaces", multiple=True, metavar="ID", help="Only this space (may be repeated).")
@click.option("--agent", "agents", multiple=True, metavar="ID", help="Only this agent (may be repeated).")
@click.option("--expires", metavar="DURATION", help="How long it holds, such as 12h or 30d.")
@json_option
@pass_app
def add(
    app: App,
    name: str,
    scope: str,
    spaces: tuple[str, ...],
    agents: tuple[str, ...],
    expires: str | None,
    as_json: bool,
) -> None:
    """Make a token. It is printed now and never again.

    A space that a token is limited to is shared from then on: what is put into it by name can be read with
    the token. What was there before stays yours until you share it (`holdfast board share`).

    \b
    Example:
      holdfast tokens add laptop --scope read --expires 30d
    """
    from holdfast.board import sharing
    from holdfast.board.spaces import require
    from holdfast.gateway.tokens import Scope
    from holdfast.gateway.tokens import add as make

    lasts = None if expires is None else _duration(expires)
    with app.open() as hold, hold.store.write(OWNER, ordered=False) as tx:
        for space in spaces:
            require(tx, space)
        sharing.mark_shared(tx, frozenset(spaces))
        made, text = make(
            tx,
            name,
            scope=Scope.parse(scope),
            spaces=spaces or None,
            agents=agents or None,
            expires_at=None if lasts is None else tx.now + lasts,
        )
    if as_json:
        print_json(_as_json(made) | {"token": text})
    else:
        if spaces:
            click.echo(_shared(spaces), err=True)
        click.echo("Keep it now, it is not shown again:", err=True)
        click.echo(text)


@tokens.command("list")
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """The tokens that were made, without their texts."""
    from holdfast.gateway.tokens import listing

    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = listing(tx)
        now = tx.now
    if as_json:
        print_json([_as_json(each) for each in found])
        return
    rows = [
        (each.name, each.scope.name.lower(), _state(each, now), when(each.created_at), when(each.expires_at))
        for each in found
    ]
    empty = "No tokens but the home's own (`holdfast token`)."
    print_table(["name", "scope", "state", "made", "expires"], rows, empty=empty)


@tokens.command()
@click.argument("name")
@json_option
@pass_app
def revoke(app: App, name: str, as_json: bool) -> None:
    """End a token at once, by its name or id."""
    from holdfast.gateway.tokens import revoke as end

    with app.open() as hold, hold.store.write(OWNER, ordered=False) as tx:
        ended = end(tx, name)
    if as_json:
        print_json(_as_json(ended))
    else:
        click.echo(f"Token {ended.name} holds no longer.")


def _shared(spaces: tuple[str, ...]) -> str:
    named = ", ".join(spaces)
    return (
        f"Shared from now on: what is put into {named} by name. What is there stays yours until you share it."
    )


def _duration(text: str) -> int:
    from holdfast.config import parse_duration
    from holdfast.errors import InvalidInput

    try:
        lasts = int(parse_duration(text))
    except ValueError as error:
        raise InvalidInput(f"--expires: {error}", hint="Use 12h, 30d or the like.") from error
    if lasts < 1:
        raise InvalidInput("--expires: expected some time", hint="Use 12h, 30d or the like.")
    return lasts


def _state(token: Token, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "live"


def _as_json(token: Token) -> dict[str, Any]:
    from holdfast.clock import iso

    def time(at: int | None) -> str | None:
        return None if at is None else iso(at)

    return {
        "id": token.id,
        "name": token.name,
        "scope": token.scope.name.lower(),
        "spaces": token.spaces,
        "agents": token.agents,
        "createdAt": iso(token.created_at),
        "expiresAt": time(token.expires_at),
        "revokedAt": time(token.revoked_at),
        "lastUsedAt": time(token.last_used_at),
    }
