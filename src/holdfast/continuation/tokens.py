"""Elections in a model's last words, for those without tools: `CONTINUE_WORK` and `[[CONTINUE_DELEGATE: …]]`.

A token counts only as the very last thing of a reply, standing alone: not in code, not in a quotation. One
that is not well-formed is no token: it stays in the text, where someone can see it. The same holds for one
that stood in data which the model was shown: it repeats what others wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, cast, get_args

from holdfast.context import ShownData, plain
from holdfast.continuation.record import Fanout, Mode
from holdfast.errors import InvalidInput
from holdfast.keys import parse_key
from holdfast.traces import is_traceparent

MAX_TASK: Final = 4_096
MAX_TARGETS: Final = 50
_MOST_SECONDS: Final = 10**9

_WORD: Final = "CONTINUE_WORK"
_OPEN: Final = re.compile(r"\[\[\s*CONTINUE_DELEGATE:")
_WORK: Final = re.compile(r"(?<!\S)CONTINUE_WORK(?::([0-9]+))?\Z")
_CODE: Final = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_DELAY: Final = re.compile(r"\s\+([0-9]+)s\Z")
_MODES: Final = frozenset(get_args(Mode))
_FANOUTS: Final = frozenset(get_args(Fanout))


@dataclass(frozen=True, slots=True)
class WorkToken:
    """Another turn, after so many milliseconds; None: after the default."""

    delay_ms: int | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class DelegateToken:
    task: str
    delay_ms: int | None = None
    mode: Mode = "normal"
    targets: tuple[str, ...] = ()
    fanout: Fanout | None = None
    model: str | None = None
    traceparent: str | None = None


Token = WorkToken | DelegateToken


@dataclass(frozen=True, slots=True)
class Parsed:
    """The text without its token, and the token, if there was one."""

    text: str
    token: Token | None = None


class _Invalid(Exception):
    """A directive that cannot be meant: then the whole token is none."""


def parse(text: str) -> Parsed:
    """What a reply elects at its end. Without a token the text comes back as it was."""
    whole = text.rstrip()
    if whole.endswith("]]"):
        return _delegate(text, whole)
    found = _WORK.search(whole, max(0, whole.rfind(_WORD)))
    if found is None or not _is_alone(whole, found.start()):
        return Parsed(text)
    return Parsed(whole[: found.start()].rstrip(), WorkToken(_ms(found[1])))


def is_quoted(token: Token, shown: ShownData) -> bool:
    """Whether a token repeats data that the model was shown. A task of one word is too little to tell by
    itself: that counts only where it stood as the task of a token."""
    if isinstance(token, WorkToken):
        return shown.has_word(_WORD, kept=True)
    if len(plain(token.task).split()) > 1 and shown.has_text(token.task):
        return True
    return shown.has_form(f"CONTINUE_DELEGATE: {token.task}")


def _is_alone(whole: str, start: int) -> bool:
    """Whether what begins here is said, not shown: code and quotations show."""
    before = whole[:start]
    line = before.rpartition("\n")[2]
    shown = line.lstrip().startswith(">") or (not line.strip() and line.expandtabs(4).startswith("    "))
    in_block = len(_CODE.findall(before)) % 2 == 1
    return not (shown or in_block or line.count("`") % 2)


def _delegate(text: str, whole: str) -> Parsed:
    """The last marker that reaches to the end without another closing between."""
    closed = whole.rfind("]]", 0, len(whole) - 1)
    openings = list(_OPEN.finditer(whole, 0 if closed < 0 else closed + 2))
    if not openings:
        return Parsed(text)
    opened = openings[-1]
    if whole[: opened.start()][-1:].strip() or not _is_alone(whole, opened.start()):
        return Parsed(text)
    try:
        token = _read(whole[opened.end() : -2].strip())
    except _Invalid:
        return Parsed(text)
    return Parsed(text) if token is None else Parsed(whole[: opened.start()].rstrip(), token)


def _read(body: str) -> DelegateToken | None:
    """Directives are taken from the right until one is not known; that one belongs to the task."""
    parts = body.split("|")
    token, seen = DelegateToken(""), set[str]()
    while len(parts) > 1:
        name, known = _directive(token, parts[-1].strip())
        if known is None:
            break
        if name in seen:
            raise _Invalid
        seen.add(name)
        token = known
        parts.pop()
    if token.fanout is not None and token.targets:
        raise _Invalid
    task = "|".join(parts).strip()
    late = _DELAY.search(task)
    if late is not None:
        token, task = replace(token, delay_ms=_ms(late[1])), task[: late.start()].rstrip()
    return replace(token, task=task[:MAX_TASK]) if task else None


def _directive(token: DelegateToken, word: str) -> tuple[str, DelegateToken | None]:
    if word in _MODES:
        return "mode", replace(token, mode=cast("Mode", word))
    name, equals, value = word.partition("=")
    value = value.strip()
    if not equals or name not in ("target", "targets", "fanout", "model", "traceparent"):
        return "", None
    if not value:
        raise _Invalid
    match name:
        case "target" | "targets":
            keys = [value] if name == "target" else value.split(",")
            return "target", replace(token, targets=_keys(keys))
        case "fanout" if value in _FANOUTS:
            return name, replace(token, fanout=cast("Fanout", value))
        case "model":
            return name, replace(token, model=value)
        case "traceparent" if is_traceparent(value):
            return name, replace(token, traceparent=value)
    raise _Invalid


def _keys(keys: list[str]) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(key.strip() for key in keys))
    if len(named) > MAX_TARGETS:
        raise _Invalid
    try:
        for key in named:
            parse_key(key)
    except InvalidInput:
        raise _Invalid from None
    return named


def _ms(digits: str | None) -> int | None:
    if digits is None:
        return None
    seconds = _MOST_SECONDS if len(digits) > 10 else min(int(digits), _MOST_SECONDS)
    return seconds * 1000
