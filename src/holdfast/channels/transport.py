"""What a channel's adapter does for Holdfast. An adapter knows its service; it decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.channels.surface import Surface
from holdfast.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a service can do, and how many characters a message of it may have.

    `most_file_bytes` is how large a file may be that is sent; none may where it is 0. `blocks` is whether a
    reply may come as several messages; `finds` that the service can be asked whether a message of ours
    arrived, `reads` for what was said on a surface, `types` that it shows that an answer is being written.
    """

    most_chars: int = 4_000
    edits: bool = False
    reacts: bool = False
    threads: bool = False
    most_file_bytes: int = 0
    blocks: bool = True
    finds: bool = False
    reads: bool = False
    types: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A file with a message, whole."""

    name: str
    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Said:
    """One message as a service has kept it; `at` is in milliseconds."""

    who: str
    text: str
    at: int
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Button:
    """One choice under a message; `value` is what a press of it brings back, in at most 64 bytes."""

    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Words for a surface. The same `key` again is the same message: a service that can tells them apart."""

    key: str
    surface: Surface
    text: str
    reply_to: str | None = None
    files: tuple[File, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def buttons(self) -> tuple[Button, ...]:
        """What people may choose, where the message asks them something."""
        about = self.meta.get("about") or {}
        named = f"{about.get('kind')}:{about.get('id')}"
        return tuple(Button(one["label"], f"{named}:{one['id']}") for one in self.meta.get("choices") or ())


class SendFailed(Unavailable):
    """A service did not take a message. `final`: it never will. `wait_ms`: not before so long. `unsure`: it
    may have taken it all the same, and is asked before the message is sent again, where it can be."""

    code = "send_failed"

    def __init__(
        self, message: str, *, final: bool = False, wait_ms: int | None = None, unsure: bool = False
    ) -> None:
        super().__init__(message)
        self.final = final
        self.wait_ms = wait_ms
        self.unsure = unsure


class Channel(Protocol):
    """One connected channel. Every method may raise `SendFailed`; those from `edit` on are called only where
    `abilities` says so."""

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

    async def find(self, message: Message, known: Sequence[str]) -> str | None:
        """The id of a message that was perhaps taken before. `known` are ids that it has not: the first is
        of one that stands before it, where there is one."""
        ...

    async def history(self, surface: Surface, limit: int) -> Sequence[Said]:
        """What was said on a surface last, oldest first."""
        ...

    async def typing(self, surface: Surface) -> None:
        """Show for some seconds that an answer is being written."""
        ...


class BaseChannel:
    """What a service cannot do, said as a failure: adapters of services that can less begin from here."""

    name: str = ""

    async def edit(self, message_id: str, message: Message) -> None:
        raise self._cannot("change messages")

    async def react(self, message_id: str, message: Message) -> None:
        raise self._cannot("put signs to messages")

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        raise self._cannot("open threads")

    async def find(self, message: Message, known: Sequence[str]) -> str | None:
        return None

    async def history(self, surface: Surface, limit: int) -> Sequence[Said]:
        return ()

    async def typing(self, surface: Surface) -> None:
        return None

    def _cannot(self, what: str) -> SendFailed:
        return SendFailed(f"channel {self.name} cannot {what}", final=True)
