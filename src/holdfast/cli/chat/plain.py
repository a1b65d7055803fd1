"""Conversations without a terminal's arts: words to one stream, what goes on to the other."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.chat.events import (
    Again,
    End,
    Happening,
    InputReceived,
    NeedsApproval,
    Reading,
    Tool,
    Words,
    WordsEnd,
)
from holdfast.cli.chat.line import Decision, Told
from holdfast.cli.chat.talk import Talk
from holdfast.cli.output import exact, safe
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.chat.line import About


class Interrupts:
    """Counts while it is entered; the second press raises `KeyboardInterrupt`, as it does without this."""

    def __init__(self) -> None:
        self.count = 0
        self._raises = False
        self._before: Any = None

    @property
    def pressed(self) -> bool:
        return self.count > 0

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Let a press break off what waits for an answer; it counts as the first."""
        self._raises = True
        try:
            yield
        except KeyboardInterrupt:
            if self.count > 1:
                raise
        finally:
            self._raises = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._raises or self.count > 1:
            raise KeyboardInterrupt


LEAVE: Final = ("/exit", "/quit")


def reply_of(text: str, told: Told) -> str:
    """A command's answer; the list of commands names those of the terminal too."""
    listed = text.strip().lower() in ("/help", "/commands")
    return str(told["reply"]) + ("\n/exit — Leave." if listed else "")


def greeting(about: About) -> tuple[str, str, str]:
    """To whom one speaks, who answers, and how to connect a model where none is."""
    hint = ""
    if about.builtin:
        from holdfast.agents.models.recall_model import HOW_TO_CONNECT

        hint = HOW_TO_CONNECT
    agent = f"agent {about.agent_id}"
    if about.name is not None:  # a file of the workspace says it
        agent = f"{safe(about.name)} ({agent})"
    whom = f"{agent} · session {about.session_key}"
    return whom, f"model {about.model} · {about.where}", hint


MOST: Final = 1_000
_MOST_CHARS: Final = 10_000


class History:
    """A file with an entry on each line. One that begins with a space is not kept, as in a shell."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[str]:
        """The newest entries, oldest first; a file that has grown long is cut to them."""
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        kept = lines[-MOST:]
        if len(lines) > 2 * MOST:
            with contextlib.suppress(OSError):
                self._write(kept, os.O_TRUNC)
        return [_read(line) for line in kept if line]

    def add(self, entry: str) -> bool:
        """Keep an entry; a history that cannot be written is no reason to end a conversation."""
        if not entry.strip() or entry.startswith(" ") or len(entry) > _MOST_CHARS:
            return False
        with contextlib.suppress(OSError):
            self._write([_written(entry)], os.O_APPEND)
        return True

    def _write(self, lines: list[str], how: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | how, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            os.fchmod(descriptor, 0o600)
            file.writelines(f"{line}\n" for line in lines)


class Prompt:
    """The line editor while nothing runs."""

    def __init__(self, history: History) -> None:
        import readline

        self._history = history
        self._readline = readline
        readline.set_auto_history(False)
        readline.parse_and_bind("set enable-bracketed-paste on")
        readline.clear_history()
        for entry in history.load():
            readline.add_history(entry)

    def ask(self, prompt: str, more: str, begun: str = "") -> str | None:
        """What is typed, of several lines where each but the last ends with a backslash; None at the end."""
        self._begin_with(begun)
        try:
            text = gathered(lambda first: input(prompt if first else more))
        finally:
            self._readline.set_startup_hook(None)
        if text is not None and self._history.add(text):
            self._readline.add_history(text)
        return text

    def _begin_with(self, text: str) -> None:
        def insert() -> None:
            self._readline.insert_text(text)
            self._readline.redisplay()
            self._readline.set_startup_hook(None)

        self._readline.set_startup_hook(insert if text else None)


def gathered(read: Callable[[bool], str]) -> str | None:
    """Lines until one does not end with a backslash; None if there are no more."""
    lines: list[str] = []
    try:
        while True:
            line = read(not lines)
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])
    except EOFError:
        return "\n".join(lines) if lines else None


def _written(entry: str) -> str:
    return entry.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "")


def _read(line: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in line.split("\\\\"))


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
            case InputReceived(text):
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
