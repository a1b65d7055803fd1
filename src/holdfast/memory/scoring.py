"""How what the engine finds becomes one ranked list.

Two components (dense and lexical), each scaled over the whole scope, are added with the configured
weights. To them comes how much of the question stands in a document and the turns beside it, and what a
conversation gives: the answer that follows a question, the person named, the time asked about, the passage
around, the kind of text. What is asked for to the letter stands before all that is merely near. Each of
these is a part of the score that can be shown; the parts of a result add up to its score, which lies
between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.clock import DAY_MS
from holdfast.errors import InvalidInput
from holdfast.memory.documents import Document
from holdfast.memory.engine.postings import idf
from holdfast.memory.engine.protocol import Metadata, Numbers, Scores, Top
from holdfast.memory.passage import Column, Links, around, from_question, lent
from holdfast.memory.question import Query, in_a_row
from holdfast.memory.quotas import Shares
from holdfast.memory.text import ASKS, CUES, NAMES_TIME, OWN, PARTICULAR, PARTICULARS, REPLIES

_FEW = 20
_MOST_READ = 60
_TELLING = 2.0
_SINGLED_OUT = 10
_BESIDE = 2
_NOT_OWN = 0.7
_LEAST_GRACE = 3 * DAY_MS
_MOST_GRACE = 30 * DAY_MS


class Candidates(Protocol):
    """What ranking asks of an engine's view of one scope; numbers are valid within it only."""

    @property
    def count(self) -> int: ...

    def lexical(self, terms: Sequence[str], limit: int) -> Top: ...

    def dense(self, fingerprint: str, vector: NDArray[Any], limit: int) -> Top: ...

    def lexical_scores(self, terms: Sequence[str], numbers: Numbers) -> Scores: ...

    def holding(self, terms: Sequence[str], numbers: Numbers) -> NDArray[np.bool_]:
        """Term by term which of these documents hold it."""
        ...

    def frequencies(self, terms: Sequence[str]) -> list[int]: ...

    def dense_scores(self, fingerprint: str, vector: NDArray[Any], numbers: Numbers) -> Scores:
        """Cosines, NaN for a document that has no vector yet."""
        ...

    def neighbours(self, numbers: Numbers) -> Numbers:
        """`(n, 2)`: the previous and the next of the same thread, -1 for none."""
        ...

    def metadata(self, numbers: Numbers) -> Metadata: ...

    def speakers_of(self, numbers: Numbers) -> list[str | None]: ...

    def documents(self, numbers: Numbers) -> Sequence[Document | None]: ...


class Reranker(Protocol):
    """A slower judge of the first few; gives each a score between 0 and 1."""

    def scores(self, question: str, numbers: Numbers) -> Sequence[float]: ...


@dataclass(frozen=True, slots=True)
class Scoring:
    """Weights of the parts. The defaults were chosen as docs/recall.md tells."""

    dense: float = 0.6
    lexical: float = 0.4
    beside: float = 0.7
    answer_dense: float = 0.2
    answer_lexical: float = 0.6
    speaker: float = 0.85
    time: float = 0.5
    period: float = 0.5
    statement: float = 0.15
    particular: float = 0.15
    curated: float = 0.5
    passage: float = 0.7
    passage_reach: int = 4
    passage_best: int = 2
    pause_ms: int = 6 * 3_600_000
    candidates: int = 100
    quotas: Mapping[str, float] = field(default_factory=lambda: {"transcript": 0.7, "log": 0.7})
    quota_floor: float = 0.5
    rerank: int = 0
    per_file: int = 0
    """Places that one file has at most while others wait; 0: any number."""
    most_lexical: float = 0.0
    """The share of words where they single out a few texts; 0: as anywhere."""

    def __post_init__(self) -> None:
        numbers = [self.dense, self.lexical, self.beside, self.speaker, self.time, self.period]
        numbers += [self.statement, self.particular, self.curated, self.passage]
        if min(numbers) < 0 or self.dense + self.lexical <= 0:
            raise InvalidInput(
                "scoring weights must not be negative, nor both components zero",
                hint="Give dense and lexical weights such as 0.6 and 0.4.",
            )
        if self.candidates < 1 or self.passage_best < 1 or self.passage_reach < 0:
            raise InvalidInput(
                "candidates and passageBest must be at least 1", hint="Leave them at their defaults."
            )


PROFILES: dict[str, Scoring] = {"default": Scoring(), "qmd": Scoring(dense=0.7, lexical=0.3)}


class Scored(NamedTuple):
    """One result. `parts` adds up to `score`; `cosine` and `bm25` are as the engine gave them."""

    number: int
    score: float
    parts: Mapping[str, float]
    cosine: float | None
    bm25: float


@dataclass(frozen=True, slots=True)
class _Pool:
    """The documents under consideration, with what the engine says of them."""

    numbers: Numbers
    metadata: Metadata
    links: Links
    cosine: Column
    bm25: Column
    cues: Mapping[str, NDArray[np.bool_]]
    covered: Column
    literal: Column
    speaks: Column
    beside: Numbers | None = None
    """The turns before and after each, where they were looked for."""


_NOTHING = _Pool(
    numbers=np.zeros(0, np.int64),
    metadata=Metadata(np.zeros(0, np.int64), np.zeros(0, np.bool_), [], []),
    links=Links(np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int64), np.zeros(0, np.bool_)),
    cosine=np.zeros(0),
    bm25=np.zeros(0),
    cues={},
    covered=np.zeros(0),
    literal=np.zeros(0),
    speaks=np.zeros(0),
)


def rank(
    query: Query,
    view: Candidates,
    options: Scoring = PROFILES["default"],
    *,
    limit: int = 10,
    reranker: Reranker | None = None,
) -> list[Scored]:
    """The best of the scope for this question, best first, newer before older where equal."""
    return choose(query, weigh(query, view, options, limit), options, limit, reranker)


@dataclass(frozen=True, slots=True)
class Weighed:
    """Everything that may answer a question, with its parts, and the places of the pool, best first."""

    pool: _Pool
    parts: Mapping[str, Column]
    total: Column
    order: Numbers
    least: float = -np.inf

    @property
    def cosines(self) -> Column:
        return self.pool.cosine

    def turns_beside(self, count: int, view: Candidates) -> Numbers:
        """The turns before and after each of the first few."""
        first, beside = self.order[:count], self.pool.beside
        return view.neighbours(self.pool.numbers[first]) if beside is None else beside[first]

    def best(self, count: int) -> list[Scored]:
        """The first few, whatever their source, without the parts of their scores."""
        return _scored(self.order[:count], self.pool, self.total, {})

    def above(self, least: float) -> Weighed:
        """Without what has a lower score."""
        least -= 1e-12
        return replace(self, order=self.order[self.total[self.order] >= least], least=least)


def weigh(query: Query, view: Candidates, options: Scoring, limit: int) -> Weighed:
    """Gather what may answer and add up its parts."""
    query = query.within(view.frequencies)
    most = max(options.candidates, limit)
    literal = _literal(query, view)
    by_words = view.lexical(query.terms, most)
    options = _by_telling_words(options, by_words)
    found = [by_words.numbers, literal]
    if query.vector is not None:
        found.append(view.dense(query.fingerprint, query.vector, most).numbers)
    numbers = _distinct(np.concatenate(found).astype(np.int64))
    turns = options.beside or options.passage
    numbers, beside = _with_turns(view, numbers) if turns else (numbers, np.full((len(numbers), 2), -1))
    if not len(numbers):
        return Weighed(_NOTHING, {}, np.zeros(0), numbers)
    pool = _describe(query, view, options, numbers, beside)
    pool = replace(pool, beside=beside) if turns else pool
    parts = _parts(query, options, pool)
    total: Column = np.sum(list(parts.values()), axis=0)
    relevant = parts["dense"] + parts["lexical"] + parts.get("beside", 0.0) + parts["answer"] > 0
    enough = None if options.quotas or options.per_file else limit
    order = _order(np.round(total, 9), pool.metadata.at, relevant, enough)
    return Weighed(pool, parts, total, order)


def choose(
    query: Query, weighed: Weighed, options: Scoring, limit: int, reranker: Reranker | None = None
) -> list[Scored]:
    """The results that are given: each source and each file held to its share."""
    if not len(weighed.order) or limit < 1:
        return []
    pool, total = weighed.pool, weighed.total
    about = pool.metadata
    shares = Shares(options.quotas, options.quota_floor, options.per_file)
    chosen = shares.places(weighed.order, total, about.source, about.thread, limit)
    _give_the_rare_word_a_place(chosen, pool.bm25, total, weighed.least)
    return _reranked(
        query, _scored(np.array(chosen, np.int64), pool, total, weighed.parts), options, reranker
    )


def _order(scores: Column, at: NDArray[np.int64], relevant: NDArray[np.bool_], most: int | None) -> Numbers:
    """The relevant places, the best first and the newer first of equals; with `most`, enough for so many."""
    places = np.flatnonzero(relevant)
    if most is not None and len(places) > most:
        bar = np.partition(scores[places], len(places) - most)[len(places) - most]
        places = places[scores[places] >= bar]
    return places[np.lexsort((places, -at[places], -scores[places]))]


def _give_the_rare_word_a_place(chosen: list[int], bm25: Column, total: Column, least: float) -> None:
    """The last place goes to what alone has the telling word, where much that is alike has crowded it out."""
    best = int(np.argmax(bm25))
    telling = len(chosen) > 1 and bm25[best] >= _TELLING * bm25[chosen].max()
    if telling and total[best] >= least and best not in chosen:
        chosen[-1] = best
        chosen.sort(key=lambda place: -total[place])


def _by_telling_words(options: Scoring, by_words: Top) -> Scoring:
    """Words count for more the more they single out a few texts: a rare word is what was meant.

    Many texts on what is common in the question would otherwise stand before the only one with the rare word.
    """
    if not options.most_lexical or len(by_words.scores) <= _SINGLED_OUT:
        return options
    gap = float(by_words.scores[0]) / max(float(by_words.scores[_SINGLED_OUT]), 1e-9)
    certainty = min(1.0, max(0.0, gap / _TELLING - 1))
    share = options.lexical / (options.dense + options.lexical)
    share += certainty * max(0.0, options.most_lexical - share)
    return replace(options, dense=1 - share, lexical=share)


def _literal(query: Query, view: Candidates) -> Numbers:
    """The best by what is asked for to the letter, which longer questions might crowd out."""
    terms = [term for literal in query.literals for term in literal]
    apart = bool(terms) and not set(query.terms) <= set(terms)
    return view.lexical(terms, _FEW).numbers if apart else np.zeros(0, np.int64)


def _with_turns(view: Candidates, numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Documents and the turns beside them, ascending, each with its neighbours."""
    beside = lent = view.neighbours(numbers)
    for _ in range(_BESIDE):
        fresh = _distinct(lent[lent >= 0])
        fresh = fresh[numbers[np.minimum(numbers.searchsorted(fresh), len(numbers) - 1)] != fresh]
        if not len(fresh):
            break
        lent = view.neighbours(fresh)
        numbers = np.concatenate([numbers, fresh])
        order = np.argsort(numbers)
        numbers, beside = numbers[order], np.concatenate([beside, lent])[order]
    return numbers, beside


def _distinct(numbers: Numbers) -> Numbers:
    """Each number once, ascending; for a few hundred a sort is quicker than numpy's hashing."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] > ordered[:-1])] if len(ordered) else ordered


def _describe(query: Query, view: Candidates, options: Scoring, numbers: Numbers, beside: Numbers) -> _Pool:
    metadata = view.metadata(numbers)
    cosine = np.full(len(numbers), np.nan)
    if query.vector is not None:
        cosine = view.dense_scores(query.fingerprint, query.vector, numbers).astype(np.float64)
    links = Links.of(
        numbers, beside, metadata.at, pause=options.pause_ms, reach=max(_BESIDE, options.passage_reach)
    )
    bm25 = view.lexical_scores(query.terms, numbers).astype(np.float64)
    words = WordsHeld.of(query.words if options.beside else [], view, numbers, population=max(view.count, 1))
    kinds = (
        _cues_for(query) if options.statement or options.particular or options.speaker or options.time else ()
    )
    return _Pool(
        numbers=numbers,
        metadata=metadata,
        links=links,
        cosine=cosine,
        bm25=bm25,
        cues=dict.fromkeys(CUES, np.zeros(len(numbers), np.bool_))
        | dict(zip(kinds, view.holding(kinds, numbers), strict=True)),
        covered=words.share @ lent(words.held, links, _BESIDE)
        if len(words.share)
        else np.zeros(len(numbers)),
        literal=_to_the_letter(query, view, numbers),
        speaks=_speaks(query, view.speakers_of(numbers)) if query.persons else np.zeros(len(numbers)),
    )


def _cues_for(query: Query) -> list[str]:
    """Those that may count: whose words they are where a person is named, a time where one is asked for."""
    without = ({OWN} if not query.persons else set()) | ({NAMES_TIME} if not query.wants_time else set())
    return [cue for cue in CUES if cue not in without]


class WordsHeld(NamedTuple):
    """A question's words in some documents: what share of it each is by its rarity, which hold it, and
    whether any document of the scope does."""

    share: Column
    held: NDArray[np.bool_]
    known: NDArray[np.bool_]

    @classmethod
    def of(
        cls, words: Sequence[Sequence[str]], view: Candidates, numbers: Numbers, *, population: int
    ) -> WordsHeld:
        if not words:
            return cls(np.zeros(0), np.zeros((0, len(numbers)), np.bool_), np.zeros(0, np.bool_))
        every = [term for word in words for term in word]
        starts = np.cumsum([0, *map(len, words[:-1])])
        having = np.maximum.reduceat(view.frequencies(every), starts)
        rarity = np.array([idf(population, min(count, view.count)) for count in having.tolist()])
        held = np.logical_or.reduceat(view.holding(every, numbers), starts, axis=0)
        return cls(rarity / rarity.sum(), held, having > 0)


def _to_the_letter(query: Query, view: Candidates, numbers: Numbers) -> Column:
    """The share of what is asked for to the letter that each document has, of what singles out a few."""
    if not query.literals:
        return np.zeros(len(numbers))
    every = [term for literal in query.literals for term in literal]
    starts = np.cumsum([0, *map(len, query.literals[:-1])])
    held = np.logical_and.reduceat(view.holding(every, numbers), starts, axis=0)
    few = (held.sum(axis=1) > 0) & (np.minimum.reduceat(view.frequencies(every), starts) <= _FEW)
    for place, quotation in enumerate(query.quotations):
        if quotation and held[place].any():
            quoting = _quoting(quotation, view, numbers, held[place])
            held[place] = quoting if quoting.any() else held[place]
            few[place] |= quoting.any()
    share: Column = held[few].mean(axis=0) if few.any() else np.zeros(len(numbers))
    return share


def _quoting(
    quotation: str, view: Candidates, numbers: Numbers, held: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which of those that hold all words of a quotation have them in a row; of very many the newest count."""
    places = np.flatnonzero(held)[-_MOST_READ:]
    texts = view.documents(numbers[places])
    found = np.zeros(len(held), np.bool_)
    found[places] = [one is not None and quotation in in_a_row(one.text) for one in texts]
    return found


def _parts(query: Query, options: Scoring, pool: _Pool) -> dict[str, Column]:
    """Every part of the score, on one scale on which the best conceivable result has 1."""
    parts, answer = _components(options, pool)
    cues, reach, few = pool.cues, options.passage_reach, options.passage_best
    near = parts["dense"] + parts["lexical"]
    answered = parts["answer"]
    bonus: dict[str, tuple[float, Callable[[], Column]]] = {
        "beside": (options.beside, lambda: pool.covered),
        "answer": (answer, lambda: answered / answer),
        "speaker": (options.speaker, lambda: pool.speaks * (_NOT_OWN + (1 - _NOT_OWN) * cues[OWN])),
        "time": (options.time * query.wants_time, lambda: cues[NAMES_TIME].astype(np.float64)),
        "period": (options.period * bool(query.ranges), lambda: _in_period(query, pool.metadata.at)),
        "curated": (options.curated, lambda: pool.metadata.curated.astype(np.float64)),
        "statement": (options.statement, lambda: 1 - _together(cues[ASKS], cues[REPLIES])),
        "particular": (options.particular, lambda: _together(cues[PARTICULAR], cues[PARTICULARS])),
        "passage": (options.passage, lambda: around(near, pool.links, reach, few)),
    }
    best = 1.0
    for name, (weight, column_of) in bonus.items():
        if weight:
            column = column_of()
            parts[name] = weight * column
            best += weight if column.any() else 0.0
    if pool.literal.any():
        parts["literal"] = best * pool.literal
        best *= 2
    return {name: column / best for name, column in parts.items()}


def _together(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> Column:
    """A half for each of two cues."""
    return (one.astype(np.float64) + other) / 2


def _components(options: Scoring, pool: _Pool) -> tuple[dict[str, Column], float]:
    """Own words and meaning, and what a question before lends of its; with how much that is at most."""
    known = ~np.isnan(pool.cosine)
    weight = options.dense / (options.dense + options.lexical) if known.any() else 0.0
    meaning, words = weight * _scaled(_meaning(pool, known)), (1 - weight) * _scaled(pool.bm25)
    asked = options.answer_dense * meaning + options.answer_lexical * words
    parts = {
        "dense": np.where(known, meaning, 0.0),
        "lexical": words + np.where(known, 0.0, meaning),
        "answer": from_question(asked, pool.links, pool.cues[ASKS]),
    }
    return parts, weight * options.answer_dense + (1 - weight) * options.answer_lexical


def _scaled(own: Column) -> Column:
    """So that the best document of the scope has 1."""
    most = float(own.max())
    return own / most if most > 0 else np.zeros(len(own))


def _meaning(pool: _Pool, known: NDArray[np.bool_]) -> Column:
    """Cosines above their floor; for a document that has no vector yet its words stand in."""
    if not known.any():
        return np.zeros(len(known))
    above: Column = np.where(known, pool.cosine - _floor(pool.cosine[known]), 0.0)
    most = float(pool.bm25.max())
    stand_in = pool.bm25 / most * above.max() if most > 0 else np.zeros(len(known))
    return np.where(known, above, stand_in)


def _floor(cosines: Column) -> float:
    """The cosine of what has nothing to do with the question: the least one, unless there are few.

    Among a handful of documents the least may be a good one; the floor then lies near 0.
    """
    least = float(np.min(cosines, initial=1.0))
    certainty = len(cosines) / (len(cosines) + _FEW)
    return certainty * least + (1 - certainty) * min(least, 0.0)


def _speaks(query: Query, speakers: Sequence[str | None]) -> Column:
    """1 for what a named person said; nothing where everyone is named, for it would not tell apart."""
    if query.persons.issuperset(speaker for speaker in speakers if speaker):
        return np.zeros(len(speakers))
    return np.array([speaker in query.persons for speaker in speakers], np.float64)


def _in_period(query: Query, at: NDArray[np.int64]) -> Column:
    """1 within a named period, falling to 0 over the days after it in which it is still talked about."""
    inside = np.zeros(len(at))
    for period in query.ranges:
        grace = max(_LEAST_GRACE, min(period.end - period.start, _MOST_GRACE))
        after = 1 - (at - period.end) / grace
        value = np.where(at < period.start, 0.0, np.clip(after, 0.0, 1.0))
        inside = np.maximum(inside, value)
    return inside


def _scored(chosen: Numbers, pool: _Pool, total: Column, parts: Mapping[str, Column]) -> list[Scored]:
    """The results in these places of the pool, turned from numpy's values into plain ones all at once."""
    numbers, scores, cosines, bm25 = (
        column[chosen].tolist() for column in (pool.numbers, total, pool.cosine, pool.bm25)
    )
    known = [None if cosine != cosine else cosine for cosine in cosines]
    return list(map(Scored._make, zip(numbers, scores, _named(chosen, parts), known, bm25, strict=True)))


def _named(chosen: Numbers, parts: Mapping[str, Column]) -> list[dict[str, float]]:
    """The parts of each that are something; made together for all that have the same ones."""
    if not parts:
        return [{} for _ in chosen]
    names = list(parts)
    values = np.array([column[chosen] for column in parts.values()])
    has = values != 0
    kinds = (1 << np.arange(len(names))) @ has
    made: list[dict[str, float]] = [{}] * len(chosen)
    for kind in set(kinds.tolist()):
        rows = np.flatnonzero(kinds == kind)
        held = np.flatnonzero(has[:, rows[0]]).tolist()
        own = [names[place] for place in held]
        for row, value in zip(rows.tolist(), values[held][:, rows].T.tolist(), strict=True):
            made[row] = dict(zip(own, value, strict=True))
    return made


def _reranked(
    query: Query, results: list[Scored], options: Scoring, reranker: Reranker | None
) -> list[Scored]:
    """The first few judged again: half the score stays, half is the judge's."""
    if reranker is None or options.rerank < 1:
        return results
    head, tail = results[: options.rerank], results[options.rerank :]
    judged = reranker.scores(query.text, np.array([result.number for result in head], np.int64))
    halves = [_halved(result, score) for result, score in zip(head, judged, strict=True)]
    tails = [_halved(result, 0.0) for result in tail]
    return sorted(halves, key=lambda result: -result.score) + tails


def _halved(result: Scored, judged: float) -> Scored:
    parts = {name: value / 2 for name, value in result.parts.items()}
    if judged:
        parts["rerank"] = judged / 2
    return result._replace(score=result.score / 2 + judged / 2, parts=parts)
