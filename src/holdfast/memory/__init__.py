"""Memory: what can be recalled, from files, notes and everything that was said.

from holdfast.memory import open_folder

with open_folder("notes") as memory:
    for hit in memory.find("what did we decide about the VPN?").hits:
        print(hit.score, hit.path, hit.snippet)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.memory.backend import MemoryService, rules_of
from holdfast.memory.catalogue import Catalogue
from holdfast.memory.dictionary import Dictionary
from holdfast.memory.documents import Document, Filter
from holdfast.memory.embedding_cache import embedding_cache
from holdfast.memory.engine import Engine, Index, open_index
from holdfast.memory.following import LogFollower, LogWatcher, SpacesOf, TextOf, plain_text
from holdfast.memory.results import Diagnostics, Found, Hit
from holdfast.memory.scope import PRIVATE, Chat
from holdfast.memory.service import Ask, Memory

__all__ = [
    "PRIVATE",
    "Ask",
    "Chat",
    "Diagnostics",
    "Document",
    "Filter",
    "Found",
    "Hit",
    "Index",
    "LogFollower",
    "LogWatcher",
    "Memory",
    "MemoryService",
    "SpacesOf",
    "TextOf",
    "open_folder",
    "open_memory",
    "plain_text",
    "rules_of",
]


def open_memory(
    folder: Path,
    *,
    follow: Callable[[Index, Catalogue], LogFollower] | None = None,
    engine: Engine = "auto",
    reads_only: bool = False,
    shared_cache_entries: int = 0,
    dictionaries: Sequence[str] = (),
    **options: Any,
) -> Memory:
    """Memory over the index in `folder`, made if it is not there; the other options are those of `Memory`."""
    index = open_index(folder, options.get("store"), engine, reads_only=reads_only)
    try:
        catalogue = Catalogue(folder / "catalogue.db")
        follower = None if follow is None else follow(index, catalogue)
        cache = embedding_cache(catalogue, options.get("store"), shared_cache_entries)
        return Memory(
            index,
            catalogue,
            follower=follower,
            embeddings=cache,
            reads_only=reads_only,
            dictionary=Dictionary(folder / "words.db", dictionaries),
            **options,
        )
    except BaseException:
        index.close()
        raise


def open_folder(folder: str | os.PathLike[str], *, index: str | os.PathLike[str] | None = None) -> Memory:
    """Memory over any folder of markdown files, indexed now; without `index`, for as long as the process."""
    from holdfast.config.memory import MemoryConfig
    from holdfast.memory.embedding import chain_from

    root = Path(folder).expanduser().absolute()
    place = Path(index) if index is not None else Path(tempfile.mkdtemp(prefix="holdfast-memory-"))
    everything = {"path": str(root), "name": "folder", "mask": "**/*.md"}
    config = MemoryConfig.model_validate({"search": {"paths": [everything], "includeDefaultMemory": False}})
    memory = open_memory(
        place,
        chain=chain_from(config.search.embedding, os.environ),
        workspace=lambda agent: root,
        config=lambda agent: config,
    )
    try:
        memory.update("main")
    except BaseException:
        memory.close()
        raise
    return memory
