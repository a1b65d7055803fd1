"""A conversation through pipes: a line in, a reply out."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING

import click

from holdfast.cli.chat.events import End
from holdfast.cli.chat.history import gathered
from holdfast.cli.chat.local import LEAVE, greeting, reply_of
from holdfast.cli.chat.plain import ANSWERS, QUESTION, Plain, aside
from holdfast.cli.chat.safe import safe
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.chat.line import About, Decision, Told
    from holdfast.cli.chat.talk import Talk


class Piped:
    """Each message waits for the reply to the one before."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._back: deque[str] = deque()
        self._plain = Plain(words=True, decide=self._decide)
        self.failed = False

    def greet(self, about: About) -> None:
        whom, model, hint = greeting(about)
        aside(f"{whom} · {model}")
        if hint:
            aside(hint)

    def converse(self) -> None:
        while (text := gathered(lambda _: self._line())) is not None:
            if text.strip().lower() in LEAVE:
                return
            if text.strip():
                self._turn(text)

    def _turn(self, text: str) -> None:
        try:
            told = self._talk.say(text)
            runs = [str(told["runId"])]
            if "told" in told:
                aside(str(told["told"]))
            if "reply" in told:
                click.echo(safe(reply_of(text, told)))
                runs = self._talk.resumed(text, told)
            for run_id in runs:
                self._tell_end(self._plain.follow(self._talk, run_id))
        except HoldfastError as error:
            self._fail(error.message, error.hint)

    def _tell_end(self, end: End) -> None:
        if not end.ok:
            self._fail(end.error or f"the turn was {end.status}", end.hint)

    def _fail(self, what: str, hint: str) -> None:
        self.failed = True
        click.echo(safe(f"error: {what.rstrip('.')}. {hint}".rstrip()), err=True)

    def _line(self) -> str:
        line = self._back.popleft() if self._back else sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    def _decide(self, _approval: Told) -> Decision | None:
        """By the next line if that is an answer; else no, and the line is the next message."""
        click.echo(f"{QUESTION}: ", err=True)
        line = sys.stdin.readline()
        answer = ANSWERS.get(line.strip().lower())
        if answer is None and line:
            self._back.append(line)
        return answer or "deny"
