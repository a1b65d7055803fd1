"""Which rows of which segments a filter lets through: ranges first, masks only where needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.documents import Filter
from holdfast.memory.engine.segment import Segment, State
from holdfast.memory.engine.symbols import Symbols

_MOST_RANGES = 32
_MOST_SCOPES = 16
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of a segment side by side, those of a scope among them: how many, and how long all together.

    `live` marks them; `None` stands for all.
    """

    low: int
    high: int
    live: Mask | None
    population: int
    total_length: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a segment's rows; the view numbers them from `start` on.

    `live` marks the rows of the scope, over which BM25 counts; `keep` those the whole filter lets
    through. `None` stands for all.
    """

    segment: Segment
    state: State
    low: int
    high: int
    start: int
    live: Mask | None
    keep: Mask | None
    population: int
    total_length: int

    @property
    def rows(self) -> int:
        return self.high - self.low

    @property
    def kept(self) -> int:
        if self.keep is self.live:
            return self.population
        return self.rows if self.keep is None else int(np.count_nonzero(self.keep))


Located = tuple[Piece, slice | NDArray[np.int64], NDArray[np.int64]]
"""A piece, where in some numbers its rows stand, and which rows they are."""


def located(pieces: Sequence[Piece], starts: NDArray[np.int64], numbers: NDArray[np.int64]) -> list[Located]:
    """Per piece the rows that some of the view's numbers mean; quickest where the numbers ascend."""
    order = None if (numbers[1:] >= numbers[:-1]).all() else np.argsort(numbers, kind="stable")
    ordered = numbers if order is None else numbers[order]
    bounds = [*ordered.searchsorted(starts).tolist(), len(numbers)]
    found: list[Located] = []
    for piece, first, last in zip(pieces, bounds[:-1], bounds[1:], strict=True):
        if first < last:
            at = slice(first, last) if order is None else order[first:last]
            found.append((piece, at, ordered[first:last] + (piece.low - piece.start)))
    return found


@dataclass(frozen=True, slots=True)
class Fine:
    """The part of a filter that is decided row by row, with names already turned into codes."""

    codes: tuple[tuple[str, tuple[int, ...]], ...]
    curated: bool | None
    since: int | None
    until: int | None
    chatter_since: int | None
    excluded: NDArray[np.int64]

    @property
    def restricts(self) -> bool:
        return bool(
            self.codes
            or self.curated is not None
            or self.since is not None
            or self.until is not None
            or self.chatter_since is not None
            or len(self.excluded)
        )


def fine_part(wanted: Filter, symbols: Symbols, excluded: NDArray[np.int64]) -> Fine:
    fields = {
        "topic": wanted.topics,
        "task": wanted.tasks,
        "session": wanted.sessions,
        "speaker": wanted.speakers,
        "writer": wanted.writers,
    }
    codes = tuple((name, tuple(symbols.known(names))) for name, names in fields.items() if names is not None)
    return Fine(codes, wanted.curated, wanted.since, wanted.until, wanted.chatter_since, excluded)


def select(parts: Sequence[tuple[Segment, State]], allowed: NDArray[np.bool_], fine: Fine) -> list[Piece]:
    """The pieces of all segments, numbered one after another."""
    pieces: list[Piece] = []
    start = 0
    for segment, state in parts:
        for one in _scoped(segment, state, allowed):
            low, high, live = one.low, one.high, one.live
            keep = _keep(segment, state, low, high, live, fine)
            pieces.append(
                Piece(segment, state, low, high, start, live, keep, one.population, one.total_length)
            )
            start += high - low
    return pieces


def _scoped(segment: Segment, state: State, allowed: NDArray[np.bool_]) -> list[Range]:
    """The ranges of a scope, kept while neither the segment's rows nor the scope's groups change: where rows
    died or moved, every one of them is looked at, and the same scopes are asked again and again."""
    kept = segment.scopes.get(id(allowed))
    if kept is not None and kept[0] is state and kept[1] is allowed:
        found: list[Range] = kept[2]
        return found
    found = [
        _range(segment, low, high, None if pure else _live(state, allowed, low, high))
        for low, high, pure in _ranges(segment, state, allowed)
    ]
    if len(segment.scopes) >= _MOST_SCOPES:
        segment.scopes.clear()
    segment.scopes[id(allowed)] = state, allowed, found
    return found


def _range(segment: Segment, low: int, high: int, live: Mask | None) -> Range:
    if live is None:
        return Range(low, high, None, high - low, segment.total_length(low, high))
    length = int(segment.columns["length"][low:high][live].sum(dtype=np.int64))
    return Range(low, high, live, int(np.count_nonzero(live)), length)


def _ranges(segment: Segment, state: State, allowed: NDArray[np.bool_]) -> Iterator[tuple[int, int, bool]]:
    """Adjacent ranges of allowed groups joined; one masked cover where they are too many."""
    wanted = set(np.flatnonzero(allowed[segment.range_group]).tolist())
    for group, homes in state.homes.items():
        if allowed[group]:
            wanted |= homes
    joined: list[tuple[int, int, bool]] = []
    for index in sorted(wanted):
        low, high = int(segment.edges[index]), int(segment.edges[index + 1])
        pure = index not in state.impure
        if joined and joined[-1][1] == low and joined[-1][2] == pure:
            joined[-1] = (joined[-1][0], high, pure)
        else:
            joined.append((low, high, pure))
    if len(joined) > _MOST_RANGES:
        return iter([(joined[0][0], joined[-1][1], False)])
    return iter(joined)


def _live(state: State, allowed: NDArray[np.bool_], low: int, high: int) -> Mask:
    live: Mask = allowed[state.group[low:high]]
    live &= ~state.dead[low:high]
    return live


def _keep(segment: Segment, state: State, low: int, high: int, live: Mask | None, fine: Fine) -> Mask | None:
    if not fine.restricts:
        return live
    keep = np.ones(high - low, np.bool_) if live is None else live.copy()
    for name, codes in fine.codes:
        column: NDArray[Any] = getattr(state, name) if name in {"topic", "task"} else segment.columns[name]
        keep &= np.isin(column[low:high], codes)
    if fine.curated is not None:
        keep &= segment.columns["curated"][low:high] == fine.curated
    if fine.since is not None:
        keep &= segment.columns["at"][low:high] >= fine.since
    if fine.until is not None:
        keep &= segment.columns["at"][low:high] < fine.until
    if fine.chatter_since is not None:
        young = segment.columns["at"][low:high] >= fine.chatter_since
        keep &= young | segment.columns["curated"][low:high].astype(np.bool_)
    if len(fine.excluded):
        rows = segment.rows_of(fine.excluded)
        rows = rows[(rows >= low) & (rows < high)]
        keep[rows - low] = False
    return keep
