"""Merging sealed segments beside the work: written aside, caught up, and then swapped in at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from holdfast.memory.engine import files, parts
from holdfast.memory.engine.parts import Nums, Part, Parts
from holdfast.memory.engine.segment import MOVING, Columns, State
from holdfast.memory.engine.vectors import Quantised

log = logging.getLogger(__name__)


class Dropped(Exception):
    """The merge is no longer wanted; what it wrote is removed."""


class Merge:
    """One merge under way. `write` runs without the index's lock, everything else under it.

    The index goes on with the segments being merged. What happens to their documents meanwhile is
    done once more to the new segment before it takes their place.
    """

    def __init__(self, inputs: Parts, folder: Path, name: str) -> None:
        self.inputs = inputs
        self.name = name
        self.settled = threading.Event()
        self.damaged: files.DamagedSegment | None = None
        self._folder = folder
        self._writing = threading.Lock()
        self._dropped = False
        self._written: list[Part] | None = None
        self._vectors: list[tuple[int, Nums, Quantised]] = []

    @property
    def is_written(self) -> bool:
        return self._written is not None

    def write(self) -> None:
        """Write the new segment's files; the store does not name them yet, so a crash costs nothing."""
        with self._writing:
            try:
                self._go_on()
                made = parts.write_merged(self.inputs, self._folder, self.name, self._go_on)
                self._written = [made] if made else []
            except Dropped:
                return
            except files.DamagedSegment as error:
                self.damaged = error
            except OSError as error:
                log.warning("segments of %s were not merged: %s", self._folder, error)
                files.remove_segment(self._folder, self.name)

    def drop(self) -> None:
        """Stop writing as soon as may be, and leave nothing of it behind."""
        self._dropped = True
        with self._writing:
            files.remove_segment(self._folder, self.name)
        self.settled.set()

    def note_vectors(self, space: int, nums: Nums, block: Quantised) -> None:
        """Vectors that were written into the old segments while the new one is being made."""
        self._vectors.append((space, nums, block))

    def caught_up(self, now: Parts) -> tuple[Parts, Nums]:
        """The new segment as things stand now, and the documents that changed since it was begun."""
        made = tuple(self._written or ())
        states = {id(segment): state for segment, state in now}
        died, moves = _since(self.inputs, states)
        made = parts.moved(parts.buried(made, died), moves)
        for space, nums, block in self._vectors:
            parts.place_vectors(made, self._folder, space, nums, block)
        if self._vectors and made:
            files.sync_vectors(self._folder, self.name)
        return made, np.concatenate([died, moves["num"], *(nums for _, nums, _ in self._vectors)])

    def _go_on(self) -> None:
        if self._dropped:
            raise Dropped


Beside = Callable[[Merge, Callable[[Merge], None]], None]
"""Runs a merge's `write` and then what it is handed with it, somewhere else or some other time."""


def in_a_thread(merge: Merge, finish: Callable[[Merge], None]) -> None:
    def run() -> None:
        try:
            merge.write()
        finally:
            finish(merge)

    threading.Thread(target=run, name="holdfast-merge", daemon=True).start()


def _since(inputs: Parts, states: dict[int, State]) -> tuple[Nums, Columns]:
    """Documents that died, and the new places of those that moved, since the inputs were taken."""
    died = [np.zeros(0, np.int64)]
    moves: dict[str, list[Nums]] = {name: [np.zeros(0, np.int64)] for name in ("num", *MOVING)}
    for segment, before in inputs:
        after = states[id(segment)]
        died.append(segment.columns["num"][after.dead & ~before.dead])
        changed = [getattr(after, name) != getattr(before, name) for name in MOVING]
        rows = np.flatnonzero(np.logical_or.reduce(changed) & ~after.dead)
        moves["num"].append(segment.columns["num"][rows])
        for name in MOVING:
            moves[name].append(getattr(after, name)[rows])
    return np.concatenate(died), {name: np.concatenate(values) for name, values in moves.items()}
