"""Replacing a piece of text exactly, and saying what is near when it is not there. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.context import neutralise
from holdfast.context.fence import neutralised_with_places
from holdfast.errors import InvalidInput
from holdfast.text import clip

_MOST_LINES: Final = 5_000
_SHOWN: Final = 400
_NEAR: Final = 0.6


@dataclass(frozen=True, slots=True)
class Edited:
    text: str
    count: int
    line: int


def replaced(text: str, old: str, new: str, *, every: bool = False) -> Edited:
    """The text with `old` replaced; it must be there exactly once unless `every` is asked for.

    Lines may be ended otherwise than in the file. Markers that were defused and characters that were made
    visible when the file was shown are found again, and lines that differ in that alone are put back.
    """
    if not old:
        raise InvalidInput("oldText is empty", hint="Quote what is to be replaced, or use file_write.")
    if old == new:
        raise InvalidInput("oldText and newText are the same", code="nothing_to_change")
    for wanted, given in _readings(text, old, new):
        at = list(_places(text, wanted))
        if at:
            return _put(text, wanted, given, at, every=every)
    shadow, places = neutralised_with_places(text)
    found = list(_places(shadow, old)) if shadow != text else []
    pieces = [text[places[at] : places[at + len(old)]] for at in found]
    if pieces and len(set(pieces)) == 1:
        at = [places[each] for each in found]
        return _put(text, pieces[0], _restored(pieces[0], new), at, every=every)
    if pieces:
        raise InvalidInput(
            "oldText looks the same in several places of the file, and is not",
            code="ambiguous_match",
            hint="Quote more of what stands around it.",
        )
    raise InvalidInput("oldText is not in the file", code="no_match", hint=near(text, old))


def near(text: str, old: str) -> str:
    """Where the file comes closest to a text that it does not hold."""
    lines, wanted = text.splitlines()[:_MOST_LINES], old.splitlines() or [old]
    loose, sought = [_loose(line) for line in lines], [_loose(line) for line in wanted]
    for start in range(len(lines) - len(wanted) + 1):
        if loose[start : start + len(wanted)] == sought:
            return _shown("It differs in blanks alone from", lines, start, len(wanted))
    target = max(sought, key=len)
    best = difflib.get_close_matches(target, loose, n=1, cutoff=_NEAR) if target else []
    if not best:
        return "Nothing like it is there; read the file again."
    return _shown("The nearest is", lines, max(0, loose.index(best[0]) - sought.index(target)), len(wanted))


def _readings(text: str, old: str, new: str) -> Iterator[tuple[str, str]]:
    yield old, new
    if "\r\n" in text and "\r\n" not in old:
        yield old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")


def _places(text: str, piece: str) -> Iterator[int]:
    at = text.find(piece)
    while at >= 0:
        yield at
        at = text.find(piece, at + len(piece))


def _put(text: str, old: str, new: str, at: list[int], *, every: bool) -> Edited:
    lines = [text.count("\n", 0, place) + 1 for place in at[:10]]
    if len(at) > 1 and not every:
        raise InvalidInput(
            f"oldText is in the file {len(at)} times, at lines {', '.join(map(str, lines))}",
            code="ambiguous_match",
            hint="Quote more of what stands around it, or set replaceAll.",
        )
    parts, end = [], 0
    for place in at:
        parts += [text[end:place], new]
        end = place + len(old)
    return Edited("".join([*parts, text[end:]]), len(at), lines[0])


def _restored(real: str, new: str) -> str:
    known = {neutralise(line): line for line in real.splitlines(keepends=True)}
    known |= {line.rstrip("\n"): was.rstrip("\n") for line, was in known.items()}
    return "".join(known.get(line, line) for line in new.splitlines(keepends=True))


def _loose(line: str) -> str:
    return " ".join(line.split())[:_SHOWN]


def _shown(lead: str, lines: list[str], start: int, count: int) -> str:
    until = min(len(lines), start + count)
    piece = "\n".join(lines[start:until])
    return f"{lead} lines {start + 1} to {until}:\n{clip(piece, _SHOWN)}"
