"""Writing notes into an agent's memory files: whole lines, appended, never through a link."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final

from holdfast.errors import InvalidInput, Unavailable
from holdfast.memory.collections import DEFAULT_NAMES, default_collections, locate

MAX_NOTE: Final = 64_000


def daily_path(now: int, zone: tzinfo) -> str:
    """Today's log of the agent, in the zone of its person."""
    return f"memory/{datetime.fromtimestamp(now / 1000, zone):%Y-%m-%d}.md"


def append_note(workspace: Path, path: str, text: str) -> int:
    """Append a note to one of the workspace's own memory files; returns the line on which it begins."""
    if not text.strip():
        raise InvalidInput("there is nothing to write", hint="Send the text of the note.")
    if len(text) > MAX_NOTE:
        raise InvalidInput(f"a note has at most {MAX_NOTE} characters", hint="Write it in parts.")
    collection, relative = locate(default_collections(workspace), path)
    assert collection.name in DEFAULT_NAMES
    try:
        file = _open(workspace, relative)
    except OSError as error:
        raise Unavailable(f"{path!r} cannot be written: {error.strerror}", code="memory_readonly") from error
    with os.fdopen(file, "r+b") as stream:
        before = stream.read()
        lead = b"" if not before or before.endswith(b"\n") else b"\n"
        stream.write(lead + text.rstrip().encode("utf-8", "replace") + b"\n")
        return before.count(b"\n") + len(lead) + 1


def _open(workspace: Path, relative: str) -> int:
    """Open for appending from folder to folder, so that no step can be a link to elsewhere."""
    folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *steps, name = relative.split("/")
        for step in steps:
            with contextlib.suppress(FileExistsError):
                os.mkdir(step, 0o700, dir_fd=folder)
            inner = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
