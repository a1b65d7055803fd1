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
from holdfast.continuation.state import Fanout, Mode
from holdfast.errors import InvalidInput
from holdfast.keys import parse_key
from holdfast.traces import is_traceparent

MAX_TASK: Final = 4_096
MAX_TARGETS: Final = 50
MAX_TOKEN: Final = 16_384
_MOST_SECONDS: Final = 10**9

_WORD: Final = "CONTINUE_WORK"
_NAME: Final = "CONTINUE_DELEGATE"
_OPEN: Final = re.compile(rf"\[\[\s*{_NAME}:")
_OPEN_SO_FAR: Final = re.compile(
    rf"\[(?:\[\s*(?:{'|'.join(_NAME[:end] for end in range(len(_NAME), 0, -1))})?)?"
)
_WORK: Final = re.compile(rf"{_WORD}(?::([0-9]+))?")
_CODE: Final = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
# A session key may have a bar of its own: `agent:main:main|thread:7`.
_BAR: Final = re.compile(r"\|(?!(?<=\S\|)thread:\S)")
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
    start = _last_word(whole)
    found = _WORK.fullmatch(whole, start)
    if found is None or not _may_stand(whole, start):
        return Parsed(text)
    return Parsed(whole[:start].rstrip(), WorkToken(_ms(found[1])))


def may_begin(text: str) -> int:
    """From where a reply that so far is this text may turn out to end in a token; its length if nowhere.

    Space before a token goes with it, so space at the end waits too. Promised: what `parse` leaves of a reply
    begins with what every beginning of that reply has before this place.
    """
    whole = text.rstrip()
    starts = (_work_so_far(text, whole), _opened(whole), _opening_so_far(text))
    found = [start for start in starts if start is not None and _may_stand(whole, start)]
    return len(whole[: min(found)].rstrip()) if found else len(whole)


def _work_so_far(text: str, whole: str) -> int | None:
    """Where the last word begins, if it is the token for work, or the beginning of one and may still grow."""
    start = _last_word(whole)
    grows = whole != "" and len(text) == len(whole) and f"{_WORD}:".startswith(whole[start:])
    return start if grows or _WORK.fullmatch(whole, start) else None


def _opened(whole: str) -> int | None:
    """Where the last delegate's marker begins that is open, or closed by the very end."""
    closed = whole.rfind("]]", 0, len(whole) - whole.endswith("]]"))
    openings = list(_OPEN.finditer(whole, max(0, closed + 2 if closed >= 0 else 0, len(whole) - MAX_TOKEN)))
    return openings[-1].start() if openings else None


def _opening_so_far(text: str) -> int | None:
    """Where a delegate's marker begins of which more has to come."""
    last = text.rfind("[", max(0, len(text) - MAX_TOKEN))
    start = last - (text[last - 1 : last] == "[")
    return start if last >= 0 and _OPEN_SO_FAR.fullmatch(text, start) else None


def _last_word(whole: str) -> int:
    return len(whole) - len(whole.rsplit(None, 1)[-1]) if whole else 0


def is_quoted(token: Token, shown: ShownData) -> bool:
    """Whether a token repeats data that the model was shown. A task of one word is too little to tell by
    itself: that counts only where it stood as the task of a token."""
    if isinstance(token, WorkToken):
        return shown.has_word(_WORD, kept=True)
    if len(plain(token.task).split()) > 1 and shown.has_text(token.task):
        return True
    return shown.has_form(f"CONTINUE_DELEGATE: {token.task}")


def _may_stand(whole: str, start: int) -> bool:
    """Whether a token may reach from here to the end: a word of its own, not too long, and alone."""
    begins = start == 0 or whole[start - 1].isspace()
    return begins and len(whole) - start <= MAX_TOKEN and _is_alone(whole, start)


def _is_alone(whole: str, start: int) -> bool:
    """Whether what begins here is said, not shown: code and quotations show."""
    before = whole[:start]
    line = before.rpartition("\n")[2]
    shown = line.lstrip().startswith(">") or (not line.strip() and line.expandtabs(4).startswith("    "))
    in_block = len(_CODE.findall(before)) % 2 == 1
    return not (shown or in_block or line.count("`") % 2)


def _delegate(text: str, whole: str) -> Parsed:
    """The last marker that reaches to the end without another closing between."""
    start = _opened(whole)
    if start is None or not _may_stand(whole, start):
        return Parsed(text)
    body = whole[start:-2].partition(":")[2]
    try:
        token = _read(body.strip())
    except _Invalid:
        return Parsed(text)
    return Parsed(text) if token is None else Parsed(whole[:start].rstrip(), token)


def _read(body: str) -> DelegateToken | None:
    """Directives are taken from the right until one is not known; that one belongs to the task."""
    parts = _BAR.split(body)
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
