"""What stands before and after a document in its thread, within what a filter lets through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.engine.protocol import Numbers
from holdfast.memory.engine.segment import ENDS, LOOSE, Segment
from holdfast.memory.engine.selection import Located, Piece

_MOST_STEPS = 32
_LOWEST, _HIGHEST = np.int64(-1), np.int64(2**62)
ORDINAL = np.int64(2**32 - 1)

Places = NDArray[np.int64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


def neighbours(pieces: Sequence[Piece], located: Sequence[Located], places: Places) -> Numbers:
    """Most stand in the turns beside in their segment; only the rest is searched for in every one."""
    out = np.full((len(places), 2), -1, np.int64)
    if not (places >> 32).any():
        return out
    beside = np.full((len(places), 2), LOOSE, np.int32)
    sure = np.zeros((len(places), 2), np.bool_)
    segments = list(_by_segment(pieces))
    for segment, mine in segments:
        at, rows = _within(segment, located)
        if len(rows):
            beside[at] = segment.beside[rows]
            sure[at] = segment.adjoining[rows]
            out[at] = _numbers_of(mine, beside[at])
    doubtful = np.flatnonzero(~sure.all(axis=1))
    sure[doubtful] |= _in_one_segment(segments, places[doubtful] >> 32)[:, None]
    out[~sure] = -1
    unsure = (out < 0) & (beside != LOOSE) & ~(sure & (beside == ENDS))
    for side, step in ((0, -1), (1, 1)):
        rest = np.flatnonzero(unsure[:, side])
        if len(rest):
            out[rest, side] = _searched(segments, places[rest], step)
    return out


def _in_one_segment(segments: Sequence[tuple[Segment, list[Piece]]], threads: NDArray[np.int64]) -> Mask:
    """Which of the threads, each of which has a row somewhere, lie in no more than one segment."""
    if len(segments) == 1:
        return np.ones(len(threads), np.bool_)
    holding = np.zeros(len(threads), np.int32)
    for segment, _ in segments:
        holding += _holds(segment, threads)
    alone: Mask = holding == 1
    return alone


def _holds(segment: Segment, threads: NDArray[np.int64]) -> Mask:
    """Which of the threads have a row in a segment."""
    at = np.minimum(segment.threads.searchsorted(threads), len(segment.threads) - 1)
    held: Mask = segment.threads[at] == threads
    return held


def _within(segment: Segment, located: Sequence[Located]) -> tuple[slice | Rows, Rows]:
    """Where those that a segment holds stand, and its rows of them."""
    own = [(at, rows) for piece, at, rows in located if piece.segment is segment]
    if len(own) == 1:
        return own[0]
    places = [np.arange(at.start, at.stop) if isinstance(at, slice) else at for at, _ in own]
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *places]), np.concatenate([nothing, *(rows for _, rows in own)])


def _searched(segments: Sequence[tuple[Segment, list[Piece]]], places: Places, step: int) -> Numbers:
    """The nearest on one side over all segments, each of which may hold part of a thread."""
    out = np.full(len(places), -1, np.int64)
    held = np.full(len(places), _LOWEST if step < 0 else _HIGHEST)
    for segment, own in segments:
        if not _holds(segment, places >> 32).any():
            continue
        at = segment.places.searchsorted(places, "left" if step < 0 else "right") - (step < 0)
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
    out = np.full(rows.shape, -1, np.int64)
    for piece in pieces:
        inside = (rows >= piece.low) & (rows < piece.high)
        if piece.keep is not None:
            inside[inside] = piece.keep[rows[inside] - piece.low]
        np.copyto(out, rows + np.int64(piece.start - piece.low), where=inside)
    return out
