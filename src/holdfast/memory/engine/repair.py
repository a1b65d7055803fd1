"""Looking for damage in an embedded index and mending it, in pieces that give way to all other work.

After every start the segments and vectors are read once against their checksums; the stored documents, which
take longest, once a day. What is damaged is searched around until it is there again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from holdfast.clock import DAY_MS
from holdfast.memory.damage import Aside
from holdfast.memory.engine import files, store
from holdfast.memory.engine.parts import Nums
from holdfast.memory.engine.shelf import Shelf

HEALING: Final = "healing"
RECHECK: Final = "recheck"
_CHECKED: Final = "checked"
_ROWS: Final = 16_384
_BATCH: Final = 512


class Repair:
    """One for each opening of an index; `go_on` is called again and again by whoever keeps it up to date."""

    def __init__(
        self,
        folder: Path,
        kept: store.Store,
        shelf: Shelf,
        aside: Aside,
        lock: threading.RLock,
        *,
        index_again: Callable[[list[int]], None],
        forget: Callable[[list[int]], None],
        now: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._folder = folder
        self._store = kept
        self._shelf = shelf
        self._aside = aside
        self._lock = lock
        self._index_again = index_again
        self._forget = forget
        self._now = now
        self._turn = threading.Lock()
        self._steps: Iterator[None] | None = None
        self._looked_at: int | None = None
        self._waiting = np.zeros(0, np.int64)

    @property
    def healing(self) -> bool:
        return self._shelf.healing or bool(self._store.bad) or len(self._waiting) > 0

    @property
    def unsearched(self) -> int:
        return len(self._waiting)

    def go_on(self, seconds: float, *, thorough: bool = False) -> bool:
        """Check and mend for about so long; true while there is more to do. `thorough` reads everything."""
        if not self._turn.acquire(blocking=False):
            return True
        try:
            if thorough and self._steps is None:
                self._steps = self._all_steps(thorough=True)
            return self._go_on(time.monotonic() + seconds)
        finally:
            self._turn.release()

    def _go_on(self, deadline: float) -> bool:
        if self._steps is None and self._is_due():
            self._steps = self._all_steps()
        if self._steps is None:
            return False
        try:
            for _ in self._steps:
                if time.monotonic() >= deadline:
                    return True
        except BaseException:
            self._steps = None
            raise
        self._steps = None
        return self._is_due()

    def look(self) -> bool:
        """Check every segment now, because something went wrong; whether one had to be set aside."""
        with self._lock:
            return sum(self._verify(name) for name in self._names()) > 0

    def _is_due(self) -> bool:
        looked = self._looked_at is not None and self._now() - self._looked_at < DAY_MS
        return not looked or self._shelf.healing or bool(self._store.bad)

    def _all_steps(self, *, thorough: bool = False) -> Iterator[None]:
        yield from self._check_segments()
        yield from self._check_vectors()
        if thorough or self._now() - int(self._store.meta(_CHECKED, 0)) >= DAY_MS:
            yield from self._check_documents()
        self._drop_bad()
        yield from self._index_missing()
        self._looked_at = self._now()

    def _names(self) -> list[str]:
        return [segment.name for segment, _ in self._shelf.parts if segment.name]

    def _check_segments(self) -> Iterator[None]:
        for name in self._names():
            self._verify(name)
            yield

    def _verify(self, name: str) -> bool:
        """Whether a segment had to be set aside."""
        try:
            files.verify(self._folder, name)
        except files.DamagedSegment as error:
            with self._lock:
                return self._shelf.lose(name, error.why)
        return False

    def _check_vectors(self) -> Iterator[None]:
        """Rows are written in place, so that each look is taken under the lock."""
        for segment, _ in self._shelf.parts:
            told = not segment.name
            for space, block in list(segment.vectors.items()):
                for low in range(0, segment.rows, _ROWS):
                    with self._lock:
                        bad = block.damaged(low, min(segment.rows, low + _ROWS))
                        if len(bad):
                            if not told:
                                path = files.vector_path(self._folder, segment.name, space, block.dims)
                                told = self._keep_copy(path)
                            segment.drop_vectors(space, bad)
                    yield

    def _keep_copy(self, path: Path) -> bool:
        if path.is_file():
            self._aside.keep_copy(path, "vectors are not as they were written")
        else:
            self._aside.note(path.name, "it is no longer there")
        return True

    def _check_documents(self) -> Iterator[None]:
        """Read every stored document, and see that the segments hold just those."""
        problem = self._store.problems()
        if problem is not None:
            raise store.damaged(self._folder / "index.db", problem)
        yield
        after = 0
        while batch := self._store.documents_after(after, _BATCH):
            after = batch[-1][0]
            yield
        with self._lock:
            held, stored = self._held(), self._store.document_numbers(0, self._store.next_num())
            self._shelf.bury(np.setdiff1d(held, stored).tolist())
            if len(np.setdiff1d(stored, held)):
                self._shelf.note_healing()
            with self._store.writing() as connection:
                store.set_meta(connection, _CHECKED, self._now())

    def _drop_bad(self) -> None:
        """What is not as it was written is taken out, to be taken in again from log and files."""
        with self._lock:
            bad = sorted(self._store.bad)
            if bad:
                self._aside.note("index.db", f"{len(bad)} documents are not as they were written")
                self._forget(bad)
                self._store.bad.clear()

    def _index_missing(self) -> Iterator[None]:
        """Index the stored documents that no segment holds, the newest first."""
        if not self._shelf.healing:
            return
        with self._lock:
            stored = self._store.document_numbers(0, self._store.next_num())
            self._waiting = np.setdiff1d(stored, self._held())
        while len(self._waiting):
            with self._lock:
                self._index_again(self._waiting[-_BATCH:].tolist())
                self._waiting = self._waiting[:-_BATCH]
            yield
        with self._lock:
            self._shelf.seal()
            self._shelf.note_healed()

    def _held(self) -> Nums:
        held = [segment.columns["num"][~state.dead] for segment, state in self._shelf.parts]
        return np.concatenate([np.zeros(0, np.int64), *held])
