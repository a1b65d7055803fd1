"""How likely it is that memory has an answer to a question at all, from 0 to 1.

Ranking says which entry is best; it cannot say that none is any good, for it compares entries only.
Here the best few are held against what is known beforehand: how rare the words of the question are and how
many of them an entry has, how near it is by meaning, and how far it stands out from what the same question
reaches elsewhere in the scope. An entry's score is this confidence, less what it is behind the best one.

The weights were fitted by `python bench/confidence.py --data locomo.json` (logistic regression; three of five
conversations and three of five small homes in English and German, asked their own questions and others'),
and checked on the rest; docs/recall.md has the figures. Fit them anew after a change of terms, of the static
model or of the ranking's parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.embedders.base import Embedder
from holdfast.memory.question import Query, is_request, names_in
from holdfast.memory.rarity import UNLISTED, commonness
from holdfast.memory.scoring import Candidates, Scored, Scoring, Weighed, WordsHeld, choose, weigh
from holdfast.memory.text import run_terms, runs

LOOKED_AT: Final = 10
_LEVEL: Final = 100
_EVERYDAY: Final = 6.5
_LEAST_RARITY: Final = 0.1
_SOME: Final = 0.3
_TWO_WORDS: Final = 2.0
_TELLING_NUMBER: Final = 3
_YEAR: Final = re.compile(r"(?:19|20)\d\d")
_POPULATION: Final = 100
"""Added to the size of the scope: a word that stands in one of a handful of notes is not therefore common."""


@dataclass(frozen=True, slots=True)
class Signals:
    """What the best few results say about the question, each in a range that is the same for any scope."""

    words: float
    """The greatest share of the question's words that one result has, the rare ones counting for more."""
    words_near: float
    """The same with the turns before and after it, for an answer's words stand in the question before."""
    likeness: float
    """The greatest cosine by the static model, which is the same in every home."""
    agreement: float
    """The greatest product of the two in one result: words and meaning point at the same place."""
    standing_out: float
    """How far the nearest, by the embedder that serves, is above the hundredth (of few: the middle one)."""
    unknown: float
    """The share of the question's words that stand nowhere in the scope."""
    size: float
    """The logarithm of the number of documents: among many, something is always near by chance."""
    some: float
    """Whether words speak for it at all: 1 from a third of `words_near` on."""
    held: float
    """How telling the words are that one result and its turns have, whatever else is asked: 1 from two words
    on that are rare anywhere."""
    request: float
    """1 where something is to be made, or is asked that anybody could know."""
    stranger: float
    """1 where the question names somebody who is named nowhere in the scope."""


WEIGHTS: Final[dict[str, tuple[float, ...]]] = {
    "static": (-1.30, 1.32, 0.94, 2.47, 0.00, 0.43, -1.84, -3.45, 1.45, 3.41, -4.02, -2.01),
    "better": (-0.91, 1.07, 0.65, 1.90, 0.00, 2.87, -2.24, -3.90, 1.25, 3.27, -4.08, -2.25),
}
"""The bias, then the weights of the signals in their order, by who serves: a better embedder's word counts
for more. Those of `better` were fitted with MiniLM; `standing_out` makes the cosines of others comparable."""


def confidence(signals: Signals, serves: str) -> float:
    """The probability that something here answers the question."""
    bias, *weights = WEIGHTS["static" if serves == "static" else "better"]
    logit = bias + sum(weight * value for weight, value in zip(weights, astuple(signals), strict=True))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))


@dataclass(frozen=True, slots=True)
class Answer:
    """Results whose scores can be held against a floor; `below` were found and are not worth showing."""

    results: list[Scored]
    confidence: float
    below: int


def answer(
    query: Query,
    view: Candidates,
    base: Embedder,
    options: Scoring,
    *,
    limit: int,
    least: float = 0.0,
) -> Answer:
    """The best of the scope in the order of `rank`, with calibrated scores, none below `least`.

    `base` is the static embedder, of which every document has a vector.
    """
    weighed, sure = judged(query, view, base, options, limit)
    if not len(weighed.order) or limit < 1:
        return Answer([], 0.0, 0)
    best = float(weighed.total[weighed.order[0]])
    scale = sure / best if best > 0 else 0.0
    kept = weighed.above(least / scale if scale else math.inf)
    chosen = choose(query, kept, options, limit)
    below = min(limit, len(weighed.order)) - len(chosen)
    return Answer([_scaled(one, scale) for one in chosen], sure, max(0, below))


def judged(
    query: Query, view: Candidates, base: Embedder | None, options: Scoring, limit: int
) -> tuple[Weighed, float]:
    """All that may answer, and how likely it is that anything does, 0 without the static `base` to judge."""
    weighed = weigh(query, view, options, limit)
    best = weighed.best(LOOKED_AT)
    if not best or base is None or limit < 1:
        return weighed, 0.0
    serves = "static" if query.fingerprint == base.id.fingerprint else "better"
    return weighed, confidence(signals_of(query, view, weighed, best, base), serves)


def signals_of(
    query: Query, view: Candidates, weighed: Weighed, best: Sequence[Scored], base: Embedder
) -> Signals:
    """The signals of a question, read off its best results and the turns beside them."""
    query = query.within(view.frequencies)
    numbers = np.array([one.number for one in best], np.int64)
    beside = weighed.turns_beside(len(best), view)
    around = np.unique(np.concatenate([numbers, beside[beside >= 0]]))
    words = _without_speakers(query)
    rarity, large, holds, known = _words(words, view, around)
    own = holds[:, np.searchsorted(around, numbers)]
    near = own | _lent(holds, around, beside[:, 0]) | _lent(holds, around, beside[:, 1])
    share: NDArray[Any] = rarity @ own
    alike = np.maximum(np.nan_to_num(_likeness(query, view, numbers, base)), 0.0)
    near_by = float((rarity @ near).max())
    return Signals(
        words=min(1.0, float(share.max())),
        words_near=min(1.0, near_by),
        likeness=float(alike.max()),
        agreement=float((share * alike).max()),
        standing_out=_standing_out(weighed.cosines, view.count, [one.cosine for one in best]),
        unknown=max(0.0, float(1 - rarity @ known)) if len(rarity) else 1.0,
        size=math.log1p(view.count) / 10,
        some=min(1.0, near_by / _SOME),
        held=min(1.0, float((large @ near).max()) / _TWO_WORDS) if len(large) else 0.0,
        request=float(is_request(query.text)),
        stranger=float(_names_a_stranger(query.text, words, known)),
    )


def _words(
    words: Sequence[Sequence[str]], view: Candidates, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Each word's share of the question by its rarity, how rare it is at large, which documents hold it, and
    whether any does."""
    if not words:
        return np.zeros(0), np.zeros(0), np.zeros((0, len(numbers)), np.bool_), np.zeros(0, np.bool_)
    found = WordsHeld.of(words, view, numbers, population=view.count + _POPULATION)
    large = np.array([max(map(_rarity_at_large, forms)) for forms in words])
    share = found.share * large
    return share / share.sum(), large, found.held, found.known


def _without_speakers(query: Query) -> list[tuple[str, ...]]:
    """The words of a question without the names of those who speak in the scope: such a name stands over all
    that its bearer said, and does not tell whether that was ever talked of."""
    if not query.persons:
        return query.words
    names = {term for name in query.persons for run in runs(name) for term in run_terms(run, "english")}
    return [word for word in query.words if word[0] not in names] or query.words


def _names_a_stranger(text: str, words: Sequence[Sequence[str]], known: NDArray[np.bool_]) -> bool:
    names = names_in(text)
    return any(word[0] in names and not there for word, there in zip(words, known.tolist(), strict=True))


def _rarity_at_large(term: str) -> float:
    """From 1 for a word that is seldom anywhere, down to a little for one of everyday talk: that few entries
    of a small home have "night" or "time" does not make it telling."""
    if term.isdigit() and (len(term) < _TELLING_NUMBER or _YEAR.fullmatch(term)):
        return _LEAST_RARITY
    common = _at_large().get(term, UNLISTED)
    return max(_LEAST_RARITY, min(1.0, (_EVERYDAY - common) / (_EVERYDAY - UNLISTED)))


@lru_cache(maxsize=1)
def _at_large() -> Mapping[str, float]:
    return commonness(run_terms)


def _lent(
    holds: NDArray[np.bool_], around: NDArray[np.int64], beside: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """The words of the turn on one side, none where there is none."""
    there = beside >= 0
    places = np.searchsorted(around, np.where(there, beside, around[0]))
    return holds[:, places] & there


def _likeness(
    query: Query, view: Candidates, numbers: NDArray[np.int64], base: Embedder
) -> NDArray[np.float64]:
    own = query.vector if query.fingerprint == base.id.fingerprint else None
    vector = base.embed_query(query.plain_text) if own is None else own
    return view.dense_scores(base.id.fingerprint, vector, numbers).astype(np.float64)


def _standing_out(cosines: NDArray[np.float64], count: int, best: Sequence[float | None]) -> float:
    """How much of the way from the scope's level to sameness the nearest result has come."""
    known = np.sort(cosines[~np.isnan(cosines)])[::-1]
    if not len(known):
        return 0.0
    level = float(known[min(len(known), _LEVEL, count // 2 + 1) - 1])
    nearest = max((one for one in best if one is not None), default=level)
    return max(0.0, (nearest - level) / max(1 - level, 0.05))


def _scaled(one: Scored, scale: float) -> Scored:
    parts = {name: value * scale for name, value in one.parts.items()}
    return one._replace(score=min(1.0, one.score * scale), parts=parts)
