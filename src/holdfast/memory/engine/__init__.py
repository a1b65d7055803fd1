"""The search engine of memory: an index over documents, embedded or in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdfast.errors import InvalidInput
from holdfast.memory.engine.protocol import Index, Metadata, Top, View

if TYPE_CHECKING:
    from holdfast.log import Store

__all__ = ["Engine", "Index", "Metadata", "Top", "View", "open_index"]

Engine = Literal["auto", "embedded", "postgres"]


def open_index(
    folder: Path, store: Store | None = None, engine: Engine = "auto", *, reads_only: bool = False
) -> Index:
    """The index in a folder, or the one in the store's PostgreSQL; made if it is not there.

    `auto` is the embedded one, the faster of the two; that in PostgreSQL is shared between processes. With
    `reads_only` an embedded one is followed while another process writes it.
    """
    if engine != "postgres" and reads_only:
        from holdfast.memory.engine.reading import IndexReader

        return IndexReader(folder)
    if engine != "postgres":
        from holdfast.memory.engine.embedded import EmbeddedIndex

        return EmbeddedIndex(folder)
    if store is None:
        raise InvalidInput(
            "an index in PostgreSQL needs a store",
            hint="Set memory.search.engine to embedded, or open a home.",
        )
    from holdfast.memory.engine.postgres import PostgresIndex

    return PostgresIndex(store)
