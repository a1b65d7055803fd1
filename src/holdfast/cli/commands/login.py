"""`holdfast login` and `logout`: a person logs in to a provider of models."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from holdfast.agents.models import logins
from holdfast.cli.output import print_json
from holdfast.cli.root import App, Command, json_option, pass_app
from holdfast.errors import Forbidden, HoldfastError, InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from holdfast.agents.models.logins import Logins, Started, Tokens
    from holdfast.config import Config
    from holdfast.config.models import OAuth


WAIT_SECONDS: Final = 300.0
_DONE: Final = b"You are logged in. This page can be closed."
_NOT_OURS: Final = b"This is not the answer that was waited for."


class Listener:
    """Waits on loopback for one answer. What is not for this login is turned away, and waited on."""

    def __init__(self, server: HTTPServer, path: str) -> None:
        self._server = server
        self._path = path
        self._started: Started | None = None
        self._code = ""
        self._refusal: HoldfastError | None = None

    @property
    def redirect(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self._path}"

    def code(self, started: Started, seconds: float = WAIT_SECONDS) -> str:
        """The code that the page brings; `Unavailable` if none comes in time."""
        self._started = started
        until = time.monotonic() + seconds
        while not self._code and self._refusal is None:
            if time.monotonic() >= until:
                raise Unavailable("nobody came back in time", code="oauth_timeout", hint="Begin again.")
            self._server.timeout = min(1.0, max(0.0, until - time.monotonic()))
            self._server.handle_request()
        if self._refusal is not None:
            raise self._refusal
        return self._code

    def take(self, target: str) -> bool:
        """Whether this request is the answer to our login."""
        if self._started is None or urlsplit(target).path != self._path:
            return False
        try:
            self._code = logins.code_in(urlsplit(target).query, self._started)
        except Forbidden:
            return False
        except HoldfastError as error:
            self._refusal = error
        return True


@contextlib.contextmanager
def listening(settings: OAuth) -> Iterator[Listener]:
    """A listener on loopback alone, gone after the block."""
    found: list[Listener] = []

    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            ours = found[0].take(self.path)
            self.send_response(200 if ours else 400)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(_DONE if ours else _NOT_OURS)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
            """Nothing: the address holds the code."""

    try:
        server = HTTPServer(("127.0.0.1", settings.redirect_port), Handler)
    except OSError as error:
        raise Unavailable(
            f"port {settings.redirect_port} cannot be listened on: {error.strerror}",
            code="oauth_port",
            hint="Close what uses it, or log in with --no-browser.",
        ) from error
    with server:
        found.append(Listener(server, settings.redirect_path))
        yield found[0]


def by_hand(settings: OAuth, paste: Callable[[str], str]) -> Tokens:
    """For a machine without a browser: the address is shown, and what came of it pasted."""
    port = settings.redirect_port or logins.NOBODYS_PORT
    started = logins.start(settings, f"http://127.0.0.1:{port}{settings.redirect_path}")
    return logins.redeem(settings, started, logins.code_in(paste(started.url), started, typed=True))


def by_device(settings: OAuth) -> Tokens:
    device = logins.start_device(settings)
    click.echo(f"Visit {device.url} and enter the code {device.user_code}", err=True)
    return logins.wait_device(settings, device)


profile_option = click.option(
    "--profile", default="login", show_default=True, help="Name of the login, where there are several."
)


@click.command(cls=Command)
@click.argument("provider", required=False)
@profile_option
@click.option("--no-browser", is_flag=True, help="Print the address, and take the code that is pasted.")
@json_option
@pass_app
def login(app: App, provider: str | None, profile: str, no_browser: bool, as_json: bool) -> None:
    """Log in to a provider that has `oauth` in the config; without a name, say who is logged in.

    \b
    Example:
      holdfast login anthropic
      holdfast login anthropic --no-browser
    """
    config, logins = _opened(app)
    if provider is None:
        _show(config, logins, as_json)
        return
    settings = _settings(config, provider)
    kept = logins.keep(provider, profile, _got(settings, no_browser=no_browser))
    _forgive(app, config, kept.id)
    if as_json:
        print_json({"id": kept.id, "expiresAt": kept.expires_at, "refreshable": kept.refreshable})
    else:
        click.echo(f"Logged in as {kept.id}.")


@click.command(cls=Command)
@click.argument("provider")
@profile_option
@pass_app
def logout(app: App, provider: str, profile: str) -> None:
    """Forget a login, and give its token back where the provider takes it.

    \b
    Example:
      holdfast logout anthropic
    """
    from holdfast.agents.models import logins
    from holdfast.errors import HoldfastError

    config, kept = _opened(app)
    gone = kept.remove(provider, profile)
    found = config.models.providers.get(provider)
    if found is not None and found.oauth is not None:
        try:
            logins.revoke(found.oauth, gone.refresh or gone.access)
        except HoldfastError as error:
            click.echo(f"The token was not given back: {error.message}.", err=True)
    click.echo(f"Logged out of {gone.id}.")


def _opened(app: App) -> tuple[Config, Logins]:
    from holdfast.agents.models.logins import Logins
    from holdfast.clock import SystemClock
    from holdfast.config import load_config

    if not app.home.path.is_dir():
        raise NotFound(f"there is no home at {app.home.path}", hint="Make one with `holdfast init`.")
    return load_config(app.home.config), Logins(app.home, SystemClock())


def _settings(config: Config, provider: str) -> OAuth:
    found = config.models.providers.get(provider)
    if found is None or found.oauth is None:
        known = [name for name, one in config.models.providers.items() if one.oauth is not None]
        raise InvalidInput(
            f"nobody can log in to {provider}: the config does not say how",
            hint=f"Set models.providers.{provider}.oauth, or use {' or '.join(known) or 'a key'}.",
        )
    return found.oauth


def _got(settings: OAuth, *, no_browser: bool) -> Tokens:
    from holdfast.agents.models import logins

    if settings.device_url is not None and (no_browser or settings.authorization_url is None):
        return by_device(settings)
    if no_browser:
        return by_hand(settings, _pasted)
    with listening(settings) as here:
        started = logins.start(settings, here.redirect)
        click.echo(f"Opening {started.url}\nWaiting for the page to come back; Ctrl-C gives up.", err=True)
        if click.launch(started.url) != 0:
            click.echo("No browser opened: visit that address yourself, or use --no-browser.", err=True)
        return logins.redeem(settings, started, here.code(started))


def _pasted(address: str) -> str:
    click.echo(f"Visit {address}", err=True)
    return str(click.prompt("The code, or the address that the page ended at", err=True, hide_input=True))


def _forgive(app: App, config: Config, id_: str) -> None:
    """A login that rested because its old token was refused begins anew."""
    import os

    from holdfast.agents.models.credentials import Credential, Credentials
    from holdfast.clock import SystemClock

    Credentials(app.home, SystemClock(), os.environ).succeeded(Credential(id_, "", "", "oauth"))


def _show(config: Config, logins: Logins, as_json: bool) -> None:
    from holdfast.clock import SystemClock, iso

    now = SystemClock().now()
    rows: list[dict[str, Any]] = []
    for provider, settings in config.models.providers.items():
        for one in logins.listing(provider) if settings.oauth is not None else ():
            state = "over" if one.refused or one.over(now) else "in"
            ends = None if one.expires_at is None else iso(one.expires_at)
            rows.append({"id": one.id, "state": state, "expiresAt": ends, "refreshable": one.refreshable})
    if as_json:
        print_json(rows)
    for row in rows if not as_json else ():
        more = "" if row["expiresAt"] is None else f", token until {row['expiresAt']}"
        click.echo(f"{row['id']}: {'logged in' if row['state'] == 'in' else 'over, log in again'}{more}")
    if not rows and not as_json:
        click.echo("Nobody is logged in.")
