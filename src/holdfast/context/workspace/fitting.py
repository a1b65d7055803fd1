"""Fitting workspace files into their budgets: head and tail kept, a marker and a warning for each cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.context.workspace.files import FileText
from holdfast.context.workspace.rules import REQUIRED

_HEAD_SHARE: Final = 0.75
_SMALLEST: Final = 200

_PROBLEMS: Final = {
    "missing": "{name} is missing from the workspace.",
    "binary": "{name} is not text and was left out.",
    "outside": "{name} lies outside the workspace and was refused.",
    "unreadable": "{name} cannot be read.",
    "not_a_file": "{name} is not a regular file.",
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """A file as it is injected. `chars` is its own length, `text` what is left of it."""

    name: str
    text: str
    chars: int
    warning: str | None = None


def fit(files: Sequence[FileText], *, per_file: int, total: int) -> list[Fitted]:
    """Each file within its limit and all within the total; required ones are served first."""
    left = total
    grants: dict[str, int] = {}
    for file in sorted(files, key=lambda f: f.name not in REQUIRED):
        grants[file.name] = min(len(file.text), per_file, left)
        left -= grants[file.name]
    return [_fitted(file, grants[file.name], per_file) for file in files if _wanted(file)]


def _wanted(file: FileText) -> bool:
    """An optional file that is not there is no news."""
    return file.problem != "missing" or file.name in REQUIRED


def _fitted(file: FileText, grant: int, per_file: int) -> Fitted:
    if file.problem is not None:
        words = _PROBLEMS[file.problem].format(name=file.name)
        return Fitted(file.name, f"[{words}]" if file.name in REQUIRED else "", 0, words)
    chars = len(file.text) + file.left_out
    if grant >= len(file.text) and not file.left_out:
        return Fitted(file.name, file.text, chars)
    cause = "bootstrapMaxChars" if grant >= min(per_file, len(file.text)) else "bootstrapTotalMaxChars"
    text = cut(file.text, grant, file.name, chars)
    warning = f"{file.name} has {chars:,} characters; {len(text):,} are shown ({cause})."
    return Fitted(file.name, text, chars, warning)


def cut(text: str, limit: int, name: str, chars: int | None = None) -> str:
    """At most `limit` characters: the head, a marker that says what is missing, and the tail."""
    whole = len(text) if chars is None else chars
    if len(text) <= limit and whole == len(text):
        return text
    marker = (
        f"\n[… {name} is cut here: {whole:,} characters, limit {limit:,}; read the file for the rest …]\n"
    )
    room = limit - len(marker)
    if limit < _SMALLEST or room <= 0:
        return marker.strip()[: max(0, limit)]
    head = int(room * _HEAD_SHARE)
    tail = room - head
    return text[:head] + marker + text[len(text) - tail :]
