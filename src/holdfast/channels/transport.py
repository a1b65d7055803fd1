"""What a channel's adapter does for Holdfast. An adapter knows its service; it decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.channels.surface import Surface
from holdfast.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a service can do, and how many characters a message of it may have."""

    most_chars: int = 4_000
    edits: bool = False
    reacts: bool = False
    threads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Words for a surface. The same `key` again is the same message: a service that can tells them apart."""

    key: str
    surface: Surface
    text: str
    reply_to: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)


class SendFailed(Unavailable):
    """A service did not take a message. `final`: it never will. `wait_ms`: not before so long."""

    code = "send_failed"

    def __init__(self, message: str, *, final: bool = False, wait_ms: int | None = None) -> None:
        super().__init__(message)
        self.final = final
        self.wait_ms = wait_ms


class Channel(Protocol):
    """One connected channel. Every method may raise `SendFailed`."""

    @property
    def name(self) -> str: ...

    @property
    def abilities(self) -> Abilities: ...

    async def send(self, message: Message) -> str | None:
        """Send; gives the service's id for the message, if it tells one."""
        ...

    async def edit(self, message_id: str, message: Message) -> None:
        """Put other words in the place of those that were sent."""
        ...

    async def react(self, message_id: str, message: Message) -> None:
        """Answer a message with a sign, which is the text."""
        ...

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        """Open a thread, on a message if one is named; gives its id."""
        ...
