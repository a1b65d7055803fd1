"""How many tokens a text will cost, estimated by what it is made of."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final

from holdfast.context.messages import AssistantMessage, Message, ToolResult, UserMessage

PER_MESSAGE: Final = 4
PER_IMAGE: Final = 1600
_LONG: Final = 1_000

# Tokens by what a text is made of, fitted to the counts of cl100k (tests/context/token_counts.json): a
# tokenizer begins anew at every change of class, so what changes often costs most. What a model reports
# corrects the rest.
_LETTER: Final = 0.012
_WORD: Final = 0.85
_WORD_AFTER_DIGIT: Final = 1.2
_HUMP: Final = 0.11
_FALL: Final = 1.3
_CAPITAL: Final = 0.05
_DIGIT: Final = 0.41
_NUMBER: Final = 0.33
_NUMBER_AFTER_BLANK: Final = 1.0
_MARK: Final = 0.59
_INDENT: Final = 0.51
_LINE: Final = 0.5
_RULER: Final = 0.95
_BASE64: Final = 1.4

# Tokens of one letter, by script.
_SCRIPTS: Final = (
    (re.compile("[\u0900-\u097f]"), 1.2),
    (re.compile("[\u0980-\u0dff]"), 1.45),
    (re.compile("[\u0e00-\u0fff]"), 0.97),
    (re.compile("[\u0590-\u05ff\u0370-\u03ff]"), 1.06),
    (re.compile("[\u0600-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff]"), 0.8),
    (re.compile("[\u0400-\u052f]"), 0.47),
    (
        re.compile(
            "[\u1100-\u11ff\u2e80-\u30ff\u3100-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
            "\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]"
        ),
        1.02,
    ),
    (re.compile("[\U00010000-\U0010ffff]"), 2.5),
    (re.compile("[\u0080-\u024f\u1e00-\u1eff]"), 0.8),
)
_OTHER_SCRIPT: Final = 1.5
_ACCENTED: Final = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")
_ACCENTED_LETTER: Final = 0.07
_ACCENT_REACH: Final = 40

_DATA_URL: Final = re.compile(r"data:(?:image|audio|video)/[\w.+-]+;base64,[A-Za-z0-9+/=]{64,}")
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
_RULED: Final = re.compile(rb"([^\w\s])\1{3,}")


def _classes() -> bytes:
    """Letters, capitals, digits, blanks and ends of lines by a letter of their own; all else is a mark."""
    table = bytearray(b"p" * 256)
    named = {"l": ascii_lowercase, "u": ascii_uppercase, "d": digits, "s": " \t", "n": "\r\n"}
    for name, members in named.items():
        for member in members:
            table[ord(member)] = ord(name)
    return bytes(table)


_CLASSES: Final = _classes()


@dataclass(frozen=True, slots=True)
class Estimator:
    """Estimates for one model: the general estimate times what its reported usage has taught us."""

    factor: float = 1.0

    def text(self, text: str) -> int:
        return math.ceil(raw_tokens(text) * self.factor)

    def message(self, message: Message) -> int:
        return math.ceil(message_tokens(message) * self.factor)

    def messages(self, messages: Iterable[Message]) -> int:
        raw = sum(m.mark.tokens if m.mark is not None else message_tokens(m) for m in messages)
        return math.ceil(raw * self.factor)


def message_tokens(message: Message) -> int:
    """The uncalibrated estimate of a whole message; kept with its mark, so counted once."""
    if message.mark is not None:
        return message.mark.tokens
    total = PER_MESSAGE + raw_tokens(message.text)
    if isinstance(message, AssistantMessage):
        for call in message.calls:
            total += PER_MESSAGE + raw_tokens(call.name + json.dumps(call.arguments, ensure_ascii=False))
    if isinstance(message, ToolResult):
        total += PER_MESSAGE
    if isinstance(message, (UserMessage, ToolResult)):
        total += PER_IMAGE * len(message.images)
    return total


def raw_tokens(text: str) -> int:
    """The uncalibrated estimate of a text; long ones (tools, workspace files) come again with every call."""
    if not text:
        return 0
    return _long(text) if len(text) >= _LONG else _counted(text)


def _counted(text: str) -> int:
    total = 0.0
    if len(text) >= 40:
        text, encoded = _without_encoded(text)
        total += encoded
    if not text.isascii():
        text, foreign = _without_foreign(text)
        total += foreign
    return max(1, math.ceil(total + _ascii(text.encode("ascii", "ignore"))))


_long = lru_cache(maxsize=64)(_counted)


def _without_encoded(text: str) -> tuple[str, float]:
    """Pictures cost what pictures cost, and runs of base64 far more than words do."""
    text, pictures = _DATA_URL.subn("", text)
    cost = float(PER_IMAGE * pictures)
    for run in _ENCODED.findall(text):
        if _looks_encoded(run):
            cost += len(run) / _BASE64
            text = text.replace(run, "", 1)
    return text, cost


def _looks_encoded(run: str) -> bool:
    """A ruler of dashes, a hash or a long name is no base64: that has letters of both sizes and digits."""
    kinds = (any(map(kind, run)) for kind in (str.islower, str.isupper, str.isdigit))
    return len(set(run)) >= 12 and all(kinds)


def _without_foreign(text: str) -> tuple[str, float]:
    """By script; words with accents are of languages whose plain letters, too, make less of a token each."""
    accents = len(_ACCENTED.findall(text))
    cost = min(len(text), accents * _ACCENT_REACH) * _ACCENTED_LETTER
    for script, tokens in _SCRIPTS:
        text, count = script.subn("", text)
        cost += count * tokens
    return text, cost + (len(text) - len(text.encode("ascii", "ignore"))) * _OTHER_SCRIPT


def _ascii(data: bytes) -> float:
    """By letters, and by how often one class of characters follows on another."""
    data, rulers = _RULED.subn(b"", data)
    count = (b"n" + data.translate(_CLASSES) + b"n").count
    capitals = count(b"u")
    words = sum(map(count, (b"sl", b"su", b"nl", b"nu", b"pl", b"pu")))
    numbers = sum(map(count, (b"ld", b"ud", b"sd", b"nd", b"pd")))
    return (
        (count(b"l") + capitals) * _LETTER
        + words * _WORD
        + (count(b"dl") + count(b"du")) * _WORD_AFTER_DIGIT
        + count(b"lu") * _HUMP
        + count(b"ul") * _FALL
        + capitals * _CAPITAL
        + count(b"d") * _DIGIT
        + numbers * _NUMBER
        + count(b"sd") * _NUMBER_AFTER_BLANK
        + count(b"p") * _MARK
        + count(b"ss") * _INDENT
        + (count(b"n") - 2) * _LINE
        + rulers * _RULER
    )
