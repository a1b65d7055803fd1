"""What an agent quotes from memory is not remembered a second time."""

from __future__ import annotations

import re
from typing import Final

_CITED: Final = re.compile(r"\s*Source: \S.{0,1024}\.(?:md|markdown)(?:#L\d+(?:-L\d+)?)?\s*", re.IGNORECASE)
_GAP: Final = re.compile(r"\n[ \t]*\n+")


def without_echoes(text: str) -> str:
    """The text without the paragraphs that cite a memory file: the file has them, and is found itself.

    A citation belongs to its own paragraph, or, where it stands alone, to the one before it.
    """
    if "Source: " not in text:
        return text
    kept: list[str] = []
    open_ = False
    for paragraph in _GAP.split(text):
        lines = paragraph.strip("\n").split("\n")
        cited = [bool(_CITED.fullmatch(line)) for line in lines]
        if not any(cited):
            kept.append(paragraph)
        elif all(cited) and open_:
            kept.pop()
        open_ = not any(cited)
    return "\n\n".join(kept).strip()
