"""Ways to log in from a terminal: a page that comes back to loopback, a pasted code, one typed elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from holdfast.agents.models import logins
from holdfast.errors import Forbidden, HoldfastError, Unavailable

if TYPE_CHECKING:
    from holdfast.agents.models.logins import Started, Tokens
    from holdfast.config.models import OAuth

WAIT_SECONDS: Final = 300.0
_NOBODYS_PORT: Final = 47651
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
    port = settings.redirect_port or _NOBODYS_PORT
    started = logins.start(settings, f"http://127.0.0.1:{port}{settings.redirect_path}")
    return logins.redeem(settings, started, logins.code_in(paste(started.url), started, typed=True))


def by_device(settings: OAuth) -> Tokens:
    device = logins.start_device(settings)
    click.echo(f"Visit {device.url} and enter the code {device.user_code}", err=True)
    return logins.wait_device(settings, device)
