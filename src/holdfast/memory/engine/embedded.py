"""The embedded index: documents in SQLite, rows for scanning in numpy, one writer, many readers.

Every batch becomes a small segment in memory at once. Small ones are merged as they gather, sealed to
a file when there are enough, and sealed ones merged in tiers, so a search meets a handful. Readers
take the current tuple of segments and never wait for the writer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidInput
from holdfast.ids import uuid7
from holdfast.memory.documents import Document, Filter
from holdfast.memory.engine import files, parts, store
from holdfast.memory.engine import segment as seg
from holdfast.memory.engine.analysis import Analyse, stamp_of
from holdfast.memory.engine.claim import Claim
from holdfast.memory.engine.parts import Part
from holdfast.memory.engine.protocol import UNCHANGED, Unchanged
from holdfast.memory.engine.segment import COLUMNS, MOVING, Columns
from holdfast.memory.engine.selection import fine_part, select
from holdfast.memory.engine.symbols import group_of
from holdfast.memory.engine.vectors import Quantised, decoded, encoded, quantised
from holdfast.memory.engine.view import EmbeddedView
from holdfast.memory.text import terms as text_terms

FORMAT = 1
SEAL_ROWS = 16_384
_BATCH = 4_096
_MOST_PENDING_VECTORS = 16_384


class EmbeddedIndex:
    """See `Index`. Opened on a folder that may be deleted at any time while it is closed."""

    def __init__(self, folder: Path, *, analyse: Analyse = text_terms, seal_rows: int = SEAL_ROWS) -> None:
        self._folder = folder
        self._analyse = analyse
        self._seal_rows = seal_rows
        self._lock = threading.RLock()
        self._parts: parts.Parts = ()
        self._pending_vectors = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._claim = Claim(folder)
        try:
            self._store = store.Store(folder / "index.db")
            self._load()
        except BaseException:
            self._claim.close()
            raise

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def position(self) -> int:
        return self._position

    @property
    def count(self) -> int:
        return self._count

    @property
    def segments(self) -> list[int]:
        """Rows per segment, sealed ones first; for status and benchmarks."""
        return [segment.rows for segment, _ in self._parts]

    def view(self, wanted: Filter) -> EmbeddedView:
        now = self._parts
        excluded = self._store.numbers(wanted.exclude).values() if wanted.exclude else ()
        fine = fine_part(wanted, self._symbols, np.array(list(excluded), np.int64))
        pieces = select(now, self._groups.allowed(wanted), fine)
        return EmbeddedView(pieces, self._store, self._symbols, self._groups, self._spaces)

    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        found = self._store.documents(list(self._store.numbers(ids).values()))
        return {document.id: document for document in found.values()}

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
            old = list(self._store.numbers(last).values())
            columns = self._columns(nums, batch)
            with self._transaction(max(reached, position or 0)) as connection:
                self._forget(connection, old)
                store.insert(connection, zip(nums, batch, strict=True))
                for fingerprint, block in blocks.items():
                    self._save_vectors(connection, fingerprint, nums, block)
            self._next_num += len(batch)
            self._count += len(batch) - len(old)
            self._parts = parts.buried(self._parts, old)
            self._append(columns, analysed, blocks)

    def delete(self, ids: Sequence[str], *, position: int | None = None) -> int:
        with self._lock:
            nums = list(self._store.numbers(ids).values())
            with self._transaction(position or 0) as connection:
                self._forget(connection, nums)
            self._count -= len(nums)
            self._parts = parts.buried(self._parts, nums)
            return len(nums)

    def update_scope(
        self,
        ids: Sequence[str],
        *,
        spaces: frozenset[str] | Unchanged = UNCHANGED,
        topic: str | Unchanged | None = UNCHANGED,
        task: str | Unchanged | None = UNCHANGED,
        position: int | None = None,
    ) -> int:
        changes = {"spaces": spaces, "topic": topic, "task": task}
        wanted: dict[str, Any] = {k: v for k, v in changes.items() if not isinstance(v, Unchanged)}
        with self._lock:
            known = self._store.documents(list(self._store.numbers(ids).values()))
            moved = {num: replace(document, **wanted) for num, document in known.items()}
            columns = self._columns(list(moved), list(moved.values()))
            with self._transaction(position or 0) as connection:
                store.rewrite(connection, moved.items())
                store.note(connection, "moved", (num for num in moved if num <= self._sealed))
            self._parts = parts.moved(self._parts, columns)
            return len(moved)

    def put_vectors(self, fingerprint: str, ids: Sequence[str], vectors: NDArray[Any]) -> int:
        block = quantised(vectors, len(ids))
        rows = {id_: row for row, id_ in enumerate(ids)}
        with self._lock:
            known = self._store.numbers(rows)
            nums = list(known.values())
            chosen = block.rows(np.array([rows[id_] for id_ in known], np.int64))
            with self._transaction(0) as connection:
                self._save_vectors(connection, fingerprint, nums, chosen)
            space = self._spaces[fingerprint][0]
            numbers = np.array(nums, np.int64)
            parts.place_vectors(self._parts, self._folder, space, numbers, chosen)
            self._pending_vectors += len(nums)
            if self._pending_vectors >= _MOST_PENDING_VECTORS:
                self._sync_vectors()
            return len(nums)

    def without_vector(self, fingerprint: str, limit: int) -> list[Document]:
        space = self._spaces.get(fingerprint, (0, 0))[0]
        nums: list[int] = []
        for segment, state in reversed(self._parts):
            block = segment.vectors.get(space)
            lacking = ~state.dead if block is None else ~state.dead & (block.scales == 0)
            found = np.sort(segment.columns["num"][lacking])[::-1]
            nums.extend(found[: limit - len(nums)].tolist())
        documents = self._store.documents(nums)
        return [documents[num] for num in nums if num in documents]

    def flush(self) -> None:
        """Seal what is in memory, and push vectors written in place to the disk."""
        with self._lock:
            fresh = [part for part in self._parts if not parts.is_sealed(part)]
            if fresh:
                self._merge(fresh)
            while full := parts.next_merge(self._parts, self._seal_rows):
                self._merge(full)
            self._sync_vectors()

    def compact(self) -> None:
        """Merge everything into one segment and drop what is dead."""
        with self._lock:
            self._merge(self._parts)
            self._sync_vectors()

    def rebuild(self) -> None:
        """Make all segments again from the stored documents, keeping the vectors they have."""
        with self._lock:
            self._rebuild(self._parts)

    def close(self) -> None:
        """Seal what is in memory, so that the next start has nothing to index again."""
        with self._lock:
            self.flush()
            self._parts = ()
            self._store.close()
            self._claim.close()

    def _load(self) -> None:
        """Open the sealed segments, redo what changed since, and index the rows after them."""
        self._symbols, self._groups = self._store.symbols(), self._store.groups()
        self._spaces = self._store.spaces()
        self._position = int(self._store.meta("position", 0))
        self._sealed = int(self._store.meta("sealed", 0))
        self._next_num, self._count = self._store.next_num(), self._store.count()
        names = self._store.names()
        self._next_name = 1 + int(max(names, default="0"))
        files.remove(self._folder, set(names))
        readable = tuple(part for name in names if (part := self._open(name)))
        if len(readable) < len(names) or self._store.meta("stamp", "") not in {"", self._stamp}:
            self._rebuild(readable)
        else:
            self._parts = parts.buried(readable, self._store.column("dead").tolist())
            moved = self._store.documents(self._store.column("moved").tolist())
            columns = self._columns(list(moved), list(moved.values()))
            self._parts = parts.moved(self._parts, columns)
            for nums, documents in self._batches(self._sealed):
                analysed = [self._analyse(document.text) for document in documents]
                fresh = seg.build(self._columns(nums, documents), analysed)
                self._parts = parts.with_fresh(self._parts, fresh)
        for space, numbers, block in self._pending():
            parts.place_vectors(self._parts, self._folder, space, numbers, block)
            self._pending_vectors += len(numbers)
        self._identity = str(self._store.meta("identity", "")) or uuid7()
        with self._transaction(0) as connection:
            store.set_meta(connection, "stamp", self._stamp)
            store.set_meta(connection, "identity", self._identity)

    def _open(self, name: str) -> Part | None:
        try:
            return parts.open_part(self._folder, name)
        except files.DamagedSegment:
            return None

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
        while batch := self._store.documents_after(after, min(_BATCH, self._seal_rows)):
            nums = [num for num, _ in batch]
            yield nums, [document for _, document in batch]
            after = nums[-1]

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
                made.extend(self._written(fresh))
                fresh = ()
        made.extend(self._written(fresh))
        self._commit_segments((), made, self._next_num - 1)

    def _append(
        self,
        columns: Columns,
        analysed: Sequence[Sequence[str]],
        blocks: Mapping[str, Quantised],
    ) -> None:
        """Make a batch findable; its vectors are placed before any reader can see it."""
        if not len(columns["num"]):
            return
        part = seg.build(columns, analysed)
        for fingerprint, block in blocks.items():
            space = self._spaces[fingerprint][0]
            parts.place_vectors((part,), self._folder, space, columns["num"], block)
        self._parts = parts.with_fresh(self._parts, part)
        fresh = [part for part in self._parts if not parts.is_sealed(part)]
        if parts.total_rows(fresh) >= self._seal_rows:
            self.flush()

    def _written(self, merged: Sequence[Part]) -> list[Part]:
        name = f"{self._next_name:08d}"
        self._next_name += 1
        try:
            part = parts.write_merged(merged, self._folder, name) if merged else None
        except OSError as error:
            raise store.unusable(self._folder, str(error)) from error
        return [part] if part else []

    def _merge(self, merged: Sequence[Part]) -> None:
        """Replace some segments by one sealed one."""
        kept = [part for part in self._parts if not any(part is other for other in merged)]
        fresh_stay = any(not parts.is_sealed(part) for part in kept)
        sealed = self._sealed if fresh_stay else self._next_num - 1
        self._commit_segments(kept, self._written(merged), sealed)

    def _commit_segments(self, kept: Sequence[Part], made: Sequence[Part], sealed: int) -> None:
        """Name the new set of segments; what they contain needs no redoing from now on."""
        held = np.concatenate([np.zeros(0, np.int64), *(s.columns["num"] for s, _ in kept)])
        now = [part for part in [*kept, *made] if parts.is_sealed(part)]
        with self._transaction(0) as connection:
            store.name_segments(connection, [segment.name for segment, _ in now])
            for table in ("dead", "moved", "vectors"):
                store.keep_only(connection, table, held)
            store.set_meta(connection, "sealed", sealed)
        self._sealed = sealed
        self._parts = (*now, *(part for part in kept if not parts.is_sealed(part)))
        self._store.checkpoint()
        files.remove(self._folder, {segment.name for segment, _ in now})

    def _sync_vectors(self) -> None:
        """Vectors in the files of sealed segments need no copy in the store once they are synced."""
        if not self._pending_vectors:
            return
        for segment, _ in self._parts:
            if segment.name:
                files.sync_vectors(self._folder, segment.name)
        with self._transaction(0) as connection:
            store.drop_vectors(connection, self._sealed)
        self._pending_vectors = 0

    def _columns(self, nums: Sequence[int], documents: Sequence[Document]) -> Columns:
        code = self._symbols.code
        values: dict[str, list[Any]] = {
            "num": list(nums),
            "place": [code(d.thread) << 32 | d.ordinal for d in documents],
            "at": [d.at for d in documents],
            "session": [code(d.session) for d in documents],
            "speaker": [code(d.speaker) for d in documents],
            "curated": [d.curated for d in documents],
            "length": [0] * len(documents),
            "group": [self._groups.code(group_of(d)) for d in documents],
            "topic": [code(d.topic) for d in documents],
            "task": [code(d.task) for d in documents],
        }
        return {name: np.array(values[name], dtype) for name, dtype in {**COLUMNS, **MOVING}.items()}

    @contextmanager
    def _transaction(self, position: int) -> Iterator[Any]:
        """One write with its position; what is in memory follows only once it is committed."""
        try:
            with self._store.writing() as connection:
                yield connection
                store.save_names(connection, self._symbols, self._groups)
                if position > self._position:
                    store.set_meta(connection, "position", position)
        except BaseException:
            self._spaces = self._store.spaces()
            raise
        self._symbols.unsaved.clear()
        self._groups.unsaved.clear()
        self._position = max(self._position, position)

    def _forget(self, connection: Any, nums: Sequence[int]) -> None:
        if nums:
            store.remove(connection, nums)
            store.note(connection, "dead", (num for num in nums if num <= self._sealed))

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
