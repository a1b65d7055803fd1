"""Which topic an exchange belongs to, decided by its words alone: pure, bounded, and the same every time.

Each known topic is a small language model of what was lately said in it. An exchange is weighed against all
of them: how much likelier are its words there than anywhere? A new topic explains nothing better than
anywhere, so it scores 0. To that comes how likely it is beforehand that a conversation stays with its topic,
goes back to another, or begins a new one. Words without meaning weigh nothing, so "ok, do it" stays.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from holdfast.board.words import is_filler, terms

Move = Literal["stay", "return", "new"]
Cue = Literal["none", "request", "change"]
"""What the form of an exchange says: nothing, a request that stands on its own, an announced change."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The few numbers of the model, found on two conversations that the benchmark does not report on."""

    mixture: float = 0.2
    stay: float = 0.7
    back: float = 0.05
    new: float = 0.08
    decay: float = 0.8
    name_weight: float = 2.0
    prior_tokens: float = 400.0
    filler_rate: float = 0.004
    rare_rate: float = 0.0008
    most_per_word: float = 3.0


DEFAULT: Final = Weights()


@dataclass(frozen=True, slots=True)
class Profile:
    """What a topic has lately been about, as weighted counts of words."""

    id: str
    name: str
    counts: Mapping[str, float]
    total: float
    handicap: float = 0.0


@dataclass(frozen=True, slots=True)
class Scored:
    """One way to sort an exchange, and the words that spoke for it most."""

    id: str | None
    move: Move
    score: float
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The best way and those that it was chosen from; `margin` is its lead over the next."""

    best: Scored
    margin: float
    others: tuple[Scored, ...] = field(default=())

    @property
    def confidence(self) -> float:
        """Between 0 and 1: how likely the best is against the next, as the model sees it."""
        return 1 / (1 + math.exp(-min(self.margin, 50.0)))


def profile(
    id_: str, name: str, texts: Sequence[str], *, handicap: float = 0.0, weights: Weights = DEFAULT
) -> Profile:
    """The profile of a topic from its name and its texts, newest last: what is older counts less."""
    counts: defaultdict[str, float] = defaultdict(float)
    for term in terms(name):
        counts[term] += weights.name_weight
    share = 1.0
    for text in reversed(texts):
        for term in terms(text):
            counts[term] += share
        share *= weights.decay
    return Profile(id_, name, counts, sum(counts.values()), handicap)


class Background:
    """How common words are anywhere: in all that is at hand, smoothed by what is known of the language."""

    def __init__(self, texts: Iterable[Sequence[str]] = (), weights: Weights = DEFAULT) -> None:
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._weights = weights
        for words in texts:
            self.add(words)

    def add(self, words: Sequence[str]) -> None:
        self._counts.update(words)
        self._total += len(words)

    def remove(self, words: Sequence[str]) -> None:
        self._counts.subtract(words)
        self._total -= len(words)

    def rate(self, term: str) -> float:
        known = self._weights.filler_rate if is_filler(term) else self._weights.rare_rate
        total = self._total + self._weights.prior_tokens
        return (self._counts[term] + self._weights.prior_tokens * known) / total


def decide(
    words: Sequence[str],
    profiles: Sequence[Profile],
    background: Background,
    *,
    current: str | None,
    cue: Cue = "none",
    weights: Weights = DEFAULT,
) -> Verdict:
    """The likeliest topic of an exchange."""
    stay, back, new = _priors(weights, len(profiles), current, cue)
    ways = [Scored(None, "new", math.log(new))]
    telling = [(term, background.rate(term)) for term in dict.fromkeys(words) if not is_filler(term)]
    for one in profiles:
        score, evidence = affinity(telling, one, weights)
        move: Move = "stay" if one.id == current else "return"
        prior = math.log(stay if one.id == current else back) - one.handicap
        ways.append(Scored(one.id, move, score + prior, evidence))
    ways.sort(key=lambda way: (-way.score, way.move != "stay", way.id or ""))
    margin = ways[0].score - ways[1].score if len(ways) > 1 else math.inf
    return Verdict(ways[0], margin, tuple(ways[1:4]))


def affinity(
    telling: Sequence[tuple[str, float]], topic: Profile, weights: Weights = DEFAULT
) -> tuple[float, tuple[str, ...]]:
    """How much likelier the words are in the topic than anywhere, in nats, and the words that say so.

    Each word is given with its rate anywhere.
    """
    total = 0.0
    speaking: list[tuple[float, str]] = []
    counts, size = topic.counts, max(topic.total, 1.0)
    strange = min(math.log(1 - weights.mixture), weights.most_per_word)
    for term, rate in telling:
        count = counts.get(term)
        if not count:
            total += strange
            continue
        ratio = count / size / rate
        gain = min(math.log(1 - weights.mixture + weights.mixture * ratio), weights.most_per_word)
        total += gain
        if gain > 0.5:
            speaking.append((gain, term))
    speaking.sort(key=lambda pair: (-pair[0], pair[1]))
    return total, tuple([term for _, term in speaking[:5]])


def _priors(weights: Weights, known: int, current: str | None, cue: Cue) -> tuple[float, float, float]:
    """The chance to stay, to go back to one given other topic, and to begin a new one."""
    others = max(1, known - (current is not None))
    if current is None:
        return 1.0, 0.5 / others, 0.5
    if cue == "change":
        return 0.05, 0.25 / others, 0.7
    if cue == "request":
        return 0.35, 0.25 / others, 0.4
    return weights.stay, weights.back / others, weights.new
