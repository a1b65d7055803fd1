"""The pages' own chat for the contract: the owner in a browser, as its requests are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from service_stage import ServiceOnTrial
from serving import Running

from builders import PATIENCE

CHAT = "agent:main:web:dm:0a1b2c3d4e5f"


class WebServer(ServiceOnTrial):
    name = "web"
    owner = "0a1b2c3d4e5f"
    group = ""
    threads = edits = deletes = reacts = types = groups = files = grows = faults = strangers = False
    most_chars = 64_000

    def __init__(self) -> None:
        self._api = httpx.Client(verify=False, timeout=PATIENCE)

    def meet(self, gateway: Running) -> None:
        self._api = gateway.client(gateway.admin)

    def rules(self) -> dict[str, Any]:
        return {"outboundPerMinute": 10_000}

    def channel(self) -> dict[str, Any]:
        return {}

    def say(self, text: str, **where: Any) -> str:
        made = self._api.post("/api/agent", json={"message": text, "sessionKey": CHAT})
        return str(made.json()["runId"])

    def shown(self, **where: Any) -> list[str]:
        found = self._api.get(f"/api/sessions/{CHAT}/transcript", params={"limit": 500})
        lines = found.json() if found.status_code == 200 else []
        return [one["content"] for one in lines if one["role"] == "assistant" and one["content"]]

    def close(self) -> None:
        self._api.close()


@contextmanager
def web(folder: Path) -> Iterator[WebServer]:
    made = WebServer()
    yield made
    made.close()
