"""A sealed run of documents, laid out by group, and the little of it that may still change.

Everything in a `Segment` but its vectors is fixed. Deletions and moves make a new `State`, so a reader
that holds a segment and its state sees one moment, whatever the writer does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.engine import postings as lists
from holdfast.memory.engine.postings import Postings
from holdfast.memory.engine.vectors import Quantised, empty

COLUMNS: Mapping[str, Any] = {
    "num": np.int64,
    "place": np.int64,
    "at": np.int64,
    "session": np.int32,
    "speaker": np.int32,
    "writer": np.int32,
    "curated": np.bool_,
    "length": np.uint16,
}
ENDS, TWIN, LOOSE = -1, -2, -3
MOVING: Mapping[str, Any] = {"group": np.int32, "topic": np.int32, "task": np.int32}
Columns = dict[str, NDArray[Any]]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class State:
    """What may change about a segment's rows; `homes` names the ranges a group's rows moved from."""

    group: NDArray[np.int32]
    topic: NDArray[np.int32]
    task: NDArray[np.int32]
    dead: NDArray[np.bool_]
    homes: Mapping[int, frozenset[int]] = field(default_factory=dict)
    impure: frozenset[int] = frozenset()
    dead_count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Rows sorted by group, thread and ordinal; `edges` are where one group's range ends.

    `places` are theirs in the order of threads alone, `by_place` the rows in that order, and `threads` those
    that occur. `beside` has the rows before and after each in its thread, or why there is none: `ENDS` where
    the thread does here, `TWIN` for one of the same place, `LOOSE` for a row of no thread; `adjoining` says
    which of them have the very next ordinal. `scopes` keeps which ranges were last selected, and for whom.
    """

    name: str
    columns: Columns
    postings: Postings
    by_num: NDArray[np.int32]
    by_place: NDArray[np.int32]
    places: Rows
    range_group: NDArray[np.int32]
    edges: Rows
    beside: NDArray[np.int32]
    adjoining: NDArray[np.bool_]
    threads: Rows
    longest: int
    vectors: dict[int, Quantised]
    scopes: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    _totals: dict[tuple[int, int], int] = field(default_factory=dict)
    _distinct: dict[tuple[str, int, int], frozenset[int]] = field(default_factory=dict)
    _complete: set[tuple[int, int, int]] = field(default_factory=set)
    _marks: dict[tuple[str, ...], NDArray[np.uint8]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.columns["num"])

    def rows_of(self, nums: NDArray[np.int64]) -> Rows:
        """The row of each number, -1 where it lies elsewhere."""
        return found_rows(self.columns["num"], self.by_num, nums)

    def total_length(self, low: int, high: int) -> int:
        """The summed length of a range, kept, since the same scopes are asked again and again."""
        known = self._totals.get((low, high))
        if known is None:
            known = int(self.columns["length"][low:high].sum(dtype=np.int64))
            self._totals[low, high] = known
        return known

    def distinct(self, name: str, low: int, high: int) -> frozenset[int]:
        """The different codes in a range of a column, kept like its length."""
        known = self._distinct.get((name, low, high))
        if known is None:
            known = frozenset(np.unique(self.columns[name][low:high]).tolist())
            self._distinct[name, low, high] = known
        return known

    def marks(self, terms: tuple[str, ...]) -> NDArray[np.uint8]:
        """For each row which of a few terms it has, bit by bit in their order: made once of terms that every
        question asks for, whose lists are so long that looking rows up in them takes longer than all else."""
        known = self._marks.get(terms)
        if known is None:
            known = np.zeros(self.rows, np.uint8)
            for bit, (first, last) in enumerate(self.postings.spans(lists.term_keys(terms))):
                known[self.postings.rows[first:last]] |= np.uint8(1 << bit)
            self._marks[terms] = known
        return known

    def lacking(self, space: int, low: int, high: int) -> NDArray[np.bool_] | None:
        """Which rows of a range have no vector; `None`, which is kept, where all have one."""
        if (space, low, high) in self._complete:
            return None
        block = self.vectors.get(space)
        found = np.ones(high - low, np.bool_) if block is None else block.scales[low:high] == 0
        if not found.any():
            self._complete.add((space, low, high))
            return None
        return found

    def put_vectors(self, space: int, rows: Rows, block: Quantised) -> None:
        """Write vectors beside their rows; one of length 0 takes away what was there."""
        self.vector_block(space, block.dims).put(rows, block)
        if not block.scales.all():
            self._complete.clear()

    def drop_vectors(self, space: int, rows: Rows) -> None:
        """Take away vectors that cannot be trusted; they are made again like those that were never there."""
        self.vectors[space].drop(rows)
        self._complete.clear()

    def vectors_changed(self) -> None:
        """Another process wrote vectors beside the rows."""
        self._complete.clear()

    def vector_block(self, space: int, dims: int) -> Quantised:
        """The block of a vector space, made empty in memory if this segment has none."""
        block = self.vectors.get(space)
        if block is None:
            block = self.vectors[space] = empty(self.rows, dims)
        return block


def found_rows(column: NDArray[Any], order: NDArray[np.int32], wanted: NDArray[Any]) -> Rows:
    if not len(column):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(column, wanted, sorter=order), len(column) - 1)
    rows = order[at].astype(np.int64)
    return np.where(column[rows] == wanted, rows, -1)


def build(columns: Columns, analysed: Sequence[Sequence[str]]) -> tuple[Segment, State]:
    """A segment in memory from documents in any order."""
    order = np.lexsort((columns["place"], columns["group"]))
    ordered = {name: values[order] for name, values in columns.items()}
    terms = [analysed[row] for row in order.tolist()]
    ordered["length"] = lists.lengths_of(terms)
    return assemble("", ordered, lists.build(terms), {})


def assemble(
    name: str, columns: Columns, postings: Postings, vectors: dict[int, Quantised]
) -> tuple[Segment, State]:
    """Derive the orders and ranges of rows that are already sorted by group and place."""
    fixed = {key: columns[key] for key in COLUMNS}
    group = columns["group"]
    heads = np.flatnonzero(np.diff(group, prepend=np.int32(-1)))
    by_place = np.argsort(fixed["place"], kind="stable").astype(np.int32)
    places = fixed["place"][by_place]
    beside, adjoining = _beside(places, by_place)
    occurring = places >> 32
    segment = Segment(
        name=name,
        columns=fixed,
        postings=postings,
        by_num=np.argsort(fixed["num"]).astype(np.int32),
        by_place=by_place,
        places=places,
        range_group=group[heads],
        edges=np.append(heads, len(group)).astype(np.int64),
        beside=beside,
        adjoining=adjoining,
        threads=occurring[np.diff(occurring, prepend=np.int64(-1)) != 0],
        longest=int(fixed["length"].max(initial=0)),
        vectors=vectors,
    )
    return segment, State(group, columns["topic"], columns["task"], np.zeros(len(group), np.bool_))


def _beside(places: Rows, by_place: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """`beside` and `adjoining` of a segment, for each row the one before and the one after."""
    beside = np.full((len(places), 2), ENDS, np.int32)
    adjoining = np.zeros((len(places), 2), np.bool_)
    step = places[1:] - places[:-1]
    same = places[1:] >> 32 == places[:-1] >> 32
    for side, (own, other) in enumerate(((by_place[1:], by_place[:-1]), (by_place[:-1], by_place[1:]))):
        beside[own, side] = np.where(same, np.where(step == 0, TWIN, other), ENDS)
        adjoining[own, side] = same & (step == 1)
    beside[by_place[places >> 32 <= 0]] = LOOSE
    return beside, adjoining


def buried(segment: Segment, state: State, rows: Rows) -> State:
    """The state after some rows have died."""
    dead = state.dead.copy()
    dead[rows] = True
    touched = np.searchsorted(segment.edges, rows, side="right") - 1
    return replace(
        state,
        dead=dead,
        impure=state.impure | frozenset(touched.tolist()),
        dead_count=int(dead.sum()),
    )


def moved(segment: Segment, state: State, rows: Rows, moves: Mapping[str, NDArray[Any]]) -> State:
    """The state after some rows got another group, topic or task."""
    columns = {name: getattr(state, name).copy() for name in MOVING}
    for name, values in moves.items():
        columns[name][rows] = values
    homes = dict(state.homes)
    ranges = (np.searchsorted(segment.edges, rows, side="right") - 1).tolist()
    for group, home in zip(columns["group"][rows].tolist(), ranges, strict=True):
        homes[group] = homes.get(group, frozenset()) | {home}
    return replace(state, **columns, homes=homes, impure=state.impure | frozenset(ranges))


@dataclass(frozen=True, slots=True)
class Plan:
    """The order of a merge: for every new row the part and the row that it comes from."""

    part: NDArray[np.int32]
    row: Rows
    columns: Columns


def plan_merge(parts: Sequence[tuple[Segment, State]]) -> Plan:
    """Put the living rows of several segments into one order by group and place."""
    alive = [np.flatnonzero(~state.dead) for _, state in parts]
    joined: Columns = {
        name: np.concatenate(
            [segment.columns[name][rows] for (segment, _), rows in zip(parts, alive, strict=True)]
        )
        for name in COLUMNS
    }
    for name in MOVING:
        joined[name] = np.concatenate(
            [getattr(state, name)[rows] for (_, state), rows in zip(parts, alive, strict=True)]
        )
    order = np.lexsort((joined["place"], joined["group"]))
    part = np.repeat(np.arange(len(parts), dtype=np.int32), [len(rows) for rows in alive])
    row = np.concatenate(alive) if alive else np.zeros(0, np.int64)
    return Plan(part[order], row[order], {name: col[order] for name, col in joined.items()})


def merged_postings(parts: Sequence[tuple[Segment, State]], plan: Plan) -> Postings:
    maps = [np.full(segment.rows, -1, np.int32) for segment, _ in parts]
    new = np.arange(len(plan.row), dtype=np.int32)
    for index, moved_to in enumerate(maps):
        mine = plan.part == index
        moved_to[plan.row[mine]] = new[mine]
    return lists.merge([(s.postings, moved_to) for (s, _), moved_to in zip(parts, maps, strict=True)])


def gather(blocks: Sequence[Quantised | None], plan: Plan, low: int, high: int, into: Quantised) -> None:
    """Copy the vectors of a range of new rows; rows whose part has no such vectors stay empty."""
    part, row = plan.part[low:high], plan.row[low:high]
    for index, block in enumerate(blocks):
        mine = np.flatnonzero(part == index)
        if block is None or not len(mine):
            continue
        rows = row[mine]
        into.codes[mine] = block.codes[rows]
        into.bits[:, mine] = block.bits[:, rows]
        into.scales[mine] = block.scales[rows]
        into.sums[mine] = block.sums[rows]


def merge_in_memory(parts: Sequence[tuple[Segment, State]]) -> tuple[Segment, State]:
    """Merge small segments without touching the disk."""
    plan = plan_merge(parts)
    vectors: dict[int, Quantised] = {}
    for space in sorted({space for segment, _ in parts for space in segment.vectors}):
        blocks = [segment.vectors.get(space) for segment, _ in parts]
        dims = next(block.dims for block in blocks if block is not None)
        vectors[space] = empty(len(plan.row), dims)
        gather(blocks, plan, 0, len(plan.row), vectors[space])
    return assemble("", plan.columns, merged_postings(parts, plan), vectors)
