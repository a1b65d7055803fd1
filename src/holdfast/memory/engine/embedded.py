"""The embedded index: documents in SQLite, rows for scanning in numpy, one writer, many readers.

Every batch becomes a small segment in memory at once. Small ones are merged as they gather, sealed to
a file when there are enough, and sealed ones merged in tiers, so a search meets a handful; in quiet hours
one or two are made of all. Merges are done beside the writing, which never waits for them. Readers take
the current tuple of segments and never wait for the writer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidInput, Unavailable
from holdfast.home import make_private
from holdfast.ids import uuid7
from holdfast.memory.damage import Aside, Health
from holdfast.memory.documents import Document
from holdfast.memory.engine import files, parts, store
from holdfast.memory.engine import segment as seg
from holdfast.memory.engine.analysis import Analyse, stamp_of
from holdfast.memory.engine.claim import Claim
from holdfast.memory.engine.merging import Beside, in_a_thread
from holdfast.memory.engine.parts import Part
from holdfast.memory.engine.reading import Searchable
from holdfast.memory.engine.repair import RECHECK, Repair
from holdfast.memory.engine.segment import Columns
from holdfast.memory.engine.shelf import Shelf
from holdfast.memory.engine.vectors import Quantised, decoded, encoded, quantised
from holdfast.memory.text import terms as text_terms

FORMAT = 3
SEAL_ROWS = 16_384
_BATCH = 4_096
_MOST_REPLACED = 65_536


class EmbeddedIndex(Searchable):
    """See `Index`. Opened on a folder that may be deleted at any time while it is closed."""

    def __init__(
        self,
        folder: Path,
        *,
        analyse: Analyse = text_terms,
        seal_rows: int = SEAL_ROWS,
        beside: Beside = in_a_thread,
    ) -> None:
        self._folder = folder
        self._analyse = analyse
        self._seal_rows = seal_rows
        self._beside = beside
        self._lock = threading.RLock()
        self._replaced = {}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._claim = Claim(folder)
        self._aside = Aside(folder)
        try:
            self._open()
        except BaseException:
            self._claim.close()
            raise

    def _open(self) -> None:
        """Open what is there; what cannot be used is set aside, and the index begins anew."""
        try:
            self._open_files()
        except Unavailable as error:
            if error.code != store.DAMAGED:
                raise
            self._begin_anew(error.message)

    def _open_files(self) -> None:
        make_private(self._folder / "index.db")
        self._store = store.Store(self._folder / "index.db")
        try:
            self._shelf = Shelf(
                self._folder,
                self._store,
                self._lock,
                aside=self._aside,
                seal_rows=self._seal_rows,
                beside=self._beside,
            )
            self._load()
        except BaseException:
            self._store.close()
            raise
        self._repair = Repair(
            self._folder,
            self._store,
            self._shelf,
            self._aside,
            self._lock,
            index_again=self._index_again,
            forget=self._forget_bad,
        )

    def _begin_anew(self, why: str) -> None:
        stored = [self._folder / f"index.db{end}" for end in ("", "-wal", "-shm")]
        self._aside.take([*stored, *files.all_segments(self._folder)], why)
        self._replaced.clear()
        self._open_files()

    @property
    def live_parts(self) -> parts.Parts:
        return self._shelf.parts

    @property
    def writes(self) -> int:
        return self._writes

    @property
    def health(self) -> Health:
        repair = self._repair
        healing = repair.healing or self._recheck
        return Health(self._aside.seen, self._aside.listing(), healing, repair.unsearched)

    @property
    def must_compare(self) -> bool:
        return self._recheck

    def compared(self) -> None:
        with self._lock, self._transaction(0) as connection:
            store.set_meta(connection, RECHECK, 0)
            self._recheck = False

    def mend(self, seconds: float, *, thorough: bool = False) -> bool:
        try:
            return self._repair.go_on(seconds, thorough=thorough)
        except Unavailable as error:
            if not self.heal(error):
                raise
            return True

    def heal(self, error: Exception) -> bool:
        with self._lock:
            if isinstance(error, Unavailable) and error.code == store.DAMAGED:
                self._shelf.drop_merge()
                self._store.close()
                self._begin_anew(error.message)
                return True
            return self._repair.look()

    def upsert(
        self,
        documents: Sequence[Document],
        vectors: Mapping[str, NDArray[Any]] | None = None,
        *,
        position: int | None = None,
    ) -> None:
        last = {document.id: index for index, document in enumerate(documents)}
        chosen = sorted(last.values())
        batch = [documents[index] for index in chosen]
        blocks = {
            fingerprint: quantised(matrix, len(documents)).rows(np.array(chosen, np.int64))
            for fingerprint, matrix in (vectors or {}).items()
        }
        analysed = [self._analyse(document.text) for document in batch]
        reached = max((d.position for d in documents if d.position is not None), default=0)
        with self._lock:
            nums = list(range(self._next_num, self._next_num + len(batch)))
            known = self._store.numbers(last)
            old = list(known.values())
            columns = self._columns(nums, batch)
            self._remember_replaced(known)
            with self._transaction(max(reached, position or 0)) as connection:
                self._forget(connection, old)
                store.insert(connection, zip(nums, batch, strict=True))
                for fingerprint, block in blocks.items():
                    self._save_vectors(connection, fingerprint, nums, block)
                store.tell(connection, "new", nums[:1] + nums[-1:])
            self._next_num += len(batch)
            self._count += len(batch) - len(old)
            if batch:
                self._shelf.exchange(old, self._part(columns, analysed, blocks))

    def delete(self, ids: Sequence[str], *, position: int | None = None) -> int:
        with self._lock:
            nums = list(self._store.numbers(ids).values())
            with self._transaction(position or 0) as connection:
                self._forget(connection, nums)
            self._count -= len(nums)
            self._shelf.bury(nums)
            return len(nums)

    def move(self, documents: Sequence[Document], *, position: int | None = None) -> int:
        to = {document.id: document.lies for document in documents}
        with self._lock:
            known = self._store.documents(list(self._store.numbers(to).values()))
            moved = {num: one.moved(to[one.id]) for num, one in known.items() if one.lies != to[one.id]}
            columns = self._columns(list(moved), list(moved.values()))
            with self._transaction(position or 0) as connection:
                store.rewrite(connection, moved.items())
                store.note(connection, "moved", (num for num in moved if num <= self._shelf.sealed))
                store.tell(connection, "moved", list(moved))
            self._shelf.move(columns)
            return len(known)

    def put_vectors(self, fingerprint: str, ids: Sequence[str], vectors: NDArray[Any]) -> int:
        block = quantised(vectors, len(ids))
        rows = {id_: row for row, id_ in enumerate(ids)}
        with self._lock:
            known = self._store.numbers(rows)
            nums = list(known.values())
            chosen = block.rows(np.array([rows[id_] for id_ in known], np.int64))
            with self._transaction(0) as connection:
                self._save_vectors(connection, fingerprint, nums, chosen)
                store.tell(connection, "vectors", nums)
            space = self._spaces[fingerprint][0]
            self._shelf.place_vectors(space, np.array(nums, np.int64), chosen)
            return len(nums)

    def flush(self) -> None:
        """Seal what is in memory and push vectors written in place to the disk; merges follow beside."""
        with self._lock:
            self._shelf.seal()
            self._shelf.sync_vectors()
            self._shelf.merge_beside()

    def settle(self) -> None:
        """Wait until no merge of segments is under way or due."""
        self._shelf.settle()

    def tidy(self) -> None:
        with self._lock:
            self._shelf.tidy()

    def rebuild(self) -> None:
        """Make all segments again from the stored documents, keeping the vectors they have."""
        with self._lock:
            self._shelf.drop_merge()
            self._rebuild(self._shelf.parts)
            self._shelf.note_healed()
            self._shelf.merge_beside()

    def close(self) -> None:
        """Seal what is in memory, so that the next start has nothing to index again."""
        with self._lock:
            try:
                self._shelf.drop_merge()
                self._shelf.seal()
                self._shelf.sync_vectors()
            finally:
                self._shelf.parts = ()
                self._store.close()
                self._claim.close()

    def _load(self) -> None:
        """Open the sealed segments, redo what changed since, and index the rows after them."""
        self._symbols, self._groups = self._store.symbols(), self._store.groups()
        self._spaces = self._store.spaces()
        self._position = int(self._store.meta("position", 0))
        self._writes = int(self._store.meta("writes", 0))
        self._recheck = bool(self._store.meta(RECHECK, 0))
        self._next_num, self._count = self._store.next_num(), self._store.count()
        names = self._store.names()
        files.remove(self._folder, set(names))
        readable = self._shelf.opened(names, self._is_known)
        is_outdated = self._store.meta("stamp", "") not in {"", self._stamp}
        if is_outdated:
            self._rebuild(readable)
            self._shelf.note_healed()
        else:
            self._redo(readable)
        for space, numbers, block in self._pending():
            self._shelf.place_vectors(space, numbers, block)
        self._identity = str(self._store.meta("identity", "")) or uuid7()
        with self._transaction(0, counts=0) as connection:
            store.set_meta(connection, "stamp", self._stamp)
            store.set_meta(connection, "identity", self._identity)
        if is_outdated:  # it has a segment for every few thousand rows, and each costs every question
            self._shelf.merge_beside()

    def _redo(self, readable: parts.Parts) -> None:
        """What changed about sealed rows since, and the rows that were not sealed yet."""
        self._shelf.parts = readable
        self._shelf.bury(self._store.column("dead").tolist())
        moved = self._store.documents(self._store.column("moved").tolist())
        self._shelf.move(self._columns(list(moved), list(moved.values())))
        for nums, documents in self._batches(self._shelf.sealed):
            analysed = [self._analyse(document.text) for document in documents]
            fresh = seg.build(self._columns(nums, documents), analysed)
            self._shelf.parts = parts.with_fresh(self._shelf.parts, fresh)

    def _is_known(self, part: Part) -> bool:
        """Whether the store knows the names and groups of a segment's rows."""
        segment, state = part
        names = [state.topic, state.task, *(segment.columns[c] for c in ("session", "speaker", "writer"))]
        highest = max((int(codes.max(initial=0)) for codes in names), default=0)
        return highest < len(self._symbols) and int(state.group.max(initial=0)) < len(self._groups)

    def _index_again(self, nums: list[int]) -> None:
        """Index stored documents that a damaged segment held."""
        found = self._store.documents(nums)
        if found:
            documents = list(found.values())
            analysed = [self._analyse(document.text) for document in documents]
            self._shelf.exchange((), seg.build(self._columns(list(found), documents), analysed))

    def _forget_bad(self, nums: list[int]) -> None:
        """Take out documents that cannot be trusted; who fills the index must hold it against the sources."""
        with self._transaction(0) as connection:
            self._forget(connection, nums)
            store.set_meta(connection, RECHECK, 1)
        self._recheck = True
        self._count = self._store.count()
        self._shelf.bury(nums)

    @property
    def _stamp(self) -> str:
        """Names the layout of the files and the way of cutting text into terms."""
        return f"{FORMAT}:{stamp_of(self._analyse)}"

    def _pending(self) -> Iterator[tuple[int, NDArray[np.int64], Quantised]]:
        """Vectors that stand in the store and perhaps not yet in a segment's file."""
        for space, dims in self._spaces.values():
            nums, blobs = self._store.pending_vectors(space)
            if nums:
                yield space, np.array(nums, np.int64), decoded(blobs, dims)

    def _batches(self, after: int) -> Iterator[tuple[list[int], list[Document]]]:
        return self._stored_after(after, min(_BATCH, self._seal_rows))

    def _rebuild(self, old: parts.Parts) -> None:
        """New files first, then one transaction that names them instead of the old ones."""
        made: list[Part] = []
        fresh: parts.Parts = ()
        pending = list(self._pending())
        for nums, documents in self._batches(0):
            analysed = [self._analyse(document.text) for document in documents]
            part = seg.build(self._columns(nums, documents), analysed)
            parts.copy_vectors(old, part)
            for space, numbers, block in pending:
                parts.place_vectors((part,), self._folder, space, numbers, block)
            fresh = parts.with_fresh(fresh, part)
            if parts.total_rows(fresh) >= self._seal_rows:
                made.extend(self._shelf.written(fresh))
                fresh = ()
        made.extend(self._shelf.written(fresh))
        self._shelf.replace((), made, self._next_num - 1)

    def _remember_replaced(self, known: Mapping[str, int]) -> None:
        """Keep the ids behind numbers that are about to go, for views that were taken before."""
        self._replaced.update((num, id_) for id_, num in known.items())
        while len(self._replaced) > _MOST_REPLACED:
            del self._replaced[next(iter(self._replaced))]

    def _part(
        self, columns: Columns, analysed: Sequence[Sequence[str]], blocks: Mapping[str, Quantised]
    ) -> Part:
        """A batch as a segment in memory, with its vectors before any reader can see it."""
        part = seg.build(columns, analysed)
        for fingerprint, block in blocks.items():
            space = self._spaces[fingerprint][0]
            parts.place_vectors((part,), self._folder, space, columns["num"], block)
        return part

    @contextmanager
    def _transaction(self, position: int, *, counts: int = 1) -> Iterator[Any]:
        """One write with its position; what is in memory follows only once it is committed."""
        try:
            with self._store.writing() as connection:
                yield connection
                store.save_names(connection, self._symbols, self._groups)
                store.set_meta(connection, "writes", self._writes + counts)
                if position > self._position:
                    store.set_meta(connection, "position", position)
        except BaseException:
            self._spaces = self._store.spaces()
            raise
        self._symbols.unsaved.clear()
        self._groups.unsaved.clear()
        self._writes += counts
        self._position = max(self._position, position)

    def _forget(self, connection: Any, nums: Sequence[int]) -> None:
        if nums:
            store.remove(connection, nums)
            store.note(connection, "dead", (num for num in nums if num <= self._shelf.sealed))
            store.tell(connection, "dead", nums)

    def _save_vectors(self, connection: Any, fingerprint: str, nums: Sequence[int], block: Quantised) -> None:
        space, dims = self._spaces.get(fingerprint, (0, block.dims))
        if dims != block.dims:
            raise InvalidInput(
                f"vectors of {block.dims} numbers in a space of {dims}",
                hint="A fingerprint must name the model and its width.",
            )
        if not space:
            space = store.add_space(connection, fingerprint, dims)
            self._spaces = {**self._spaces, fingerprint: (space, dims)}
        there = np.flatnonzero(block.scales > 0)
        chosen = [nums[row] for row in there.tolist()]
        store.put_vectors(connection, space, chosen, encoded(block.rows(there)))
