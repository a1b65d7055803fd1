"""A gateway with a scripted model behind its agents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving import Running, running

from holdfast.clock import ManualClock
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
