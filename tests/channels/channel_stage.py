"""A gateway with a scripted model, and the far end of its webhook channel: people who write and read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from serving import Running, running, wait_for

import forks
from builders import PATIENCE
from holdfast.agents.cron import sign
from holdfast.clock import Clock
from holdfast.runtime import open_home
from holdfast.testing import Script, ScriptedOpenAI

SECRET = "a-secret-of-the-channel"
PARAGRAPHS = [
    "The tide comes in at noon, and the kelp holds its place.",
    "The harbour master reads the table out by the east door.",
    "In the evening it goes out again, as it always has done.",
]
REPLY = "\n\n".join(PARAGRAPHS)


@dataclass(frozen=True)
class Post:
    """What arrived at the far end."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    raw: bytes

    @property
    def text(self) -> str:
        return str(self.body.get("text"))


@dataclass
class FarEnd:
    """A service that takes each message once, by its key. `refusals` are given first, one to each call."""

    posts: list[Post] = field(default_factory=list)
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    refused: list[Post] = field(default_factory=list)
    repeats: list[Post] = field(default_factory=list)
    url: str = ""

    @property
    def texts(self) -> list[str]:
        return [post.text for post in self.posts if post.body["type"] == "message"]

    def take(self, post: Post, status: int) -> None:
        known = {p.body["idempotencyKey"] for p in self.posts}
        repeat = status < 300 and post.body["idempotencyKey"] in known
        (self.repeats if repeat else self.posts if status < 300 else self.refused).append(post)

    def to(self, thread: str | None) -> list[str]:
        return [p.text for p in self.posts if "text" in p.body and p.body["to"].get("threadId") == thread]

    def arrived(self, count: int) -> list[str]:
        wait_for(lambda: len(self.texts) >= count)
        return self.texts


@contextmanager
def far_end() -> Iterator[FarEnd]:
    end = FarEnd()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            post = Post(json.loads(raw), headers, raw)
            status, more = end.refusals.pop(0) if end.refusals else (200, {})
            end.take(post, status)
            told = {"id": f"sent-{len(end.posts)}", "threadId": f"t{len(end.posts)}"}
            data = json.dumps(told).encode()
            self.send_response(status)
            for name, value in {**more, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Tests read `posts`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    end.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield end
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Stage:
    gateway: Running
    model: ScriptedOpenAI
    end: FarEnd
    api: httpx.Client
    count: int = 0

    def write(self, text: str, **fields: Any) -> dict[str, Any]:
        """Somebody writes; the channel calls us, signed."""
        self.count += 1
        body = {
            "id": f"m{self.count}",
            "text": text,
            "sender": {"id": "ada", "name": "Ada"},
            "peer": {"kind": "dm", "id": "ada"},
        }
        return call(self.gateway.url, body | fields)

    def run(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """The run of a message, once it has ended."""
        return ended(self.api, str(told["runId"]))

    def settled(self) -> None:
        """Nothing is on its way any more."""
        wait_for(lambda: not self.api.get("/api/deliveries", params={"status": "pending"}).json())


def ended(api: httpx.Client, run_id: str) -> dict[str, Any]:
    """A run once it has ended, however busy the machine is."""
    wait_for(lambda: api.get(f"/api/agent/{run_id}/wait", params={"timeoutMs": 5000}).json()["ended"])
    found: dict[str, Any] = api.get(f"/api/agent/{run_id}").json()
    return found


def call(url: str, body: Mapping[str, Any], *, secret: str = SECRET, channel: str = "pier") -> dict[str, Any]:
    data = json.dumps(body).encode()
    headers = {"X-Holdfast-Signature": sign(secret.encode(), data), "Content-Type": "application/json"}
    path = f"{url}/api/channels/{channel}/inbound"
    answer = httpx.post(path, content=data, headers=headers, timeout=PATIENCE, verify=False)
    told: dict[str, Any] = answer.json()
    return told | {"httpStatus": answer.status_code}


@contextmanager
def stage(
    home: Path,
    script: Script,
    *,
    agent: Mapping[str, Any] | None = None,
    debounce: int = 0,
    clock: Clock | None = None,
    **channel: Any,
) -> Iterator[Stage]:
    """`ada` is the owner; blocks may be short, and nothing waits for more to be said."""
    with far_end() as end, ScriptedOpenAI(script) as model:
        configure(home, model.url, end.url, agent or {}, debounce, **channel)
        with (
            open_home(home, clock=clock) as hold,
            running(hold) as gateway,
            gateway.client(gateway.admin) as api,
        ):
            yield Stage(gateway, model, end, api)


def configure(
    home: Path, model_url: str, end_url: str, agent: Mapping[str, Any], debounce: int = 0, **channel: Any
) -> None:
    model = {"id": "scripted", "contextWindow": 100_000, "input": ["text"]}
    provider = {"baseUrl": model_url, "apiKey": "key", "api": "openai-completions", "models": [model]}
    hook = {
        "url": end_url,
        "signingSecret": SECRET,
        "owners": ["ada"],
        "blockStreamingChunk": {"minChars": 20, "idleMs": 60_000},
    }
    config = {
        "board": {"contextAugment": False},
        "gateway": {"shutdownGraceSeconds": 1},
        "models": {"providers": {"scripted": provider}},
        "agents": {"defaults": {"model": "scripted/scripted", "userTimezone": "UTC", **agent}},
        "messages": {"queue": {"debounceMs": debounce}},
        "channels": {"pier": hook | channel},
    }
    (home / "holdfast.json").write_text(json.dumps(config))


@contextmanager
def killable(home: Path) -> Iterator[str]:
    """A gateway in a process of its own, which is killed at the end; gives its address."""
    arguments = [sys.executable, "-m", "holdfast.cli", "--home", str(home), "up", "--port", "0"]
    process = forks.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    told = home / "gateway.json"
    try:
        wait_for(told.is_file)
        wait_for(lambda: _listens(told))
        yield str(json.loads(told.read_text())["url"])
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        told.unlink(missing_ok=True)


def _listens(told: Path) -> bool:
    try:
        url = json.loads(told.read_text())["url"]
        return httpx.get(f"{url}/healthz", timeout=PATIENCE, verify=False).status_code == 200
    except (httpx.HTTPError, ValueError):
        return False
