"""The index in PostgreSQL: the same answers as the embedded one, shared by several processes.

Each write is one transaction with its log position, one writer at a time; what it wrote is found by
every view taken afterwards, in any process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.engine.url import URL

from holdfast.log import Store
from holdfast.memory.damage import Health
from holdfast.memory.documents import Document, Filter
from holdfast.memory.engine import postgres_rows as rows
from holdfast.memory.engine import postgres_schema as tables
from holdfast.memory.engine import postgres_writes as writes
from holdfast.memory.engine.analysis import Analyse, stamp_of
from holdfast.memory.engine.postgres_connections import Connections
from holdfast.memory.engine.postgres_view import PostgresView
from holdfast.memory.engine.symbols import group_of
from holdfast.memory.engine.vectors import quantised
from holdfast.memory.text import terms as text_terms

SCHEMA = "memory_index"
_BATCH = 2_000


class PostgresIndex:
    """See `Index`. Its schema may be dropped at any time while no process has it open."""

    def __init__(
        self, store: Store | str | URL, schema: str = SCHEMA, *, analyse: Analyse = text_terms
    ) -> None:
        self._analyse = analyse
        self._connections = Connections(store.url if isinstance(store, Store) else store, schema)
        try:
            self._index_again_if_words_are_cut_otherwise()
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> str:
        with self._connections.reading() as connection:
            return tables.meta(connection, "identity")

    @property
    def position(self) -> int:
        with self._connections.reading() as connection:
            return int(tables.meta(connection, "position"))

    @property
    def writes(self) -> int:
        return 0

    @property
    def health(self) -> Health:
        """PostgreSQL keeps its own files; what it says of them is an error like any other."""
        return Health()

    @property
    def must_compare(self) -> bool:
        return False

    def compared(self) -> None:
        return

    def mend(self, seconds: float, *, thorough: bool = False) -> bool:
        return False

    def heal(self, error: Exception) -> bool:
        return False

    @property
    def computes_here(self) -> bool:
        return False

    @property
    def count(self) -> int:
        with self._connections.reading() as connection:
            found = connection.execute("select coalesce(sum(population), 0) from groups").fetchone()
            return int(found[0])

    def view(self, wanted: Filter) -> PostgresView:
        return PostgresView(self._connections, wanted)

    def get(self, ids: Sequence[str]) -> dict[str, Document]:
        with self._connections.reading() as connection:
            query = f"{rows.SELECT} where d.id = any(%s)"
            found = [rows.document(row[1:]) for row in connection.execute(query, (writes.cleaned(ids),))]
        return {document.id: document for document in found}

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
        words = [rows.words_of(self._analyse(document.text)) for document in batch]
        reached = max((d.position for d in documents if d.position is not None), default=0)
        with self._connections.writing() as connection:
            tally = writes.Tally()
            writes.remove(connection, list(last), tally)
            nums = writes.next_nums(connection, len(batch))
            groups = writes.groups_of(connection, [group_of(document) for document in batch])
            with connection.cursor().copy(rows.COPY) as copy:
                for num, group, document, found in zip(nums, groups, batch, words, strict=True):
                    copy.write_row(rows.row(num, group, document, found))
                    tally.add(group, found.keys, found.length)
            tally.save(connection)
            for fingerprint, block in blocks.items():
                writes.save_vectors(connection, fingerprint, nums, block)
            writes.advance(connection, max(reached, position or 0))

    def delete(self, ids: Sequence[str], *, position: int | None = None) -> int:
        with self._connections.writing() as connection:
            tally = writes.Tally()
            gone = writes.remove(connection, ids, tally)
            tally.save(connection)
            writes.advance(connection, position or 0)
            return gone

    def move(self, documents: Sequence[Document], *, position: int | None = None) -> int:
        with self._connections.writing() as connection:
            there = writes.move(connection, documents)
            writes.advance(connection, position or 0)
            return there

    def put_vectors(self, fingerprint: str, ids: Sequence[str], vectors: NDArray[Any]) -> int:
        block = quantised(vectors, len(ids))
        rows_of = {rows.clean(id_): row for row, id_ in enumerate(ids)}
        with self._connections.writing() as connection:
            known = writes.nums_of(connection, ids)
            chosen = block.rows(np.array([rows_of[id_] for id_ in known], np.int64))
            writes.save_vectors(connection, fingerprint, list(known.values()), chosen)
            return len(known)

    def without_vector(self, fingerprint: str, limit: int) -> list[Document]:
        lacking = f"""{rows.SELECT} where not exists (select from vectors v where v.num = d.num
            and v.space = (select code from spaces where fingerprint = %s)) order by d.num desc limit %s"""
        with self._connections.reading() as connection:
            return [rows.document(row[1:]) for row in connection.execute(lacking, (fingerprint, limit))]

    def flush(self) -> None:
        """Writes are durable as they return; this lets the planner know how much there is by now."""
        with self._connections.writing() as connection:
            connection.execute("analyze docs, vectors, counts")

    def tidy(self) -> None:
        """Nothing: the database looks after its own tables."""

    def rebuild(self) -> None:
        """Cut all stored texts into words again and count anew, keeping the vectors."""
        with self._connections.writing() as connection:
            self._rebuild(connection)

    def close(self) -> None:
        self._connections.close()

    def _index_again_if_words_are_cut_otherwise(self) -> None:
        stamp = stamp_of(self._analyse)
        with self._connections.writing() as connection:
            if tables.meta(connection, "stamp") not in {"", stamp}:
                self._rebuild(connection)
            tables.set_meta(connection, "stamp", stamp)

    def _rebuild(self, connection: Any) -> None:
        connection.execute("delete from counts")
        connection.execute("update groups set population = 0, total_length = 0")
        after = 0
        batch = "select num, grp, text from docs where num > %s order by num limit %s"
        while found := connection.execute(batch, (after, _BATCH)).fetchall():
            tally = writes.Tally()
            for num, group, text in found:
                words = rows.words_of(self._analyse(text))
                tally.add(group, words.keys, words.length)
                writes.rewrite(connection, num, words)
            tally.save(connection)
            after = found[-1][0]
