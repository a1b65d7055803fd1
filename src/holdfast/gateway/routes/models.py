"""`/v1/models`: the agents, as OpenAI's clients list models."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from holdfast.config import Config
from holdfast.errors import InvalidInput, NotFound
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import json_response
from holdfast.keys import canonical_agent_id

# OpenAI describes these routes itself, and their errors are not problems: OpenAPI leaves them out.
router = APIRouter(route_class=StrictRoute, include_in_schema=False)

DEFAULT: Final = "holdfast"
_PREFIXES: Final = ("holdfast/", "holdfast:", "agent:")


@router.get("/v1/models")
async def listing(here: Here, caller: Caller) -> Response:
    """Every agent that the caller may ask; `holdfast` is the one that answers by default."""
    config = here.hold.settings
    agents = [agent.id for agent in config.agent_list if may_ask(caller, agent.id)]
    names = [DEFAULT] if config.default_agent_id in agents else []
    names += [f"{DEFAULT}/{agent}" for agent in agents]
    return json_response({"object": "list", "data": [_model(name) for name in names]})


@router.get("/v1/models/{model:path}")
async def get(here: Here, caller: Caller, model: str) -> Response:
    agent_of(model, here.hold.settings, caller)
    return json_response(_model(model))


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
    return caller.spaces is None and caller.may_see_agent(agent_id)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": DEFAULT}
