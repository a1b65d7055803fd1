"""Room for every source, so that transcripts do not crowd out files and notes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray


def within_quotas(
    order: NDArray[np.int64],
    scores: NDArray[np.float64],
    sources: Sequence[str],
    quotas: Mapping[str, float],
    floor: float,
    limit: int,
) -> list[int]:
    """The first `limit` places of `order`, each source held to its share while others are worth it.

    A place is given to another source only for a result with at least `floor` of the best score, and
    no place stays empty for a quota's sake.
    """
    ranked: list[int] = order.tolist()
    if not quotas or len(set(sources)) < 2:
        return ranked[:limit]
    worth = scores[order].tolist()
    chosen: list[int] = []
    deferred: list[int] = []
    counts: Counter[str] = Counter()
    walk = iter(range(len(ranked)))
    for place in walk:
        if len(chosen) == limit or worth[place] < floor * worth[0]:
            deferred.append(place)
            break
        source = sources[ranked[place]]
        if counts[source] < math.ceil(quotas.get(source, 1.0) * limit):
            counts[source] += 1
            chosen.append(place)
        else:
            deferred.append(place)
    for place in chain(deferred, walk):
        if len(chosen) >= limit:
            break
        chosen.append(place)
    return [ranked[place] for place in sorted(chosen)]
