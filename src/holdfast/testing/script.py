"""What a scripted server is told to answer, and what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Trouble = Literal[
    "unauthorised",
    "no_credit",
    "rate_limited",
    "overloaded",
    "too_long",
    "not_found",
    "broken",
    "bad_request",
]


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens as the server says they were; `input` counts the cached parts too."""

    input: int = 10
    output: int = 5
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True)
class Say:
    """Words, in `chunks` pieces with `pause` seconds between them. `finish` is the protocol's own word."""

    text: str
    thinking: str = ""
    used: Used = field(default_factory=Used)
    chunks: int = 3
    pause: float = 0.0
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call. Arguments that are text are sent as they stand, however broken."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None
    text: str = ""
    thinking: str = ""
    used: Used = field(default_factory=Used)


@dataclass(frozen=True, slots=True, init=False)
class Calls:
    """Several tool calls in one answer, after some words or none."""

    calls: tuple[Call, ...]
    text: str
    thinking: str
    used: Used

    def __init__(self, *calls: Call, text: str = "", thinking: str = "", used: Used | None = None) -> None:
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "thinking", thinking)
        object.__setattr__(self, "used", used or Used())


@dataclass(frozen=True, slots=True)
class Fail:
    """An HTTP error in the protocol's own form; `body` replaces that form, sent as it stands."""

    status: int
    message: str = ""
    trouble: Trouble | None = None
    retry_after: float | str | None = None
    body: str | None = None


@dataclass(frozen=True, slots=True)
class Malformed:
    """An answer of status 200 that is not JSON; in a stream, after `text`."""

    text: str = ""
    payload: str = '{"choices": [{"delta": '


@dataclass(frozen=True, slots=True)
class CutOff:
    """An answer that breaks off after `text`: the connection dies, or, if `clean`, the body just ends."""

    text: str = ""
    clean: bool = False


@dataclass(frozen=True, slots=True)
class Stall:
    """An answer that falls silent after `text` and stays so until the client goes or the server closes.

    With `ping` the connection shows a sign of life every so many seconds, as proxies do, and no answer.
    """

    text: str = ""
    ping: float = 0.0


Turn: TypeAlias = Say | Call | Calls | Fail | Malformed | CutOff | Stall
Answerer: TypeAlias = Callable[["Asked"], Turn]
Script: TypeAlias = Sequence["Turn | Answerer"] | Answerer


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", ()))

    @property
    def tools(self) -> list[str]:
        """The names of the tools on offer."""
        return [str((t.get("function") or t).get("name")) for t in self.body.get("tools") or ()]

    @property
    def key(self) -> str:
        """The credential, however it was sent."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return self.headers.get("x-api-key") or bearer

    @property
    def last_text(self) -> str:
        """The text of the last message."""
        return text_of(self.messages[-1].get("content")) if self.messages else ""


def text_of(content: Any) -> str:
    """The words in a message's content, whether it is text or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(text_of(p.get("text") or p.get("content") or "") for p in parts if isinstance(p, dict))


def calls_of(turn: Call | Calls) -> Calls:
    return (
        turn
        if isinstance(turn, Calls)
        else Calls(turn, text=turn.text, thinking=turn.thinking, used=turn.used)
    )


def pieces(text: str, count: int) -> list[str]:
    """The text in at most `count` parts of about one size."""
    size = max(1, -(-len(text) // max(1, count)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def rate_limited(retry_after: float | str | None = None) -> Fail:
    return Fail(429, trouble="rate_limited", retry_after=retry_after)


def overloaded(retry_after: float | str | None = None) -> Fail:
    return Fail(0, trouble="overloaded", retry_after=retry_after)


def unauthorised() -> Fail:
    return Fail(401, trouble="unauthorised")


def no_credit() -> Fail:
    return Fail(402, trouble="no_credit")


def too_long(tokens: int = 250_000, limit: int = 128_000) -> Fail:
    """The prompt does not fit the window, in the protocol's own wording."""
    return Fail(400, f"{tokens}/{limit}", trouble="too_long")


def broken() -> Fail:
    return Fail(500, trouble="broken")


def cut_off(text: str = "", *, clean: bool = False) -> CutOff:
    return CutOff(text, clean)
