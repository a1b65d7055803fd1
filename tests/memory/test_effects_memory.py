"""What the settings of memory change, each shown with a value that is far from its default."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import watchfiles
from conftest_memory import Desk
from test_cycles import Round
from test_embedder_chain import Seconds, Vendor
from test_remote_embedders import Provider, fails, provider, vectors
from tiny_model import write_model

from builders import PATIENCE, append, new_database, session
from holdfast.board.recall import Wanted
from holdfast.clock import ManualClock
from holdfast.config.memory import Embedding, MemoryConfig
from holdfast.log import OWNER, Store, Threads
from holdfast.memory import Ask, Chat
from holdfast.memory.backend import rules_of
from holdfast.memory.cycles import EMBED
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.embedding import EmbedderChain, chain_from
from holdfast.memory.scope import may_search
from holdfast.runtime import open_home
from holdfast.runtime.rooms import index_recall

__all__ = ["provider"]

Desks = Callable[..., Desk]
WALRUS = "The walrus has tusks."


def test_an_embedder_is_asked_where_and_how_the_config_says(provider: Callable[..., Provider]) -> None:
    one = provider(vectors(5))
    own = {"baseUrl": one.url, "apiKey": "a-key", "model": "text-embedding-3-large", "dimensions": 5}
    chain = chain_from(
        Embedding.model_validate({"providers": ["openai"], "openai": own, "batchSize": 2}), {}, Path("none")
    )
    (embedder,) = chain.preferred
    embedder.embed_documents(["a", "b", "c"])
    path, headers, body = one.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/embeddings", "Bearer a-key")
    assert (body["model"], body["dimensions"]) == ("text-embedding-3-large", 5)
    assert [len(body["input"]) for _, _, body in one.requests] == [2, 1]


def test_the_chain_is_the_one_that_the_config_names(provider: Callable[..., Provider]) -> None:
    url = provider(vectors()).url
    given = {"openai": {"baseUrl": url}, "gemini": {"baseUrl": url}, "providers": ["gemini"]}
    chain = chain_from(Embedding.model_validate(given), {}, Path("none"))
    assert [one.id.provider for one in chain.preferred] == ["gemini"]


def test_the_next_takes_over_after_as_long_as_the_config_says(
    desk: Desk, provider: Callable[..., Provider]
) -> None:
    down, up = provider(fails(503)), provider(vectors(3))
    given = {
        "providers": ["openai", "gemini"],
        "openai": {"baseUrl": down.url},
        "gemini": {"baseUrl": up.url},
        "failoverAfter": "0m",
    }
    desk.memory.chain = chain_from(Embedding.model_validate(given), {}, Path("none"))
    for one in desk.memory.chain.preferred:
        one._sleep = lambda _: None  # type: ignore[attr-defined]
    desk.write("MEMORY.md", WALRUS)
    desk.memory.update("main")
    desk.memory.refine()
    assert up.requests != []


def test_embeddings_are_kept_as_many_as_the_config_says(
    new_desk: Desks, sqlite_store: Store, static: StaticEmbedder
) -> None:
    """Where one is kept, texts that are indexed anew are embedded again; where all are, they are not."""
    given = []
    for most in (1, 0):
        desk = new_desk(sqlite_store, index=f"index{most}", search={"embedding": {"cacheEntries": most}})
        vendor = Vendor("a")
        desk.memory.chain = EmbedderChain([vendor], static, now=Seconds())
        for _ in range(2):
            for name, text in (("memory/a.md", WALRUS), ("memory/b.md", "The heron moved in.")):
                desk.write(name, text)
            desk.memory.update("main", force=True)
            desk.memory.refine("main")
            for name in ("memory/a.md", "memory/b.md"):
                (desk.workspace() / name).unlink()
            desk.memory.update("main")
        given.append(len(vendor.given))
    assert given == [4, 2]


def test_a_local_model_embeds_beside_the_others_where_the_config_says_so(
    provider: Callable[..., Provider], tmp_path: Path
) -> None:
    given = {
        "providers": ["openai", "local"],
        "openai": {"baseUrl": provider(vectors()).url},
        "local": {"model": str(write_model(tmp_path / "tiny-minilm"))},
        "localBeside": True,
    }
    chain = chain_from(Embedding.model_validate(given), {}, Path("none"))
    assert [one.id.provider for one in chain.beside] == ["local"]


def test_a_home_has_the_word_lists_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "de-en").write_text("Bootshaus {n} :: boathouse\n")
    search = {"dictionaries": [str(tmp_path / "de-en")], "embedding": {"providers": []}}
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps({"memory": {"search": search}}))
    with open_home(home) as hold:
        (hold.workspace("main") / "memory").mkdir(parents=True)
        (hold.workspace("main") / "memory/a.md").write_text("The boathouse is by the pier.")
        hold.memory.update("main")
        found = hold.memory.search(Ask("Wo ist das Bootshaus?", "main", OWNER, Chat()))
        assert [hit.path for hit in found.hits] == ["memory/a.md"]


def test_gateways_on_one_postgres_share_as_many_embeddings_as_the_config_says(
    postgres_server: Any, provider: Callable[..., Provider], tmp_path: Path
) -> None:
    url, one = new_database(postgres_server, "shared_effects"), provider(vectors())
    embedding = {
        "providers": ["openai"],
        "openai": {"baseUrl": one.url, "dimensions": 3},
        "sharedCacheEntries": 0,
    }
    asked = []
    for name in ("first", "second"):
        home = tmp_path / name
        home.mkdir()
        (home / "holdfast.json").write_text(json.dumps({"memory": {"search": {"embedding": embedding}}}))
        with open_home(home, store_url=url) as hold:
            if name == "first":
                append(hold.store, "the kelp grows", role="user", session_key="agent:main:main")
            hold.memory.follow()
            hold.memory.refine()
        asked.append(len(one.requests))
    assert asked[1] > asked[0] > 0


@pytest.mark.parametrize(("embedder", "kept", "asked"), [("static", 8, 0), ("best", 8, 1), ("best", 0, 2)])
def test_the_board_asks_the_embedder_of_the_config_about_a_question_and_keeps_as_many_as_it_says(
    provider: Callable[..., Provider], tmp_path: Path, embedder: str, kept: int, asked: int
) -> None:
    one = provider(vectors())
    embedding = {"providers": ["openai"], "openai": {"baseUrl": one.url, "dimensions": 3}}
    search = {"embedder": embedder, "embedQueryCacheSize": kept}
    config = {"memory": {"search": {"embedding": embedding}}, "board": {"search": search}}
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps(config))
    with open_home(home) as hold:
        append(hold.store, "the kelp grows", role="user", session_key="agent:main:main")
        hold.memory.follow()
        hold.memory.refine()
        before = len(one.requests)
        wanted = Wanted(question="what grows?", reader=OWNER, spaces=None, logs=3, places=0, seq=-1)
        for _ in range(2):
            index_recall(hold).search(wanted)
        assert len(one.requests) - before == asked


def test_neighbouring_chunks_share_what_the_config_says(new_desk: Desks, sqlite_store: Store) -> None:
    text = "\n".join(f"Line {n} of the long tide table, with heights and hours." for n in range(60))
    counts = []
    for overlap in (0, 40):
        chunking = {"tokens": 64, "overlap": overlap}
        desk = new_desk(sqlite_store, index=f"index{overlap}", search={"chunking": chunking})
        desk.write("MEMORY.md", text)
        desk.memory.update("main")
        counts.append(sum(one["chunks"] for one in desk.memory.status("main")["collections"]))
    assert counts[1] > counts[0] * 1.5


def test_results_below_the_score_of_the_config_are_left_out(new_desk: Desks, sqlite_store: Store) -> None:
    found = {}
    for least in (0.0, 0.999):
        desk = new_desk(sqlite_store, index=f"index{least}", search={"limits": {"minScore": least}})
        desk.write("MEMORY.md", WALRUS)
        desk.memory.update("main")
        found[least] = len(desk.ask("elephants and their ivory").hits)
    assert found == {0.0: 1, 0.999: 0}


def test_meaning_and_wording_count_as_the_config_says(new_desk: Desks, sqlite_store: Store) -> None:
    def scores(**search: Any) -> list[float]:
        index = "-".join(map(str, search.values()))
        desk = new_desk(sqlite_store, index=index, search={**search, "limits": {"minScore": 0.0}})
        desk.write("MEMORY.md", WALRUS)
        desk.write("memory/a.md", "Elephants have long teeth of ivory, and so do other large animals.")
        desk.memory.update("main")
        return [hit.score for hit in desk.ask("walrus ivory teeth").hits]

    wording, meaning = scores(vectorWeight=0.0, textWeight=1.0), scores(vectorWeight=1.0, textWeight=0.0)
    assert wording != meaning
    assert scores(vectorWeight=1.0, textWeight=1.0) == scores(vectorWeight=0.3, textWeight=0.3)


def test_qmds_own_rules_hold_when_the_built_in_index_stands_in() -> None:
    own = {"vectorWeight": 1.0, "textWeight": 1.0}
    rules = rules_of(MemoryConfig.model_validate({"backend": "qmd", "qmd": own}))
    assert rules.search.normalised == (0.5, 0.5)


def test_a_rule_of_the_scope_is_about_a_channel_or_the_start_of_a_key() -> None:
    rules = [
        {"action": "allow", "match": {"channel": "pier"}},
        {"action": "allow", "match": {"keyPrefix": "agent:main:quay:group:9"}},
    ]
    given = {"search": {"scope": {"default": "deny", "rules": rules}}}
    scope = MemoryConfig.model_validate(given).search.scope
    asked = ("agent:main:pier:group:1", "agent:main:quay:group:9", "agent:main:quay:group:8")
    assert [may_search(Chat.of(key), scope).allowed for key in asked] == [True, True, False]


def test_conversations_are_recalled_for_as_long_as_the_config_says(
    new_desk: Desks, sqlite_store: Store, clock: ManualClock
) -> None:
    desk = new_desk(sqlite_store, search={"sessions": {"retentionDays": 7}})
    there = session(sqlite_store)
    append(sqlite_store, "The comet passes tonight.", session_key=there.key, session_id=there.id, role="user")
    clock.advance(hours=24 * 8)
    assert desk.ask("comet").hits == []


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_embeddings_are_refreshed_as_often_as_the_config_says(desk: Desk, threads: Threads) -> None:
    made = Round(desk, threads, embedInterval="90m")
    made.cycles.schedule_boot()
    await made.drain()
    assert made.minutes(EMBED) == [90.0]


@pytest.mark.anyio
async def test_files_are_watched_as_the_config_says(
    desk: Desk, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher waits for as much quiet as it is told to, and is not begun where nothing is watched."""
    quiet: list[int] = []
    stop = asyncio.Event()

    async def awatch(*_: Path, debounce: int, **__: Any) -> AsyncIterator[set[Any]]:
        quiet.append(debounce)
        stop.set()
        yield set()

    monkeypatch.setattr(watchfiles, "awatch", awatch)
    made = Round(desk, threads, watchDebounceMs=70)
    await asyncio.wait_for(made.cycles.watch_files(stop), PATIENCE)
    assert quiet == [70]
    stop.clear()
    made.update["watch"] = False
    watching = asyncio.create_task(made.cycles.watch_files(stop))
    await asyncio.sleep(0.3)
    stop.set()
    await asyncio.wait_for(watching, PATIENCE)
    assert quiet == [70]
