"""A gateway at work for as long as one likes: talk, ingest, searches, backups and restarts all the while.

A few seconds in every run, so that it stays true; `make torture` gives it `HOLDFAST_SOAK_SECONDS`.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from click.testing import CliRunner

import forks
from builders import PATIENCE, rows
from holdfast.cli.root import cli
from holdfast.log import Store, check, sqlite_url
from holdfast.testing import Asked, Say, ScriptedOpenAI, Turn

SECONDS = float(os.environ.get("HOLDFAST_SOAK_SECONDS", "3"))
BACKUP_EVERY = 40
RESTART_EVERY = 60
PATIENT = 4 * PATIENCE


def answer(asked: Asked) -> Turn:
    return Say(f"I heard: {asked.last_text[:60]}")


@dataclass
class Soak:
    """What was asked of the gateway and acknowledged by it."""

    home: Path
    backups: Path
    runs: list[str] = field(default_factory=list)
    ingested: int = 0
    searches: int = 0
    restarts: int = 0
    saved: int = 0
    memory: list[int] = field(default_factory=list)

    def round(self, api: httpx.Client, number: int) -> None:
        said = {"message": f"number {number}", "sessionKey": f"agent:main:soak:{number % 5}"}
        self.runs.append(api.post("/api/agent", json=said).raise_for_status().json()["runId"])
        batch = [{"content": f"entry {number}-{n} about the tide"} for n in range(10)]
        api.post("/api/ingest", json=batch).raise_for_status()
        self.ingested += len(batch)
        api.get("/api/search", params={"q": f"tide {number}"}).raise_for_status()
        self.searches += 1
        if number % BACKUP_EVERY == 0:
            call("backup", self.backups, "--home", self.home, "--keep", 3)
            self.saved += 1

    def tell(self) -> str:
        grown = f"{self.memory[0] >> 20} to {self.memory[-1] >> 20} MiB" if self.memory else "?"
        return (
            f"soak: {len(self.runs)} turns, {self.ingested} entries, {self.searches} searches, "
            f"{self.saved} backups, {self.restarts} restarts; memory {grown}"
        )


def call(*args: object) -> None:
    done = CliRunner().invoke(cli, [*map(str, args)])
    assert done.exit_code == 0, done.output


@contextmanager
def gateway(soak: Soak) -> Iterator[httpx.Client]:
    """A process that serves the home; it is asked to stop at the end, and must do so in peace."""
    command = [sys.executable, "-m", "holdfast", "up", "--home", str(soak.home), "--port", "0", "--no-link"]
    with open(soak.home.parent / "gateway.log", "ab") as out:
        process = forks.Popen(command, stdout=out, stderr=out)
    try:
        url = json.loads(_once(soak.home / "gateway.json", process))["url"]
        token = (soak.home / "credentials/token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        transport = httpx.HTTPTransport(retries=5)
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENT, transport=transport) as api:
            yield api
        soak.memory.append(psutil.Process(process.pid).memory_info().rss)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENT) == 0
    finally:
        process.kill()
        process.wait()


def _once(path: Path, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + PATIENT
    while not (path.is_file() and path.read_text().endswith("\n")):
        assert process.poll() is None, "the gateway did not start"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return path.read_text()


def ended(api: httpx.Client, run: str) -> str:
    end = time.monotonic() + PATIENT
    while not api.get(f"/api/agent/{run}/wait", params={"timeoutMs": 5000}).json()["ended"]:
        assert time.monotonic() < end, f"{run} has not ended"
    return str(api.get(f"/api/agent/{run}").json()["status"])


def configure(home: Path, url: str) -> None:
    model = {"id": "scripted", "contextWindow": 100_000, "input": ["text"]}
    provider = {"baseUrl": url, "apiKey": "key", "api": "openai-completions", "models": [model]}
    config: dict[str, Any] = {
        "models": {"providers": {"scripted": provider}},
        "agents": {"defaults": {"model": "scripted/scripted"}},
        "messages": {"queue": {"debounceMs": 0, "mode": "followup", "cap": 10_000}},
        "memory": {"search": {"embedding": {"providers": []}}},
    }
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps(config))


@pytest.mark.timeout(240 + 3 * SECONDS)
def test_nothing_is_lost_while_it_talks_is_backed_up_and_is_restarted(tmp_path: Path) -> None:
    soak = Soak(tmp_path / "home", tmp_path / "backups")
    end = time.monotonic() + SECONDS
    numbers = itertools.count()
    with ScriptedOpenAI(answer, models=["scripted"]) as model:
        configure(soak.home, model.url)
        while time.monotonic() < end or soak.restarts < 1:
            with gateway(soak) as api:
                for number in numbers:
                    soak.round(api, number)
                    if (number + 1) % RESTART_EVERY == 0 or time.monotonic() >= end:
                        break
            soak.restarts += 1
        with gateway(soak) as api:
            states = Counter(ended(api, run) for run in soak.runs)
    print(soak.tell())
    assert states == Counter({"committed": len(soak.runs)})
    whole(soak.home, soak)
    call("restore", soak.backups, "--to", tmp_path / "restored")
    whole(tmp_path / "restored", None)


def whole(home: Path, soak: Soak | None) -> None:
    store = Store(sqlite_url(home / "holdfast.db"))
    try:
        assert check(store) == []
        if soak is not None:
            found = rows(
                store, "SELECT count(*), count(DISTINCT content) FROM entries WHERE content LIKE 'entry %'"
            )
            assert found == [(soak.ingested, soak.ingested)]
    finally:
        store.close()
