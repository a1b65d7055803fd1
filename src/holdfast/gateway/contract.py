"""What OpenAPI says beyond the routes: the forms of answers, problems, tokens and headers.

A handler answers its `Out` model with `answer`. What comes by the hundred or goes into events, and what other
rooms tell, is a `TypedDict` instead: the type checker holds its form, which costs a request nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from starlette.responses import Response
from typing_extensions import TypedDict

from holdfast.gateway.guard import OPEN
from holdfast.records import Iso as Iso


class Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", populate_by_name=True)


class Record(TypedDict):
    """What any typed record is to `answer`; a dict of which nobody says what it has is none."""


def answer(body: Answer | Record, status: int = 200) -> Response:
    """What a handler says, in the form that it is described by."""
    text = body.model_dump_json(by_alias=True) if isinstance(body, Answer) else dumps(body)
    return Response(text, status, media_type="application/json")


def answers(
    rows: Sequence[Answer] | Sequence[Record], after: object | None = None, status: int = 200
) -> Response:
    """A list of them, with the cursor of the next page where there is one."""
    headers = {} if after is None else {"X-Next-Cursor": str(after)}
    models = [row.model_dump_json(by_alias=True) for row in rows if isinstance(row, Answer)]
    text = f"[{','.join(models)}]" if models else dumps(rows)
    return Response(text, status, headers=headers, media_type="application/json")


def foreign(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in a form that others have laid down: of OpenAI's interface, of MCP, of a plugin."""
    return Response(dumps(body), status, headers=headers, media_type="application/json")


def ok() -> Response:
    """What is said where there is nothing to tell but that it was done."""
    return answer(OkOut(ok=True))


def deleted(id_: str) -> Response:
    return answer(DeletedOut(ok=True, deleted=True, id=id_))


def dumps(body: Any) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


class DeletedOut(Answer):
    ok: Literal[True]
    deleted: Literal[True]
    id: str


class OkOut(Answer):
    ok: Literal[True]


class LoginOut(OkOut):
    name: str
    scope: Literal["read", "write", "admin"]


_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Stable; for programs."},
        "detail": {"type": "string"},
        "hint": {"type": "string", "description": "How to mend it."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "expected"],
                "properties": {"path": {"type": "string"}, "expected": {"type": "string"}},
            },
        },
    },
}
_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "holdfastToken": {"type": "apiKey", "in": "header", "name": "X-Holdfast-Token"},
    "clawboardToken": {"type": "apiKey", "in": "header", "name": "X-Clawboard-Token"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "holdfast"},
}
_READ_PROBLEMS: Final = {
    "400": "The request cannot be read.",
    "401": "No token, or one that does not hold.",
    "403": "The token may not do this.",
    "404": "There is no such thing, or none that the token may see.",
    "422": "The request can be read, but not used.",
    "429": "A bound was reached; try again later.",
    "503": "The store cannot be used now, or the gateway is stopping.",
}
_WRITE_PROBLEMS: Final = _READ_PROBLEMS | {
    "409": "The state of the thing does not allow this.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
}
_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "401": {"WWW-Authenticate": {"schema": {"type": "string"}}},
    "429": {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}},
    "503": {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}},
}
_CURSOR_HEADER: Final = {
    "X-Next-Cursor": {
        "schema": {"type": "string"},
        "description": "There is more; send this back as `cursor`.",
    }
}


def install(app: FastAPI) -> None:
    """Let `/openapi.json` tell all of it."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            app.openapi_schema = _completed(schema)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _completed(schema: dict[str, Any]) -> dict[str, Any]:
    parts = schema.setdefault("components", {})
    parts["securitySchemes"] = _SCHEMES
    schemas = parts.setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schema["security"] = [{name: []} for name in _SCHEMES]
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    return schema


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    if path in OPEN:
        operation["security"] = []
    for status, text in (_READ_PROBLEMS if method == "get" else _WRITE_PROBLEMS).items():
        answers[status] = _problem_answer(text) | (
            {"headers": _HEADERS[status]} if status in _HEADERS else {}
        )
    if _is_list(answers.get("200", {})):
        answers["200"]["headers"] = _CURSOR_HEADER


def _problem_answer(text: str) -> dict[str, Any]:
    reference = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {"description": text, "content": {"application/problem+json": reference}}


def _is_list(answer: dict[str, Any]) -> bool:
    shape = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return bool(shape.get("type") == "array")
