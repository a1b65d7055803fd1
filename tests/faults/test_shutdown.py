"""A gateway that is told to stop does so within seconds, whatever runs; the next has the index at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import forks
from builders import PATIENCE
from holdfast.home import Home
from holdfast.log import OWNER, EntryDraft, entries
from holdfast.runtime import open_home

SERVE = """
import sys
from holdfast.gateway import listen, serve
from holdfast.runtime import open_home

sock = listen("127.0.0.1", 0)
with open_home(sys.argv[1]) as hold:
    print(sock.getsockname()[1], flush=True)
    serve(hold, sock)
"""
IN_NO_HURRY = """
import time
from holdfast.memory.following import LogFollower

take, taken = LogFollower._take_new, []

def slowly(self):
    while taken and not self._stop():
        time.sleep(0.01)
    taken.append(take(self))
    return taken[-1]

LogFollower._take_new = slowly
"""
"""Takes in one piece of the log, and the next when it was told to stop, if it still does."""


class SlowEmbeddings:
    """A server of embeddings that answers when it is let, and a good while after a stop would be over."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.let = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                server.asked.set()
                server.let.wait(4 * PATIENCE)
                data = json.dumps(
                    {"data": [{"embedding": [1.0, 0.5], "index": n} for n, _ in enumerate(body["input"])]}
                ).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.let.set()
        self.server.shutdown()
        self.server.server_close()


class Process:
    """A gateway in a process of its own."""

    def __init__(self, home: Path, before: str = "") -> None:
        self.home = Home(home)
        env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        command = [sys.executable, "-c", before + SERVE, str(home)]
        self.process = forks.Popen(command, stdout=subprocess.PIPE, text=True, env=env)

    def client(self) -> httpx.Client:
        assert self.process.stdout is not None
        port = self.process.stdout.readline().strip()
        assert port
        headers = {"Authorization": f"Bearer {self.home.admin_token()}"}
        return httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE, verify=False
        )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def begin(home: Path, before: str = "") -> Process:
        made.append(Process(home, before))
        return made[-1]

    yield begin
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.fixture
def embeddings() -> Iterator[SlowEmbeddings]:
    server = SlowEmbeddings()
    yield server
    server.close()


def filled(home: Path, count: int, **config: Any) -> Path:
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps(config))
    with open_home(home) as hold, hold.store.write(OWNER) as tx:
        entries.load(
            tx,
            [
                EntryDraft(content=f"heron number{n} stands by the weir", role="user", session_key=KEY)
                for n in range(count)
            ],
        )
    return home


KEY = "agent:main:main"
COUNT = 2_500


def test_a_stop_does_not_wait_for_embeddings_that_are_caught_up(
    tmp_path: Path, start: Callable[..., Process], embeddings: SlowEmbeddings
) -> None:
    url = f"http://127.0.0.1:{embeddings.server.server_port}/v1"
    search = {"embedding": {"providers": ["openai"], "openai": {"baseUrl": url, "model": "slow"}}}
    home = filled(tmp_path / "home", 300, memory={"search": search})
    with open_home(home) as hold:
        hold.memory.follow()
    first = start(home)
    first.client().close()
    assert embeddings.asked.wait(PATIENCE)
    assert first.stop() == 0
    with start(home).client() as client:
        answer = client.get("/api/memory/search", params={"q": "heron number7"})
        assert answer.status_code == 200, answer.text
        assert "number7 " in str(answer.json()["results"])


def test_a_stop_does_not_wait_for_a_log_that_is_taken_in(
    tmp_path: Path, start: Callable[..., Process], eventually: Callable[[Callable[[], bool]], None]
) -> None:
    home = filled(tmp_path / "home", COUNT)
    first = start(home, IN_NO_HURRY)
    with first.client() as client:
        eventually(lambda: client.get("/api/memory/status").json()["documentsInAll"] > 0)
    assert first.stop() == 0
    with open_home(home) as hold:
        assert 0 < hold.memory.index.count < COUNT, "what was not begun waits for the next gateway"
    last = f"number{COUNT - 1} "
    with start(home).client() as client:
        answer = client.get("/api/memory/search", params={"q": f"heron {last}"})
        assert answer.status_code == 200, answer.text
        eventually(lambda: last in client.get("/api/memory/search", params={"q": last}).text)
