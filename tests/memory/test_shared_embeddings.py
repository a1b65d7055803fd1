"""Gateways on one PostgreSQL embed a text once among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psycopg
import pytest

from builders import append
from holdfast.config.memory import MemoryConfig
from holdfast.log import Store
from holdfast.memory import LogFollower, Memory, open_memory
from holdfast.memory.embedders.base import EmbedderId, Vectors
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.embedding import EmbedderChain
from holdfast.memory.embedding_cache import SCHEMA


class Counting:
    """An embedder that says how many texts it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def id(self) -> EmbedderId:
        return EmbedderId("local", "counting", 4, "counting:1")

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self.asked += len(texts)
        return np.array([[len(text) % 7 + 1, 1.0, 0.5, 0.25] for text in texts], np.float32)

    def embed_query(self, text: str) -> Vectors:
        return np.array([1.0, 1.0, 1.0, 1.0], np.float32)


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Store]:
    store = Store(postgres_url)
    yield store
    dropped(store)
    store.close()


def dropped(store: Store) -> None:
    conninfo = store.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def gateway(store: Store, home: Path, embedder: Counting, static: StaticEmbedder) -> Memory:
    chain, config = EmbedderChain([embedder], static), MemoryConfig()
    return open_memory(
        home,
        shared_cache_entries=1_000,
        chain=chain,
        workspace=lambda _: home,
        config=lambda _: config,
        follow=lambda ix, cat: LogFollower(store, ix, cat, static),
        store=store,
    )


def test_a_fresh_gateway_embeds_nothing_again(
    postgres: Store, tmp_path: Path, static: StaticEmbedder
) -> None:
    for number in range(40):
        append(postgres, f"heron number{number}", role="user", session_key="agent:main:main")
    asked = []
    for name in ("first", "second"):
        embedder = Counting()
        with gateway(postgres, tmp_path / name, embedder, static) as memory:
            memory.follow()
            memory.refine()
            assert memory.status("main")["embedders"][0]["covered"] == 1.0
            assert memory.find("heron number7").model == "counting"
        asked.append(embedder.asked)
    assert asked[0] >= 40
    assert asked[1] == 0


def test_without_the_shared_cache_a_home_goes_on_with_its_own(
    postgres: Store, tmp_path: Path, static: StaticEmbedder
) -> None:
    embedder = Counting()
    with gateway(postgres, tmp_path / "home", embedder, static) as memory:
        append(postgres, "the kelp grows", role="user", session_key="agent:main:main")
        memory.follow()
        memory.refine()
        dropped(postgres)
        append(postgres, "the tide turns", role="user", session_key="agent:main:main")
        memory.follow()
        memory.refine()
        assert memory.status("main")["embedders"][0]["covered"] == 1.0
