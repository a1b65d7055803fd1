"""Small numbers for names, and for the groups by which an index lays out its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.documents import Document, Filter

_MOST_SCOPES = 256
NONE = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Documents that every coarse filter treats alike, and that therefore lie side by side."""

    audience: str
    agent: str | None
    collection: str | None
    source: str
    spaces: frozenset[str]

    def allowed(self, wanted: Filter) -> bool:
        return (
            (wanted.audiences is None or self.audience in wanted.audiences)
            and (wanted.agents is None or self.agent in wanted.agents)
            and (wanted.spaces is None or not wanted.spaces.isdisjoint(self.spaces))
            and (wanted.collections is None or self.collection in wanted.collections)
            and (wanted.sources is None or self.source in wanted.sources)
        )


def group_of(document: Document) -> Group:
    return Group(document.audience, document.agent, document.collection, document.source, document.spaces)


class Symbols:
    """Names to codes and back; what is new waits in `unsaved` until the store has committed it."""

    def __init__(self, known: Iterable[tuple[int, str]] = ()) -> None:
        self._names: dict[int, str | None] = {NONE: None, **dict(known)}
        self._codes = {name: code for code, name in self._names.items() if name is not None}
        self._next = max(self._names) + 1
        self.unsaved: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return self._next

    def code(self, name: str | None) -> int:
        """The code of a name, made if new; `None` is 0."""
        if name is None:
            return NONE
        known = self._codes.get(name)
        if known is None:
            known = self._codes[name] = self._next
            self._names[known] = name
            self._next += 1
            self.unsaved.append((known, name))
        return known

    @property
    def next_code(self) -> int:
        return self._next

    def learn(self, made: Iterable[tuple[int, str]]) -> None:
        """Take over names that another process made."""
        for code, name in made:
            self._names[code], self._codes[name] = name, code
            self._next = max(self._next, code + 1)

    def names(self, codes: NDArray[np.int32]) -> list[str | None]:
        return [self._names[code] for code in codes.tolist()]

    def known(self, names: frozenset[str]) -> list[int]:
        """Codes of those names that any document ever had."""
        return [code for name in names if (code := self._codes.get(name)) is not None]


class Groups:
    """Groups to codes and back, and which of them a filter allows."""

    def __init__(self, known: Iterable[tuple[int, Group]] = ()) -> None:
        self._list: list[Group] = [group for _, group in sorted(known, key=lambda row: row[0])]
        self._codes = {group: code for code, group in enumerate(self._list)}
        self.unsaved: list[tuple[int, Group]] = []
        self._flags: dict[tuple[object, ...], NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self._list)

    def code(self, group: Group) -> int:
        known = self._codes.get(group)
        if known is None:
            known = len(self._list)
            self._list.append(group)
            self._codes[group] = known
            self.unsaved.append((known, group))
        return known

    @property
    def next_code(self) -> int:
        return len(self._list)

    def learn(self, made: Iterable[tuple[int, Group]]) -> None:
        """Take over groups that another process made, in the order of their codes."""
        for code, group in made:
            self._list.append(group)
            self._codes[group] = code

    def sources(self, codes: NDArray[np.int32]) -> list[str]:
        return [self._list[code].source for code in codes.tolist()]

    def allowed(self, wanted: Filter) -> NDArray[np.bool_]:
        """One flag per group code; kept, as groups only come to those that there are, and scopes are few."""
        scope = (wanted.audiences, wanted.agents, wanted.spaces, wanted.collections, wanted.sources)
        flags = self._flags.get(scope)
        if flags is None or len(flags) < len(self._list):
            known = self._list[:]
            flags = np.fromiter((group.allowed(wanted) for group in known), np.bool_, len(known))
            flags.setflags(write=False)
            if len(self._flags) >= _MOST_SCOPES:
                self._flags.clear()
            self._flags[scope] = flags
        return flags
