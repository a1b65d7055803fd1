"""A gateway whose people are on a chat service, and what such a service must be able to do in a test."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "gateway"))

import httpx
from aiohttp import web
from serving import Running, running, wait_for

from builders import PATIENCE
from holdfast.clock import Clock
from holdfast.home import Home
from holdfast.runtime import open_home
from holdfast.testing import Asked, Call, Say, ScriptedOpenAI
from holdfast.testing.script import text_of

SERVICES = ("telegram", "slack", "discord", "email", "matrix")
# The pages' own chat has no far end that could be cut off from the gateway.
ALL = (*SERVICES, "web")
CODE = "\n".join(f"line_{n} = {n}" for n in range(400))
LONG = f"First some words.\n\n```python\n{CODE}\n```\n\nAnd the end."
DEEDS = re.compile(r"\{.*\}", re.DOTALL)
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


class ServiceOnTrial(ABC):
    """The far end of a channel: a server on this machine that speaks the service's protocol.

    `owner` writes directly, `other` is somebody else (`sender="8"`), `group` is a group that is answered.
    What `shown` gives are the messages that people see there from the agent, as they stand now.
    """

    name: str
    owner: str
    other = "8"
    group: str
    threads = True
    edits = True
    deletes = True
    reacts = True
    types = True
    groups = True
    files = True
    grows = True
    buttons = False
    faults = True
    strangers = True
    most_chars = 4_000

    @abstractmethod
    def channel(self) -> dict[str, Any]:
        """The channel's part of the config."""

    def rules(self) -> dict[str, Any]:
        """How the channel is set for a test."""
        return {
            "owners": [self.owner],
            "groups": [self.group],
            "streaming": "off",
            "inboundPerMinute": 10_000,
            "outboundPerMinute": 10_000,
        }

    def meet(self, gateway: Running) -> None:  # noqa: B027 - a gateway comes to its services by itself
        """Hear of the gateway that serves."""

    @abstractmethod
    def say(self, text: str, **where: Any) -> str:
        """Somebody writes: `sender`, `group`, `thread`, `mention`, `file`; gives the message's id."""

    @abstractmethod
    def shown(self, **where: Any) -> list[str]:
        """What the agent's messages say now, in order: to `sender`, or in a `group` or `thread`."""

    def change(self, message_id: str, text: str) -> None:
        """Somebody changes what they wrote."""
        raise NotImplementedError

    def take_back(self, message_id: str) -> None:
        """Somebody deletes what they wrote."""
        raise NotImplementedError

    def react(self, message_id: str, sign: str) -> None:
        """Somebody puts a sign to a message."""
        raise NotImplementedError

    def limit_next(self) -> None:
        """The next message is refused: too many requests, wait."""
        raise NotImplementedError

    def cut_next(self) -> None:
        """The next message is taken, and the connection is cut before that is said."""
        raise NotImplementedError

    def signs(self) -> list[str]:
        """The signs that the agent put to messages."""
        raise NotImplementedError

    def typed(self) -> bool:
        """Whether people saw that an answer was being written."""
        raise NotImplementedError

    def changes(self) -> int:
        """How often the agent changed a message."""
        raise NotImplementedError

    def last_id(self) -> str:
        """The agent's newest message."""
        raise NotImplementedError

    def offered(self) -> list[str]:
        """The buttons under the agent's newest message to the owner."""
        raise NotImplementedError

    def press(self, label: str, sender: str | None = None) -> None:
        """Somebody presses a button under that message."""
        raise NotImplementedError

    def notices(self) -> list[str]:
        """What those who pressed buttons were told."""
        raise NotImplementedError

    def ready(self) -> None:  # noqa: B027 - most services keep what is said until somebody listens
        """Wait until the agent hears what is said."""

    def answered(self, count: int, **where: Any) -> list[str]:
        wait_for(lambda: len(self.shown(**where)) >= count)
        return self.shown(**where)


def script(asked: Asked) -> Say | Call:
    """`do {…}` is a call of the message tool; `long` a long reply; `context` all that the model was shown;
    anything else comes back as it was said."""
    last = asked.messages[-1]
    if last.get("role") == "tool":
        return Say(f"done: {text_of(last.get('content'))[:1000]}")
    spoken = [text_of(m.get("content")) for m in asked.messages if m.get("role") == "user"]
    said = next(words for text in reversed(spoken) if (words := FENCED.sub("", text).strip()))
    words = said.partition("[file")[0].rstrip().rsplit("\n", 1)[-1].strip()
    if "do {" in words:
        found = DEEDS.search(words)
        assert found is not None
        return Call("message", json.loads(found[0]))
    if "say something long" in words:
        return Say(LONG, chunks=20)
    if "what do you see" in words:
        shown = "\n".join(text_of(m.get("content")) for m in asked.messages)
        pictures = json.dumps(asked.messages).count("data:image")
        return Say(f"I see {len(shown)} letters, {pictures} pictures. " + " | ".join(MARKS.findall(shown)))
    return Say(f"Re: {words}")


def kind_of(name: str) -> type[ServiceOnTrial]:
    module = importlib.import_module(f"{name}_server")
    kind: type[ServiceOnTrial] = getattr(module, f"{name.title()}Server")
    return kind


@contextmanager
def opened(name: str, folder: Path) -> Iterator[ServiceOnTrial]:
    """The service of this name; a test is skipped where what it needs is not installed."""
    module = importlib.import_module(f"{name}_server")
    with getattr(module, name)(folder) as made:
        yield made


@contextmanager
def served(app: web.Application, loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    """A service's far end on a loop of its own; gives its address."""
    runner = web.AppRunner(app, shutdown_timeout=1)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def begin() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    try:
        yield asyncio.run_coroutine_threadsafe(begin(), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


MARKS = re.compile(r"mark-[a-z]+")
FENCED = re.compile(r'<holdfast:data id="(\w+)"[^>]*>.*?</holdfast:data \1>', re.DOTALL)


def config(service: ServiceOnTrial, model_url: str, **channel: Any) -> dict[str, Any]:
    model = {"id": "scripted", "contextWindow": 200_000, "input": ["text", "image"]}
    provider = {"baseUrl": model_url, "apiKey": "key", "api": "openai-completions", "models": [model]}
    return {
        "board": {"contextAugment": False},
        "gateway": {"shutdownGraceSeconds": 1},
        "models": {"providers": {"scripted": provider}},
        "agents": {"defaults": {"model": "scripted/scripted", "userTimezone": "UTC"}},
        "tools": {"profile": "messaging"},
        "messages": {"queue": {"debounceMs": 0, "mode": "followup", "cap": 1000}},
        "channels": {service.name: service.rules() | service.channel() | channel},
    }


def settled(url: str, home: Path) -> None:
    """Nothing is on its way any more."""
    token = {"Authorization": f"Bearer {Home(home).admin_token()}"}
    with httpx.Client(base_url=url, headers=token, timeout=PATIENCE, verify=False) as api:
        wait_for(lambda: api.get("/api/deliveries", params={"status": "pending"}).json() == [])


@dataclass
class Stage:
    service: ServiceOnTrial
    gateway: Running
    model: ScriptedOpenAI
    api: httpx.Client
    home: Path

    def settled(self) -> None:
        wait_for(lambda: not self.api.get("/api/deliveries", params={"status": "pending"}).json())

    def seen(self) -> list[str]:
        """The texts of the last request, for looking at what the model was shown."""
        return [text_of(m.get("content")) for m in self.model.requests[-1].messages]


@contextmanager
def stage(
    home: Path,
    service: ServiceOnTrial,
    more: Mapping[str, Any] | None = None,
    *,
    clock: Clock | None = None,
    **channel: Any,
) -> Iterator[Stage]:
    with ScriptedOpenAI(script) as model:
        made = config(service, model.url, **channel)
        for name, part in (more or {}).items():
            made[name] = {**made.get(name, {}), **part} if isinstance(part, dict) else part
        (home / "holdfast.json").write_text(json.dumps(made))
        with (
            open_home(home, clock=clock) as hold,
            running(hold) as gateway,
            gateway.client(gateway.admin) as api,
        ):
            service.meet(gateway)
            service.ready()
            yield Stage(service, gateway, model, api, home)
