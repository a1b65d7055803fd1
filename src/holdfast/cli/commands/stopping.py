"""`holdfast stop-all`, and how commands see and stop chains: through a running gateway, else on the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from holdfast.cli.groups import App, Command, json_option, pass_app
from holdfast.cli.output import print_json

if TYPE_CHECKING:
    from holdfast.runtime import Holdfast

_SHORTEST: Final = 4
_MOST: Final = 200


@click.command("stop-all", cls=Command)
@click.option("--reason", metavar="TEXT", default="stopped at the command line", help="Why, for the record.")
@click.option("--release", "releases", is_flag=True, help="Let work begin again.")
@json_option
@pass_app
def stop_all(app: App, reason: str, releases: bool, as_json: bool) -> None:
    """Stop everything, and let no agent begin anything until it is released, after any restart too.

    Messages that come meanwhile are kept, and answered once it is released.

    \b
    Examples:
      holdfast stop-all --reason 'it mails the whole world'
      holdfast stop-all --release
    """
    done = _released(app) if releases else _halted(app, reason)
    if as_json:
        print_json(done)
    elif releases:
        click.echo("Released: agents work again." if done["released"] else "Nothing was stopped.")
    else:
        click.echo(f"{done['stopped']['text']} Nothing begins until: holdfast stop-all --release")


def listed(app: App, *, live: bool, limit: int) -> list[dict[str, Any]]:
    def here(hold: Holdfast) -> Any:
        from holdfast.log import OWNER
        from holdfast.runtime import chain_view

        with hold.store.read(OWNER) as tx:
            return chain_view.listing(tx, hold.settings, live=live, limit=limit)

    path = f"/api/chains?live={'true' if live else 'false'}&limit={limit}"
    found: list[dict[str, Any]] = _asked(app, "GET", path, None, here)
    return found


def shown(app: App, given: str) -> dict[str, Any]:
    id_ = _whole_id(app, given)

    def here(hold: Holdfast) -> Any:
        from holdfast.log import OWNER
        from holdfast.runtime import chain_view

        with hold.store.read(OWNER) as tx:
            return chain_view.whole(tx, hold.settings, id_)

    found: dict[str, Any] = _asked(app, "GET", f"/api/chains/{quote(id_, safe='')}", None, here)
    return found


def stop_chain(app: App, given: str, reason: str) -> dict[str, Any]:
    id_ = _whole_id(app, given)
    path = f"/api/chains/{quote(id_, safe='')}/stop"

    def here(hold: Holdfast) -> Any:
        return asyncio.run(hold.runs.stop_chain(id_, reason=reason)).json()

    done: dict[str, Any] = _asked(app, "POST", path, {"reason": reason}, here)
    return done


def stop_session(app: App, key: str, reason: str) -> dict[str, Any]:
    def here(hold: Holdfast) -> Any:
        from holdfast.log import OWNER, sessions

        with hold.store.read(OWNER) as tx:
            session = sessions.find(tx, key)
        return asyncio.run(hold.runs.stop_session(session, reason=reason)).json()

    body = {"sessionKey": key, "reason": reason}
    done: dict[str, Any] = _asked(app, "POST", "/api/chains/stop", body, here)
    return done


def stop_every_chain(app: App, reason: str) -> dict[str, Any]:
    def here(hold: Holdfast) -> Any:
        return asyncio.run(hold.runs.stop_all(reason=reason)).json()

    body = {"all": True, "reason": reason}
    done: dict[str, Any] = _asked(app, "POST", "/api/chains/stop", body, here)
    return done


def now() -> str:
    from holdfast.clock import SystemClock, iso

    return iso(SystemClock().now())


def _halted(app: App, reason: str) -> dict[str, Any]:
    def here(hold: Holdfast) -> Any:
        stopped = asyncio.run(hold.runs.halt(reason=reason))
        return _halt_of(hold) | {"stopped": stopped.json()}

    done: dict[str, Any] = _asked(app, "POST", "/api/halt", {"reason": reason}, here)
    return done


def _released(app: App) -> dict[str, Any]:
    def here(hold: Holdfast) -> Any:
        before = _halt_of(hold)
        asyncio.run(hold.runs.release())
        return before | {"halted": False, "released": before["halted"]}

    done: dict[str, Any] = _asked(app, "DELETE", "/api/halt", None, here)
    return done


def _halt_of(hold: Holdfast) -> dict[str, Any]:
    from holdfast.clock import iso
    from holdfast.log import OWNER, agenda

    with hold.store.read(OWNER) as tx:
        found = agenda.halted(tx)
    if found is None:
        return {"halted": False, "since": None, "reason": None}
    return {"halted": True, "since": iso(found.since), "reason": found.reason}


def _whole_id(app: App, given: str) -> str:
    """A chain's id as it was given, or the one that ends so."""
    from holdfast.errors import InvalidInput, NotFound
    from holdfast.ids import turn_id

    if len(given) >= len(turn_id()):
        return given
    if len(given) < _SHORTEST:
        raise InvalidInput(f"{given!r} is too short", hint="Give the last four characters, or more.")
    found = [chain["id"] for chain in listed(app, live=False, limit=_MOST) if chain["id"].endswith(given)]
    if not found:
        raise NotFound(
            f"no chain ends in {given[:80]!r}", code="unknown_chain", hint="See `holdfast chains`."
        )
    if len(found) > 1:
        raise InvalidInput(f"{len(found)} chains end in {given!r}", hint="Give more of the id.")
    return str(found[0])


def _asked(
    app: App, method: str, path: str, body: dict[str, Any] | None, here: Callable[[Holdfast], Any]
) -> Any:
    """What the gateway of this home says; where none runs, or it goes away meanwhile, what the store does."""
    from holdfast.cli.client import PATIENT_SECONDS, running_gateway
    from holdfast.errors import Unavailable

    gateway = running_gateway(app.home, timeout=PATIENT_SECONDS)
    if gateway is not None:
        try:
            return gateway.call(method, path, body)
        except Unavailable:
            click.echo("The gateway does not answer; the store is used.", err=True)
    with app.open() as hold:
        return here(hold)
