"""A German and English word list, by which a question in one language finds notes in the other.

No embedding model that knows both and carries its weights in a registry package is to be had (docs/memory.md
says what was looked for). A dictionary does most of the work. It is not part of Holdfast; Debian has one
(`trans-de-en`), in the form of the program Ding, `word; word {f} | phrase :: word; word | phrase`.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast.home import make_private
from holdfast.log.store import sqlite_module
from holdfast.memory.question import Query
from holdfast.memory.scoring import Candidates
from holdfast.memory.text import Language, language_of, terms_in, words_of

log = logging.getLogger(__name__)

_REMARK: Final = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|/[^/]*/|<[^>]*>")
_WORD: Final = re.compile(r"[^\W\d_]+")
_OTHER: Final[dict[Language, Language]] = {"german": "english", "english": "german"}
_SENSES: Final = 4
_LONGEST_SENSE: Final = 3
_SHORTEST_COMPOUND: Final = 8
_SHORTEST_PART: Final = 4
_MOST_BYTES: Final = 64 * 1024 * 1024
_FORM: Final = "1"


class Dictionary:
    """Word lists, read once into a small database beside the index; a search only looks words up."""

    def __init__(self, cache: Path, sources: Sequence[str]) -> None:
        self._cache = cache
        self._sources = [Path(one).expanduser() for one in sources]
        self._lock = threading.Lock()
        self._db: Any = None

    def refresh(self) -> None:
        """Read the word lists if they are others than those that were read; takes some seconds."""
        present = [path for path in self._sources if _usable(path)]
        stamp = json.dumps([_FORM, *([str(path), path.stat().st_mtime_ns] for path in present)])
        with self._lock:
            if not present or self._stamp() == stamp:
                return
            make_private(self._cache)
            with sqlite_module().connect(str(self._cache)) as db:
                db.executescript(
                    "DROP TABLE IF EXISTS words; DROP TABLE IF EXISTS stamp; CREATE TABLE stamp (value TEXT);"
                    "CREATE TABLE words (language TEXT, term TEXT, senses TEXT, PRIMARY KEY (language, term))"
                    " WITHOUT ROWID"
                )
                db.executemany("INSERT INTO words VALUES (?, ?, ?)", _rows(present))
                db.execute("INSERT INTO stamp VALUES (?)", (stamp,))
            self._db = None

    def senses(self, word: str, language: Language) -> list[str]:
        """What a word of this language may mean in the other, the usual first; a compound by its parts."""
        whole = self._looked_up(word, language)
        if whole or language != "german" or len(word) < _SHORTEST_COMPOUND:
            return whole
        for place in range(len(word) - _SHORTEST_PART + 1, _SHORTEST_PART - 1, -1):
            head, tail = word[:place], word[place:]
            parts = self._looked_up(head, language) or self._looked_up(head.removesuffix("s"), language)
            rest = self._looked_up(tail, language) if parts else []
            if parts and rest:
                return [*parts[:2], *rest[:2]]
        return []

    def understood(self, query: Query, view: Candidates) -> Query:
        """The question with what its words mean in the other language, where the scope does not have them."""
        if not self._cache.exists():
            return query
        language = language_of(query.text)
        words = {word: terms for word in _WORD.findall(query.text) if (terms := terms_in(word, language))}
        having = view.frequencies([terms[0] for terms in words.values()])
        also: dict[str, tuple[str, ...]] = {}
        told: list[str] = []
        for (word, terms), known in zip(words.items(), having, strict=True):
            senses = [] if known else self.senses(word, language)
            if senses:
                meant = (term for sense in senses for term in terms_in(sense, _OTHER[language]))
                also[terms[0]] = tuple(dict.fromkeys(meant))
            told.append(senses[0] if senses else word)
        if not also:
            return query
        every = dict.fromkeys((*query.terms, *(term for terms in also.values() for term in terms)))
        return replace(query, terms=tuple(every), also=also, translated=" ".join(told))

    def _looked_up(self, word: str, language: Language) -> list[str]:
        term = _term(word, language)
        with self._lock:
            db = self._opened()
            if db is None or term is None:
                return []
            found = db.execute(
                "SELECT senses FROM words WHERE language = ? AND term = ?", (language, term)
            ).fetchone()
        return [] if found is None else list(json.loads(found[0]))

    def _stamp(self) -> str | None:
        db = self._opened()
        try:
            found = None if db is None else db.execute("SELECT value FROM stamp").fetchone()
        except sqlite_module().Error:
            return None
        return None if found is None else str(found[0])

    def _opened(self) -> Any:
        if self._db is None and self._cache.exists():
            self._db = sqlite_module().connect(
                f"file:{self._cache}?mode=ro", uri=True, check_same_thread=False
            )
        return self._db


def _term(word: str, language: Language) -> str | None:
    """The term of a single word; of a compound that of the whole."""
    terms = terms_in(word, language)
    return terms[0] if len(terms) == 1 or (terms and words_of(word, language)) else None


def _usable(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= _MOST_BYTES
    except OSError:
        return False


def _rows(paths: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Every word of both sides with its few usual senses; one that comes often or first counts for more."""
    found: dict[tuple[Language, str], Counter[str]] = defaultdict(Counter)
    for path in paths:
        for german, english in _pairs(path):
            sides: dict[Language, list[str]] = {"german": german, "english": english}
            for language, own in sides.items():
                other = sides[_OTHER[language]]
                for word in own:
                    term = _term(word, language) if " " not in word else None
                    if term is not None:
                        for place, sense in enumerate(other[:_LONGEST_SENSE]):
                            found[language, term][sense] += 12 // (place + 1)
    for (language, term), senses in found.items():
        yield language, term, json.dumps([sense for sense, _ in senses.most_common(_SENSES)])


def _pairs(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """The words on both sides of each entry, and of each phrase that stands with it."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            german, sign, english = line.partition("::")
            if sign and not line.startswith("#"):
                for one, other in zip(german.split("|"), english.split("|"), strict=False):
                    yield _plain(one), _plain(other)


def _plain(side: str) -> list[str]:
    words = [" ".join(_WORD.findall(_REMARK.sub(" ", one))).removeprefix("to ") for one in side.split(";")]
    return [one for one in words if one and one.count(" ") < _LONGEST_SENSE]
