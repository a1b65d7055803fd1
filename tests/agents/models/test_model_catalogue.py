"""What is known of providers and models without asking them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.agents.models import RECALL, Catalogue, ModelFailure, ModelRef, Usage
from holdfast.agents.models.catalogue import LOCAL_SECONDS, WINDOW, Served, is_loopback, priced
from holdfast.config.models import ModelsConfig


def catalogue(**given: Any) -> Catalogue:
    return Catalogue(ModelsConfig.model_validate(given))


def test_a_well_known_model_has_its_window_and_price_and_an_unknown_one_has_none() -> None:
    known = catalogue().resolve(ModelRef.parse("anthropic/claude-sonnet-4-5"))
    assert (known.about.window, known.about.images, known.about.thinks) == (200_000, True, True)
    assert known.api == "anthropic-messages"
    cost = priced(Usage(1_000_000, 0, 0), known).cost
    assert cost is not None
    assert cost > 0
    unknown = catalogue().resolve(ModelRef.parse("ollama/some-model:7b"))
    assert unknown.about.window == WINDOW
    assert priced(Usage(1000, 10), unknown).cost is None
    assert unknown.endpoint.timeout_seconds == LOCAL_SECONDS


def test_cached_tokens_cost_what_the_config_says_of_them() -> None:
    entry = {"id": "x", "cost": {"input": 2, "output": 8, "cacheRead": 0.5, "cacheWrite": 3}}
    found = catalogue(providers={"p": {"baseUrl": "https://p.example/v1", "models": [entry]}})
    usage = Usage(input=1000, output=10, cache_read=600, cache_write=100)
    resolved = found.resolve(ModelRef("p", "x"))
    assert priced(usage, resolved).cost == pytest.approx((300 * 2 + 600 * 0.5 + 100 * 3 + 10 * 8) / 1e6)
    free = catalogue(
        providers={"p": {"baseUrl": "https://p.example/v1", "models": [{"id": "x", "cost": {}}]}}
    )
    assert priced(usage, free.resolve(ModelRef("p", "x"))).cost == 0.0


def test_the_config_overrides_what_it_names_and_leaves_the_rest_of_a_built_in_provider() -> None:
    given = {
        "anthropic": {"timeoutSeconds": 7, "models": [{"id": "claude-sonnet-4-5", "contextWindow": 50_000}]}
    }
    found = catalogue(providers=given).resolve(ModelRef.parse("anthropic/claude-sonnet-4-5"))
    assert (found.about.window, found.about.thinks) == (50_000, True)
    assert found.endpoint.base_url == "https://api.anthropic.com"
    assert (found.api, found.endpoint.timeout_seconds) == ("anthropic-messages", 7.0)


def test_replacing_leaves_only_what_the_config_names_and_the_recall_model() -> None:
    only = catalogue(mode="replace", providers={"mine": {"baseUrl": "http://10.0.0.5/v1"}})
    assert [one.provider for one in only.endpoints()] == ["mine"]
    assert only.resolve(RECALL).api == "recall"
    with pytest.raises(ModelFailure) as failed:
        only.resolve(ModelRef.parse("openai/gpt-5"))
    assert failed.value.reason == "not_configured"
    assert "mine" in failed.value.hint


def test_a_servers_own_word_on_its_window_counts_unless_the_config_says_otherwise() -> None:
    ref = ModelRef("ollama", "x")
    learned = {ref: Served(window=32_768)}
    assert Catalogue(ModelsConfig(), learned).resolve(ref).about.window == 32_768
    given = ModelsConfig.model_validate(
        {"providers": {"ollama": {"models": [{"id": "x", "contextWindow": 4096}]}}}
    )
    about = Catalogue(given, learned).resolve(ref).about
    assert (about.window, about.max_tokens <= 8192) == (4096, True)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1234/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:8080", True),
        ("http://127.8.9.1/", True),
        ("http://localhost.evil.example/", False),
        ("https://10.0.0.1/", False),
        ("http://127.0.0.1.nip.example/", False),
    ],
)
def test_loopback_is_known_by_its_address(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected
    endpoint = catalogue().endpoint("ollama")
    assert replace(endpoint, base_url=url).loopback is expected
