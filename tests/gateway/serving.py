"""A gateway that really listens, and clients of it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import jsonschema_rs
import pytest

import forks
from builders import PATIENCE
from holdfast.board import sharing
from holdfast.gateway import listen, tokens
from holdfast.gateway.app import description
from holdfast.gateway.routes import settings
from holdfast.gateway.server import server_for
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER, Store
from holdfast.runtime import Holdfast
from holdfast.services import Services


def wait_for(holds: Any) -> None:
    """Wait for a state to come about; a test that waits in vain fails instead of hanging."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@dataclass
class Running:
    """A gateway on a free port of this machine, in a thread."""

    hold: Holdfast
    app: Any
    server: Any
    url: str
    loop: asyncio.AbstractEventLoop

    @property
    def services(self) -> Services:
        found: Services = self.app.state.gateway.services
        return found

    @property
    def admin(self) -> str:
        return self.hold.home.admin_token()

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, verify=False)

    def on_loop(self, work: Any) -> None:
        """Call something on the server's own thread."""
        self.loop.call_soon_threadsafe(work)


class DescribedAnswers:
    """Holds every JSON answer of a gateway against what `/openapi.json` says of it."""

    def __init__(self, app: Any, wrong: list[str]) -> None:
        self._app = app
        self._wrong = wrong

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        head: dict[str, Any] = {}
        pieces: list[bytes] = []

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                head.update(status=message["status"], kind=dict(message["headers"]).get(b"content-type", b""))
            elif message["type"] == "http.response.body" and head["kind"] == b"application/json":
                pieces.append(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, sent)
        route = scope.get("route")
        if pieces and getattr(route, "include_in_schema", False):
            where = (route.path_format, scope["method"].lower(), str(head["status"]))
            self._wrong += [f"{' '.join(where)}: {fault}" for fault in faults(b"".join(pieces), *where)]


def faults(body: bytes, path: str, method: str, status: str) -> list[str]:
    """What of an answer is not as it is described; nothing if all is."""
    check = _check(path, method, status)
    if check is None:
        return ["an answer that is not described"]
    return [
        f"{'/'.join(map(str, one.instance_path))}: {one.message}"
        for one in check.iter_errors(json.loads(body))
    ]


@cache
def _check(path: str, method: str, status: str) -> Any:
    told = _told()
    described = told["paths"][path][method]["responses"].get(status, {}).get("content", {})
    if "application/json" not in described:
        return None
    shape = described["application/json"].get("schema", {})
    return jsonschema_rs.Draft202012Validator({**shape, "components": told["components"]})


@cache
def _told() -> dict[str, Any]:
    return description()


class _Python:
    """Of `sys`, what starts the doctor: a process of its own, and here a fork."""

    @property
    def executable(self) -> str:
        return forks.python()


@contextmanager
def running(hold: Holdfast, port: int = 0) -> Iterator[Running]:
    """A gateway that serves, whose answers must all be as it describes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "sys", _Python())
        with _serving(hold, port) as found:
            yield found


@contextmanager
def _serving(hold: Holdfast, port: int) -> Iterator[Running]:
    sock = listen("127.0.0.1", port)
    server = server_for(hold)
    wrong: list[str] = []
    server.config.app.add_middleware(DescribedAnswers, wrong=wrong)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_serve, args=(loop, server.serve(sockets=[sock])))
    thread.start()
    wait_for(lambda: server.started or not thread.is_alive())
    assert server.started
    try:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        yield Running(hold, server.config.app, server, url, loop)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not wrong, "\n".join(sorted(set(wrong)))


def _serve(loop: asyncio.AbstractEventLoop, serving: Any) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(serving)


@contextmanager
def streaming(
    client: httpx.Client, path: str = "/api/stream", **headers: str
) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of the live stream, from behind `ready` on; each with its `id` when it has one."""
    with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        found = events(response)
        assert next(found)["event"] == "ready"
        yield found


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    event: dict[str, Any] = {}
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "data":
            event |= json.loads(value)
        elif name:
            event[name] = value
        else:
            yield event
            event = {}


def make_token(store: Store, name: str, scope: Scope = Scope.WRITE, **limits: Any) -> str:
    """As `holdfast tokens add`: its spaces are shared from now on."""
    with store.write(OWNER) as tx:
        sharing.mark_shared(tx, frozenset(limits.get("spaces") or ()))
        return tokens.add(tx, name, scope=scope, **limits)[1]


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["title"]
    assert body["detail"]
    assert "Traceback" not in response.text
    return body
