"""Real gateways that are killed, stopped and started again, and what is asked of them over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

import forks
from builders import PATIENCE
from holdfast.home import Home

WORKER: Final = Path(__file__).with_name("worker_gateway.py")


def wait_for(holds: Callable[[], bool], what: str = "") -> None:
    """A test that waits in vain fails instead of hanging."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"waited in vain {what}"
        time.sleep(0.01)


def configure(home: Path, model_url: str, **more: Any) -> None:
    """A home with one scripted model, in which nothing happens unasked."""
    provider = {"baseUrl": model_url, "apiKey": "none", "models": [{"id": "scripted"}]}
    defaults = {
        "model": "scripted/scripted",
        "skipBootstrap": True,
        "skills": [],
        "heartbeat": {"every": "0m"},
        **more.pop("agent", {}),
    }
    body = {
        "models": {"mode": "replace", "providers": {"scripted": provider}},
        "agents": {"defaults": defaults},
        "gateway": {"shutdownGraceSeconds": 1},
        "memory": {"search": {"embedding": {"providers": []}}},
        **more,
    }
    home.mkdir(parents=True, exist_ok=True)
    Home(home).config.write_text(json.dumps(body))


@dataclass(frozen=True, slots=True)
class Gateway:
    pid: int
    api: httpx.Client

    def say(self, text: str, key: str = "agent:main:main", **more: Any) -> str:
        answer = self.api.post("/api/agent", json={"message": text, "sessionKey": key, **more})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["runId"])

    def run(self, run_id: str) -> dict[str, Any]:
        told: dict[str, Any] = self.api.get(f"/api/agent/{run_id}").json()
        return told

    def ended(self, run_id: str) -> dict[str, Any]:
        wait_for(lambda: self.run(run_id).get("ended") is True, f"for the end of {run_id}")
        return self.run(run_id)

    def end(self, how: signal.Signals) -> None:
        """Kill it or ask it to stop, and wait until it is gone."""
        os.kill(self.pid, how)
        wait_for(lambda: not Path(f"/proc/{self.pid}").exists(), "for its end")
        self.api.close()


class Nest:
    """The process that gateways are forks of, whatever home and store they serve."""

    def __init__(self, **env: str) -> None:
        still = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        begin = subprocess.Popen if "LD_PRELOAD" in env else forks.Popen
        self._process = begin(
            [sys.executable, str(WORKER)],
            env={**own, **still, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._begun: list[Gateway] = []

    def close(self) -> None:
        self.end_all()
        self._process.communicate()

    def end_all(self) -> None:
        """Kill those that a test left."""
        while self._begun:
            one = self._begun.pop()
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
            one.api.close()

    def cli(self, *given: str) -> str:
        """What a command prints."""
        return str(self._told({"cli": list(given)}))

    def gateway(self, home: Path, url: str) -> Gateway:
        """Begin one more; what a dead one left is taken up."""
        told = self._told({"home": str(home), "url": url})
        api = httpx.Client(
            base_url=f"http://127.0.0.1:{told['port']}",
            headers={"Authorization": f"Bearer {Home(home).admin_token()}"},
            timeout=PATIENCE,
            verify=False,
        )
        self._begun.append(Gateway(told["pid"], api))
        wait_for(lambda: _is_ready(api), "for a gateway to be ready")
        return self._begun[-1]

    def _told(self, asked: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def _is_ready(api: httpx.Client) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return api.get("/healthz", params={"ready": True}).status_code == 200
    return False
