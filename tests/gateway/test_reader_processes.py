"""Searches that are asked for at once, answered by processes of their own over the same home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, running, wait_for

import forks
from holdfast.config.source import leniently
from holdfast.runtime import open_home
from holdfast.runtime.readers import Readers

CONFIG = {
    "gateway": {"readers": 1},
    "board": {"classifier": {"enabled": False}},
    "memory": {"search": {"embedding": {"providers": []}}},
}
ASKED = ("/api/search?q=anchor+chain", "/api/context?q=anchor+chain&mode=full", "/api/memory/search?q=anchor")


@pytest.fixture
def gateway(tmp_path: Path, sqlite_template: Path) -> Iterator[Running]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps(CONFIG))
    with open_home(home) as hold, running(hold) as found:
        yield found


def readers_of(gateway: Running) -> Readers:
    found: Readers = gateway.app.state.gateway.readers
    return found


def log(gateway: Running, text: str, key: str = "agent:main:main") -> None:
    with gateway.client(gateway.admin) as api:
        sent = {"content": text, "agentId": "user", "source": {"sessionKey": key}}
        assert api.post("/api/log", json=sent).status_code == 201


def get(gateway: Running, path: str) -> Any:
    with gateway.client(gateway.admin) as api:
        response = api.get(path)
        assert response.status_code == 200, response.text
        return {k: v for k, v in response.json().items() if k not in ("took", "diagnostics")}


def at_once(gateway: Running, path: str, count: int = 6) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: get(gateway, path), range(count)))


def begin(gateway: Running) -> Readers:
    """Ask until readers begin, and wait until they are there."""
    readers = readers_of(gateway)

    def begun() -> bool:
        at_once(gateway, ASKED[0], 2)
        return bool(readers.processes) or readers.ready

    wait_for(begun)
    wait_for(lambda: readers.ready)
    return readers


def test_readers_answer_as_the_gateway_does_and_find_what_was_written_a_moment_ago(gateway: Running) -> None:
    for n in range(20):
        log(gateway, f"The anchor chain of boat {n} is rusty.")
    alone = [get(gateway, path) for path in ASKED]
    readers = begin(gateway)
    assert len(readers.processes) == 1
    for path, expected in zip(ASKED, alone, strict=True):
        assert all(answer == expected for answer in at_once(gateway, path))
    assert readers.answered
    log(gateway, "The anchor of the quokka is new.")
    for answer in at_once(gateway, "/api/search?q=quokka"):
        assert any("quokka" in hit["content"] for hit in answer["logs"])


def test_the_readers_of_a_lenient_gateway_are_lenient(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps({**CONFIG, "tide": "high"}))
    with leniently(), open_home(home) as hold, running(hold) as gateway:
        log(gateway, "The anchor chain is rusty.")
        assert begin(gateway).processes


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_on_one_core_no_readers_begin_by_themselves(tmp_path: Path) -> None:
    home, cores = tmp_path / "home", os.sched_getaffinity(0)
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps({**CONFIG, "gateway": {}}))
    os.sched_setaffinity(0, {min(cores)})
    try:
        with open_home(home) as hold, running(hold) as gateway:
            log(gateway, "The anchor chain is rusty.")
            for _ in range(5):
                assert all(answer["logs"] for answer in at_once(gateway, ASKED[0]))
            assert not readers_of(gateway).processes
    finally:
        os.sched_setaffinity(0, cores)


def test_a_reader_that_is_killed_costs_no_answer_and_is_replaced(gateway: Running) -> None:
    log(gateway, "The anchor chain is rusty.")
    readers = begin(gateway)
    for pid in readers.processes:
        os.kill(pid, signal.SIGKILL)
    for answer in at_once(gateway, ASKED[0]):
        assert answer["logs"]
    readers._not_before = 0.0
    assert len(begin(gateway).processes) == 1


def test_what_a_caller_did_wrong_is_told_by_a_reader_too(gateway: Running) -> None:
    begin(gateway)

    def wrong(_: int) -> tuple[int, str]:
        with gateway.client(gateway.admin) as api:
            response = api.get("/api/search?q=x&topicId=none&spaceId=nowhere")
            return response.status_code, response.text

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(wrong, range(4)))) == 1


SERVE = """
import sys
from holdfast.gateway import listen, serve
from holdfast.runtime import open_home
hold = open_home(sys.argv[1])
sock = listen("127.0.0.1", 0)
print(sock.getsockname()[1], hold.home.admin_token(), flush=True)
serve(hold, sock)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found by Linux's /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_readers_end_with_their_gateway_however_that_ends(tmp_path: Path, how: signal.Signals) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps(CONFIG))
    process = forks.Popen(
        [sys.executable, "-c", SERVE, str(home)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        port, token = process.stdout.readline().split()
        begun: set[int] = set()

        def has_readers() -> bool:
            headers = {"Authorization": f"Bearer {token}"}
            client = httpx.Client(
                base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, verify=False
            )
            with client as api, ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda n: api.get(f"/api/search?q=anchor+{n}"), range(8)))
            begun.update(children_of(process.pid))
            return bool(begun)

        wait_for(has_readers)
    finally:
        process.send_signal(how)
        process.wait(30)
    wait_for(lambda: not any(is_alive(pid) for pid in begun))


def children_of(pid: int) -> set[int]:
    found = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return {int(child) for line in found for child in line}


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
