"""What a run's events come to for a reader: words, tool activity, approvals, the end. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

_MAIN: Final = ("command", "path", "query", "q", "url", "sessionKey", "name", "id", "text", "title")
_MOST_LABEL: Final = 400
_NO_REPLY: Final = "NO_REPLY"
_AROUND: Final = "`*_.\"':, \n"


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class WordsEnd:
    """A message is whole; the next words begin another."""


@dataclass(frozen=True, slots=True)
class Again:
    """The words of the message so far do not count: it begins anew."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tool:
    """`label` is the call on one line; `text` the first line of its result, or of its progress."""

    phase: Literal["start", "progress", "end"]
    call_id: str
    name: str
    label: str = ""
    text: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """A call waits for a person; `asked` is the approval as the run tells of it."""

    call_id: str
    asked: Mapping[str, Any]

    @property
    def approval_id(self) -> str:
        return str(self.asked.get("id"))


@dataclass(frozen=True, slots=True)
class InputReceived:
    """What was typed meanwhile reached the running turn."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """`status` is the turn's; `error` and `hint` say why it did not come to a reply."""

    status: str
    model: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "committed"


Happening: TypeAlias = Words | Thought | WordsEnd | Again | Tool | NeedsApproval | InputReceived | End


class Reading:
    """Reads one run's events in order. Words that were lost on the way are made up for from the whole, and
    those by which an agent says that it has nothing to say are not told."""

    def __init__(self) -> None:
        self._saying = ""
        self._shown = 0
        self._said_any = False
        self._labels: dict[str, str] = {}

    def read(self, event: Mapping[str, Any]) -> Iterator[Happening]:
        data: Mapping[str, Any] = event.get("data") or {}
        match event.get("stream"):
            case "assistant":
                yield from self._assistant(data)
            case "tool":
                yield from self._tool(data)
            case "lifecycle":
                yield from self._lifecycle(data)

    def _assistant(self, data: Mapping[str, Any]) -> Iterator[Happening]:
        match data.get("kind"):
            case "text":
                self._saying += str(data.get("delta", ""))
                yield from () if _may_be_silent(self._saying) else self._show()
            case "thinking":
                yield Thought(str(data.get("delta", "")))
            case "message":
                yield from self._whole(str(data.get("text") or ""))

    def _show(self) -> Iterator[Words]:
        rest, self._shown = self._saying[self._shown :], len(self._saying)
        self._said_any = self._said_any or bool(rest.strip())
        if rest:
            yield Words(rest)

    def _whole(self, text: str) -> Iterator[Happening]:
        if not text.startswith(self._saying[: self._shown]):
            yield Again("some of it was lost on the way")
            self._shown = 0
        self._saying = text
        if not _is_silent(text):
            yield from self._show()
        yield from self._end_words()

    def _end_words(self) -> Iterator[WordsEnd]:
        if self._saying[: self._shown].strip():
            yield WordsEnd()
        self._saying, self._shown = "", 0

    def _tool(self, data: Mapping[str, Any]) -> Iterator[Happening]:
        call, name, text = str(data.get("callId")), str(data.get("name")), str(data.get("text") or "")
        match data.get("phase"):
            case "start":
                self._labels[call] = label_of(text)
                yield Tool("start", call, name, self._labels[call])
            case "progress":
                asked = data.get("approval")
                if isinstance(asked, Mapping) and asked.get("status") == "pending":
                    yield NeedsApproval(call, asked)
                else:
                    yield Tool("progress", call, name, self._labels.get(call, ""), first_line(text))
            case "end":
                label, failed = self._labels.pop(call, ""), bool(data.get("isError"))
                yield Tool("end", call, name, label, first_line(text), failed)

    def _lifecycle(self, data: Mapping[str, Any]) -> Iterator[Happening]:
        match data.get("phase"):
            case "restarted":
                if self._shown:
                    yield Again(str(data.get("reason") or ""))
                self._saying, self._shown = "", 0
            case "steered":
                yield InputReceived(str(data.get("text") or ""))
            case "end" | "error":
                text = str(data.get("text") or "")
                if data.get("status") == "committed" and not self._said_any and not _is_silent(text):
                    self._saying = text
                    yield from self._show()
                yield from self._end_words()
                yield end_of(data)


def _may_be_silent(begun: str) -> bool:
    """Whether words that are not whole may turn out to be no reply."""
    head = begun.lstrip(_AROUND)
    return _NO_REPLY.startswith(head) or head.startswith(_NO_REPLY)


def _is_silent(text: str) -> bool:
    words = text.strip(_AROUND).split()
    return not text.strip() or (bool(words) and words[0].strip(_AROUND) == _NO_REPLY)


def end_of(data: Mapping[str, Any]) -> End:
    """From the last event of a run, or from its status."""
    return End(
        status=str(data.get("status") or "failed"),
        model=data.get("model"),
        usage=data.get("usage") or {},
        error=str(data.get("error") or ""),
        hint=_hint(data),
    )


def _hint(data: Mapping[str, Any]) -> str:
    hint = str(data.get("hint") or "")
    return hint or ("Go on with it: /resume." if data.get("resumable") else "")


def label_of(arguments: str) -> str:
    """A call's arguments on one line: its main one alone where there is one."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return one_line(arguments)
    if isinstance(given, dict):
        main = next((given[name] for name in _MAIN if isinstance(given.get(name), str)), None)
        if main is not None:
            return one_line(main)
        return "" if not given else one_line(arguments)
    return one_line(arguments)


def one_line(text: str) -> str:
    return " ".join(text.split())[:_MOST_LABEL]


def first_line(text: str) -> str:
    return one_line(next((line for line in text.splitlines() if line.strip()), ""))


def summary_of(end: End, seconds: float | None = None) -> str:
    """What a turn took, on one line."""
    used = end.usage
    parts = [end.model or ""]
    if used.get("inputTokens") or used.get("outputTokens"):
        parts.append(f"{int(used.get('inputTokens', 0)):,} in, {int(used.get('outputTokens', 0)):,} out")
    if used.get("cost"):
        parts.append(f"${float(used['cost']):.4f}")
    parts.append("" if seconds is None else f"{seconds:.1f} s")
    return " · ".join(part for part in parts if part)
