"""Runs on a stream without a terminal's arts: words to one stream, what goes on to the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

import click

from holdfast.cli.chat.events import (
    Again,
    End,
    Happening,
    Heard,
    NeedsApproval,
    Reading,
    Tool,
    Words,
    WordsEnd,
)
from holdfast.cli.chat.interrupts import Interrupts
from holdfast.cli.chat.line import Decision, Told
from holdfast.cli.chat.safe import exact, safe
from holdfast.cli.chat.talk import Talk
from holdfast.errors import HoldfastError

ANSWERS: Final[dict[str, Decision]] = {
    "y": "approve",
    "yes": "approve",
    "n": "deny",
    "no": "deny",
    "a": "allow",
    "always": "allow",
}
QUESTION: Final = "Let it run? y once, n no, a always"
NOT_ALWAYS: Final = "Answer y or n; `holdfast approvals allow` takes a pattern."
ONLY_ONCE: Final = "Answer y or n."
_LOOK_SECONDS: Final = 0.2
_WIDTH: Final = 110

Decide = Callable[[Told], Decision | None]


class Plain:
    """Shows one run. `words` is whether the reply is written as it comes; `decide` is who is asked."""

    def __init__(self, *, words: bool, decide: Decide) -> None:
        self._words = words
        self._decide = decide

    def follow(self, talk: Talk, run_id: str, *, seconds: float | None = None) -> End:
        """Show a run to its end. Ctrl-C, or the end of its time, stops it; then the end is awaited too."""
        until = None if seconds is None else time.monotonic() + seconds
        reading = Reading()
        stopped = ""
        with Interrupts() as interrupts, talk.follow(run_id) as feed:
            while True:
                event = feed.next(_LOOK_SECONDS)
                for happening in () if event is None else reading.read(event):
                    if isinstance(happening, End):
                        return _stopped(happening, stopped)
                    self._show(talk, happening, interrupts)
                late = until is not None and time.monotonic() > until
                if not stopped and (late or interrupts.pressed):
                    stopped = f"there was no reply within {seconds:g} seconds" if late else "interrupted"
                    talk.cancel(run_id)

    def _show(self, talk: Talk, happening: Happening, interrupts: Interrupts) -> None:
        match happening:
            case Words(text) if self._words:
                click.echo(safe(text), nl=False)
                sys.stdout.flush()
            case WordsEnd() if self._words:
                click.echo()
            case Again(reason) if self._words:
                click.echo()
                aside(f"… {reason}; it begins again")
            case Tool() as tool if tool.phase != "progress":
                aside(tool_line(tool))
            case Heard(text):
                aside(f"↳ {text}")
            case NeedsApproval() as needed:
                self._approve(talk, needed, interrupts)

    def _approve(self, talk: Talk, needed: NeedsApproval, interrupts: Interrupts) -> None:
        """Ask who is there until it is decided; where nobody is, say how to decide from elsewhere."""
        id_ = needed.approval_id
        approval = talk.approval(id_)
        if approval["status"] == "pending":
            for line in approval_lines(approval):
                click.echo(line, err=True)
        while approval["status"] == "pending":
            decision: Decision | None = None
            with interrupts.raising():
                decision = self._decide(approval)
            if decision is None:
                click.echo(f"Decide with: holdfast approvals approve {id_}   (or deny)", err=True)
                return
            approval, said = decided(talk, approval, decision)
            aside(said)


def decided(talk: Talk, approval: Told, decision: Decision) -> tuple[Told, str]:
    """The approval after an answer, and what to say; it still waits if the answer could not be taken."""
    id_ = str(approval["id"])
    try:
        after = talk.decide(id_, decision)
        return after, str(after["status"])
    except HoldfastError as error:
        hint = "" if decision != "allow" else ONLY_ONCE if error.code == "not_always" else NOT_ALWAYS
        return talk.approval(id_), f"{error.message}. {hint}".rstrip()


def aside(text: str) -> None:
    """A line beside the conversation."""
    click.secho(safe(text), dim=True, err=True)


def tool_line(tool: Tool, width: int = _WIDTH) -> str:
    """A call, or what came of it, on one line of that width."""
    if tool.phase == "start":
        return clipped(f"· {tool.name}  {tool.label}".rstrip(), width)
    mark = "✗" if tool.failed else "✓"
    return clipped(f"{mark} {tool.name}  {tool.text}".rstrip(), width)


def approval_lines(approval: Told) -> list[str]:
    """What is to be decided on, to the letter."""
    command = exact(str(approval["command"])).splitlines() or [""]
    return [
        f"{approval['tool']} asks to run:",
        *(f"    {line}" for line in command),
        f"  ({exact(str(approval['reason']))})",
        *([f"  (only once: {exact(str(once))})"] if (once := approval.get("whyNotAlways")) else []),
    ]


def clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(1, width - 1)] + "…"


def _stopped(end: End, why: str) -> End:
    """A run that was stopped from here is told with the reason; one that made it all the same is as it is."""
    if not why or end.ok:
        return end
    return End(end.status, end.model, end.usage, error=why)
