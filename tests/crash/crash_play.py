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

import forks
from holdfast.home import Home
from holdfast.testing import Asked, Call, Say, Stall, Turn
from holdfast.testing.script import text_of

WORKER: Final = Path(__file__).with_name("agents_worker.py")
PATHS: Final = ("spawn", "delegate", "work", "parts", "nested", "stop", "halt")
THEN: Final = {"stop": ("/stop",), "halt": ("!halt", "!release")}
"""What is said next in a session where more than one message is."""
_TAG: Final = re.compile(rf"<({'|'.join(PATHS)})-(\d+)>")
_ids = itertools.count()


class Nest:
    """The process that every gateway is a fork of."""

    def __init__(self, home: Path, url: str) -> None:
        still = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        self._process = forks.Popen(
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
        self,
        said: Sequence[tuple[str, str]] = (),
        kill: str | None = None,
        *,
        nth: int | None = None,
        first: Sequence[tuple[str, str]] = (),
    ) -> dict[str, Any]:
        """How one gateway ended, which took up what was left and heard these messages, by session key."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        plan = {"say": list(said), "first": list(first), "kill": kill, "nth": nth}
        self._process.stdin.write(json.dumps(plan) + "\n")
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
        return _child(found[1], tag, asked)
    if f"Result of {tag}" in said or "interrupted" in said or "[continuation:delegate-return]" in said:
        return Say(f"Thanks for {tag}.")
    if "[continuation:wake]" in said:
        return Say(f"Went on with {tag}.")
    if asked.messages[-1]["role"] == "tool":
        later = " CONTINUE_WORK:250" if found[1] in THEN else ""
        return Say(f"Begun {tag}.{later}")
    return _call(found[1], tag)


def _call(path: str, tag: str) -> Call:
    spawn = ("sessions_spawn", {"task": f"Look into {tag}."})
    delegate = ("continue_delegate", {"task": f"Look into {tag}.", "mode": "silent-wake"})
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "spawn": spawn,
        "parts": spawn,
        "stop": spawn,
        "delegate": delegate,
        "nested": delegate,
        "work": ("continue_work", {"reason": f"go on with {tag}", "delaySeconds": 5}),
        "halt": ("continue_work", {"reason": f"go on with {tag}", "delaySeconds": 200}),
    }
    name, arguments = given[path]
    return Call(name, arguments, id=f"call-{next(_ids)}")


def _child(path: str, tag: str, asked: Asked) -> Turn:
    """One that is stopped falls silent; one that goes on, by itself or by a delegate, has more to say."""
    said = json.dumps(asked.messages)
    if path == "stop":
        return Stall(f"Thinking of {tag} ")
    if path == "parts" and "[continuation:wake]" not in said:
        return Say(f"A part of {tag}. CONTINUE_WORK:5")
    if path == "nested" and "look deeper" not in said:
        return Say(f"More of {tag} is needed. [[CONTINUE_DELEGATE: look deeper into {tag} | silent-wake]]")
    if path == "nested" and "Look into" not in text_of(asked.messages[1].get("content")):
        return Say(f"Found in {tag}.")
    return Say(f"Result of {tag}.")


def write_config(home: Path, url: str) -> None:
    provider = {"baseUrl": url, "apiKey": "none", "models": [{"id": "scripted"}]}
    defaults = {
        "model": "scripted/scripted",
        "skipBootstrap": True,
        "skills": [],
        "continuation": {"enabled": True},
        "subagents": {"maxSpawnDepth": 2},
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
