"""The board as its users get it: one object with its search, its continuity and its map, over one store."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.board.audit import Audit
from holdfast.board.context import Continuity
from holdfast.board.graph import MemoryMap
from holdfast.board.recall import NoRecall, Recall
from holdfast.board.search import Search
from holdfast.config.board import BoardConfig
from holdfast.log import Store


class Board:
    """Without a `recall` it has no index to ask: then continuity is layer A alone, and nothing is found."""

    def __init__(
        self,
        store: Store,
        options: Callable[[], BoardConfig],
        *,
        recall: Recall | None = None,
        audit: Audit | None = None,
    ) -> None:
        self.store = store
        self.options = options
        self.search = Search(store, recall or NoRecall(), options, audit=audit)
        self.continuity = Continuity(store, self.search, options, audit=audit)
        self.map = MemoryMap(store, options)

    def close(self) -> None:
        self.continuity.close()
