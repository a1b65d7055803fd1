"""Memory and board, built from the config and handed what they need of each other."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from holdfast.board.context_room import Board
from holdfast.errors import Conflict
from holdfast.memory import MemoryService

if TYPE_CHECKING:
    from holdfast.board.recall import IndexRecall
    from holdfast.memory.collections import Collection
    from holdfast.runtime import Holdfast


def open_memory_room(hold: Holdfast) -> MemoryService:
    """The built-in index, with what plugins bring before it for the agents that are configured so.

    One that another process writes is followed, where whoever opened the home only wants to read it.
    """
    try:
        return _memory_room(hold)
    except Conflict as error:
        if error.code != "index_in_use" or not hold.may_follow:
            raise
        hold.reads_only = True
        return _memory_room(hold)


def _memory_room(hold: Holdfast) -> MemoryService:
    from holdfast.board import spaces_of_entries
    from holdfast.board.semantic import BoardPlaces, findable_text
    from holdfast.memory import LogFollower, LogWatcher, open_memory
    from holdfast.memory.embedding import chain_from
    from holdfast.memory.fallback import FallbackMemory
    from holdfast.runtime.plugging import PluggedMemory, plugged_embedders

    own = hold.settings.memory.search.embedding
    chain = chain_from(own, os.environ, hold.home.path / "models", plugged_embedders(hold))
    chain.questions_kept = lambda: hold.settings.board.search.embed_query_cache_size
    plugged = PluggedMemory(hold)
    builtin = open_memory(
        hold.home.index,
        engine=hold.settings.memory.search.engine,
        shared_cache_entries=hold.settings.memory.search.embedding.shared_cache_entries,
        dictionaries=hold.settings.memory.search.dictionaries,
        chain=chain,
        workspace=hold.workspace,
        config=hold.settings_for_memory,
        reads_only=hold.reads_only,
        follow=lambda index, catalogue: (LogWatcher if hold.reads_only else LogFollower)(
            hold.store,
            index,
            catalogue,
            chain.base,
            text_of=findable_text(lambda: hold.settings.board),
            spaces_of=spaces_of_entries,
            places=BoardPlaces(),
            stop=lambda: hold.stopping,
        ),
        store=hold.store,
        clock=hold.clock,
        readable=plugged.collections,
        keep=partial(_keep, hold),
        stop=lambda: hold.stopping,
    )
    return FallbackMemory(builtin, plugged.of, config=hold.settings_for_memory, clock=hold.clock)


def _keep(hold: Holdfast, agent: str, collection: Collection, path: str, data: bytes) -> None:
    """Each text that a note of the workspace is seen with is kept, whoever wrote it."""
    from holdfast.memory.collections import DEFAULT_NAMES
    from holdfast.runtime.forgetting import files_of

    if collection.name in DEFAULT_NAMES and not hold.reads_only:
        files_of(hold, agent).keep(path, data, hold.clock.now())


def open_board(hold: Holdfast) -> Board:
    recall = index_recall(hold)
    return Board(hold.store, lambda: hold.settings.board, recall=recall, audit=hold.board_audit)


def index_recall(hold: Holdfast) -> IndexRecall:
    """Memory's index as the board searches it."""
    from holdfast.board.recall import IndexRecall
    from holdfast.memory.scoring import Scoring

    def scoring() -> Scoring:
        dense, lexical = hold.settings.memory.search.normalised
        return Scoring(dense=dense, lexical=lexical)

    def floor() -> float:
        return hold.settings.memory.search.limits.floor

    return IndexRecall(lambda: hold.memory, lambda: hold.settings.board, scoring, floor, hold.clock)
