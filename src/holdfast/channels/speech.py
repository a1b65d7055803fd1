"""What of a turn's words is sent when, while they are written. Pure: what was sent and what is said decide.

A turn may be begun anew after a crash, and a model may begin its answer anew; what was sent stays sent. The
new words are compared with it: where they go on from it, the rest is sent; where they do not, a short note
says so and all of them are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.channels import holding
from holdfast.channels.chunking import Chunk, Fence, Limits, chunks, next_chunk

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
        if holding.begins(self.text) != "speaks":
            return []
        end = holding.shown_end(self.text)
        if end < len(self.mark.said):
            return []
        steps = self._taken_up()
        while chunk := next_chunk(self._left(end), self.limits, self.mark.fence, idle=idle):
            steps.append(self._step(chunk))
        return _joined(steps)

    def close(self) -> list[Step]:
        """All that is left of a message that is not the turn's last."""
        shown = holding.spoken(self.text)
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
    whole = holding.spoken(text)
    if not whole.strip() or (mark.closed and whole.strip() == mark.said.strip()):
        return []
    if mark.closed or not mark.said:
        return _texts(whole, limits, None)
    if whole.startswith(mark.said):
        return _texts(whole[len(mark.said) :], limits, mark.fence)
    if whole.rstrip(holding.MARKS) == mark.said.rstrip(holding.MARKS):
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
