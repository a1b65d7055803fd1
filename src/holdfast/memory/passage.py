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

    Where there is none stands the number of places, under which a value of 0 is found. What has no turn on
    either side stands alone.
    """

    before: Places
    after: Places
    alone: NDArray[np.bool_]

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
        if (neighbours < 0).all():
            nowhere = np.full((reach, len(pool)), len(pool))
            return cls(nowhere, nowhere, np.ones(len(pool), np.bool_))
        places = np.minimum(pool.searchsorted(neighbours), len(pool) - 1)
        near = np.abs(at[places] - at[:, None]) <= pause
        held = np.where((neighbours >= 0) & (pool[places] == neighbours) & near, places, len(pool))
        alone = (neighbours[:, 0] < 0) & (neighbours[:, 1] < 0)
        return cls(_walk(held[:, 0], reach), _walk(held[:, 1], reach), alone)


def _walk(link: Places, reach: int) -> Places:
    """The places that so many steps along a link lead to."""
    step = np.append(link, len(link))
    found = np.empty((reach, len(link)), np.int64)
    places = np.arange(len(link))
    for row in found:
        places = np.take(step, places, out=row)
    return found


def lent(held: NDArray[np.bool_], links: Links, reach: int) -> NDArray[np.bool_]:
    """Row by row what each place or one within `reach` turns of it holds."""
    padded = np.column_stack([held, np.zeros(len(held), np.bool_)])
    found = held.copy()
    for places in (*links.before[:reach], *links.after[:reach]):
        found |= padded[:, places]
    return found


def from_question(values: Column, links: Links, asks: NDArray[np.bool_]) -> Column:
    """What the turn before lends if it asks something: the answer belongs to the question's words."""
    taken: Column = np.append(np.where(asks, values, 0.0), 0.0)[links.before[0]]
    return taken


def around(values: Column, links: Links, reach: int, best: int) -> Column:
    """The mean of the best few values within `reach` turns, the document itself among them; what stands alone
    is a passage by itself."""
    padded = np.append(values, 0.0)
    rows = [values, *padded[links.before[:reach]], *padded[links.after[:reach]]]
    top = _greatest(rows, min(best, len(rows)))
    return np.where(links.alone, values, np.sum(top, axis=0) / len(top))


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
