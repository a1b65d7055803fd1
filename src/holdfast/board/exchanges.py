"""Exchanges: what a person said and what was answered, which is the unit that is sorted.

Exchanges that hang together are an episode. What it is about shows better the more of it was said, so it is
thought over with each exchange, and may take those before along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Final

from holdfast.board import noise
from holdfast.board.rules import Scope
from holdfast.board.semantic import semantic_text
from holdfast.board.words import (
    MAX_CHARS,
    commonness_of,
    language_of,
    subject_set,
    subject_terms,
    word_subjects,
)
from holdfast.log import Audience, Entry, EntryType, meet

LONGEST_EPISODE: Final = 4
_VISIT_MS: Final = 7_200_000
_AT_ONCE_MS: Final = 600_000
_SHORT_ANSWER: Final = 6
_SHORT_REMARK: Final = 3
_SHARED: Final = 5.2
"""How common a word may be at large that holds two exchanges together by itself."""


@dataclass(frozen=True)
class Exchange:
    """Entries in the order of the log. `reply` says that it begins with an answer to something earlier."""

    entries: tuple[Entry, ...]
    reply: bool = False

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """What each of the entries says."""
        return tuple([semantic_text(entry) for entry in self.entries])

    @cached_property
    def text(self) -> str:
        return "\n".join(filter(None, self.texts))

    @cached_property
    def audience(self) -> Audience:
        """Who may read all of it."""
        return meet(entry.audience for entry in self.entries)

    @property
    def given_space(self) -> str | None:
        """The space that its writer gave it, if one did."""
        return self.entries[0].given_space

    @property
    def session_key(self) -> str | None:
        return self.entries[0].session_key

    @cached_property
    def asked(self) -> str:
        """What the person said; all of it when none of it is a person's."""
        said = zip(self.entries, self.texts, strict=True)
        return "\n".join(text for entry, text in said if is_person(entry)) or self.text

    @cached_property
    def words(self) -> frozenset[str]:
        return subject_set(self.text)

    @cached_property
    def telling(self) -> tuple[str, ...]:
        """The words that can tell what it is about, in order; without the verb of a request."""
        found = list(subject_terms(self.text))
        verb = noise.asked_for(self.asked)
        for term in () if verb is None else word_subjects(verb, language_of(self.text[:MAX_CHARS])):
            if term in found:
                found.remove(term)
        return tuple(found)

    @cached_property
    def asked_words(self) -> frozenset[str]:
        return subject_set(self.asked)

    def hangs_together_with(self, before: Exchange) -> bool:
        """Whether it goes on with the exchange before it, by its form or by a word that both have."""
        pause = self.entries[0].created_at - before.entries[-1].created_at
        if pause > _VISIT_MS or not self.may_join(before):
            return False
        if noise.announces_new_thread(self.asked) or noise.announces_return(self.asked):
            return False
        if self.reply or noise.is_low_signal(self.text):
            return True
        short = len(self.asked_words)
        answers = before.text.rstrip().endswith("?") and not is_person(before.entries[-1])
        if answers and short <= _SHORT_ANSWER and not noise.is_fresh_request(self.asked):
            return True
        if noise.goes_on(self.asked) and short <= _SHORT_REMARK:
            return True
        if pause <= _AT_ONCE_MS and noise.agrees(self.asked):
            return True
        return any(commonness_of(word) <= _SHARED for word in self.words & before.words)

    def may_join(self, other: Exchange) -> bool:
        """Whether both may be sorted as one: the same people read them, in the same given space."""
        return (self.audience, self.given_space) == (other.audience, other.given_space)


@dataclass(frozen=True, slots=True)
class Episode:
    """Exchanges of a session that hang together, as they lie now."""

    exchanges: tuple[Exchange, ...]
    topic_id: str
    made: bool
    """Whether its topic was made for it."""
    before: str | None
    """The topic that the session had before."""
    pause_minutes: float

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple([entry for one in self.exchanges for entry in one.entries])

    def goes_on_with(self, exchange: Exchange, current: str | None) -> bool:
        """Whether an exchange of the session, which is at the topic `current`, belongs to it."""
        last = self.exchanges[-1]
        return (
            len(self.exchanges) < LONGEST_EPISODE
            and self.topic_id == current
            and last.entries[-1].position < exchange.entries[0].position
            and exchange.hangs_together_with(last)
        )

    def with_more(self, exchange: Exchange) -> Episode:
        return replace(self, exchanges=(*self.exchanges, exchange))


def is_person(entry: Entry) -> bool:
    """Whether a person said it: by its role, else by its agent id; without either it counts as one's."""
    if entry.type is not EntryType.CONVERSATION:
        return False
    if entry.role is not None:
        return entry.role == "user"
    return entry.agent_id in (None, "user")


def split(found: Sequence[Entry]) -> list[Exchange]:
    """Cut wherever a person speaks: what is not about the same is then free to part."""
    groups: list[list[Entry]] = []
    for entry in found:
        if not groups or is_person(entry):
            groups.append([])
        groups[-1].append(entry)
    return [Exchange(tuple(group), reply=not is_person(group[0])) for group in groups]


def in_scopes(found: Sequence[Entry], scopes: Mapping[str, Scope]) -> list[Exchange]:
    """The exchanges of a session, cut where scope, given space or audience change as well."""

    def kind(entry: Entry) -> tuple[object, ...]:
        return scopes[entry.id], entry.given_space, entry.audience

    groups: list[Exchange] = []
    for exchange in split(found):
        for one, part in groupby(exchange.entries, key=kind):
            reply = exchange.reply or one != kind(exchange.entries[0])
            groups.append(Exchange(tuple(part), reply))
    return groups


@dataclass(slots=True)
class Window:
    """The exchanges that were read and are still to be sorted, in order. Where more wait behind them, the
    last two are left to the next reading: the last may be cut, and the one before it may go with it."""

    groups: list[Exchange] = field(default_factory=list)
    scopes: dict[str, Scope] = field(default_factory=dict)
    full: bool = True
    fresh: bool = True
    seen: set[str] = field(default_factory=set)

    def copy(self) -> Window:
        return Window([*self.groups], {**self.scopes}, self.full, self.fresh, {*self.seen})

    @property
    def is_used_up(self) -> bool:
        return self.full and len(self.groups) <= 2

    def goes_on_with(self, exchange: Exchange) -> bool:
        """Whether the next may be sorted as one with it."""
        return bool(self.groups) and exchange.may_join(self.groups[0])

    def join_next(self, exchange: Exchange) -> None:
        """Sort an exchange as one with the next."""
        self.groups[0] = Exchange((*exchange.entries, *self.groups[0].entries))

    @property
    def may_be_cut(self) -> bool:
        """Whether the next exchange is the last that was read, and another reading would show more of it."""
        return self.full and len(self.groups) == 1 and not self.fresh
