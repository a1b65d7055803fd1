from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.context import AssistantMessage, Estimator, Image, ToolCall, UserMessage
from holdfast.context.calibration import HIGHEST, LOWEST, Calibration, get, learn, observe
from holdfast.context.tokens import PER_IMAGE, message_tokens, raw_tokens
from holdfast.log import OWNER, Store

PROSE = "The quick brown fox jumps over the lazy dog, and then it goes home to sleep. " * 20


def _per_token(text: str) -> float:
    return len(text) / raw_tokens(text)


def test_prose_is_cheapest_per_character_then_code_then_json_then_base64() -> None:
    code = "def f(a, b):\n    return {k: v[0] for k, v in a.items() if k != b}\n" * 20
    data = json.dumps([{"id": i, "name": f"n{i}", "ok": True} for i in range(60)])
    noise = base64.b64encode(random.Random(1).randbytes(3000)).decode()
    assert 3.6 < _per_token(PROSE) < 4.8
    assert 2.4 < _per_token(code) < _per_token(PROSE)
    assert 1.8 < _per_token(data) < _per_token(code)
    assert _per_token(noise) < 1.8
    assert 0.6 < _per_token("日本語の文章はここにあります。" * 20) < 1.2
    assert 1.5 < _per_token("Привет, как дела? Всё хорошо. " * 20) < 3
    assert _per_token("🎉" * 50) <= 0.5


COUNTED = json.loads(Path(__file__).with_name("token_counts.json").read_text())


@pytest.mark.parametrize("sample", COUNTED, ids=[one["kind"] for one in COUNTED])
def test_estimates_are_within_15_percent_of_what_a_tokenizer_counts(sample: dict[str, Any]) -> None:
    """Counted once with cl100k; the texts are others than those that the estimate was fitted to."""
    assert abs(raw_tokens(sample["text"]) - sample["tokens"]) <= max(2, 0.15 * sample["tokens"])


def test_a_picture_costs_the_same_however_large_its_data_is() -> None:
    picture = f"data:image/png;base64,{base64.b64encode(bytes(range(256)) * 200).decode()}"
    assert raw_tokens(picture) < PER_IMAGE + 20
    assert message_tokens(UserMessage(text="", images=(Image("image/png", "AA" * 5000),))) < PER_IMAGE + 20


def test_tool_calls_are_counted() -> None:
    bare = AssistantMessage(text="ok")
    calling = AssistantMessage(text="ok", calls=(ToolCall("1", "exec", {"command": "ls -la " * 50}),))
    assert message_tokens(calling) > message_tokens(bare) + 50


@given(st.text(max_size=400), st.text(max_size=400))
def test_estimates_are_never_negative_and_grow_with_the_text(one: str, other: str) -> None:
    assert raw_tokens(one) >= 0
    assert raw_tokens(one + other) <= raw_tokens(one) + raw_tokens(other) + PER_IMAGE
    assert (raw_tokens(one) == 0) == (one == "")


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), max_size=60))
def test_the_factor_stays_within_its_bounds_whatever_is_reported(reports: list[tuple[int, int]]) -> None:
    known = Calibration()
    for estimated, reported in reports:
        known = learn(known, estimated_raw=estimated, reported=reported)
        assert LOWEST <= known.factor <= HIGHEST


def test_the_factor_converges_and_one_outlier_barely_moves_it() -> None:
    known = Calibration()
    for _ in range(40):
        known = learn(known, estimated_raw=10_000, reported=13_000)
    assert abs(known.factor - 1.3) < 0.01
    assert known.error < 0.05
    moved = learn(known, estimated_raw=10_000, reported=35_000)
    assert abs(moved.factor - known.factor) < 0.05
    absurd = learn(known, estimated_raw=10_000, reported=900_000)
    assert absurd.factor == known.factor
    assert absurd.rejected == 1


def test_what_was_learnt_is_kept_in_the_store(store: Store) -> None:
    with store.write(OWNER) as tx:
        observe(tx, "m", estimated_raw=1000, reported=1200)
        observe(tx, "m", estimated_raw=1000, reported=1200)
    with store.read(OWNER) as tx:
        known = get(tx, "m")
        assert known.samples == 2
        assert get(tx, "other") == Calibration()
    assert known.estimator.text(PROSE) > Estimator().text(PROSE)
