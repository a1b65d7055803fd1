"""Real processes: stopped while they work, started again, put into bad places."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from serving import assert_problem, running, wait_for

import forks
from builders import PATIENCE
from holdfast.errors import Unavailable
from holdfast.gateway import listen
from holdfast.gateway.server import server_for
from holdfast.home import Home
from holdfast.log import OWNER, Store, agenda, sqlite_url
from holdfast.runtime import Holdfast, open_home

SERVE = """
import asyncio, sys
from holdfast.errors import HoldfastError
from holdfast.gateway import listen, serve
from holdfast.log import agenda
from holdfast.runtime import open_home
from holdfast.services import Services

async def slow(job):
    open(sys.argv[1] + "/begun", "w").close()
    await asyncio.sleep(job.item.payload["seconds"])

register = Services.__init__
def with_slow(self, hold):
    register(self, hold)
    self.runner.register("slow", agenda.Kind(slow))
Services.__init__ = with_slow

try:
    sock = listen("127.0.0.1", 0)
    with open_home(sys.argv[1]) as hold:
        print(sock.getsockname()[1], flush=True)
        serve(hold, sock)
except HoldfastError as error:
    print(f"{error.code}: {error.message} {error.hint}", file=sys.stderr)
    sys.exit(1)
"""


class Process:
    """A gateway in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home = Home(home)
        self.process = forks.Popen(
            [sys.executable, "-c", SERVE, str(home)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")},
        )

    def wait_ready(self) -> httpx.Client:
        assert self.process.stdout is not None
        port = self.process.stdout.readline().strip()
        assert port, self.process.communicate(timeout=PATIENCE)
        token = self.home.admin_token()
        client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=PATIENCE,
            verify=False,
        )
        wait_for(lambda: _ready(client))
        return client

    def end(self, sig: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; the exit code, and what was said on stderr."""
        self.process.send_signal(sig)
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz?ready=1").status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def served(home: Path) -> Iterator[tuple[Process, httpx.Client]]:
    process = Process(home)
    try:
        with closing(process.wait_ready()) as client:
            yield process, client
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.communicate()


def everything(api: httpx.Client) -> set[str]:
    found: set[str] = set()
    cursor: str | None = None
    while True:
        page = api.get("/api/log", params={"limit": 1000} | ({"cursor": cursor} if cursor else {}))
        found |= {entry["content"] for entry in page.json()}
        cursor = page.headers.get("X-Next-Cursor")
        if cursor is None:
            return found


def test_what_was_acknowledged_is_there_after_a_stop_in_the_middle(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    refused: set[str] = set()

    def write(name: str, url: httpx.URL, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE, verify=False) as client:
            for n in range(100_000):
                text = f"{name}-{n}"
                path, body = (
                    ("/api/log", {"content": text}) if n % 2 else ("/api/ingest", [{"content": text}])
                )
                try:
                    answer = client.post(path, json=body)
                except httpx.TransportError:
                    return
                if answer.status_code == 503:
                    refused.add(answer.json()["code"])
                    return
                assert answer.status_code in (201, 202)
                acknowledged.add(text)

    with served(tmp_path) as (process, api):
        token = process.home.admin_token()
        writers = [threading.Thread(target=write, args=(f"w{n}", api.base_url, token)) for n in range(4)]
        for writer in writers:
            writer.start()
        wait_for(lambda: len(acknowledged) > 60)
        code, said = process.end()
        for writer in writers:
            writer.join(PATIENCE)
        assert code == 0, said
        assert "Traceback" not in said
    assert refused <= {"stopping"}
    with served(tmp_path) as (process, api):
        wait_for(lambda: acknowledged <= everything(api))
        api.get(f"/api/log?token={token}")
        api.get(f"/api/log/{token}")
        code, said = process.end(signal.SIGINT)
        assert code == 0
    written = said + (tmp_path / "logs" / "gateway.jsonl").read_text()
    assert '"level": "info"' in written
    assert token not in written


@pytest.mark.parametrize(("seconds", "grace", "status"), [(0.3, 20, "done"), (60, 0, "queued")])
def test_a_running_job_finishes_or_is_marked(tmp_path: Path, seconds: float, grace: int, status: str) -> None:
    Home(tmp_path).prepare()
    (tmp_path / "holdfast.json").write_text(f"{{gateway: {{shutdownGraceSeconds: {grace}}}}}")
    with served(tmp_path) as (process, _):
        store = Store(sqlite_url(process.home.database))
        with store.write(OWNER) as tx:
            id_ = agenda.enqueue(tx, "slow", {"seconds": seconds}, max_attempts=3).id
        wait_for(lambda: (tmp_path / "begun").exists())
        code, said = process.end()
        assert code == 0, said
        with store.read(OWNER) as tx:
            item = agenda.get(tx, id_)
        store.close()
    assert item.status == status
    assert item.owner is None or status == "done"


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def _locking(database: Path) -> subprocess.Popen[str]:
    """Another process that holds the write lock until it is told to end."""
    other = forks.Popen(
        [sys.executable, "-c", LOCK, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    return other


def test_a_locked_database_is_told_and_got_over(tmp_path: Path) -> None:
    (tmp_path / "holdfast.json").write_text("{store: {busyTimeoutMs: 100}}")
    with open_home(tmp_path) as hold, running(hold) as gateway, gateway.client(gateway.admin) as api:
        other = _locking(hold.home.database)
        assert_problem(api.post("/api/log", json={"content": "x"}), 503, "store_locked")
        assert api.get("/api/log").json() == []
        other.communicate("done")
        assert api.post("/api/log", json={"content": "x"}).status_code == 201


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of its own; skips where none can be mounted."""
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], capture_output=True
    )
    if made.returncode:
        pytest.skip("needs root and the right to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_told_and_got_over(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk, served(disk) as (process, api):
        api.post("/api/log", json={"content": "before"})
        ballast = disk / "ballast"
        _fill(ballast)
        answer = _until_full(api)
        assert_problem(answer, 503, "store_full")
        assert "before" in everything(api)
        assert api.get("/healthz").status_code == 200
        ballast.unlink()
        assert api.post("/api/log", json={"content": "after"}).status_code == 201
        assert {"before", "after"} <= everything(api)
        assert process.end()[0] == 0


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def _until_full(api: httpx.Client) -> httpx.Response:
    for _ in range(200):
        answer = api.post("/api/log", json={"content": "y" * 50_000})
        if answer.status_code != 201:
            return answer
    raise AssertionError("the disk never filled")


@pytest.mark.parametrize("was_used", [True, False])
def test_a_read_only_home_is_a_clear_error(tmp_path: Path, was_used: bool) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk:
        if was_used:
            with served(disk) as (process, _):
                assert process.end()[0] == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        failed = Process(disk)
        _, said = failed.process.communicate(timeout=PATIENCE)
        assert failed.process.returncode == 1
        assert "Traceback" not in said
        assert said.startswith(("home_unusable:", "store_readonly:"))


def test_idle_connections_are_kept_for_longer_than_clients_keep_theirs(hold: Holdfast) -> None:
    """Else one is closed at the moment it is used again, and what was sent is sent twice or lost."""
    mine = httpx.Limits().keepalive_expiry
    assert mine is not None
    assert server_for(hold).config.timeout_keep_alive > mine


def test_a_taken_port_is_a_clear_error() -> None:
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(Unavailable, match="cannot listen") as caught:
            listen("127.0.0.1", taken.getsockname()[1])
    assert caught.value.code == "port_taken"
