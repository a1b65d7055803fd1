"""Reading an embedded index: what its writer and those who only follow it have in common, and a follower.

Any number of processes may follow an index that one process writes. They map the same sealed segments, and
learn from the journal in `index.db` what happened since they last looked.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from holdfast.errors import Conflict
from holdfast.memory.damage import Health
from holdfast.memory.documents import Document, Filter
from holdfast.memory.engine import files, parts, store
from holdfast.memory.engine import segment as seg
from holdfast.memory.engine.analysis import Analyse
from holdfast.memory.engine.parts import Part, Parts
from holdfast.memory.engine.segment import COLUMNS, MOVING, Columns
from holdfast.memory.engine.selection import fine_part, select
from holdfast.memory.engine.symbols import Groups, Symbols, group_of
from holdfast.memory.engine.vectors import decoded
from holdfast.memory.engine.view import EmbeddedView
from holdfast.memory.text import terms as text_terms

_LOOKS: Final = 5
_BATCH: Final = 4_096


class Searchable:
    """The current parts of an index, and the documents behind them."""

    _folder: Path
    _analyse: Analyse
    _store: store.Store
    _symbols: Symbols
    _groups: Groups
    _spaces: dict[str, tuple[int, int]]
    _replaced: dict[int, str]
    _identity: str
    _position: int
    _count: int

    @property
    @abstractmethod
    def live_parts(self) -> Parts:
        """The segments as they are now, with what may change about them."""

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def position(self) -> int:
        return self._position

    @property
    def computes_here(self) -> bool:
        return True

    @property
    def count(self) -> int:
        return self._count

    @property
    def segments(self) -> list[int]:
        """Rows per segment, sealed ones first; for status and benchmarks."""
        return [segment.rows for segment, _ in self.live_parts]

    def view(self, wanted: Filter) -> EmbeddedView:
        now = self.live_parts
        excluded = self._store.numbers(wanted.exclude).values() if wanted.exclude else ()
        fine = fine_part(wanted, self._symbols, np.array(list(excluded), np.int64))
        pieces = select(now, self._groups.allowed(wanted), fine)
        found = partial(self._documents, wanted)
        return EmbeddedView(pieces, found, self._symbols, self._groups, self._spaces)

    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        return self._store.documents_named(ids)

    def without_vector(self, fingerprint: str, limit: int) -> list[Document]:
        space = self._spaces.get(fingerprint, (0, 0))[0]
        nums: list[int] = []
        for segment, state in reversed(self.live_parts):
            block = segment.vectors.get(space)
            lacking = ~state.dead if block is None else ~state.dead & (block.scales == 0)
            found = np.sort(segment.columns["num"][lacking])[::-1]
            nums.extend(found[: limit - len(nums)].tolist())
        documents = self._store.documents(nums)
        return [documents[num] for num in nums if num in documents]

    def _documents(self, wanted: Filter, nums: Sequence[int]) -> dict[int, Document]:
        """Stored documents as far as the filter lets through what became of them since; for one replaced, its
        next version."""
        found = self._store.documents(nums)
        ids = {num: self._replaced[num] for num in nums if num not in found and num in self._replaced}
        newer = self.get(list(ids.values())) if ids else {}
        found |= {num: newer[id_] for num, id_ in ids.items() if id_ in newer}
        return {num: document for num, document in found.items() if wanted.matches(document)}

    def _stored_after(self, after: int, most: int) -> Iterator[tuple[list[int], list[Document]]]:
        while batch := self._store.documents_after(after, most):
            nums = [num for num, _ in batch]
            yield nums, [document for _, document in batch]
            after = nums[-1]

    def _columns(self, nums: Sequence[int], documents: Sequence[Document]) -> Columns:
        code = self._symbols.code
        values: dict[str, list[Any]] = {
            "num": list(nums),
            "place": [code(d.thread) << 32 | d.ordinal for d in documents],
            "at": [d.at for d in documents],
            "session": [code(d.session) for d in documents],
            "speaker": [code(d.speaker) for d in documents],
            "writer": [code(d.writer) for d in documents],
            "curated": [d.curated for d in documents],
            "length": [0] * len(documents),
            "group": [self._groups.code(group_of(d)) for d in documents],
            "topic": [code(d.topic) for d in documents],
            "task": [code(d.task) for d in documents],
        }
        return {name: np.array(values[name], dtype) for name, dtype in {**COLUMNS, **MOVING}.items()}


@dataclass(slots=True)
class _News:
    """What the journal tells, taken together."""

    new: list[tuple[int, int]] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    vectors: list[int] = field(default_factory=list)
    segments: bool = False

    @classmethod
    def of(cls, rows: Iterable[tuple[store.Happened, list[int]]]) -> _News:
        news = cls()
        for kind, nums in rows:
            match kind:
                case "new":
                    news.new.append((nums[0], nums[-1]))
                case "segments":
                    news.segments = True
                case _:
                    getattr(news, kind).extend(nums)
        return news


def _only_reads(*_: Any, **__: Any) -> NoReturn:
    raise Conflict(
        "this process only reads the search index",
        code="index_read_only",
        hint="Ask the process that has it open: the running gateway.",
    )


class IndexReader(Searchable):
    """An index that another process writes, as it was when a view was last asked for.

    A writer may be there or not; a folder without an index is told as `index_unavailable`.
    """

    _store: store.FollowedStore

    def __init__(self, folder: Path, *, analyse: Analyse = text_terms) -> None:
        self._folder = folder
        self._analyse = analyse
        self._lock = threading.RLock()
        self._parts: Parts = ()
        self._inode = -1
        self._reopen()

    upsert = delete = move = put_vectors = flush = tidy = rebuild = compared = _only_reads

    @property
    def live_parts(self) -> Parts:
        with self._lock:
            self._follow()
            return self._parts

    @property
    def count(self) -> int:
        return sum(segment.rows - state.dead_count for segment, state in self.live_parts)

    @property
    def position(self) -> int:
        with self._lock:
            self._follow()
            return self._position

    @property
    def writes(self) -> int:
        return int(self._store.meta("writes", 0))

    @property
    def health(self) -> Health:
        """What is damaged is found and mended by the process that writes."""
        return Health()

    @property
    def must_compare(self) -> bool:
        return False

    def mend(self, seconds: float, *, thorough: bool = False) -> bool:
        return False

    def heal(self, error: Exception) -> bool:
        return False

    def close(self) -> None:
        with self._lock:
            self._parts = ()
            self._store.close()

    def _follow(self) -> None:
        """Take in what was written since the last look; files that a merge removed meanwhile are looked for
        again under the names that took their place."""
        for _ in range(_LOOKS):
            try:
                if _inode(self._folder) != self._inode:
                    self._reopen()
                elif (last := self._store.journal_end()) != self._seq:
                    self._take_in(last)
                return
            except files.DamagedSegment as error:
                trouble = error
        raise store.unusable(self._folder, str(trouble))

    def _reopen(self) -> None:
        """Begin anew: another index lies here, or this one went on for longer than its journal tells."""
        inode = _inode(self._folder)
        if inode is None:
            raise store.unusable(self._folder, "there is no index yet")
        if self._inode >= 0:
            self._store.close()
        self._inode = inode
        self._store = store.FollowedStore(self._folder / "index.db")
        self._symbols, self._groups, self._replaced = Symbols(), Groups(), {}
        for _ in range(_LOOKS):
            try:
                with self._store.one_moment():
                    self._load()
                return
            except files.DamagedSegment as error:
                trouble = error
        self._inode = -1
        self._store.close()
        raise store.unusable(self._folder, str(trouble))

    def _load(self) -> None:
        self._seq = self._store.journal_end()
        self._facts()
        self._learn_names()
        self._parts = ()
        self._take_segments()

    def _facts(self) -> None:
        self._spaces = self._store.spaces()
        self._position = int(self._store.meta("position", 0))
        self._identity = str(self._store.meta("identity", ""))

    def _learn_names(self) -> None:
        self._symbols.learn(self._store.symbols_from(self._symbols.next_code))
        self._groups.learn(self._store.groups_from(self._groups.next_code))

    def _take_in(self, last: int) -> None:
        with self._store.one_moment():
            rows = self._store.journal_after(self._seq)
            if len(rows) != last - self._seq and not self._is_whole(rows):
                self._load()
                return
            self._seq = rows[-1][0]
            self._apply(_News.of((kind, nums) for _, kind, nums in rows))

    def _is_whole(self, rows: Sequence[tuple[int, store.Happened, list[int]]]) -> bool:
        """Whether nothing is missing between what is known and what the journal tells."""
        return bool(rows) and rows[0][0] == self._seq + 1

    def _apply(self, news: _News) -> None:
        self._facts()
        self._learn_names()
        self._parts = parts.buried(self._parts, news.dead)
        moved = self._store.documents_at(news.moved)
        self._parts = parts.moved(self._parts, self._columns(list(moved), list(moved.values())))
        if news.segments:
            self._take_segments()
        else:
            for low, high in news.new:
                self._add(self._store.documents_between(low, high))
        self._take_vectors(news.vectors)

    def _take_segments(self) -> None:
        """The sealed segments by the names that they have now, and the rows that are not sealed yet."""
        known = {segment.name: (segment, state) for segment, state in self._parts if segment.name}
        names = self._store.names()
        opened = tuple(parts.followed_part(self._folder, name) for name in names if name not in known)
        opened = parts.buried(opened, self._store.column("dead"))
        moved = self._store.documents_at(self._store.column("moved").tolist())
        opened = parts.moved(opened, self._columns(list(moved), list(moved.values())))
        fresh = {segment.name: (segment, state) for segment, state in opened}
        self._parts = tuple((known | fresh)[name] for name in names)
        for nums, documents in self._stored_after(int(self._store.meta("sealed", 0)), _BATCH):
            self._add(dict(zip(nums, documents, strict=True)))

    def _add(self, documents: Mapping[int, Document]) -> None:
        if not documents:
            return
        analysed = [self._analyse(document.text) for document in documents.values()]
        part = seg.build(self._columns(list(documents), list(documents.values())), analysed)
        self._fill((part,), list(documents))
        self._parts = parts.with_fresh(self._parts, part)

    def _take_vectors(self, nums: Sequence[int]) -> None:
        """Those of sealed rows stand in the mapped files already; of the others the store has a copy."""
        if not nums:
            return
        for segment, _ in self._parts:
            if segment.name:
                parts.follow_vectors(self._folder, segment)
        self._fill(tuple(part for part in self._parts if not parts.is_sealed(part)), nums)

    def _fill(self, into: Sequence[Part], nums: Sequence[int]) -> None:
        for space, dims in self._spaces.values():
            found, blobs = self._store.vectors_of(space, nums)
            if found:
                block = decoded(blobs, dims)
                parts.place_vectors(tuple(into), self._folder, space, np.array(found, np.int64), block)


def _inode(folder: Path) -> int | None:
    try:
        return os.stat(folder / "index.db").st_ino
    except OSError:
        return None
