"""What a text names: people, products, machines, files. Pure, and only as clever as a map needs."""

from __future__ import annotations

import re
from typing import Final

from holdfast.board.tags import name_key
from holdfast.board.words import FUNCTION, commonness_of, is_filler, surfaces
from holdfast.memory.folding import fold
from holdfast.memory.text import Language, language_of, stem

MOST_PER_TEXT: Final = 12
MAX_CHARS: Final = 2_000
MAX_LABEL: Final = 48
_SHORTEST: Final = 3
_EVERYDAY: Final = 4.7
"""As common as this a word is no name, unless it is written as one."""
_TOKEN: Final = re.compile(r"#?[^\W_](?:[\w.+/:@-]*[^\W_])?")
_STOP: Final = re.compile(r"[.!?:;\n]\s*$")
_MARKED: Final = re.compile(r"[0-9_/@.:+-]|[a-z][A-Z]")
# What is written for machines: code, flags of commands, line ends that were escaped.
_CODE: Final = re.compile(r"(?s)```.*?(?:```|\Z)|`[^`\n]*`|(?<!\S)--?[A-Za-z][\w-]*|\\[nrt]")
_ADDRESS: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://(?:www\.)?(?:[^\s/@]*@)?([\w.-]*)\S*", re.IGNORECASE)
# Dates, and ids that a program made: nobody calls anything so.
_MADE: Final = re.compile(r"(?i)\d{4}-\d\d(-\d\d.*)?|.*\d+-[0-9a-f-]*\d[0-9a-f-]*|(?=.*\d)[0-9a-f]{8,}")
_SAID_TO_MACHINES: Final = """
api bar body code command data debug email error example exec fail failed false fixme foo ftp get head host
http https id info json key line list name none note null number ok optional output password path port post
put query result schema secret size stderr stdin stdout string test text title todo token tool true type
undefined uri url user value version warn warning www xxx yaml yes
"""
_PLACEHOLDERS: Final = frozenset(_SAID_TO_MACHINES.split())


def entities(text: str) -> dict[str, str]:
    """What a text names, by a key that spellings share: names first, then its telling words."""
    head = _ADDRESS.sub(r" \1 ", _CODE.sub(" ", text[:MAX_CHARS]))
    found = dict(_named(head, language_of(head)))
    within = {part for label in found.values() for part in fold(label).split()}
    for form, word in surfaces(head).items():
        if len(found) >= MOST_PER_TEXT:
            break
        tells = len(word) > _SHORTEST and word.isalpha() and _is_telling(form)
        if tells and word not in within and word not in _PLACEHOLDERS:
            found.setdefault(form, word)
    return dict(list(found.items())[:MOST_PER_TEXT])


def _is_telling(form: str) -> bool:
    return not is_filler(form) and commonness_of(form) < _EVERYDAY


def _named(text: str, language: Language) -> list[tuple[str, str]]:
    """Words with a capital inside a sentence, runs of them, and words that look like identifiers."""
    found: list[tuple[str, str]] = []
    run: list[str] = []
    end = 0
    for match in _TOKEN.finditer(text):
        word, gap = match[0], text[end : match.start()]
        begins = end == 0 or bool(_STOP.search(text[max(0, end - 1) : match.start()]))
        capital = word[0].isupper() and (not begins or (word.isupper() and len(word) > 1))
        if run and (not capital or gap != " "):
            found.append(_entity(" ".join(run), language))
            run = []
        if capital and not _plain(word, language):
            run.append(word)
        elif word.startswith("#") or _is_identifier(word):
            found.append(_entity(word, language))
        end = match.end()
    if run:
        found.append(_entity(" ".join(run), language))
    return [(key, label) for key, label in found if len(key) >= _SHORTEST]


def _is_identifier(word: str) -> bool:
    return bool(_MARKED.search(word)) and any(c.isalpha() for c in word) and not _MADE.fullmatch(word)


def _plain(word: str, language: Language) -> bool:
    low = fold(word)
    return low in FUNCTION or low in _PLACEHOLDERS or is_filler(stem(low, language)) or len(low) < 2


def _entity(label: str, language: Language) -> tuple[str, str]:
    key = name_key(label.lstrip("#"))
    return (key if " " in key or not key.isalpha() else stem(fold(key), language)), label[:MAX_LABEL]
