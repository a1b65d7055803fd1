"""Builders for the context room: a session on a store, turns in the log, and a build of the next one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from builders import KEY
from holdfast.config import Config
from holdfast.context import (
    AssistantMessage,
    BuildRequest,
    Built,
    ContextRoom,
    Message,
    ModelFacts,
    SummaryRequest,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
    draft_of,
)
from holdfast.home import Home
from holdfast.ids import uuid7
from holdfast.log import OWNER, EntryDraft, Outcome, Session, Store, Threads, sessions, turns

TOOLS = (ToolSpec("exec", "Run a command.", {"type": "object"}),)
INSTRUCTIONS = (Text("base", "You are a careful assistant."),)


class Echo:
    """A summariser that says how much it was given, and the last of it."""

    def __init__(self) -> None:
        self.requests: list[SummaryRequest] = []

    async def summarise(self, request: SummaryRequest) -> str:
        self.requests.append(request)
        return f"Summary {len(self.requests)}: {len(request.text)} characters, ending {request.text[-40:]!r}"


class Failing:
    """A summariser that answers as badly as it is told to."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer = answer
        self.calls = 0

    async def summarise(self, request: SummaryRequest) -> str:
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return request.text * 2 if self.answer == "LONGER" else self.answer


class Stage:
    """One agent's session with a room over it; says a turn, builds the next."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        home: Path,
        *,
        key: str = KEY,
        config: dict[str, Any] | None = None,
        summariser: Any = None,
        window: int = 200_000,
    ) -> None:
        self.store = store
        self.config = Config.model_validate(config or {})
        self.room = ContextRoom(store, threads, Home(home), lambda: self.config, summariser=summariser)
        self.window = window
        self.workspace = home / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        for name in ("AGENTS.md", "TOOLS.md", "SOUL.md"):
            (self.workspace / name).write_text(f"Rules of {name}.\n")
        with store.write(OWNER) as tx:
            self.session: Session = sessions.ensure(tx, key)
        self.turn: turns.Turn | None = None
        self.name = uuid7()
        self.count = 0

    def fresh(self) -> Session:
        with self.store.read(OWNER) as tx:
            self.session = sessions.get(tx, self.session.id)
        return self.session

    def accept(self, text: str = "hello", **fields: Any) -> turns.Turn:
        self.count += 1
        draft = EntryDraft(content=text, role="user", agent_id="user", **fields)
        with self.store.write(OWNER) as tx:
            accepted = turns.accept(tx, self.session, draft, key=f"{self.name}:{self.count}")
            self.turn = accepted.turn
        return self.turn

    def commit(self, turn: turns.Turn, *messages: Message, **outcome: Any) -> None:
        drafts = [draft_of(m) for m in messages]
        with self.store.write(OWNER) as tx:
            turns.start(tx, turns.get(tx, turn.id))
            turns.commit(tx, turn.key, Outcome(entries=drafts, **outcome))

    def say(self, text: str, *messages: Message) -> turns.Turn:
        """A whole turn in the log, without a build."""
        turn = self.accept(text)
        self.commit(turn, *(messages or (AssistantMessage(text=f"Answer to: {text}"),)))
        return turn

    def past(self, said: Iterable[tuple[str, Sequence[Message]]]) -> None:
        """Many whole turns, in one transaction."""
        with self.store.write(OWNER) as tx:
            for text, messages in said:
                self.count += 1
                draft = EntryDraft(content=text, role="user", agent_id="user")
                key = f"{self.name}:{self.count}"
                turn = turns.accept(tx, self.session, draft, key=key, most_waiting=10_000).turn
                turns.start(tx, turn)
                replies = messages or (AssistantMessage(text=f"Answer to: {text}"),)
                turns.commit(tx, key, Outcome(entries=[draft_of(m) for m in replies]))

    def request(self, turn: turns.Turn, **fields: Any) -> BuildRequest:
        given: dict[str, Any] = {
            "session": self.fresh(),
            "turn_id": turn.id,
            "number": turn.number,
            "model": ModelFacts("test-model", self.window),
            "settings": self.config.agents.defaults,
            "workspace": self.workspace,
            "tools": TOOLS,
            "instructions": INSTRUCTIONS,
            "input_id": turn.input_id,
        }
        return BuildRequest(**given | fields)

    async def build(self, turn: turns.Turn | None = None, **fields: Any) -> Built:
        return await self.room.build(self.request(turn or self.accept(), **fields))


def used_tool(number: int, result: str = "ok", name: str = "exec") -> tuple[Message, Message, Message]:
    """A call, its result, and what the agent said of it."""
    call = ToolCall(f"call-{number}", name, {"command": f"run {number}"})
    return (
        AssistantMessage(text="", calls=(call,)),
        ToolResult(text=result, call_id=call.id, name=name),
        AssistantMessage(text=f"Done {number}."),
    )


def texts(messages: Sequence[Message]) -> list[str]:
    return [m.text for m in messages]


def users(built: Built) -> list[str]:
    return [m.text for m in built.messages if isinstance(m, UserMessage)]
