"""Which topic an exchange belongs to, decided by its words alone: pure, bounded, and the same every time.

Each known topic is a small language model of what was lately said in it. An exchange is weighed against all
of them: how much likelier are its words there than anywhere? A new topic explains nothing better than
anywhere, so it scores 0. To that comes how likely it is beforehand that a conversation stays with its topic,
goes back to another, or begins a new one: by how long it paused, and by what its form announces. Words
without meaning weigh nothing, so "ok, do it" stays; one telling word begins no topic while the talk goes on.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from holdfast.board.words import is_filler, subject_terms

Move = Literal["stay", "return", "new"]
Cue = Literal["none", "request", "change", "back", "follow-up"]
"""What the form of an exchange says: nothing, a request that stands on its own, an announced change or
return, or words that only go on with something."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The few numbers of the model, found on two conversations that the benchmark does not report on."""

    mixture: float = 0.25
    stay: float = 0.7
    paused: float = 0.17
    away: float = 0.05
    back: float = 0.05
    new: float = 0.08
    first: float = 0.5
    request: float = 1.0
    change: float = 1.5
    follow_up: float = 1.5
    terse: int = 1
    decay: float = 0.8
    name_weight: float = 1.0
    prior_tokens: float = 400.0
    rare_rate: float = 0.0006
    most_per_word: float = 3.0


DEFAULT: Final = Weights()
PAUSE_MINUTES: Final = 10
AWAY_MINUTES: Final = 120
"""A visit to a session ends with so long a silence: what comes then is as likely about anything else."""


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
    for term in subject_terms(name):
        counts[term] += weights.name_weight
    share = 1.0
    for text in reversed(texts):
        for term in subject_terms(text):
            counts[term] += share
        share *= weights.decay
    return Profile(id_, name, counts, sum(counts.values()), handicap)


def decide(
    words: Sequence[str],
    profiles: Sequence[Profile],
    *,
    current: str | None,
    cue: Cue = "none",
    pause_minutes: float = 0.0,
    weights: Weights = DEFAULT,
) -> Verdict:
    """The likeliest topic of an exchange; `pause_minutes` is how long nothing was said before it."""
    stay, back, new = _priors(weights, current, cue, pause_minutes)
    telling = _rated([term for term in dict.fromkeys(words) if not is_filler(term)], profiles, weights)
    goes_on = pause_minutes <= AWAY_MINUTES and cue != "change" and any(one.id == current for one in profiles)
    ways = [] if goes_on and len(telling) <= weights.terse else [Scored(None, "new", new)]
    for one in profiles:
        score, evidence = affinity(telling, one, weights)
        move: Move = "stay" if one.id == current else "return"
        prior = (stay if one.id == current else back) - one.handicap
        ways.append(Scored(one.id, move, score + prior, evidence))
    ways.sort(key=lambda way: (-way.score, way.move != "stay", way.id or ""))
    margin = ways[0].score - ways[1].score if len(ways) > 1 else math.inf
    return Verdict(ways[0], margin, tuple(ways[1:4]))


def _rated(words: Sequence[str], profiles: Sequence[Profile], weights: Weights) -> list[tuple[str, float]]:
    """Each word with how common it is anywhere: in all the topics at hand, smoothed by how rare words are."""
    size = sum([one.total for one in profiles]) + weights.prior_tokens
    known = weights.prior_tokens * weights.rare_rate
    seen = dict.fromkeys(words, known)
    for one in profiles:
        counts = one.counts
        for word in seen.keys() & counts.keys():
            seen[word] += counts[word]
    return [(word, count / size) for word, count in seen.items()]


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


def _priors(
    weights: Weights, current: str | None, cue: Cue, pause_minutes: float
) -> tuple[float, float, float]:
    """How likely it is to stay, to go back to one given other topic, and to begin a new one, in nats."""
    back, new = math.log(weights.back), math.log(weights.new)
    if current is None:
        return 0.0, back, math.log(weights.first)
    kept = weights.stay if pause_minutes <= PAUSE_MINUTES else weights.paused
    stay = math.log(kept if pause_minutes <= AWAY_MINUTES else weights.away)
    if cue == "change":
        return stay - weights.change, back, new + weights.change
    if cue == "back":
        return stay - weights.change, back + weights.change, new
    more = {"request": weights.request, "follow-up": -weights.follow_up}
    return stay, back, new + more.get(cue, 0.0)
