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
    """For each place in a pool the places of the previous and the next turn, -1 for none."""

    previous: Places
    following: Places

    @classmethod
    def of(
        cls, pool: NDArray[np.int64], neighbours: NDArray[np.int64], at: NDArray[np.int64], pause: int
    ) -> Links:
        """Links within an ascending pool; a pause longer than `pause` ms ends the conversation."""
        places = np.minimum(np.searchsorted(pool, neighbours), len(pool) - 1)
        near = np.abs(at[places] - at[:, None]) <= pause
        held = np.where((neighbours >= 0) & (pool[places] == neighbours) & near, places, -1)
        return cls(held[:, 0], held[:, 1])


def spread(values: Column, links: Links, weights: Sequence[float]) -> Column:
    """What the turns one, two, … before and after lend, each with its weight."""
    lent = np.zeros_like(values)
    before, after = links.previous, links.following
    for weight in weights:
        lent += weight * (_taken(values, before) + _taken(values, after))
        before, after = _step(links.previous, before), _step(links.following, after)
    return lent


def from_question(values: Column, links: Links, asks: NDArray[np.bool_]) -> Column:
    """What the turn before lends if it asks something: the answer belongs to the question's words."""
    return _taken(np.where(asks, values, 0.0), links.previous)


def around(values: Column, links: Links, reach: int, best: int) -> Column:
    """The mean of the best few values within `reach` turns, the document itself among them."""
    rows = [values]
    before, after = links.previous, links.following
    for _ in range(reach):
        rows += [_taken(values, before), _taken(values, after)]
        before, after = _step(links.previous, before), _step(links.following, after)
    stacked = np.array(rows)
    best = min(best, len(rows))
    top: Column = np.partition(stacked, len(rows) - best, axis=0)[len(rows) - best :].mean(axis=0)
    return top


def _taken(values: Column, places: Places) -> Column:
    return np.where(places >= 0, values[places], 0.0)


def _step(link: Places, places: Places) -> Places:
    return np.where(places >= 0, link[places], -1)
