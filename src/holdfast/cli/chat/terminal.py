"""A conversation at a terminal, and its keyboard while a turn runs."""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
import termios
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from holdfast.cli.chat.events import (
    Again,
    End,
    Happening,
    InputReceived,
    NeedsApproval,
    Reading,
    Thought,
    Tool,
    Words,
    WordsEnd,
    summary_of,
)
from holdfast.cli.chat.plain import (
    ANSWERS,
    LEAVE,
    QUESTION,
    History,
    Interrupts,
    Prompt,
    approval_lines,
    decided,
    greeting,
    reply_of,
    tool_line,
)
from holdfast.cli.chat.screen import Stage, line
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.chat.line import About, Told
    from holdfast.cli.chat.talk import Feed, Talk


_SEQUENCE: Final = re.compile("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|O.|[^\\[O])|\x1b$")
_END: Final = "\x04"
_RUB: Final = ("\x7f", "\x08")
_CLEAR: Final = "\x15"
_RUB_WORD: Final = "\x17"


class TypedLine:
    """A line being typed. Pure: text goes in, whole lines come out; `ended` is Ctrl-D on an empty line."""

    def __init__(self, begun: str = "") -> None:
        self.text = begun
        self.ended = False

    def feed(self, typed: str) -> Iterator[str]:
        """Newlines within one piece were pasted, and belong to the line; one at its end is Enter."""
        keys = _SEQUENCE.sub("", typed).replace("\r", "\n")
        entered = keys.endswith("\n")
        for key in keys.removesuffix("\n"):
            self._key(key)
        if entered:
            line, self.text = self.text, ""
            yield line

    def _key(self, key: str) -> None:
        if key in _RUB:
            self.text = self.text[:-1]
        elif key == _CLEAR:
            self.text = ""
        elif key == _RUB_WORD:
            self.text = self.text.rstrip().rpartition(" ")[0]
        elif key == _END:
            self.ended = self.ended or not self.text
        elif key == "\n" or key.isprintable():
            self.text += key


class Keys:
    """While it is entered, keys come one by one and are not echoed; Ctrl-C is a signal as always."""

    def __init__(self, begun: str = "") -> None:
        self.line = TypedLine(begun)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fd = sys.stdin.fileno()
        self._before: list[Any] = []

    def fileno(self) -> int:
        return self._fd

    def read(self) -> list[str]:
        """Lines that were entered; called when there is something to read."""
        typed = os.read(self._fd, 65536)
        if not typed:
            self.line.ended = True
        return list(self.line.feed(self._decoder.decode(typed)))

    def __enter__(self) -> Keys:
        self._before = termios.tcgetattr(self._fd)
        mode = termios.tcgetattr(self._fd)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)


_LOOK_SECONDS: Final = 0.1
_PROMPT: Final = "\x01\x1b[1;36m\x02›\x01\x1b[0m\x02 "
_MORE: Final = "\x01\x1b[2m\x02…\x01\x1b[0m\x02 "


class Terminal:
    """Asks, shows and asks again."""

    def __init__(self, talk: Talk, history: History, console: Console | None = None) -> None:
        self._talk = talk
        self._console = console or Console(highlight=False)
        self._prompt = Prompt(history)
        self._begun = ""

    def greet(self, about: About) -> None:
        out = self._console.print
        whom, model, hint = greeting(about)
        out(line(f"Holdfast · {whom}", "bold"))
        out(line(model, "dim"))
        if hint:
            out(line(hint, "yellow"))
        out(line("/help · \\ continues a line · Ctrl-C stops a turn · Ctrl-D leaves", "dim"))

    def converse(self) -> None:
        leave = False
        while not leave:
            try:
                text = self._prompt.ask(_PROMPT, _MORE, self._begun)
            except KeyboardInterrupt:
                self._begun = ""
                self._console.print()
                continue
            self._begun = ""
            if text is None:
                self._console.print()
            leave = text is None or text.strip().lower() in LEAVE
            if text is not None and text.strip() and not leave:
                leave = self._turn(text)

    def _turn(self, text: str) -> bool:
        """Say something and show what comes of it; whether to leave then."""
        try:
            told = self._talk.say(text)
            runs = [str(told["runId"])]
            if "told" in told:
                self._console.print(line(str(told["told"]), "dim"))
            if "reply" in told:
                self._console.print(line(reply_of(text, told), ""))
                runs = self._talk.resumed(text, told)
            following = Following(self._talk, self._console, runs)
            following.run()
            self._begun = following.begun
            return following.leave
        except HoldfastError as error:
            self._console.print(line(f"✗ {error.message}. {error.hint}".rstrip(), "red"))
            return False


class Following:
    """Shows runs, and those that come of what is typed meanwhile. `begun` is what was typed and not sent."""

    def __init__(self, talk: Talk, console: Console, run_ids: list[str]) -> None:
        self.leave = False
        self.begun = ""
        self._talk = talk
        self._console = console
        self._runs = deque(run_ids)
        self._asked: dict[str, Told] = {}

    def run(self) -> None:
        while self._runs and not self.leave:
            self._follow(self._runs.popleft())

    def _follow(self, run_id: str) -> None:
        stage = Stage(self._console)
        stage.doing = "waiting"
        with Keys(self.begun) as keys, Interrupts() as interrupts, self._talk.follow(run_id) as feed:
            try:
                with stage:
                    end = self._watch(run_id, feed, keys, stage, interrupts)
                if end is not None:
                    self._tell_end(end, stage.seconds)
            finally:
                self.begun = keys.line.text

    def _watch(self, run_id: str, feed: Feed, keys: Keys, stage: Stage, interrupts: Interrupts) -> End | None:
        """To the run's end, or until someone leaves."""
        reading = Reading()
        stopping = False
        both: list[Feed | Keys] = [feed, keys]
        while True:
            ready, _, _ = select.select(both, [], [], _LOOK_SECONDS)
            feed.hush()
            while (event := feed.next()) is not None:
                for happening in reading.read(event):
                    if isinstance(happening, End):
                        return happening
                    self._show(happening, stage)
            for entered in keys.read() if keys in ready else ():
                self._entered(entered, stage)
            self.leave = self.leave or keys.line.ended
            if self.leave and self._talk.lasting:
                stage.print("The turn goes on in the gateway.")
                return None
            if (interrupts.pressed or self.leave) and not stopping:
                stopping, stage.doing = True, "stopping"
                self._talk.cancel(run_id)
            stage.typed = keys.line.text
            stage.prompt = QUESTION if self._asked else ""
            stage.draw(now=bool(ready))

    def _show(self, happening: Happening, stage: Stage) -> None:
        match happening:
            case Words(text):
                stage.say(text)
                stage.doing = "writing"
            case Thought():
                stage.doing = "thinking"
            case WordsEnd():
                stage.end_words()
                stage.doing = "waiting"
            case Again(reason):
                stage.drop_words()
                stage.print(f"… {reason}; it begins again")
            case InputReceived(text):
                stage.print(f"↳ the agent reads: {text}")
            case NeedsApproval(call_id=call) as needed:
                self._ask(call, needed.approval_id, stage)
            case Tool() as tool:
                self._tool(tool, stage)

    def _tool(self, tool: Tool, stage: Stage) -> None:
        if tool.phase == "progress":
            stage.doing = f"{tool.name}: {tool.text}"
        else:
            stage.print(tool_line(tool, self._console.width), "red" if tool.failed else "dim")
            stage.doing = tool.name if tool.phase == "start" else "waiting"
        self._asked.pop(tool.call_id, None)

    def _ask(self, call_id: str, approval_id: str, stage: Stage) -> None:
        approval = self._talk.approval(approval_id)
        if approval["status"] == "pending":
            self._asked[call_id] = approval
            what, *rest = approval_lines(approval)
            stage.print(what, "bold yellow")
            for each in rest:
                stage.print(each, "")

    def _entered(self, text: str, stage: Stage) -> None:
        """An answer, a command, or words for the turn that runs."""
        if not text.strip():
            return
        if text.strip().lower() in LEAVE:
            self.leave = True
        elif self._asked and not text.startswith("/"):
            self._answer(text, stage)
        else:
            self._steer(text, stage)

    def _answer(self, text: str, stage: Stage) -> None:
        decision = ANSWERS.get(text.strip().lower())
        if decision is None:
            stage.print("Answer y, n or a first; or stop the turn with Ctrl-C.", "yellow")
            return
        call_id, approval = next(iter(self._asked.items()))
        after, said = decided(self._talk, approval, decision)
        stage.print(said, "dim" if after["status"] != "pending" else "yellow")
        if after["status"] != "pending":
            del self._asked[call_id]

    def _steer(self, text: str, stage: Stage) -> None:
        try:
            told = self._talk.say(text, steer=True)
        except HoldfastError as error:
            stage.print(f"{error.message}. {error.hint}".rstrip(), "red")
            return
        stage.print(f"› {text}", "cyan")
        if "reply" in told:
            stage.print(reply_of(text, told), "")
            return
        if "told" in told:
            stage.print(str(told["told"]))
        if not told.get("joined"):
            self._runs.append(str(told["runId"]))

    def _tell_end(self, end: End, seconds: float) -> None:
        if end.ok:
            self._console.print(line(summary_of(end, seconds), "dim"))
        elif end.status == "cancelled":
            self._console.print(line("■ stopped", "yellow"))
        else:
            why = (end.error or f"the turn was {end.status}").rstrip(".")
            self._console.print(line(f"✗ {why}. {end.hint}".rstrip(), "red"))
        self._console.print()
