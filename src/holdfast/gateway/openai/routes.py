"""`/v1`: agents behind OpenAI's protocol, and the home's embedder. `model` names an agent, `user` a chat."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header
from fastapi import Request as HttpRequest
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from holdfast.config import Config
from holdfast.errors import InvalidInput, NotFound
from holdfast.gateway.asking import MAX_IDEMPOTENCY, own_key, require_agents, serving
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import foreign
from holdfast.gateway.openai import runs
from holdfast.gateway.openai.chat import ChatFrames, ChatIn, Chunks, Head, completion
from holdfast.gateway.openai.requests import ModelName, Request, Sent
from holdfast.gateway.openai.responses import (
    ResponseEvents,
    ResponseHead,
    ResponsesIn,
    response,
    response_id,
    run_of,
)
from holdfast.gateway.tokens import Principal, Scope
from holdfast.gateway.wire import Text
from holdfast.keys import MAX_KEY_LENGTH, canonical_agent_id
from holdfast.memory.embedders.base import Embedder

# OpenAI describes these routes itself, and their errors are not problems: OpenAPI leaves them out.
router = APIRouter(route_class=StrictRoute, include_in_schema=False)

DEFAULT: Final = "holdfast"
EMBEDDING: Final = "holdfast-embedding"
MAX_TEXTS: Final = 2_048
_PREFIXES: Final = ("holdfast/", "holdfast:", "agent:")
_STREAM: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

SessionHeader = Annotated[str | None, Header(alias="X-Session-Key", min_length=1, max_length=MAX_KEY_LENGTH)]
KeyHeader = Annotated[str | None, Header(min_length=1, max_length=MAX_IDEMPOTENCY)]


@router.post("/v1/chat/completions")
async def chat(
    http: HttpRequest,
    here: Here,
    caller: Caller,
    body: ChatIn,
    session_key: SessionHeader = None,
    idempotency_key: KeyHeader = None,
    x_idempotency_key: KeyHeader = None,
) -> Response:
    """Ask the agent that `model` names; the answer comes whole or in chunks."""
    request = body.request()
    asked = await _begin(here, caller, request, session_key, idempotency_key or x_idempotency_key)
    headers = {"X-Run-Id": asked.run_id}
    head = Head(asked.run_id, body.model, asked.accepted.accepted_at)
    if request.stream:
        chunks = Chunks(head, with_usage=body.with_usage, whole=request.form is not None)
        text = runs.stream(here, caller, asked, ChatFrames(chunks))
        return StreamingResponse(text, media_type="text/event-stream", headers=headers | _STREAM)
    status = await runs.ended(here, asked, http)
    return foreign(completion(head, status), headers=headers)


@router.post("/v1/responses")
async def respond(
    http: HttpRequest,
    here: Here,
    caller: Caller,
    body: ResponsesIn,
    session_key: SessionHeader = None,
    idempotency_key: KeyHeader = None,
    x_idempotency_key: KeyHeader = None,
) -> Response:
    """The same in the form of responses; `previous_response_id` goes on in the session of that one."""
    known = {id_: await runs.look_up(here, caller, id_) for id_ in sorted(body.referred)}
    request = body.request(known)
    asked = await _begin(here, caller, request, session_key, idempotency_key or x_idempotency_key)
    headers = {"X-Run-Id": asked.run_id}
    if request.stream:
        head = ResponseHead.of(await here.hold.runs.status(asked.run_id))
        text = runs.stream(here, caller, asked, ResponseEvents(head, whole=request.form is not None))
        return StreamingResponse(text, media_type="text/event-stream", headers=headers | _STREAM)
    return foreign(response(await runs.ended(here, asked, http)), headers=headers)


@router.get("/v1/responses/{responseId}")
async def get_response(here: Here, caller: Caller, responseId: str) -> Response:  # noqa: N803 - OpenAPI's name
    return foreign(response(await runs.look_up(here, caller, run_of(responseId))))


@router.delete("/v1/responses/{responseId}")
async def delete_response(here: Here, caller: Caller, responseId: str) -> Response:  # noqa: N803
    caller.require(Scope.WRITE)
    require_agents(caller)
    run_id = run_of(responseId)
    await runs.delete(here, caller, run_id)
    return foreign({"id": response_id(run_id), "object": "response", "deleted": True})


@router.post("/v1/completions")
async def complete() -> Response:
    """Not built: an agent is spoken to, and continues no text."""
    raise NotFound(
        "completions of a bare prompt are not served: an agent answers messages",
        code="unsupported_endpoint",
        hint="Use POST /v1/chat/completions or POST /v1/responses.",
    )


class EmbeddingsIn(Sent):
    model: ModelName
    input: Text | list[Any]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, le=100_000)] | None = None

    @property
    def texts(self) -> list[str]:
        given = [self.input] if isinstance(self.input, str) else self.input
        if any(not isinstance(one, str) for one in given):
            raise InvalidInput(
                "input: tokens cannot be read here, since each model counts its own",
                code="unsupported_parameter",
                hint="Send text; clients have a setting for it, such as check_embedding_ctx_length=False.",
            )
        if not 1 <= len(given) <= MAX_TEXTS or any(not text.strip() for text in given):
            raise InvalidInput(f"input: send 1 to {MAX_TEXTS:,} texts, none of them empty")
        return given


@router.post("/v1/embeddings")
async def embed(here: Here, caller: Caller, body: EmbeddingsIn) -> Response:
    """Vectors of the home's own embedder. One model is one space: no other stands in where it fails."""
    caller.require(Scope.WRITE)
    require_agents(caller)
    texts = body.texts

    def work() -> tuple[str, list[Any]]:
        embedder = _embedder(here, body.model)
        _require_dims(embedder, body.dimensions)
        rows = embedder.embed_documents(texts)
        if body.encoding_format == "base64":
            return _name(embedder), [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
        return _name(embedder), [[float(f"{value:.8g}") for value in row.tolist()] for row in rows]

    name, vectors = await here.hold.threads(work)
    data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(vectors)]
    count = sum(len(text) // 4 + 1 for text in texts)
    usage = {"prompt_tokens": count, "total_tokens": count}
    return foreign({"object": "list", "data": data, "model": name, "usage": usage})


def _embedders(here: Gateway) -> list[Embedder]:
    """The one that serves searches first; the one that is always there last."""
    chain = here.hold.memory.chain
    return [*chain.preferred, chain.base]


def _embedder(here: Gateway, model: str) -> Embedder:
    found = _embedders(here)
    if model == EMBEDDING:
        return found[0]
    for one in found:
        if model in (_name(one), one.id.model):
            return one
    raise NotFound(
        f"the model {model[:80]!r} does not exist here",
        code="model_not_found",
        hint=f"Ask for {EMBEDDING!r}, or one of: {', '.join(_name(one) for one in found)}.",
    )


def _name(embedder: Embedder) -> str:
    return f"{embedder.id.provider}/{embedder.id.model}"


def _require_dims(embedder: Embedder, wanted: int | None) -> None:
    if wanted not in (None, embedder.id.dims):
        raise InvalidInput(
            f"dimensions: {_name(embedder)} gives vectors of {embedder.id.dims}",
            code="unsupported_parameter",
            hint="Leave out `dimensions`.",
        )


@router.get("/v1/models")
async def models(here: Here, caller: Caller) -> Response:
    """Every agent that the caller may ask; `holdfast` is the one that answers by default. The embedder is
    last, and says in its name that it is no one to talk to."""
    config = here.hold.settings
    agents = [agent.id for agent in config.agent_list if may_ask(caller, agent.id)]
    names = [DEFAULT] if config.default_agent_id in agents else []
    names += [f"{DEFAULT}/{agent}" for agent in agents]
    names += [EMBEDDING] if agents else []
    return foreign({"object": "list", "data": [_model(name) for name in names]})


@router.get("/v1/models/{model:path}")
async def get_model(here: Here, caller: Caller, model: str) -> Response:
    if model != EMBEDDING or caller.spaces is not None:
        agent_of(model, here.hold.settings, caller)
    return foreign(_model(model))


def agent_of(model: str, config: Config, caller: Principal) -> str:
    """The agent that a model's name stands for; one that the caller may not ask is not there."""
    known = {agent.id for agent in config.agent_list if may_ask(caller, agent.id)}
    name = next((model.removeprefix(p) for p in _PREFIXES if model.startswith(p)), model)
    try:
        named = str(canonical_agent_id(name))
    except InvalidInput:
        named = ""
    if named not in known and model == DEFAULT:
        named = config.default_agent_id
    if named not in known:
        raise NotFound(
            f"the model {model[:80]!r} does not exist",
            code="model_not_found",
            hint="A model is an agent here; GET /v1/models lists them.",
        )
    return named


def may_ask(caller: Principal, agent_id: str) -> bool:
    return caller.may_ask_agents and caller.may_see_agent(agent_id)


async def _begin(
    here: Gateway, caller: Principal, request: Request, session_key: str | None, key: str | None
) -> runs.Asked:
    serving(here)
    if request.model == EMBEDDING:
        raise InvalidInput(
            f"the model {EMBEDDING!r} makes vectors and answers nobody",
            hint="Use it with POST /v1/embeddings; GET /v1/models lists the agents.",
        )
    agent = agent_of(request.model, here.hold.settings, caller)
    return await runs.begin(here, caller, request, agent, session_key, own_key(key))


def _model(name: str) -> dict[str, Any]:
    kind = "embedding" if name == EMBEDDING else "agent"
    return {"id": name, "object": "model", "created": 0, "owned_by": DEFAULT, "type": kind}
