"""The segments of an embedded index: what is in memory, what is sealed, and the merge under way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.memory.damage import Aside
from holdfast.memory.engine import files, parts, store
from holdfast.memory.engine.merging import Beside, Merge
from holdfast.memory.engine.parts import Nums, Part, Parts
from holdfast.memory.engine.segment import Columns
from holdfast.memory.engine.vectors import Quantised

log = logging.getLogger(__name__)

_MOST_PENDING_VECTORS = 16_384
_NO_NUMS: Nums = np.zeros(0, np.int64)


class Shelf:
    """Every change gives a new tuple of parts; readers keep the one they took.

    All but `settle` is called under the index's lock, which a merge takes only to begin and to end.
    """

    def __init__(
        self,
        folder: Path,
        kept: store.Store,
        lock: threading.RLock,
        *,
        aside: Aside,
        seal_rows: int,
        beside: Beside,
    ) -> None:
        self.parts: Parts = ()
        self.healing = bool(kept.meta("healing", 0))
        self._aside = aside
        self.sealed = int(kept.meta("sealed", 0))
        self._folder = folder
        self._store = kept
        self._lock = lock
        self._seal_rows = seal_rows
        self._beside = beside
        self._merge: Merge | None = None
        self._pending_vectors = 0
        self._next_name = 1 + int(max(kept.names(), default="0"))

    def exchange(self, old: Sequence[int], fresh: Part) -> None:
        """Let new rows take the place of what they replace, for every reader in the same instant."""
        self.parts = parts.with_fresh(parts.buried(self.parts, old), fresh)
        if parts.total_rows([part for part in self.parts if not parts.is_sealed(part)]) >= self._seal_rows:
            self.seal()
            self.merge_beside()

    def bury(self, nums: Sequence[int]) -> None:
        self.parts = parts.buried(self.parts, nums)

    def move(self, columns: Columns) -> None:
        self.parts = parts.moved(self.parts, columns)

    def place_vectors(self, space: int, nums: Nums, block: Quantised) -> None:
        """Write vectors beside their rows; now and then they are synced, and then not kept twice."""
        parts.place_vectors(self.parts, self._folder, space, nums, block)
        if self._merge is not None:
            self._merge.note_vectors(space, nums, block)
        self._pending_vectors += len(nums)
        if self._pending_vectors >= _MOST_PENDING_VECTORS:
            self.sync_vectors()

    def sync_vectors(self) -> None:
        """Vectors in the files of sealed segments need no copy in the store once they are synced."""
        if not self._pending_vectors:
            return
        for segment, _ in self.parts:
            if segment.name:
                files.sync_vectors(self._folder, segment.name)
        with self._store.writing() as connection:
            store.drop_vectors(connection, self.sealed)
        self._pending_vectors = 0

    def seal(self) -> None:
        """Write what is in memory into one segment, together with the small ones that earlier stops left."""
        fresh = [part for part in self.parts if not parts.is_sealed(part)]
        if not fresh:
            return
        kept = [part for part in self.parts if parts.is_sealed(part)]
        if self._merge is None:
            kept, small = parts.apart(kept, parts.total_rows(fresh), self._seal_rows)
            fresh = [*small, *fresh]
        self.replace(kept, self.written(fresh), self._store.next_num() - 1)

    def written(self, merged: Sequence[Part]) -> list[Part]:
        """Some parts as one sealed segment, which the store does not name yet."""
        try:
            part = parts.write_merged(merged, self._folder, self._new_name()) if merged else None
        except OSError as error:
            raise store.unusable(self._folder, str(error)) from error
        except files.DamagedSegment as error:
            self.lose(error.name, error.why)
            return self.written([part for part in merged if part[0].name != error.name])
        return [part] if part else []

    def opened(self, names: Sequence[str], is_known: Callable[[Part], bool]) -> Parts:
        """The sealed segments of these names; a damaged one is set aside, its documents left to repair."""
        found: list[Part] = []
        for name in names:
            try:
                part = parts.open_part(self._folder, name, self._lose_vectors)
                if not is_known(part):
                    raise files.DamagedSegment(name, "it names what the store does not know")
            except files.DamagedSegment as error:
                self._aside.take(files.of_segment(self._folder, name), error.why)
                continue
            found.append(part)
        if len(found) < len(names):
            self._name(found)
        return tuple(found)

    def lose(self, name: str, why: str) -> bool:
        """Set a damaged segment aside and search on without it, until its documents are indexed again."""
        left = tuple(part for part in self.parts if part[0].name != name)
        if len(left) == len(self.parts):
            return False
        if self._merge is not None and name in {segment.name for segment, _ in self._merge.inputs}:
            self.drop_merge()
        self.parts = left
        self._aside.take(files.of_segment(self._folder, name), why)
        self._name([part for part in left if parts.is_sealed(part)])
        return True

    def note_healing(self) -> None:
        """Documents are in the store and in no segment: a repair must index them, also after a restart."""
        self._note_healing(True)

    def note_healed(self) -> None:
        self._note_healing(False)

    def _note_healing(self, healing: bool) -> None:
        with self._store.writing() as connection:
            store.set_meta(connection, "healing", int(healing))
        self.healing = healing

    def _name(self, sealed: Sequence[Part]) -> None:
        with self._store.writing() as connection:
            store.name_segments(connection, [segment.name for segment, _ in sealed])
            store.set_meta(connection, "healing", 1)
        self.healing = True

    def _lose_vectors(self, path: Path) -> None:
        self._aside.take([path], "it is not whole")

    def replace(self, kept: Sequence[Part], made: Sequence[Part], sealed: int, late: Nums = _NO_NUMS) -> None:
        """Name the new set of segments; what they contain needs no redoing from now on.

        `late` are documents whose newest changes the new segments hold in memory only.
        """
        held = np.concatenate([late, *(segment.columns["num"] for segment, _ in kept)])
        now = [part for part in [*kept, *made] if parts.is_sealed(part)]
        with self._store.writing() as connection:
            store.name_segments(connection, [segment.name for segment, _ in now])
            for table in ("dead", "moved", "vectors"):
                store.keep_only(connection, table, held)
            store.set_meta(connection, "sealed", sealed)
            store.tell(connection, "segments")
        self.sealed = sealed
        self.parts = (*now, *(part for part in kept if not parts.is_sealed(part)))
        self._store.checkpoint()
        under_way = {self._merge.name} if self._merge is not None else set()
        files.remove(self._folder, {segment.name for segment, _ in now} | under_way)

    def merge_beside(self) -> None:
        """Begin the merge that is due, if any, unless one is under way."""
        if self._merge is None:
            self._begin(parts.next_merge(self.parts, self._seal_rows))

    def tidy(self) -> None:
        """Seal what is in memory, and begin to bring all of it into one segment, or two."""
        if self._merge is None and len(self.parts) > 1:
            self.seal()
            self.sync_vectors()
            self._begin(parts.next_merge(self.parts, self._seal_rows) or parts.tidy_merge(self.parts))

    def _begin(self, due: Parts) -> None:
        if due:
            self._merge = Merge(due, self._folder, self._new_name())
            self._beside(self._merge, self._finish)

    def drop_merge(self) -> None:
        """Give up the merge under way, if any; it is begun again when something has been written."""
        if self._merge is not None:
            self._merge.drop()
            self._merge = None

    def settle(self) -> None:
        """Wait until no merge is under way or due."""
        with self._lock:
            self.merge_beside()
            merge = self._merge
        while merge is not None:
            merge.settled.wait()
            merge = self._merge

    def _finish(self, merge: Merge) -> None:
        """Swap the written segment in for those it was made of, and go on with the next merge."""
        with self._lock:
            if self._merge is not merge:
                return
            taken = False
            try:
                if merge.damaged is not None:
                    self._merge = None
                    self.lose(merge.damaged.name, merge.damaged.why)
                taken = merge.is_written and self._take(merge)
            finally:
                self._merge = None
                if taken:
                    self.merge_beside()
                merge.settled.set()

    def _take(self, merge: Merge) -> bool:
        try:
            made, late = merge.caught_up(self.parts)
            merged = {id(segment) for segment, _ in merge.inputs}
            kept = [part for part in self.parts if id(part[0]) not in merged]
            self.replace(kept, made, self.sealed, late)
        except (HoldfastError, OSError) as error:
            log.warning("merged segments of %s were not taken: %s", self._folder, error)
            return False
        return True

    def _new_name(self) -> str:
        self._next_name += 1
        return f"{self._next_name - 1:08d}"
