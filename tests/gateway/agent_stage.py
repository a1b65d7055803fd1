"""A gateway with a scripted model behind its agents."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st
from openai import OpenAI
from serving import Running, running, wait_for

import forks
from builders import PATIENCE
from holdfast.agents.loop import RunEvent
from holdfast.clock import ManualClock, Millis
from holdfast.gateway import listen
from holdfast.home import Home
from holdfast.log import sqlite_url
from holdfast.runtime import open_home
from holdfast.testing import Script, ScriptedOpenAI


@contextmanager
def agents_serving(
    home: Path, template: Path, script: Script, **config: Any
) -> Iterator[tuple[Running, ScriptedOpenAI]]:
    """`main` and `other` answer as scripted."""
    home.mkdir()
    with ScriptedOpenAI(script) as model:
        (home / "holdfast.json").write_text(json.dumps(_config(model.url) | config))
        url = sqlite_url(shutil.copy(template, home))
        with open_home(home, store_url=url, clock=ManualClock()) as hold, running(hold) as gateway:
            yield gateway, model


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[tuple[Running, ScriptedOpenAI]]:
    """One gateway for a module, whose model says what the module's `answer` does."""
    home = tmp_path_factory.mktemp("agents") / "home"
    with agents_serving(home, sqlite_template, request.module.answer) as found:
        yield found


@pytest.fixture
def gateway(stage: tuple[Running, ScriptedOpenAI]) -> Running:
    return stage[0]


@pytest.fixture
def model(stage: tuple[Running, ScriptedOpenAI]) -> ScriptedOpenAI:
    return stage[1]


@pytest.fixture
def client(gateway: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.admin, max_retries=0) as found:
        yield found


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def assert_openai_error(response: httpx.Response, *statuses: int) -> None:
    assert response.status_code in statuses, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["code"]


def run_event(seq: int, stream: Any, **data: Any) -> RunEvent:
    return RunEvent("run", seq, stream, data, Millis(0), passing="delta" in data)


class KilledGateway:
    """A gateway in a process of its own, to be killed and started again at the same address."""

    def __init__(self, home: Path, model: ScriptedOpenAI) -> None:
        home.mkdir()
        (home / "holdfast.json").write_text(json.dumps(_config(model.url)))
        with listen("127.0.0.1", 0) as found:
            self.port = int(found.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def admin(self) -> str:
        return Home(self._home).admin_token()

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast", "--home", str(self._home), "up", "--no-link"]
        command += ["--port", str(self.port)]
        quiet = subprocess.DEVNULL
        self._process = forks.Popen(command, stdout=quiet, stderr=quiet)
        wait_for(self._answers)

    def freeze(self) -> None:
        """It is there, takes connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def _answers(self) -> bool:
        try:
            asked = httpx.get(f"{self.url}/healthz", params={"ready": "true"}, verify=False)
            return asked.status_code == 200
        except httpx.TransportError:
            return False


def _config(url: str) -> dict[str, Any]:
    model = {"id": "scripted", "contextWindow": 100_000, "input": ["text", "image"]}
    provider = {"baseUrl": url, "apiKey": "key", "api": "openai-completions", "models": [model]}
    return {
        "board": {"contextAugment": False},
        "gateway": {"shutdownGraceSeconds": 1},
        "models": {"providers": {"scripted": provider}},
        "agents": {
            "defaults": {"model": "scripted/scripted", "userTimezone": "UTC"},
            "list": [{"id": "main", "default": True}, {"id": "other"}],
        },
    }
