"""What stands before and after a document in its thread, within what a filter lets through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.engine.protocol import Numbers
from holdfast.memory.engine.segment import Segment
from holdfast.memory.engine.selection import Located, Piece

_MOST_STEPS = 32
_LOWEST, _HIGHEST = np.int64(-1), np.int64(2**62)
_ORDINAL = np.int64(2**32 - 1)
_STEPS = np.array([-1, 1], np.int64)

Places = NDArray[np.int64]


def neighbours(pieces: Sequence[Piece], located: Sequence[Located], places: Places) -> Numbers:
    """Most lie in the rows beside, which are sorted by thread; the rest are searched for."""
    out = np.full((len(places), 2), -1, np.int64)
    for piece, at, rows in located:
        out[at] = _adjacent(piece, rows, places[at])
    threaded = places >> 32 > 0
    for side, step, could in ((0, -1, places & _ORDINAL > 0), (1, 1, True)):
        rest = np.flatnonzero((out[:, side] < 0) & threaded & could)
        if len(rest):
            out[rest, side] = _searched(pieces, places[rest], step)
    return out


def _adjacent(piece: Piece, rows: NDArray[np.int64], places: Places) -> Numbers:
    """The rows beside each if they are the very next of the thread and let through, else -1."""
    beside = rows[:, None] + _STEPS
    np.minimum(np.maximum(beside, piece.low, out=beside), piece.high - 1, out=beside)
    good = piece.segment.columns["place"][beside] == places[:, None] + _STEPS
    good &= (places >> 32 > 0)[:, None]
    if piece.keep is not None:
        good &= piece.keep[beside - piece.low]
    return np.where(good, beside + (piece.start - piece.low), -1)


def _searched(pieces: Sequence[Piece], places: Places, step: int) -> Numbers:
    """The nearest on one side over all segments, each of which may hold part of a thread."""
    out = np.full(len(places), -1, np.int64)
    held = np.full(len(places), _LOWEST if step < 0 else _HIGHEST)
    for segment, own in _by_segment(pieces):
        at = segment.places.searchsorted(places, "left" if step < 0 else "right") - (step < 0)
        there = segment.places[np.minimum(at, segment.rows - 1)]
        if not ((there ^ places) >> 32 == 0).any():
            continue
        number, place = _beside(segment, own, places, at, step)
        nearer = (number >= 0) & ((place - held) * step < 0)
        out[nearer], held[nearer] = number[nearer], place[nearer]
    return out


def _by_segment(pieces: Sequence[Piece]) -> Iterator[tuple[Segment, list[Piece]]]:
    for _, same in groupby(pieces, key=lambda piece: id(piece.segment)):
        own = list(same)
        yield own[0].segment, own


def _beside(
    segment: Segment, pieces: list[Piece], places: Places, at: NDArray[np.int64], step: int
) -> tuple[Numbers, Places]:
    """Per place the next row of its thread in one direction that the filter lets through."""
    number = np.full(len(places), -1, np.int64)
    place = np.zeros(len(places), np.int64)
    waiting = np.arange(len(places))
    for _ in range(_MOST_STEPS):
        waiting = waiting[(at[waiting] >= 0) & (at[waiting] < segment.rows)]
        there = segment.places[at[waiting]]
        same = there >> 32 == places[waiting] >> 32
        waiting, there = waiting[same], there[same]
        if not len(waiting):
            break
        found = _numbers_of(pieces, segment.by_place[at[waiting]])
        good = (found >= 0) & (there != places[waiting])
        number[waiting[good]], place[waiting[good]] = found[good], there[good]
        waiting = waiting[~good]
        at[waiting] += step
    return number, place


def _numbers_of(pieces: list[Piece], rows: NDArray[np.int32]) -> Numbers:
    """The view's numbers of a segment's rows, -1 for what the filter leaves out."""
    out = np.full(len(rows), -1, np.int64)
    for piece in pieces:
        at = np.flatnonzero((rows >= piece.low) & (rows < piece.high))
        if piece.keep is not None:
            at = at[piece.keep[rows[at] - piece.low]]
        out[at] = rows[at] + np.int64(piece.start - piece.low)
    return out
