"""Slash commands: answered by the runtime itself, alike in chat, on the command line and over the API."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.errors import Forbidden

if TYPE_CHECKING:
    from holdfast.agents.loop.asks import Address, Ask
    from holdfast.agents.loop.ending import Stopped
    from holdfast.agents.loop.parts import LoopParts
    from holdfast.agents.loop.run_status import RunStatus
    from holdfast.log import Session

_WRITTEN: Final = re.compile(r"\s*/([A-Za-z][A-Za-z0-9_-]{0,31})(?::?\s+(.*))?:?\s*", re.DOTALL)


class Control(Protocol):
    """What a command may do to runs."""

    async def cancel(self, run_id: str, *, reason: str = "cancelled") -> RunStatus: ...

    async def resume(self, run_id: str) -> RunStatus: ...

    async def stop_session(self, session: Session) -> Stopped:
        """Stop every chain that something lives of in a session, and what it set going in the background."""
        ...

    async def stop_all(self) -> Stopped:
        """Stop every chain of the home."""
        ...

    async def stop_items(self, ids: Sequence[str], reason: str) -> None:
        """Stop turns by their agenda items."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """A command's answer; `data` is the same for programs."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassOn:
    """Words for the model after all, in place of the command."""

    text: str


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Who gave the command, where, and the rooms to answer it from; `told` is what entering brought about."""

    parts: LoopParts
    control: Control
    ask: Ask
    to: Address
    session: Session
    told: str = ""


Handler = Callable[[CommandContext, str], Awaitable[Reply | PassOn]]


@dataclass(frozen=True, slots=True)
class Command:
    """`/name`. `usage` is what may be typed behind it."""

    name: str
    help: str
    handler: Handler = field(repr=False)
    usage: str = ""
    aliases: tuple[str, ...] = ()
    owner_only: bool = False


@dataclass(frozen=True, slots=True)
class Called:
    command: Command
    args: str


class CommandRegistry:
    """The commands that there are, by name."""

    def __init__(self, commands: Iterable[Command] = ()) -> None:
        self._by_name: dict[str, Command] = {}
        for command in commands:
            self.register(command)

    def register(self, command: Command) -> None:
        for name in (command.name, *command.aliases):
            if name in self._by_name:
                raise ValueError(f"there is a command /{name} already")
            self._by_name[name] = command

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._by_name))

    @property
    def listed(self) -> tuple[Command, ...]:
        return tuple(sorted(set(self._by_name.values()), key=lambda command: command.name))

    def called(self, text: str) -> Called | None:
        """The command that a message is; a path, or a word that names none, is no command."""
        match = _WRITTEN.fullmatch(text)
        command = None if match is None else self._by_name.get(match[1].lower())
        if match is None or command is None:
            return None
        return Called(command, (match[2] or "").strip())

    async def run(self, context: CommandContext, called: Called) -> Reply | PassOn:
        if called.command.owner_only and not context.ask.owner:
            raise Forbidden(f"/{called.command.name} is for the owner alone", code="owner_only")
        return await called.command.handler(context, called.args)
