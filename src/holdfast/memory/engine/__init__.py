"""The search engine of memory: an index over documents, embedded or in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from holdfast.memory.engine.protocol import UNCHANGED, Index, Metadata, Top, Unchanged, View

__all__ = ["UNCHANGED", "Index", "Metadata", "Top", "Unchanged", "View", "open_index"]


def open_index(folder: Path) -> Index:
    """Open the embedded index in a folder, made if it is not there."""
    from holdfast.memory.engine.embedded import EmbeddedIndex

    return EmbeddedIndex(folder)
