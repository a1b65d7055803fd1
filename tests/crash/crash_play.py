"""What is asked of gateways that are killed, and what the model says to it."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.home import Home
from holdfast.testing import Asked, Call, Say, Turn

WORKER: Final = Path(__file__).with_name("agents_worker.py")
PATHS: Final = ("spawn", "delegate", "work")
_TAG: Final = re.compile(r"<(spawn|delegate|work)-(\d+)>")
_ids = itertools.count()


class Nest:
    """The process that every gateway is a fork of."""

    def __init__(self, home: Path, url: str) -> None:
        still = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), str(home), url],
            env={**os.environ, **still},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Nest:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate()

    def gateway(
        self, said: Sequence[tuple[str, str]] = (), kill: str | None = None, *, nth: int | None = None
    ) -> dict[str, Any]:
        """How one gateway ended, which took up what was left and heard these messages, by session key."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"say": list(said), "kill": kill, "nth": nth}) + "\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in told, f"{said} {kill}: {told['error']}"
        return told


def answer(asked: Asked) -> Turn:
    """By the tag in what it is shown. Calls have ids of their own every time, as with any real model."""
    said = json.dumps(asked.messages)
    found = _TAG.search(said)
    if found is None:
        return Say("")  # who asked died amid the question
    tag = found[0]
    if "You are a subagent" in said:
        return Say(f"Result of {tag}.")
    if f"Result of {tag}" in said or "interrupted" in said or "[continuation:delegate-return]" in said:
        return Say(f"Thanks for {tag}.")
    if "[continuation:wake]" in said:
        return Say(f"Went on with {tag}.")
    if asked.messages[-1]["role"] == "tool":
        return Say(f"Begun {tag}.")
    return _call(found[1], tag)


def _call(path: str, tag: str) -> Call:
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "spawn": ("sessions_spawn", {"task": f"Look into {tag}."}),
        "delegate": ("continue_delegate", {"task": f"Look into {tag}.", "mode": "silent-wake"}),
        "work": ("continue_work", {"reason": f"go on with {tag}", "delaySeconds": 5}),
    }
    name, arguments = given[path]
    return Call(name, arguments, id=f"call-{next(_ids)}")


def write_config(home: Path, url: str) -> None:
    provider = {"baseUrl": url, "apiKey": "none", "models": [{"id": "scripted"}]}
    defaults = {
        "model": "scripted/scripted",
        "skipBootstrap": True,
        "skills": [],
        "continuation": {"enabled": True},
        "heartbeat": {"every": "0m"},
    }
    body = {
        "models": {"mode": "replace", "providers": {"scripted": provider}},
        "agents": {"defaults": defaults},
        "board": {"enabled": False, "classifier": {"enabled": False}},
        "memory": {"search": {"embedding": {"providers": []}}},
    }
    home.mkdir(parents=True, exist_ok=True)
    Home(home).config.write_text(json.dumps(body))
