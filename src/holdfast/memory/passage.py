"""The conversation around a document: what its neighbours lend it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Links:
    """For each place in a pool the places one, two, … turns before and after it, row by row.

    Where there is none stands the number of places, under which a value of 0 is found.
    """

    before: Places
    after: Places

    @classmethod
    def of(
        cls,
        pool: NDArray[np.int64],
        neighbours: NDArray[np.int64],
        at: NDArray[np.int64],
        *,
        pause: int,
        reach: int,
    ) -> Links:
        """Links within an ascending pool; a pause longer than `pause` ms ends the conversation."""
        places = np.minimum(pool.searchsorted(neighbours), len(pool) - 1)
        near = np.abs(at[places] - at[:, None]) <= pause
        held = np.where((neighbours >= 0) & (pool[places] == neighbours) & near, places, len(pool))
        return cls(_walk(held[:, 0], reach), _walk(held[:, 1], reach))


def _walk(link: Places, reach: int) -> Places:
    """The places that so many steps along a link lead to."""
    step = np.append(link, len(link))
    found = np.empty((reach, len(link)), np.int64)
    places = np.arange(len(link))
    for row in found:
        places = np.take(step, places, out=row)
    return found


def spread(values: Column, links: Links, weights: Sequence[float]) -> Column:
    """What the turns one, two, … before and after lend, each with its weight."""
    padded, lent = np.append(values, 0.0), np.zeros_like(values)
    for weight, before, after in zip(weights, links.before, links.after, strict=False):
        lent += weight * (padded[before] + padded[after])
    return lent


def from_question(values: Column, links: Links, asks: NDArray[np.bool_]) -> Column:
    """What the turn before lends if it asks something: the answer belongs to the question's words."""
    taken: Column = np.append(np.where(asks, values, 0.0), 0.0)[links.before[0]]
    return taken


def around(values: Column, links: Links, reach: int, best: int) -> Column:
    """The mean of the best few values within `reach` turns, the document itself among them."""
    padded = np.append(values, 0.0)
    rows = [values, *padded[links.before[:reach]], *padded[links.after[:reach]]]
    top = _greatest(rows, min(best, len(rows)))
    mean: Column = np.sum(top, axis=0) / len(top)
    return mean


def _greatest(rows: Sequence[Column], best: int) -> list[Column]:
    """Place by place the `best` greatest of the rows: each row in turn displaces what it exceeds."""
    top: list[Column] = []
    for row in rows:
        falling = row.copy()
        for held in top:
            lower = np.minimum(held, falling)
            np.maximum(held, falling, out=held)
            falling = lower
        if len(top) < best:
            top.append(falling)
    return top
