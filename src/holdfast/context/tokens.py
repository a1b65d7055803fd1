"""How many tokens a text will cost, estimated by what it is made of."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from holdfast.context.messages import AssistantMessage, Message, ToolResult, UserMessage

PER_MESSAGE: Final = 4
PER_IMAGE: Final = 1600
_LONG: Final = 1_000

# Characters that make one token, by class: rough figures, which each model's reported usage corrects.
_PLAIN: Final = 4.4
_SYMBOL: Final = 1.6
_DIGIT: Final = 2.2
_BASE64: Final = 1.45
_LATIN: Final = 2.6
_OTHER_SCRIPT: Final = 1.9
_CJK_TOKENS: Final = 1.1
_ASTRAL_TOKENS: Final = 2.0

_DIGITS: Final = b"0123456789"
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ \n\t\r"
_DATA_URL: Final = re.compile(r"data:(?:image|audio|video)/[\w.+-]+;base64,[A-Za-z0-9+/=]{64,}")
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/=_-]{160,}")
_WIDE: Final = re.compile(
    "[\u1100-\u11ff\u2e80-\u30ff\u3100-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]"
)
_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")
_ACCENTED: Final = re.compile("[\u0080-\u024f\u2010-\u2027\u1e00-\u1eff]")


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
    if len(text) >= 160:
        text, encoded = _without_encoded(text)
        total += encoded
    if not text.isascii():
        text, foreign = _without_foreign(text)
        total += foreign
    return max(1, math.ceil(total + _ascii(text.encode("ascii", "ignore"))))


_long = lru_cache(maxsize=64)(_counted)


def _without_encoded(text: str) -> tuple[str, float]:
    """Pictures cost what pictures cost, and long runs of base64 or hex far more than words do."""
    cost = 0.0
    text, pictures = _DATA_URL.subn("", text)
    cost += PER_IMAGE * pictures
    runs = [run for run in _ENCODED.findall(text) if _looks_encoded(run)]
    for run in runs:
        cost += len(run) / _BASE64
        text = text.replace(run, "", 1)
    return text, cost


def _looks_encoded(run: str) -> bool:
    """A ruler of dashes or one letter repeated is long, but not base64."""
    return len(set(run)) >= 12


def _without_foreign(text: str) -> tuple[str, float]:
    text, wide = _WIDE.subn("", text)
    text, beyond = _BEYOND.subn("", text)
    text, accented = _ACCENTED.subn("", text)
    rest = len(text) - len(text.encode("ascii", "ignore"))
    cost = wide * _CJK_TOKENS + beyond * _ASTRAL_TOKENS + accented / _LATIN + rest / _OTHER_SCRIPT
    return text, cost


def _ascii(data: bytes) -> float:
    digits = len(data) - len(data.translate(None, _DIGITS))
    letters = len(data) - len(data.translate(None, _LETTERS))
    symbols = len(data) - digits - letters
    return letters / _PLAIN + digits / _DIGIT + symbols / _SYMBOL
