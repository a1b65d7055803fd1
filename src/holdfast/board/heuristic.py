"""Which topic an episode belongs to, decided by its words alone: pure, bounded, and the same every time.

An episode is an exchange, or a few that hang together. Each topic that shares words with it is weighed: by
how much those words are the topic's own among all that are known, and by how rare they are in the language
at large. A new topic has what nobody said before. To that comes how likely it is beforehand that a
conversation stays with its topic, goes back to another, or begins a new one. Words without meaning weigh
nothing, so "ok, do it" stays; one telling word begins no topic while the talk goes on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from holdfast.board.words import commonness_of, is_filler, subject_set

Move = Literal["stay", "return", "new"]
Cue = Literal["none", "request", "change", "back", "follow-up"]
"""What the form of an exchange says: nothing, a request that stands on its own, an announced change or
return, or a request that points back at something."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Fitted over seven people's talk (multinomial logit), each of them left out in turn: docs/classifier.md.
    What is announced (`change`) is too seldom in it, and set by hand."""

    rare: float = 1.35
    a_rare_one: float = 0.66
    less_rare: float = 0.66
    common: float = 0.70
    stay: float = 0.22
    alone: float = 0.53
    strange: float = -0.20
    paused: float = -0.50
    back: float = -0.06
    of_the_session: float = 0.95
    size: float = -0.25
    new: float = -0.16
    request: float = 0.25
    words: float = 0.67
    unknown: float = 0.96
    known_elsewhere: float = -0.30
    topics: float = -0.77
    change: float = 1.5
    reply: float = 0.6
    most: float = 3.0
    terse: int = 1


DEFAULT: Final = Weights()
PAUSE_MINUTES: Final = 10
AWAY_MINUTES: Final = 120
"""A visit to a session ends with so long a silence: what comes then is as likely about anything else."""
RARE: Final = 4.3
COMMON: Final = 4.8
"""How often words come at large (`words.commonness_of`): rare up to the one, common above the other."""
_UNSURE: Final = 0.3
_LEAST_COUNTED: Final = 3
_MOST_COUNTED: Final = 12


@dataclass(frozen=True, slots=True)
class Profile:
    """What a topic has lately been about: in how many of its texts a word stands."""

    id: str
    name: str
    counts: Mapping[str, float]
    size: int
    handicap: float = 0.0

    def without(self, texts: Sequence[str], *, named: bool = False) -> Profile:
        """As if these texts had not been said; `named` says that its name was made of them as well."""
        left = dict(self.counts)
        for text in (*texts, *([self.name] if named else [])):
            for word in subject_set(text):
                if left.get(word, 0) > 1:
                    left[word] -= 1
                else:
                    left.pop(word, None)
        return Profile(self.id, self.name, left, self.size - len(texts), self.handicap)

    def with_more(self, text: str) -> Profile:
        """As if this text had been said too."""
        counts = dict(self.counts)
        for word in subject_set(text):
            counts[word] = counts.get(word, 0) + 1
        return Profile(self.id, self.name, counts, self.size + 1, self.handicap)


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


def profile(id_: str, name: str, texts: Sequence[str], *, handicap: float = 0.0) -> Profile:
    """The profile of a topic from its name and its texts."""
    counts: Counter[str] = Counter(subject_set(name))
    for text in texts:
        counts.update(subject_set(text))
    return Profile(id_, name, counts, len(texts), handicap)


class _Shared(NamedTuple):
    """What words a topic shares with an episode come to, by how rare they are at large, and the words."""

    rare: float
    less_rare: float
    common: float
    evidence: tuple[str, ...]

    @property
    def any(self) -> float:
        return self.rare + 0.6 * self.less_rare + 0.3 * self.common


_NOTHING: Final = _Shared(0.0, 0.0, 0.0, ())


def decide(
    words: Sequence[str],
    profiles: Sequence[Profile],
    *,
    current: str | None,
    cue: Cue = "none",
    pause_minutes: float = 0.0,
    asked: Collection[str] | None = None,
    exchanges: int = 1,
    of_session: Collection[str] = (),
    weights: Weights = DEFAULT,
) -> Verdict:
    """The likeliest topic of an episode of so many exchanges.

    `asked` are the words that the person said (None: all), `of_session` the topics that its session had, and
    `pause_minutes` is how long nothing was said before it.
    """
    telling = [term for term in dict.fromkeys(words) if not is_filler(term)]
    own = set(telling) if asked is None else set(telling).intersection(asked)
    known = {one.id: [word for word in telling if word in one.counts] for one in profiles}
    seen: dict[str, float] = {}
    for one in profiles:
        for word in known[one.id]:
            seen[word] = seen.get(word, 0) + one.counts[word]
    kinds = {word: (1.0 if word in own else weights.reply, _rarity(word)) for word in seen}
    shared = {one.id: _shared(known[one.id], one.counts, seen, kinds, weights.most) for one in profiles}
    visits = pause_minutes <= AWAY_MINUTES and any(one.id == current for one in profiles)
    ways = []
    if not (visits and cue != "change" and len(telling) <= weights.terse):
        unknown = sum(word not in seen for word in own)
        most = max((one.any for one in shared.values()), default=0.0)
        ways.append(Scored(None, "new", _new(weights, cue, len(own), unknown, most, len(profiles))))
    for one in profiles:
        found = shared[one.id]
        prior = (
            _stay(weights, cue, pause_minutes, exchanges, nothing=not found.any)
            if visits and one.id == current
            else _back(weights, cue, one, of_session)
        )
        move: Move = "stay" if one.id == current else "return"
        if found.any or move == "stay":
            score = _likeness(found, weights) + prior - one.handicap
            ways.append(Scored(one.id, move, score, found.evidence))
    ways.sort(key=lambda way: (-way.score, way.move != "stay", way.id or ""))
    margin = ways[0].score - ways[1].score if len(ways) > 1 else math.inf
    return Verdict(ways[0], margin, tuple(ways[1:4]))


def _rarity(word: str) -> int:
    """0 for a word that is rare at large, 1 for one that is less so, 2 for a common one."""
    at_large = commonness_of(word)
    return (at_large > RARE) + (at_large > COMMON)


def _shared(
    words: Sequence[str],
    counts: Mapping[str, float],
    seen: Mapping[str, float],
    kinds: Mapping[str, tuple[float, int]],
    most: float,
) -> _Shared:
    """A word counts by the share of it that is this topic's; what only answers say, for less."""
    if not words:
        return _NOTHING
    sums = [0.0, 0.0, 0.0]
    speaking: list[tuple[float, str]] = []
    for word in words:
        weight, rarity = kinds[word]
        gain = counts[word] / (seen[word] + _UNSURE) * weight
        sums[rarity] += gain
        speaking.append((-gain, word))
    speaking.sort()
    rare, less_rare, common = (min(one, most) for one in sums)
    return _Shared(rare, less_rare, common, tuple([word for _, word in speaking[:5]]))


def _likeness(found: _Shared, weights: Weights) -> float:
    one = weights.a_rare_one if found.rare > _UNSURE else 0.0
    return (
        weights.rare * found.rare + one + weights.less_rare * found.less_rare + weights.common * found.common
    )


def _stay(weights: Weights, cue: Cue, pause_minutes: float, exchanges: int, *, nothing: bool) -> float:
    """An exchange by itself may go on without any word of its topic; several that hang together seldom do."""
    score = weights.stay + (weights.alone if exchanges == 1 else weights.strange * nothing)
    if pause_minutes > PAUSE_MINUTES:
        score += weights.paused
    announced = {"change": -weights.change, "back": -weights.change, "follow-up": weights.change}
    return score + announced.get(cue, 0.0)


def _back(weights: Weights, cue: Cue, topic: Profile, of_session: Collection[str]) -> float:
    score = weights.back + weights.size * math.log1p(min(topic.size / 2, _MOST_COUNTED))
    if topic.id in of_session:
        score += weights.of_the_session
    return score + weights.change if cue == "back" else score


def _new(weights: Weights, cue: Cue, own: int, unknown: int, shared: float, topics: int) -> float:
    """The more words nobody said before, and the less any topic shares, the likelier it is another matter."""
    score = weights.new + weights.words * math.log1p(own) + weights.unknown * math.log1p(unknown)
    score += weights.known_elsewhere * min(shared, weights.most)
    score += weights.topics * math.log1p(min(max(topics, _LEAST_COUNTED), _MOST_COUNTED))
    announced = {"request": weights.request, "change": weights.change}
    return score + announced.get(cue, 0.0)
