"""What the tests of models share: a room over scripted servers, with time that is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from holdfast.agents.models import ModelAbout, ModelEvent, ModelRef, ModelReply, ModelRequest, Models
from holdfast.agents.models.catalogue import Catalogue
from holdfast.agents.models.client import Client
from holdfast.agents.models.credentials import Credential
from holdfast.agents.models.dialects import Pool
from holdfast.agents.models.lessons import LessonKeeper
from holdfast.agents.models.recall_model import Search
from holdfast.agents.models.wire import Echoes
from holdfast.clock import ManualClock
from holdfast.config import Config, parse_config
from holdfast.config.models import ModelsConfig
from holdfast.context import Message, SystemMessage, ToolSpec, UserMessage
from holdfast.home import Home
from holdfast.testing import ScriptedServer

T = TypeVar("T")
READ = ToolSpec("file_read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
HELLO = (SystemMessage(text="Be brief."), UserMessage(text="Hello?"))


def asked(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages or HELLO, **more)


def providers(*servers: ScriptedServer, **more: Any) -> dict[str, Any]:
    """Config of one provider for each server: `a`, `b`, …"""
    return {
        name: {"baseUrl": server.url, "api": server.api, "apiKey": f"sk-{name}-1234567890", **more}
        for name, server in zip("abcdef", servers, strict=False)
    }


def client(
    server: ScriptedServer,
    *,
    silence: float = 5.0,
    at_once: int | None = None,
    credential: Credential | None = None,
    **entry: Any,
) -> tuple[Client, Pool]:
    """The real client for a scripted server."""
    provider = {"baseUrl": server.url, "api": server.api, "models": [{"id": "m", **entry}]}
    given = {"providers": {"a": provider | ({} if at_once is None else {"maxConcurrent": at_once})}}
    resolved = Catalogue(ModelsConfig.model_validate(given)).resolve(ModelRef("a", "m"))
    endpoint = replace(resolved.endpoint, timeout_seconds=silence)
    resolved = replace(resolved, endpoint=endpoint)
    pool = Pool()
    credential = credential or Credential("a:test", "a", "sk-test-1234567890")
    return Client(resolved, credential, pool, env={}, echoes=Echoes()), pool


def heard(server: ScriptedServer, *requests: ModelRequest, **more: Any) -> list[list[ModelEvent]]:
    """What the real client gives for each request, one after the other."""

    async def go() -> list[list[ModelEvent]]:
        model, pool = client(server, **more)
        try:
            return [[event async for event in model.stream(one)] for one in requests]
        finally:
            await pool.aclose()

    return asyncio.run(go())


def reply(server: ScriptedServer, request: ModelRequest | None = None, **more: Any) -> ModelReply:
    last = heard(server, request or asked(), **more)[0][-1]
    assert isinstance(last, ModelReply)
    return last


@dataclass
class Stage:
    """A models room on a home of its own; `slept` are the waits that it asked for, in seconds."""

    models: Models
    clock: ManualClock
    home: Home
    slept: list[float] = field(default_factory=list)
    events: list[ModelEvent] = field(default_factory=list)
    built: list[ModelAbout] = field(default_factory=list)

    async def build(self, about: ModelAbout) -> ModelRequest:
        self.built.append(about)
        return asked()

    async def answer(self, *refs: str, **more: Any) -> Any:
        parsed = [ModelRef.parse(ref) for ref in refs]
        return await self.models.answer(
            parsed, self.build, agent_id=more.pop("agent_id", "main"), on_event=self.events.append, **more
        )


def config(given: Mapping[str, Any]) -> Config:
    import json

    return parse_config(json.dumps(given))


def stage(
    folder: Path,
    given: Mapping[str, Any],
    *,
    env: Mapping[str, str] | None = None,
    clock: ManualClock | None = None,
    search: Search | None = None,
    lessons: LessonKeeper | None = None,
) -> Stage:
    home, clock = Home(folder), clock or ManualClock()
    home.prepare()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds=seconds)

    pace: dict[str, Any] = {"sleep": sleep, "spread": lambda: 0.5}
    models = Models(home, lambda: config(given), clock, env or {}, **pace, search=search, lessons=lessons)
    return Stage(models, clock, home, slept)


def run(made: Stage, act: Callable[[], Awaitable[T]]) -> T:
    """Run a part of a test, and give the connections back."""

    async def go() -> T:
        try:
            return await act()
        finally:
            await made.models.aclose()

    return asyncio.run(go())


def texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    from holdfast.testing.script import text_of

    return [text_of(message.get("content")) for message in messages]
