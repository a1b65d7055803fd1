"""Small walls around the gateway: no answer is sniffed, and a slow client holds no connection for long."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from serving import Running, running, streaming

from builders import PATIENCE
from holdfast.gateway.bodies import MAX_HEAD
from holdfast.gateway.routes import system
from holdfast.runtime import Holdfast

NOSNIFF = "nosniff"


def sniffing_of(response: httpx.Response) -> list[str]:
    return response.headers.get_list("x-content-type-options")


def test_every_answer_says_that_it_is_not_to_be_sniffed(gateway: Running, api: httpx.Client) -> None:
    with gateway.client() as nobody:
        answers = [
            nobody.get("/healthz"),
            nobody.get("/api/log"),
            nobody.get("/", headers={"Accept": "text/html"}),
            nobody.get("/assets/none.js"),
            nobody.post("/api/login", json={"token": "wrong"}),
            nobody.options("/api/log"),
            api.get("/nowhere"),
            api.get("/api/log"),
            api.delete("/api/log"),
            api.head("/api/log"),
            api.post("/api/log", content=b"x", headers={"content-type": "text/plain"}),
            api.get("/openapi.json"),
            api.get("/metrics"),
            api.post("/api/log", json={}),
            api.get("/v1/models"),
        ]
    for answer in answers:
        assert sniffing_of(answer) == [NOSNIFF], answer.request.url
    with api.stream("GET", "/api/stream") as live:
        assert sniffing_of(live) == [NOSNIFF]
    with streaming(api):
        pass


def test_an_answer_of_the_server_itself_and_one_to_a_fault_are_not_to_be_sniffed(
    gateway: Running, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw(gateway) as sock:
        sock.sendall(b"this is not HTTP\r\n\r\n")
        assert b"x-content-type-options: nosniff" in heard(sock).lower()
    monkeypatch.setattr(system.agenda, "listing", None)
    broken = api.get("/api/agenda")
    assert (broken.status_code, sniffing_of(broken)) == (500, [NOSNIFF])


def make_hasty(hold: Holdfast) -> None:
    """From now on it waits a second for the head of a request."""
    hold.config.patch({"gateway": {"limits": {"headSeconds": 1}}})


@pytest.fixture
def hasty(hold: Holdfast) -> Iterator[Running]:
    make_hasty(hold)
    with running(hold) as found:
        yield found


@contextlib.contextmanager
def raw(gateway: Running) -> Iterator[socket.socket]:
    url = httpx.URL(gateway.url)
    with socket.create_connection((url.host, url.port), timeout=PATIENCE) as sock:
        yield sock


def heard(sock: socket.socket) -> bytes:
    """All that comes until the gateway hangs up."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(65_536):
            found += piece
    return found


@contextlib.contextmanager
def dribbling(sock: socket.socket, text: bytes) -> Iterator[None]:
    """Send a byte now and then until nobody listens any more."""
    over = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError):
            for byte in text:
                sock.sendall(bytes([byte]))
                if over.wait(0.05):
                    return

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)


UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("before", "dribbled"),
    [
        (b"", b""),
        (b"", b"\r\n" * 1000),
        (HEAD, b"X-Slow: " + b"a" * 2000),
        (
            b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
            b"X-Slow: " + b"a" * 2000,
        ),
    ],
    ids=["silence", "blank lines", "a header", "a handshake"],
)
def test_who_does_not_finish_the_head_of_a_request_in_time_is_hung_up_on(
    hasty: Running, before: bytes, dribbled: bytes
) -> None:
    with raw(hasty) as sock:
        sock.sendall(before)
        with dribbling(sock, dribbled):
            told = heard(sock)
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b"x-content-type-options: nosniff" in told.lower()


def test_the_second_request_of_a_connection_has_as_little_time(gateway: Running) -> None:
    with raw(gateway) as sock:
        sock.sendall(HEAD + b"\r\n")
        assert sock.recv(65_536).startswith(b"HTTP/1.1 200 ")
        make_hasty(gateway.hold)
        with dribbling(sock, HEAD + b"X-Slow: " + b"a" * 2000):
            assert b"HTTP/1.1 408 " in heard(sock)


def test_a_request_that_comes_in_pieces_but_in_time_is_answered(gateway: Running) -> None:
    with raw(gateway) as sock:
        for piece in (HEAD, b"X-Whole: yes\r\n", b"Connection: close\r\n\r\n"):
            sock.sendall(piece)
        assert heard(sock).startswith(b"HTTP/1.1 200 ")


def test_a_stream_outlives_who_was_silent_for_too_long(gateway: Running, api: httpx.Client) -> None:
    make_hasty(gateway.hold)
    with gateway.client(gateway.admin) as reader, streaming(reader) as seen:
        with raw(gateway) as silent:
            assert heard(silent).startswith(b"HTTP/1.1 408 ")
        api.post("/api/log", json={"content": "still here"})
        assert next(seen)["data"]["content"] == "still here"


def test_a_head_that_never_ends_is_cut_off_by_its_size(gateway: Running) -> None:
    with raw(gateway) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(HEAD + b"X-Long: " + b"a" * (MAX_HEAD + 300_000))
        told = heard(sock)
    assert told == b"" or told.startswith(b"HTTP/1.1 431 ")
