"""Changes to a tuple of segments: each gives a new tuple and leaves the old one to its readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.engine import files
from holdfast.memory.engine import segment as seg
from holdfast.memory.engine.postings import MAX_ROWS
from holdfast.memory.engine.segment import MOVING, Columns, Segment, State
from holdfast.memory.engine.vectors import Quantised

FAN_IN = 2
_TIER = 4
"""How many times larger the segments of the next tier are. Two of a tier are merged, so that there is one of
each: with 4 a million rows lie in three or four segments and each was written six times, with 2 in five."""
_SMALL = 4
_LITTLE = 8
"""In quiet hours the largest segment is written again only with at least so great a part of itself."""

Part = tuple[Segment, State]
Parts = tuple[Part, ...]
Nums = NDArray[np.int64]


def is_sealed(part: Part) -> bool:
    return bool(part[0].name)


def total_rows(parts: Sequence[Part]) -> int:
    return sum(segment.rows for segment, _ in parts)


def buried(parts: Parts, nums: Sequence[int] | Nums) -> Parts:
    """Mark documents as dead wherever they lie."""
    return _changed(parts, nums, lambda segment, state, rows, _: seg.buried(segment, state, rows))


def moved(parts: Parts, columns: Columns) -> Parts:
    """Give documents the group, topic and task that stand in `columns`."""

    def move(segment: Segment, state: State, rows: Nums, at: Nums) -> State:
        return seg.moved(segment, state, rows, {name: columns[name][at] for name in MOVING})

    return _changed(parts, columns["num"], move)


def _changed(
    parts: Parts,
    nums: Sequence[int] | Nums,
    change: Callable[[Segment, State, Nums, Nums], State],
) -> Parts:
    wanted = np.asarray(nums, np.int64)
    if not len(wanted):
        return parts
    changed = []
    for segment, state in parts:
        rows = segment.rows_of(wanted)
        at = np.flatnonzero(rows >= 0)
        changed.append((segment, change(segment, state, rows[at], at) if len(at) else state))
    return tuple(changed)


def with_fresh(parts: Parts, fresh: Part) -> Parts:
    """Append a segment and merge the small ones in memory like the carries of a binary counter."""
    found = [*parts, fresh]
    while len(found) > 1 and not is_sealed(found[-2]) and found[-2][0].rows < 2 * found[-1][0].rows:
        found[-2:] = [seg.merge_in_memory(found[-2:])]
    return tuple(found)


def place_vectors(parts: Parts, folder: Path, space: int, nums: Nums, block: Quantised) -> None:
    """Write vectors beside the rows of their documents, into the file of a sealed segment."""
    for segment, _ in parts:
        rows = segment.rows_of(nums)
        at = np.flatnonzero(rows >= 0)
        if not len(at):
            continue
        if segment.name and space not in segment.vectors:
            segment.vectors[space] = files.open_vectors(folder, segment.name, space, segment.rows, block.dims)
        segment.put_vectors(space, rows[at], block.rows(at))


def copy_vectors(source: Parts, target: Part) -> None:
    """Take over the vectors that other segments hold for the same documents."""
    nums = target[0].columns["num"]
    for segment, _ in source:
        rows = segment.rows_of(nums)
        at = np.flatnonzero(rows >= 0)
        for space, block in segment.vectors.items():
            target[0].vector_block(space, block.dims).put(at, block.rows(rows[at]))


def apart(sealed: Sequence[Part], rows: int, seal_rows: int) -> tuple[list[Part], list[Part]]:
    """The segments to keep, and the small ones to write again with so many fresh rows: none much larger.

    Each row is then written a handful of times, and a search meets a handful of small segments.
    """
    by_size = sorted(sealed, key=lambda part: part[0].rows)
    small: set[int] = set()
    for segment, _ in by_size:
        if segment.rows > min(2 * rows, seal_rows // _SMALL):
            break
        small.add(id(segment))
        rows += segment.rows
    kept = [part for part in sealed if id(part[0]) not in small]
    return kept, [part for part in sealed if id(part[0]) in small]


def next_merge(parts: Parts, seal_rows: int) -> Parts:
    """The sealed segments to merge now: a full tier, or one that is mostly dead; else none."""
    tiers: dict[int, list[Part]] = {}
    for part in parts:
        segment, state = part
        if not is_sealed(part):
            continue
        if state.dead_count * 2 > segment.rows:
            return (part,)
        tiers.setdefault(_tier(segment.rows, seal_rows), []).append(part)
    for tier in sorted(tiers):
        full = tiers[tier]
        if len(full) >= FAN_IN and total_rows(full) < MAX_ROWS:
            return tuple(full)
    return ()


def tidy_merge(parts: Parts) -> Parts:
    """The sealed segments to merge when there is time: all, or, where the others come to little beside the
    largest, those, so that a large one is not written anew for every few rows."""
    sealed = [part for part in parts if is_sealed(part)]
    by_size = sorted(sealed, key=lambda part: part[0].rows)
    if by_size and total_rows(by_size[:-1]) * _LITTLE < by_size[-1][0].rows:
        by_size.pop()
    while total_rows(by_size) >= MAX_ROWS:
        by_size.pop()
    taken = {id(segment) for segment, _ in by_size}
    return tuple(part for part in sealed if id(part[0]) in taken) if len(taken) > 1 else ()


def _tier(rows: int, seal_rows: int) -> int:
    tier, bound = 0, 2 * seal_rows
    while rows >= bound:
        tier, bound = tier + 1, bound * _TIER
    return tier


def write_merged(
    parts: Sequence[Part], folder: Path, name: str, go_on: Callable[[], None] = lambda: None
) -> Part | None:
    """Merge into new files, synced but not yet named in the store; `None` if nothing lives.

    `go_on` is asked between the steps, and raises to end it. What is damaged is not merged, or it would be
    written with checksums that are right.
    """
    for segment, _ in parts:
        if segment.name:
            files.verify(folder, segment.name)
    plan = seg.plan_merge(parts)
    if not len(plan.row):
        return None
    postings = seg.merged_postings(parts, plan)
    go_on()
    files.write_segment(folder, name, plan.columns, postings)
    del postings
    for space in sorted({space for segment, _ in parts for space in list(segment.vectors)}):
        blocks = [segment.vectors.get(space) for segment, _ in parts]
        dims = next(block.dims for block in blocks if block is not None)
        files.write_vectors(folder, name, space, dims, blocks, plan, go_on)
    return open_part(folder, name)


def open_part(folder: Path, name: str, damaged: Callable[[Path], None] | None = None) -> Part:
    """Map a sealed segment and all vector files beside it; `damaged` is told of one that is not whole."""
    segment, state = files.read_segment(folder, name)
    for path, space, dims in files.vectors_beside(folder, name):
        try:
            segment.vectors[space] = files.open_vectors(folder, name, space, segment.rows, dims)
        except files.DamagedVectors:
            if damaged is None:
                raise
            damaged(path)
    return segment, state


def followed_part(folder: Path, name: str) -> Part:
    """A sealed segment that another process writes, with the vector files that it has now."""
    segment, state = files.read_segment(folder, name)
    follow_vectors(folder, segment)
    return segment, state


def follow_vectors(folder: Path, segment: Segment) -> None:
    """Map the vector files beside a segment to read them; one that is not whole is left to its writer."""
    for path, space, dims in files.vectors_beside(folder, segment.name):
        if space not in segment.vectors:
            with suppress(files.DamagedVectors, OSError):
                segment.vectors[space] = files.mapped_vectors(path, segment.rows, dims)
    segment.vectors_changed()
