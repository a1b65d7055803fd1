"""Which routes a request is shown to: only those for the beginning of its path.

The gateway has more than a hundred. Left alone, a request asks one after another, a regular expression each,
which takes longer than most answers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Annotated, Any, Final, get_args, get_type_hints
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRouter, iter_route_contexts
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.scope import Ask

_DEPTH: Final = 2


def install(app: FastAPI) -> None:
    """Stand before the app's router. What is chosen, and how it is refused, stays the router's own affair."""
    app.router.middleware_stack = Switchboard(app.router)


class Switchboard:
    """Hands a request to a router that is the whole one in all but the parts that cannot be meant."""

    def __init__(self, whole: APIRouter) -> None:
        self._whole = whole
        self._known = -1
        self._narrow: Mapping[str, APIRouter] = {}
        self._rest = whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.router_for(scope).app(scope, receive, send)

    def router_for(self, scope: Scope) -> APIRouter:
        """The least of the router that chooses for this request as the whole one would."""
        if scope["type"] == "lifespan" or scope.get("root_path"):
            return self._whole
        if self._known != len(self._whole.routes):
            self._learn()
        scope.setdefault("router", self._whole)
        return self._narrow.get(beginning(scope["path"]), self._rest)

    def _learn(self) -> None:
        """Sort the parts by where their routes begin; again whenever one was added."""
        routes = list(self._whole.routes)
        begins = [_beginnings(route) for route in routes]
        names = {name for found in begins if found is not None for name in found}
        self._narrow = {
            name: self._only(r for r, own in zip(routes, begins, strict=True) if own is None or name in own)
            for name in names
        }
        self._rest = self._only(r for r, own in zip(routes, begins, strict=True) if own is None)
        self._known = len(routes)

    def _only(self, routes: Iterable[BaseRoute]) -> APIRouter:
        narrow = copy.copy(self._whole)
        narrow.routes = list(routes)
        return narrow


def beginning(path: str) -> str:
    """The first segments of a path, by which it is sorted; a last line feed is none of its letters to `$`."""
    return "/".join(path.removesuffix("\n").split("/", _DEPTH + 1)[1 : _DEPTH + 1])


def _beginnings(route: BaseRoute) -> set[str] | None:
    """Where the paths of a part begin; None if one of them may begin anyhow."""
    found: set[str] = set()
    for context in iter_route_contexts([route]):
        path = getattr(context, "path", None)
        if not isinstance(path, str) or not hasattr(context.original_route, "endpoint"):
            return None
        name = beginning(path)
        if not name or "{" in name:
            return None
        found.add(name)
    return found


MAX_FIELDS: Final = 1_000


class Sighted(BaseModel):
    """Parameters of a request that looks from somewhere; others than those described are ignored."""

    model_config = ConfigDict(frozen=True)

    space_id: Annotated[
        str | None, Field(alias="spaceId", max_length=256, description="The space that is looked from.")
    ] = None
    allowed: Annotated[
        str | None, Field(alias="allowedSpaceIds", max_length=65_536, description="Space ids by comma.")
    ] = None
    session_key: Annotated[
        str | None,
        Field(alias="sessionKey", max_length=1024, description="Tells the space if none is given."),
    ] = None

    @property
    def ask(self) -> Ask:
        return Ask(self.space_id, self.allowed, self.session_key)


class QueryRoute(StrictRoute):
    """A route whose endpoint takes (gateway, caller, query model): FastAPI only documents it.

    That saves a third of what a request costs besides its work.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = self.endpoint
        model: type[BaseModel] = get_args(get_type_hints(endpoint, include_extras=True)["query"])[0]

        async def direct(request: Request) -> Response:
            query = _validated(model, request.scope["query_string"])
            answer: Response = await endpoint(request.app.state.gateway, request.state.principal, query)
            return answer

        return direct


def _validated(model: type[BaseModel], query: bytes) -> BaseModel:
    """Of a parameter that is given twice the last one counts."""
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        return model.model_validate(dict(pairs))
    except ValidationError as error:
        faults = [{**fault, "loc": ("query", *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from error
    except ValueError as error:
        fault = {"type": "value_error", "loc": ("query",), "msg": "Too many parameters"}
        raise RequestValidationError([fault]) from error
