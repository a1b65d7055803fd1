"""An open home with its tools, for the tests of tools: real rooms, a real store, a workspace on disk."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from builders import KEY, soon
from holdfast.agents.skills import SkillRoom
from holdfast.agents.tools import BackgroundCommands, Caller, Toolbox, ToolEvent, ToolParts, builtin_toolbox
from holdfast.agents.tools.fetching import Fetcher
from holdfast.clock import Clock, ManualClock
from holdfast.config import Config, parse_config
from holdfast.context import ToolCall, ToolResult
from holdfast.log import OWNER, Session, sessions, sqlite_url
from holdfast.memory.scope import Chat
from holdfast.runtime import Holdfast, open_home

T = TypeVar("T")


@dataclass
class Post:
    """A courier that keeps what it is given."""

    sent: list[tuple[str, str, str]] = field(default_factory=list)

    async def send(self, caller: Caller, to: str, text: str) -> str:
        self.sent.append((caller.session.key, to, text))
        return f"run-{len(self.sent)}"


@dataclass
class World:
    hold: Holdfast
    toolbox: Toolbox
    parts: ToolParts
    post: Post
    config: Config = field(default_factory=Config)
    events: list[ToolEvent] = field(default_factory=list)
    turn: int = 0

    @property
    def workspace(self) -> Path:
        return self.hold.home.path / "workspace"

    def configure(self, **data: Any) -> None:
        self.config = parse_config(json.dumps(data))

    def session(self, key: str = KEY, **known: Any) -> Session:
        with self.hold.store.write(OWNER) as tx:
            return sessions.ensure(tx, key, **known)

    def caller(
        self, key: str = KEY, *, agent: str = "main", turn: str | None = None, **fields: Any
    ) -> Caller:
        session = self.session(key)
        self.turn += 1
        return Caller(
            config=self.config,
            settings=self.config.agent(agent),
            agent_id=agent,
            session=session,
            turn_id=turn or f"turn-{self.turn}",
            workspace=self.workspace,
            chat=Chat.of(session.key, session.chat_type),
            **fields,
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(soon(work))

    def calls(self, calls: list[ToolCall], caller: Caller | None = None) -> list[ToolResult]:
        return self.run(self.toolbox.run_all(caller or self.caller(), calls, self.events.append))

    def call(self, name: str, arguments: dict[str, Any], caller: Caller | None = None) -> ToolResult:
        return self.calls([ToolCall("c1", name, arguments)], caller)[0]

    def ok(self, name: str, arguments: dict[str, Any], caller: Caller | None = None) -> str:
        result = self.call(name, arguments, caller)
        assert not result.is_error, result.text
        return result.text

    def refused(self, name: str, arguments: dict[str, Any], caller: Caller | None = None) -> str:
        result = self.call(name, arguments, caller)
        assert result.is_error, result.text
        return result.text


@contextmanager
def world(
    folder: Path, template: Path, fetcher: Fetcher | None = None, clock: Clock | None = None
) -> Iterator[World]:
    home = folder / "home"
    home.mkdir()
    url = sqlite_url(shutil.copy(template, home / "holdfast.db"))
    with open_home(home, store_url=url, clock=clock or ManualClock()) as hold:
        post = Post()
        parts = ToolParts(
            store=hold.store,
            threads=hold.threads,
            home=hold.home,
            clock=hold.clock,
            memory=lambda: hold.memory,
            board=lambda: hold.board,
            skills=SkillRoom(hold.home, lambda: made.config, hold.workspace),
            courier=post,
            fetcher=fetcher or Fetcher(),
            commands=BackgroundCommands(),
        )
        made = World(hold, builtin_toolbox(parts), parts, post)
        made.workspace.mkdir(exist_ok=True)
        yield made
        parts.commands.close()
