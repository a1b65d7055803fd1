"""What a model reads of a command: while it runs, at its end, and after the process that ran it is gone."""

from __future__ import annotations

import re
from typing import Final

from holdfast.agents.sandbox import Outcome
from holdfast.agents.tools.command_files import Record
from holdfast.agents.tools.commands import Command

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ENDS: Final = {
    "timeout": "it ran out of time and was ended",
    "processes": "it made too many processes and was ended",
    "memory": "it took too much memory and was ended",
    "output": "it wrote without end and was ended",
    "killed": "it was ended as asked",
}


def so_far(command: Command) -> str:
    """How a running command stands, and what it wrote since it was last told of."""
    first = command.told == 0
    heard = command.said.since(command.told)
    command.told = heard.end
    text = plain(heard.text())
    id_ = command.id
    still = (
        f"The command still runs after {command.seconds:.1f} s, in the background, as {id_}. "
        f'exec {{"poll": "{id_}", "waitSeconds": 60}} waits for it, {{"log": "{id_}"}} gives all of its '
        f'output, {{"kill": "{id_}"}} ends it.'
    )
    if not text:
        return f"{still} It has written nothing{'' if first else ' more'}."
    return f"{text}{_gap(text)}[{still}]"


def at_the_end(command: Command, outcome: Outcome) -> str:
    """How a command ended, and all that is held of what it wrote."""
    text = plain(command.said.since().text())
    if outcome.ok:
        return text or "[it succeeded and wrote nothing]"
    how = _how("killed" if command.killed else outcome.end, outcome.code)
    return f"{text}{_gap(text)}[{how}, after {outcome.seconds:.1f} s]"


def record_of(command: Command) -> Record:
    """The command as it is written down."""
    outcome = command.outcome
    end = None if outcome is None else ("killed" if command.killed else outcome.end)
    return Record(
        id=command.id,
        command=command.text,
        output=plain(command.said.since().text()),
        seconds=round(command.seconds, 1),
        end=end,
        code=None if outcome is None else outcome.code,
    )


def from_record(kept: Record) -> str:
    """A command of before a restart."""
    if kept.end is None:
        how = (
            f"Holdfast was stopped while it ran, last seen after {kept.seconds} s; how it ended is not known"
        )
    else:
        how = f"{_how(kept.end, kept.code)}, after {kept.seconds} s"
    text = kept.output or "[nothing]"
    return f"{text}{_gap(text)}[{how}]"


def plain(text: str) -> str:
    """Without what colours it on a terminal."""
    return _ESCAPES.sub("", text)


def _how(end: str, code: int | None) -> str:
    return _ENDS.get(end, f"it ended with exit code {code}")


def _gap(text: str) -> str:
    return "" if not text or text.endswith("\n") else "\n"
