"""Room for every source and every file, so that transcripts or one long file do not crowd out the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of the places that a source may fill, and how many one file may (0: any number)."""

    quotas: Mapping[str, float]
    floor: float
    per_file: int = 0

    def places(
        self,
        order: NDArray[np.int64],
        scores: NDArray[np.float64],
        sources: Sequence[str],
        files: Sequence[Hashable],
        limit: int,
    ) -> list[int]:
        """The first `limit` places of `order`, each source and file held to its share while others fit.

        A place is given to another only for a result with at least `floor` of the best score, and no place
        stays empty for a share's sake.
        """
        ranked: list[int] = order.tolist()
        if not self.per_file and (not self.quotas or len(set(sources)) < 2):
            return ranked[:limit]
        worth = scores[order].tolist()
        taken: Counter[Hashable] = Counter()
        chosen: list[int] = []
        deferred: list[int] = []
        for place, number in enumerate(ranked):
            if len(chosen) == limit:
                break
            fits = worth[place] >= self.floor * worth[0]
            if fits and self._has_room(taken, sources[number], files[number], limit):
                taken.update((sources[number], (sources[number], files[number])))
                chosen.append(place)
            else:
                deferred.append(place)
        chosen += deferred[: limit - len(chosen)]
        return [ranked[place] for place in sorted(chosen)]

    def _has_room(self, taken: Counter[Hashable], source: str, file: Hashable, limit: int) -> bool:
        if taken[source] >= math.ceil(self.quotas.get(source, 1.0) * limit):
            return False
        return not self.per_file or source != "file" or taken[source, file] < self.per_file
