"""What of a reply is said on a channel, and what is held back until it is sure that it is no silent word.

A reply may turn out to be none, or to end in a word for that (`NO_REPLY`, `HEARTBEAT_OK`). What could become
one is held back until it is sure. Elections at its end never come here: the run does not tell them.

A turn may be begun anew after a crash, and a model may begin its answer anew; what was sent stays sent. The
new words are compared with it: where they go on from it, the rest is sent; where they do not, a short note
says so and all of them are sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from holdfast.agents.heartbeat.rules import HEARTBEAT_OK, NO_REPLY, understood
from holdfast.channels.chunking import Chunk, Fence, Limits, chunks, next_chunk
from holdfast.context import is_silent

Sure = Literal["speaks", "silent", "unsure"]

_SILENT: Final = (NO_REPLY, HEARTBEAT_OK)
MARKS: Final = " \t\r\n`*_~\"'.,:;!?>()[]-–—"
_LAST_WORD: Final = re.compile(r"[A-Z][A-Z_]*\Z")
_LONGEST_WORD: Final = 40
_BEFORE: Final = " \t\r\n`*_~\"'([>-–—"


def begins_silent(text: str) -> Sure:
    """Whether a reply that begins like this is one for people."""
    bare = text.lstrip(MARKS)
    if not bare:
        return "unsure"
    word = re.split(r"\s", bare, maxsplit=1)[0]
    whole = len(word) < len(bare)
    plain = word.rstrip(MARKS)
    if plain in _SILENT:
        return "silent" if whole else "unsure"
    return "unsure" if not whole and any(w.startswith(plain) for w in _SILENT) else "speaks"


def shown_end(text: str) -> int:
    """Up to where a text may be shown while more of it may come; 0 while that is nothing but marks."""
    shown = text[: _before_word(text)]
    return len(shown) if shown.strip(MARKS) else 0


def spoken_part(text: str) -> str:
    """A whole text without words for the runtime's ear; empty if it is nothing for people."""
    if is_silent(text):
        return ""
    if begins_silent(f"{text} ") == "silent":
        text = understood(text, 0).text
    while (at := _silent_end(text)) is not None:
        text = text[:at].rstrip()
    return text if text.strip(MARKS) else ""


def _silent_end(text: str) -> int | None:
    """Where a word for nothing begins that the text ends with."""
    bare = text.rstrip(MARKS)
    for word in _SILENT:
        if bare.endswith(word) and not bare[: -len(word)][-1:].isalnum():
            return len(bare[: -len(word)].rstrip(_BEFORE))
    return None


def _before_word(text: str) -> int:
    bare = text.rstrip(MARKS)
    last = _LAST_WORD.search(bare, max(0, len(bare) - _LONGEST_WORD))
    if last is None or not any(word.startswith(last[0]) for word in _SILENT):
        return len(text)
    at = len(bare[: last.start()].rstrip(_BEFORE))
    while (before := _silent_end(text[:at])) is not None:
        at = before
    return at


ANEW: Final = "(I was interrupted and begin my reply again.)"


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a message was sent: its own text up to there, and the code fence that was open.

    A `closed` one is wholly sent, and what comes next is another message.
    """

    said: str = ""
    fence: Fence | None = None
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One message to send, and how far that brings it; a step without text only moves the mark."""

    text: str
    mark: Mark


@dataclass(slots=True)
class Speech:
    """The message that is being written, and how far it was sent."""

    limits: Limits
    mark: Mark = field(default_factory=Mark)
    text: str = ""

    def begin(self) -> None:
        """Another message follows; one that was not wholly sent is said again now."""
        self.text = ""
        if self.mark.closed:
            self.mark = Mark()

    def ready(self, *, idle: bool = False) -> list[Step]:
        """What can be sent now."""
        if begins_silent(self.text) != "speaks":
            return []
        end = shown_end(self.text)
        if end < len(self.mark.said):
            return []
        steps = self._taken_up()
        while chunk := next_chunk(self._left(end), self.limits, self.mark.fence, idle=idle):
            steps.append(self._step(chunk))
        return _joined(steps)

    def close(self) -> list[Step]:
        """All that is left of a message that is not the turn's last."""
        shown = spoken_part(self.text)
        if not shown.strip():
            return self._broken_off()
        self.text = shown
        steps = self._taken_up()
        steps += [self._step(chunk) for chunk in chunks(self._left(len(shown)), self.limits, self.mark.fence)]
        self.mark = Mark(self.mark.said, None, closed=True)
        return _joined([*steps, Step("", self.mark)])

    def _broken_off(self) -> list[Step]:
        """A message that turned out to be none ends where it was."""
        if not self.mark.said or self.mark.closed:
            return []
        self.mark = Mark(self.mark.said, None, closed=True)
        return [Step("", self.mark)]

    def _left(self, end: int) -> str:
        return self.text[len(self.mark.said) : end]

    def _taken_up(self) -> list[Step]:
        """Go on from what was sent; if this is not how it goes on, begin again, and say so."""
        if self.text.startswith(self.mark.said):
            return []
        if self.text.rstrip() == self.mark.said.rstrip():
            self.mark = Mark(self.text, self.mark.fence)
            return []
        self.mark = Mark()
        return [Step(ANEW, self.mark)]

    def _step(self, chunk: Chunk) -> Step:
        self.mark = Mark(self.mark.said + chunk.raw, chunk.fence)
        return Step(chunk.text, self.mark)


def left_of_turn(earlier: Sequence[str], last: str, mark: Mark, limits: Limits) -> list[str]:
    """What of all that a turn said is still to be sent: a turn may end before its blocks were made."""
    said = mark.said.strip()
    heard = [*earlier, *(() if mark.closed else (last,))]
    places = [n for n, text in enumerate(heard) if text.strip().startswith(said)]
    if not said:
        return [piece for text in (*earlier, last) for piece in remaining(text, mark, limits)]
    if not places or places[-1] == len(earlier):
        return remaining(last, mark, limits)
    at = places[-1]
    pieces = [] if mark.closed else remaining(earlier[at], mark, limits)
    return pieces + [
        piece for text in (*earlier[at + 1 :], last) for piece in remaining(text, Mark(), limits)
    ]


def remaining(text: str, mark: Mark, limits: Limits) -> list[str]:
    """What of a turn's last words is still to be sent, once they are settled."""
    whole = spoken_part(text)
    if not whole.strip() or (mark.closed and whole.strip() == mark.said.strip()):
        return []
    if mark.closed or not mark.said:
        return _texts(whole, limits, None)
    if whole.startswith(mark.said):
        return _texts(whole[len(mark.said) :], limits, mark.fence)
    if whole.rstrip(MARKS) == mark.said.rstrip(MARKS):
        return []
    return [ANEW, *_texts(whole, limits, None)]


def _texts(text: str, limits: Limits, fence: Fence | None) -> list[str]:
    return [chunk.text for chunk in chunks(text, limits, fence) if chunk.text]


def _joined(steps: list[Step]) -> list[Step]:
    """Steps that send nothing are one with the step before them; one alone at the beginning stays."""
    made: list[Step] = []
    for step in steps:
        if made and not step.text:
            made[-1] = Step(made[-1].text, step.mark)
        else:
            made.append(step)
    return made
