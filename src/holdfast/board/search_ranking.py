"""How finds become ranked topics, tasks and entries: pure. The parts of a hit add up to its score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from holdfast.board.recall import Recalled
from holdfast.board.tags import name_key
from holdfast.board.words import asked_terms, telling, terms

BEST_ENTRY: Final = 0.35
PER_ENTRY: Final = 0.06
MOST_ENTRIES: Final = 6
MOST_LENT: Final = 0.42
EXACT_NAME: Final = 0.38
NAME_BEGINS: Final = 0.2
NAME_COVERED: Final = 0.16
SESSION_PLACE: Final = 0.12
SESSION_ENTRY: Final = 0.08
LEAST_SHARE: Final = 0.1
LEAST_COVERED: Final = 0.5


Ranked = tuple[float, Mapping[str, float]]
"""A score and its parts."""


@dataclass(slots=True)
class Score:
    """A score as the sum of its parts; parts that are nothing are not named."""

    parts: Mapping[str, float] = field(default_factory=dict)
    total: float = 0.0

    def add(self, name: str, value: float) -> None:
        if value:
            self.parts = {**self.parts, name: self.parts.get(name, 0.0) + value}
            self.total += value


@dataclass(frozen=True, slots=True)
class Session:
    """What the session that asks has to do with: its key, and the topics and tasks it was lately about."""

    key: str | None = None
    topic_ids: frozenset[str] = frozenset()
    task_ids: frozenset[str] = frozenset()


def rank_entries(found: Iterable[Recalled], session: Session) -> dict[int, Ranked]:
    """Entries with what they score by themselves, and a little more for those of the session that asks.

    They are named by their positions; none that is far behind the best is among them.
    """
    scores: dict[int, Ranked] = {}
    for one in found:
        score, parts = one.score, one.parts
        if session.key is not None and one.session_key == session.key:
            score, parts = score + SESSION_ENTRY, {**parts, "session": SESSION_ENTRY}
        scores[one.position] = score, parts
    least = LEAST_SHARE * max((score for score, _ in scores.values()), default=0.0)
    return {position: ranked for position, ranked in scores.items() if ranked[0] >= least}


def rank_places(
    found: Iterable[Recalled],
    lent: Mapping[str, Sequence[float]],
    near: frozenset[str],
) -> dict[str, Score]:
    """Topics or tasks by their own words and by what the entries in them lend; `near` are the session's."""
    scores = {one.id: Score(one.parts, one.score) for one in found}
    for id_, values in lent.items():
        first, *others = sorted(values, reverse=True)[:MOST_ENTRIES]
        score = scores.setdefault(id_, Score())
        score.add("entries", min(MOST_LENT, BEST_ENTRY * first + PER_ENTRY * sum(others)))
    for id_ in near & scores.keys():
        scores[id_].add("session", SESSION_PLACE)
    return scores


def by_place(entries: Iterable[tuple[str | None, float]]) -> dict[str, list[float]]:
    """The scores of entries, by the topic or the task that they lie in."""
    lent: dict[str, list[float]] = {}
    for place, score in entries:
        if place is not None:
            lent.setdefault(place, []).append(score)
    return lent


def name_part(question: str, name: str) -> float:
    """What it counts that a question names a topic: wholly, by its beginning, or by all of its words."""
    asked, asked_words = _asked(question)
    own = name_key(name)
    if asked == own:
        return EXACT_NAME
    if len(asked) >= 2 and own.startswith(asked):
        return NAME_BEGINS
    words = set(terms(name))
    return NAME_COVERED if words and words <= asked_words else 0.0


@lru_cache(maxsize=64)
def _asked(question: str) -> tuple[str, frozenset[str]]:
    """A question as a name, and its words: read once, and held against dozens of names."""
    return name_key(question), asked_terms(question) | frozenset(terms(question))


def covers(question: str, text: str) -> bool:
    """Whether the words of a topic or task are at least half of what a question asks for."""
    asked = telling(question)
    return bool(asked) and len(asked & asked_terms(text)) >= LEAST_COVERED * len(asked)
