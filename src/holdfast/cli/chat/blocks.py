"""Markdown that is still being written: what of it is finished, and may be shown for good. Pure."""

from __future__ import annotations

import re
from typing import Final

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_GOES_ON: Final = re.compile(r"\s|[-*+] |\d{1,9}[.)] ")


def finished(text: str) -> tuple[str, str]:
    """The blocks that nothing which follows can change, and the rest; together they are the text.

    A block ends at a blank line outside of a fence, once the next line begins something of its own: a line
    set in, or the next item of a list, still belongs to what stands before.
    """
    end = 0
    at = 0
    fence = ""
    blank = False
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        if not fence and blank and line.strip() and not _GOES_ON.match(line):
            end = at
        mark = _FENCE.match(line)
        if mark is not None and not fence:
            fence = mark[1]
        elif fence and mark is not None and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        blank = not fence and not line.strip()
        at += len(line)
    return text[:end], text[end:]
