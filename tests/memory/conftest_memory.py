"""A memory over a workspace and a store, with the embedder that ships with the install."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import ManualClock
from holdfast.config.memory import MemoryConfig
from holdfast.log import OWNER, Reader, Store
from holdfast.memory import Ask, Chat, Found, LogFollower, Memory, open_memory
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.embedding import EmbedderChain


@pytest.fixture(scope="session")
def static() -> StaticEmbedder:
    return StaticEmbedder()


@dataclass
class Desk:
    """A memory with its workspaces, and the few gestures that tests make."""

    memory: Memory
    root: Path
    store: Store
    clock: ManualClock
    settings: dict[str, Any] = field(default_factory=dict)

    def workspace(self, agent: str = "main") -> Path:
        return self.root / agent

    def write(self, path: str, text: str, agent: str = "main") -> None:
        target = self.workspace(agent) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def ask(
        self,
        query: str,
        agent: str = "main",
        chat: Chat | None = None,
        reader: Reader = OWNER,
        **options: Any,
    ) -> Found:
        return self.memory.search(Ask(query, agent, reader, chat or Chat(), **options))

    def paths(self, query: str, agent: str = "main") -> list[str]:
        return [hit.path for hit in self.ask(query, agent).hits]


@pytest.fixture
def new_desk(tmp_path: Path, static: StaticEmbedder, clock: ManualClock) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(store: Store, *, index: str = "index", **config: Any) -> Desk:
        settings = MemoryConfig.model_validate(config)
        chain = EmbedderChain([], static)
        root = tmp_path / "workspaces"
        memory = open_memory(
            tmp_path / index,
            chain=chain,
            workspace=lambda agent: root / agent,
            config=lambda agent: settings,
            follow=lambda ix, cat: LogFollower(store, ix, cat, chain.base),
            store=store,
            clock=clock,
        )
        (root / "main").mkdir(parents=True, exist_ok=True)
        made.append(Desk(memory, root, store, clock))
        return made[-1]

    yield make
    for desk in made:
        desk.memory.close()


@pytest.fixture
def desk(new_desk: Callable[..., Desk], sqlite_store: Store) -> Desk:
    return new_desk(sqlite_store)
