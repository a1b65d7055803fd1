"""What OpenAPI says beyond the routes: the forms of answers, problems, tokens and headers.

A handler answers its `Out` model with `answer`; those that are asked before every turn are made by `wire`
without the detour, and the fuzzing tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from holdfast.gateway.guard import OPEN
from holdfast.log import Classification, EntryType

Iso = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", description="UTC.")]


class Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", populate_by_name=True)


def answer(body: Answer, status: int = 200) -> Response:
    """What a handler says, in the form that it is described by."""
    return Response(body.model_dump_json(by_alias=True), status, media_type="application/json")


def answers(rows: Sequence[Answer], after: object | None = None) -> Response:
    """A list of them, with the cursor of the next page where there is one."""
    text = ",".join(row.model_dump_json(by_alias=True) for row in rows)
    headers = {} if after is None else {"X-Next-Cursor": str(after)}
    return Response(f"[{text}]", headers=headers, media_type="application/json")


class EntryOut(Answer):
    id: str
    type: EntryType
    content: str
    summary: str | None
    topic_id: str | None
    task_id: str | None
    space_id: str | None
    audience: str = Field(description="Who may read it: owner, space:<id>, group:…, peer:…, anyone.")
    related_log_id: str | None
    classification_status: Classification
    classification_code: str | None
    agent_id: str | None = Field(description='"user" for a person.')
    agent_label: str | None
    source: dict[str, Any] | None = Field(description="As it was sent.")
    created_at: Iso
    updated_at: Iso
    idempotency_key: str | None


class FullEntryOut(EntryOut):
    """`raw` is there when it was asked for, and in the answer to a write."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema["required"].remove("raw"))

    raw: str | None


class LineOut(EntryOut):
    role: str | None
    turn_id: str | None


class DeletedOut(Answer):
    ok: Literal[True]
    deleted: Literal[True]
    id: str


class AcceptedOut(Answer):
    ok: Literal[True]
    queued: Literal[True]
    id: str | None = Field(description="The agenda item that will write them; null for an empty list.")
    count: int


class ChangeOut(Answer):
    seq: int
    type: str
    entity_id: str
    data: dict[str, Any] | None = Field(description="The entity as it is now; null when it is gone.")
    event_ts: Iso


class SessionOut(Answer):
    session_id: str
    session_key: str
    agent_id: str | None
    audience: str = Field(description="Who hears what is said in it.")
    space_id: str | None = Field(description="The space that a person put it into.")
    status: Literal["active", "archived"]
    chat_type: str | None
    channel: str | None
    label: str | None
    parent_session_key: str | None
    successor_id: str | None
    input_tokens: int
    output_tokens: int
    total_tokens: int
    context_tokens: int
    compaction_count: int
    memory_flush_at: Iso | None
    memory_flush_compaction_count: int | None
    turn_count: int
    created_at: Iso
    updated_at: Iso
    last_external_at: Iso
    archived_at: Iso | None
    archive_cause: str | None


class TurnOut(Answer):
    turn_id: str
    session_id: str
    session_key: str
    agent_id: str | None
    number: int
    trigger: str
    status: str
    attempt: int
    input_id: str | None
    reply_id: str | None
    model: str | None
    usage: dict[str, Any] | None
    error: str | None
    accepted_at: Iso
    started_at: Iso | None
    ended_at: Iso | None


class HealthOut(Answer):
    status: Literal["ok"]
    version: str


class PartOut(Answer):
    name: str
    state: Literal["ok", "failing", "stuck", "down", "done"]
    vital: bool
    restarts: int
    errors: int
    last_error: str | None


class StoreProblemOut(Answer):
    code: str
    message: str
    hint: str


class StoreHealthOut(Answer):
    durability: Literal["process", "power"]
    pooled: bool
    problem: StoreProblemOut | None


class HealthDetailOut(Answer):
    ready: bool
    store: StoreHealthOut
    parts: list[PartOut]


class OkOut(Answer):
    ok: Literal[True]


class LoginOut(OkOut):
    name: str
    scope: Literal["read", "write", "admin"]


class CallerOut(Answer):
    name: str
    scope: Literal["read", "write", "admin"]
    spaces: list[str] | None = Field(description="Null: no limit.")
    agents: list[str] | None = Field(description="Null: no limit.")
    user_id: str | None = Field(description="Null: a token, and no person.")
    role: Literal["owner", "admin", "member", "viewer"] | None
    teams: list[str]
    agent_id: str = Field(description="Who answers on the pages where none is named.")


class ConfigOut(Answer):
    config: dict[str, Any] = Field(description="Secrets are masked.")
    error: str | None = Field(description="Why the file as it stands is not in use.")


class McpServerOut(Answer):
    name: str
    state: Literal["ready", "starting", "failing", "off"]
    tools: list[str]
    held: list[str] = Field(description="Tools that a person has not agreed to yet.")
    error: str | None
    restarts: int


class AgendaOut(Answer):
    id: str
    kind: str
    lane: str
    status: str
    due_at: Iso
    attempts: int
    max_attempts: int
    error: str | None
    cancel_requested: bool
    session_key: str | None = Field(description="The session that it is about, if it is about one.")
    agent_id: str | None
    turn_id: str | None = Field(description="The turn that it runs, which can be cancelled by this id.")
    task_id: str | None = Field(description="The standing task that it runs.")


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


class AcceptedRunOut(Answer):
    run_id: str
    accepted_at: Iso
    session_key: str
    session_id: str
    turn: int
    entry_id: str | None
    joined: bool = Field(description="It became part of a turn that was there already.")
    reset: str | None = Field(None, description="Why the session was begun anew for it.")
    reply: str | None = Field(None, description="There if it was answered at once, as commands are.")
    told: str | None = Field(None, description="What ended with the session that it left, if anything did.")


class RunOut(Answer):
    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    run_id: str
    session_key: str
    session_id: str
    turn: int
    status: Literal["accepted", "running", "committed", "failed", "cancelled", "interrupted"]
    ended: bool = Field(description="Nothing more comes of it by itself.")
    accepted_at: Iso
    started_at: Iso | None
    ended_at: Iso | None
    reply: str | None
    reply_id: str | None
    silent: bool = Field(description="The agent chose to say nothing.")
    resumable: bool
    error: str | None
    model: str | None
    usage: dict[str, Any]
