"""What a reply to a heartbeat means: that there is nothing to tell, or a report. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from holdfast.context import HEARTBEAT_OK, NO_REPLY, SILENT_WORDS

__all__ = ["HEARTBEAT_OK", "NO_REPLY", "Reply", "digest", "understood"]

_MARKS: Final = " \t\r\n`*_~\"'.,:;!?>()[]-–—"


@dataclass(frozen=True, slots=True)
class Reply:
    """`text` is the report without the word; empty where there is nothing to tell."""

    text: str

    @property
    def is_ack(self) -> bool:
        return not self.text


def understood(said: str, most: int) -> Reply:
    """A reply that begins or ends with the word and has at most `most` characters besides is no report."""
    rest = _without_last(_without_first(said))
    bare = rest.strip(_MARKS)
    if not bare or (rest != said and len(bare) <= most):
        return Reply("")
    return Reply(rest.strip())


def digest(text: str) -> str:
    """The same for texts that a person would call the same."""
    plain = " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split()) or text
    return hashlib.sha256(plain.encode()).hexdigest()[:32]


def _without_first(said: str) -> str:
    bare = said.lstrip(_MARKS)
    for word in SILENT_WORDS:
        if bare.startswith(word) and not bare[len(word) :][:1].isalnum():
            return bare[len(word) :].lstrip(_MARKS)
    return said


def _without_last(said: str) -> str:
    bare = said.rstrip(_MARKS)
    for word in SILENT_WORDS:
        if bare.endswith(word) and not bare[: -len(word)][-1:].isalnum():
            return bare[: -len(word)].rstrip(" \t\r\n`*_\"'([-–—")
    return said
