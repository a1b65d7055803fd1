"""OpenAPI tells the truth: fuzzing the gateway by it finds no answer that it does not describe."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis.errors import Unsatisfiable
from serving import Running, running

from builders import accept, append, examples
from holdfast.clock import ManualClock
from holdfast.log import sqlite_url
from holdfast.runtime import open_home

ROOT = Path(__file__).parents[2]
MAX_QUERY = 5_000
CONFORMANCE = ("status_code", "content_type", "response_schema", "response_headers")


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    """One gateway for all that is thrown at it, with something in it to find."""
    home = tmp_path_factory.mktemp("fuzzed")
    url = sqlite_url(shutil.copy(sqlite_template, home))
    with open_home(home, store_url=url, clock=ManualClock()) as hold, running(hold) as found:
        append(hold.store, "an entry", source={"channel": "x"})
        accept(hold.store)
        yield found


@pytest.mark.parametrize("mode", ["good", "bad"])
def test_every_answer_is_as_described(fuzzed: Running, mode: str) -> None:
    import schemathesis  # takes long to load, and every worker would

    every = schemathesis.openapi.from_dict(fuzzed.app.openapi()).exclude(path="/api/stream")
    described = every.exclude(
        path_regex="^/api/doctor"
    )  # each answer is a process: test_manage_browser has it
    with fuzzed.client(fuzzed.admin) as api:
        for found in described.get_all_operations():
            _fuzz(found.ok(), mode, api, fuzzed.admin)


def _fuzz(operation: Any, mode: str, api: httpx.Client, secret: str) -> None:
    import schemathesis

    way = schemathesis.GenerationMode.POSITIVE if mode == "good" else schemathesis.GenerationMode.NEGATIVE

    @settings(
        max_examples=examples(2 if mode == "good" else 1),
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=way))
    def answers_as_described(case: Any) -> None:
        # The HTTP parser itself refuses a longer request line, in its own words.
        assume(len(str(case.query)) < MAX_QUERY)
        headers = {"Authorization": f"Bearer {secret}"}
        response = case.call(base_url=str(api.base_url), headers=headers)
        case.validate_response(response, checks=_checks())
        assert secret not in response.text

    try:
        answers_as_described()
    except Unsatisfiable:
        # There is nothing wrong that could be sent to it.
        assert mode == "bad"


@cache
def _checks() -> list[Any]:
    import schemathesis
    from schemathesis.specs.openapi import checks

    conform = [getattr(checks, f"{name}_conformance") for name in CONFORMANCE]
    return [schemathesis.checks.not_a_server_error, *conform, checks.negative_data_rejection]


def test_the_pages_types_are_made_from_the_description_as_it_is() -> None:
    made = runpy.run_path(str(ROOT / "tools/wire_types.py"))
    first = made["TYPES"].read_text().partition("\n")[0]
    assert first == made["first_line"](), "the gateway answers otherwise than the pages read it: make wire"


def test_the_description_tells_of_tokens_problems_and_cursors(fuzzed: Running) -> None:
    with fuzzed.client(fuzzed.admin) as api:
        told = api.get("/openapi.json").json()
    assert told["security"] == [{"bearer": []}, {"holdfastToken": []}, {"clawboardToken": []}, {"cookie": []}]
    assert told["paths"]["/healthz"]["get"]["security"] == []
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            problem = operation["responses"]["422"]["content"]
            assert list(problem) == ["application/problem+json"], (method, path)
    listing = told["paths"]["/api/log"]["get"]["responses"]["200"]
    assert "X-Next-Cursor" in listing["headers"]
    assert "HTTPValidationError" not in told["components"]["schemas"]
