"""The scripts that a command would run: what a person approves is what they say, not only their names."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.agents.policy import inside_folder

MOST_BYTES: Final = 4 * 1024**2
MOST_FILES: Final = 32
_SUFFIXES: Final = frozenset(
    (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".mk")
)
_READS_SCRIPTS: Final = re.compile(
    r"(ba|da|z|k|fi)?sh|\.|source|make|node|deno|bun|perl|ruby|php|lua|(pypy|python)[0-9.]*"
)


def scripts_of(command: str, folder: Path, workspace: Path) -> tuple[tuple[str, str], ...]:
    """Each file of the workspace that the command names in order to run it, with a digest of what it holds.

    One that is not there yet counts too: it could be made before the command runs.
    """
    inside = inside_folder(str(workspace), str(folder))
    words = list(dict.fromkeys(_words(command)))
    every = any(_READS_SCRIPTS.fullmatch(os.path.basename(word)) for word in words)
    named = [word for word in words if not word.startswith("-") and inside(word)]
    found = ((word, _state(folder / word, word, every)) for word in named)
    return tuple((word, state) for word, state in found if state)[:MOST_FILES]


def _words(command: str) -> Iterator[str]:
    """Roughly what a shell would read as words; a text that it would refuse goes by its blanks."""
    reader = shlex.shlex(command, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    try:
        return iter(list(reader))
    except ValueError:
        return iter(command.split())


def _state(path: Path, word: str, every: bool) -> str:
    by_name = path.suffix in _SUFFIXES or word.startswith("./")
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return ""
            head = file.read(2)
            if not (every or by_name or head == b"#!" or facts.st_mode & 0o111):
                return ""
            held = hashlib.sha256(head + file.read(MOST_BYTES)).hexdigest()
            return f"{facts.st_size}:{held}"
    except FileNotFoundError:
        return "absent" if by_name else ""
    except (OSError, ValueError):
        return "unreadable" if by_name else ""
