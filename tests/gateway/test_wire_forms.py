"""Answers have one form each: what is declared is what is made, and nothing is put together by hand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from serving import faults

GATEWAY = Path(__file__).parents[2] / "src/holdfast/gateway"

# Where a response is made otherwise than by `answer`, `answers`, `ok` and `deleted`, and why.
BY_HAND = {
    "contract.py": "the four themselves, and `foreign`",
    "metrics.py": "Prometheus' text",
    "problems.py": "problem+json, which every route has in common",
    "mcp_door.py": "MCP's own protocol, and its stream",
    "openai/routes.py": "OpenAI's own forms, and their streams",
    "routes/agent.py": "a stream of events",
    "routes/attachments.py": "a file",
    "routes/context_block.py": "text that a reader process wrote: `ContextBlockOut`",
    "routes/engine.py": "what a tool of that name tells a model",
    "routes/feed.py": "a stream of events",
    "routes/memory.py": "text that a reader process wrote: `FoundOut`",
    "routes/oidc.py": "a redirection and a page",
    "routes/plugins.py": "what a plugin answers",
    "routes/search.py": "text that a reader process wrote: `SearchOut`",
    "routes/settings.py": "the config's JSON Schema, written once",
    "routes/trail.py": "lines of JSON, as a file",
    "site.py": "the pages' files",
}
MAKERS = {"Response", "JSONResponse", "StreamingResponse", "HTMLResponse", "RedirectResponse", "foreign"}


def _calls(file: Path) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def test_no_answer_is_put_together_by_hand_but_where_a_reason_is_named() -> None:
    found = {str(file.relative_to(GATEWAY)) for file in GATEWAY.rglob("*.py") if _calls(file) & MAKERS}
    assert found == set(BY_HAND)


def test_no_route_answers_a_dict_of_which_nobody_says_what_it_has() -> None:
    """The type checker refuses them to `answer`; this keeps them from being declared as an answer's form."""
    loose = [
        f"{file.name}: {ast.unparse(node)}"
        for file in (GATEWAY / "routes").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.keyword)
        and node.arg == "response_model"
        and "dict" in ast.unparse(node.value)
    ]
    assert loose == ["engine.py: response_model=dict[str, Any]"]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"ok": true}', []),
        (b"{}", [': "ok" is a required property']),
        (b'{"ok": true, "more": 1}', [": Additional properties are not allowed ('more' was unexpected)"]),
        (b'{"ok": 1}', ['ok: 1 is not of type "boolean"', "ok: true was expected"]),
    ],
)
def test_an_answer_that_is_not_as_described_is_found(body: bytes, found: list[str]) -> None:
    assert faults(body, "/api/logout", "post", "200") == found


def test_an_answer_with_a_status_that_is_not_described_is_found() -> None:
    assert faults(b"{}", "/api/logout", "post", "202") == ["an answer that is not described"]
