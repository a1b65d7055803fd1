"""A slow or silent embedder costs a question its share of the time, and no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_remote_embedders import Answer, Provider, provider, vectors

from holdfast.config.memory import MemoryConfig
from holdfast.memory import Memory, open_memory
from holdfast.memory.deadline import Deadlines, TooSlow
from holdfast.memory.embedders.remote import OPENAI, Endpoint, RemoteEmbedder
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.embedding import EmbedderChain

__all__ = ["provider"]

Start = Callable[..., Provider]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that no server waits for longer than its test."""
    made = threading.Event()
    yield made
    made.set()


def silent_for_questions(gate: threading.Event) -> Callable[[str, dict[str, Any]], Answer]:
    """Documents are embedded at once, a question never."""
    embed = vectors()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if body["input"] != ["The walrus has tusks."]:
            gate.wait(60)
        return embed(path, body)

    return answer


@pytest.fixture
def new_memory(tmp_path: Path, static: StaticEmbedder) -> Iterator[Callable[..., Memory]]:
    made: list[Memory] = []

    def make(*endpoints: Endpoint) -> Memory:
        config = MemoryConfig.model_validate({"search": {"limits": {"timeoutMs": 400}}})
        chain = EmbedderChain([RemoteEmbedder(one, OPENAI) for one in endpoints], static)
        (tmp_path / "MEMORY.md").write_text("The walrus has tusks.")
        memory = open_memory(
            tmp_path / "index", chain=chain, workspace=lambda agent: tmp_path, config=lambda agent: config
        )
        made.append(memory)
        memory.update("main")
        memory.refine()
        return memory

    yield make
    for memory in made:
        memory.close()


def test_a_search_goes_on_with_the_static_embedder_and_says_so(
    new_memory: Callable[..., Memory], provider: Start, gate: threading.Event
) -> None:
    memory = new_memory(Endpoint(provider(silent_for_questions(gate)).url, "slow", None, "k"))
    found = memory.find("what has tusks?")
    assert [hit.path for hit in found.hits] == ["MEMORY.md"]
    assert "openai/slow: no answer within" in (found.fallback or "")
    assert (found.provider, found.diagnostics.mode) != ("openai", "text")
    assert not gate.is_set()


def test_one_that_was_too_slow_is_not_waited_for_at_every_question(
    new_memory: Callable[..., Memory], provider: Start, gate: threading.Event
) -> None:
    slow = provider(silent_for_questions(gate))
    memory = new_memory(Endpoint(slow.url, "slow", None, "k"))
    memory.find("what has tusks?")
    asked = len(slow.requests)
    assert "too slow a moment ago" in (memory.find("what has tusks?").fallback or "")
    assert len(slow.requests) == asked


def test_the_next_that_covers_the_scope_too_has_a_share_of_the_time(
    provider: Start, static: StaticEmbedder, gate: threading.Event
) -> None:
    slow, quick = provider(silent_for_questions(gate)), provider(vectors())
    both = [RemoteEmbedder(Endpoint(one.url, one.url, None, "k"), OPENAI) for one in (slow, quick)]
    chain = EmbedderChain([*both], static)
    made = chain.question("what has tusks?", {one.id.fingerprint: 1.0 for one in both}, 3.0)
    assert made.embedder is both[1]
    assert "no answer within" in (made.fallback or "")


def test_status_and_search_never_ask_a_provider_who_it_is(
    new_memory: Callable[..., Memory], provider: Start
) -> None:
    one = provider(vectors())
    memory = new_memory(Endpoint(one.url, "m", None, "k"))
    before = len(one.requests)
    told = memory.status("main")["embedders"][0]
    assert (told["model"], told["dims"], told["covered"]) == ("m", 3, 1.0)
    assert len(one.requests) == before


def test_work_that_hangs_does_not_pile_up(gate: threading.Event) -> None:
    deadlines = Deadlines(pause=0)
    for _ in range(4):
        with pytest.raises(TooSlow, match="no answer"):
            deadlines.within("x", 0.001, lambda: gate.wait(60))
    with pytest.raises(TooSlow, match="too many"):
        deadlines.within("x", 0.001, lambda: True)
    assert deadlines.within("y", 30, lambda: 5) == 5


def test_an_error_of_the_work_comes_back_as_it_is() -> None:
    with pytest.raises(KeyError):
        Deadlines().within("x", 30, lambda: {}["nothing"])
