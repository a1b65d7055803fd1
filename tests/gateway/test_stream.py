"""`/api/stream`: nothing is lost, nobody waits for a slow reader."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, streaming, wait_for

from builders import PATIENCE, append, soon
from holdfast.errors import Unavailable
from holdfast.gateway.scope import Views
from holdfast.gateway.stream import Stream
from holdfast.gateway.tokens import Principal, Scope, TokenBook
from holdfast.log import Feed, Retention, Store, Threads, Waiter, prune
from holdfast.runtime import Holdfast

HOME = Principal("home", "home", Scope.ADMIN)


def test_what_happens_after_ready_comes_as_it_happens(gateway: Running, api: httpx.Client) -> None:
    with gateway.client(gateway.admin) as reader, streaming(reader) as seen:
        made = api.post("/api/log", json={"content": "live"}).json()
        event = next(seen)
        assert (event["type"], event["entityId"], event["data"]["content"]) == (
            "log.appended",
            made["id"],
            "live",
        )
        assert event["id"] == str(event["seq"])
        api.patch(f"/api/log/{made['id']}", json={"summary": "s"})
        assert next(seen)["type"] == "log.patched"
        api.delete(f"/api/log/{made['id']}")
        gone = next(seen)
        assert gone["type"] == "log.deleted"
        assert "live" not in json.dumps(gone)


def test_what_was_missed_comes_first(gateway: Running, api: httpx.Client) -> None:
    for n in range(300):
        append(gateway.hold.store, str(n))
    with streaming(api, **{"Last-Event-ID": "40"}) as seen:
        assert [next(seen)["data"]["content"] for _ in range(260)] == [str(n) for n in range(40, 300)]


def test_a_reader_that_saw_nothing_but_ready_misses_nothing_after_a_break(
    gateway: Running, api: httpx.Client
) -> None:
    append(gateway.hold.store, "before")
    with api.stream("GET", "/api/stream") as response:
        lines = response.iter_lines()
        ready = dict(line.split(": ", 1) for line in (next(lines), next(lines), next(lines)))
    append(gateway.hold.store, "meanwhile")
    with streaming(api, **{"Last-Event-ID": ready["id"]}) as seen:
        assert next(seen)["data"]["content"] == "meanwhile"


@pytest.fixture
def short_replay(tmp_path: Path) -> None:
    """A gateway that replays few changes, so that few are too many."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/holdfast.json").write_text('{"gateway": {"stream": {"replayLimit": 50}}}')


@pytest.mark.usefixtures("short_replay")
@pytest.mark.parametrize("case", ["ahead", "pruned", "too far behind"])
def test_who_cannot_be_brought_up_to_date_is_told_to_start_over(
    gateway: Running, api: httpx.Client, case: str
) -> None:
    count = 60 if case == "too far behind" else 10
    assert api.post("/api/ingest", json=[{"content": "x"}] * count).status_code == 202
    wait_for(lambda: len(api.get("/api/changes", params={"sinceSeq": count - 1}).json()) == 1)
    if case == "pruned":
        prune(gateway.hold.store, Retention(changes_rows=2))
    with streaming(api, **{"Last-Event-ID": "99999" if case == "ahead" else "1"}) as seen:
        event = next(seen)
        assert (event["type"], event["id"]) == ("stream.reset", str(count))
        append(gateway.hold.store, "on we go")
        assert next(seen)["data"]["content"] == "on we go"


class Hours(Waiter):
    """Time passes at once, as long as nobody rings, until it is told to stop."""

    def __init__(self, pings: int) -> None:
        self.left = pings
        self.idle = asyncio.Event()

    async def wait(self, bell: asyncio.Event, seconds: float) -> bool:
        if bell.is_set() or self.left:
            self.left -= not bell.is_set()
            await asyncio.sleep(0)
            return bell.is_set()
        self.idle.set()
        return await super().wait(bell, 60)


async def read(stream: Stream, wanted: int, after: int | None = None) -> list[Any]:
    """The first events of a stream, as they are read by a page."""
    found: list[Any] = []
    async for text in stream.events(HOME, after):
        found.append(json.loads(text.split("data: ", 1)[1]))
        if len(found) == wanted:
            break
    return found


def test_nothing_is_lost_after_an_idle_hour(sqlite_store: Store, threads: Threads) -> None:
    async def scene() -> list[Any]:
        hours = Hours(pings=144)
        feed = Feed(sqlite_store, threads, waiter=hours)
        runs = asyncio.create_task(feed.run())
        stream = Stream(sqlite_store, threads, feed, Views(), TokenBook(sqlite_store, []))
        reader = asyncio.create_task(read(stream, 1 + 144 + 5))
        await soon(hours.idle.wait())
        for n in range(5):
            await threads(append, sqlite_store, f"after the hour {n}")
        found = await soon(reader)
        runs.cancel()
        return found

    found = asyncio.run(scene())
    assert [e["type"] for e in found[:145]] == ["stream.ready"] + ["stream.ping"] * 144
    assert [e["data"]["content"] for e in found[145:]] == [f"after the hour {n}" for n in range(5)]


def test_a_reader_that_does_not_read_holds_up_nobody(gateway: Running, api: httpx.Client) -> None:
    url = httpx.URL(gateway.url)
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.connect((url.host, url.port))
    head = f"GET /api/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.admin}\r\n\r\n"
    stuck.sendall(head.encode())
    with gateway.client(gateway.admin) as reader, streaming(reader) as seen:
        wait_for(lambda: len(gateway.services.feed._bells) == 2)
        text = "x" * 100_000
        for n in range(100):
            append(gateway.hold.store, f"{n} {text}")
        assert [next(seen)["data"]["content"].split(" ")[0] for _ in range(100)] == [
            str(n) for n in range(100)
        ]
    transports = [c.transport for c in gateway.server.server_state.connections]
    assert max(t.get_write_buffer_size() for t in transports) < 1_000_000
    stuck.close()


def test_fifty_readers_see_the_same(gateway: Running, api: httpx.Client) -> None:
    with ExitStack() as stack:
        readers = []
        for _ in range(50):
            client = stack.enter_context(gateway.client(gateway.admin))
            readers.append(stack.enter_context(streaming(client)))
        for n in range(3):
            api.post("/api/log", json={"content": str(n)})
        for seen in readers:
            assert [next(seen)["data"]["content"] for _ in range(3)] == ["0", "1", "2"]


def test_readers_are_told_when_the_gateway_stops(gateway: Running, api: httpx.Client) -> None:
    with streaming(api) as seen:
        gateway.on_loop(gateway.services.begin_stop)
        assert [e["type"] for e in seen] == ["stream.shutdown"]


def test_a_reader_that_left_is_forgotten(gateway: Running, api: httpx.Client) -> None:
    with streaming(api):
        wait_for(lambda: len(gateway.services.feed._bells) == 1)
    append(gateway.hold.store)
    wait_for(lambda: not gateway.services.feed._bells)


def test_a_stopping_gateway_takes_no_new_work_but_still_answers(gateway: Running, api: httpx.Client) -> None:
    stopped = threading.Event()
    gateway.on_loop(lambda: (gateway.services.begin_stop(), stopped.set()))
    assert stopped.wait(PATIENCE)
    for path in ("/api/log", "/api/ingest"):
        answer = api.post(path, json={"content": "late"})
        assert (answer.status_code, answer.json()["code"]) == (503, "stopping")
        assert answer.headers["Retry-After"] == "1"
    assert api.get("/api/log").json() == []
    assert api.get("/healthz").status_code == 200
    assert api.get("/healthz?ready=1").json()["code"] == "stopping"


def test_a_stream_whose_store_fails_ends_quietly(hold: Holdfast) -> None:
    async def scene() -> list[Any]:
        feed = Feed(hold.store, hold.threads)
        runs = asyncio.create_task(feed.run())
        stream = Stream(hold.store, hold.threads, feed, Views(), TokenBook(hold.store, []))
        stream._look = _unavailable  # type: ignore[method-assign]
        reader = asyncio.create_task(read(stream, 9, after=0))
        await hold.threads(append, hold.store)
        found = await soon(reader)
        runs.cancel()
        return found

    assert [e["type"] for e in asyncio.run(scene())] == ["stream.ready"]


def _unavailable(*_: object) -> Any:
    raise Unavailable("the disk is gone")
