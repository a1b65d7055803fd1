"""JSON bodies, read strictly: what two readers could take differently is refused before it is stored."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError

from holdfast.errors import InvalidInput

MAX_DEPTH: Final = 64
MAX_KEY: Final = 512


class MalformedJson(InvalidInput):
    code = "malformed_json"
    status = 400


class UnsupportedMedia(InvalidInput):
    code = "unsupported_media_type"
    status = 415


def parse(body: bytes) -> Any:
    """The value of a JSON text; no doubled keys, no NaN, no number past a float, at most 64 levels."""
    try:
        text = body.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except UnicodeDecodeError as error:
        raise MalformedJson("the body is not UTF-8") from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise MalformedJson("the body is not valid JSON") from error
    if text.count("{") + text.count("[") > MAX_DEPTH:
        _check_depth(value)
    return value


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


class StrictRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parse(await self.body())
        return self._json


class StrictRoute(APIRoute):
    """A route whose JSON body is read by `parse`; one that takes JSON takes nothing else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        takes_json = self.body_field is not None and not isinstance(self.body_field.field_info, params.Form)

        async def strict(request: Request) -> Response:
            kind = request.headers.get("content-type", "")
            if takes_json and kind and not is_json(kind):
                raise UnsupportedMedia("the body is not JSON", hint="Send application/json.")
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


class DirectRoute(StrictRoute):
    """A route on the hot path: FastAPI documents it, but its endpoint is called without FastAPI's machinery.

    The endpoint must take (gateway, caller, body model, idempotency key); that saves a third of its cost.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        assert self.body_field is not None
        model, endpoint = self.body_field.field_info.annotation, self.endpoint

        async def direct(request: Request) -> Response:
            headers = request.headers
            kind, content = headers.get("content-type", ""), await request.body()
            if kind and not is_json(kind):
                raise UnsupportedMedia("the body is not JSON", hint="Send application/json.")
            if not content:
                raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
            key = headers.get("x-idempotency-key")
            if key is not None and not 1 <= len(key) <= MAX_KEY:
                raise InvalidInput(f"X-Idempotency-Key has at most {MAX_KEY} characters, and at least one")
            body = _validated(model, parse(content))
            answer: Response = await endpoint(request.app.state.gateway, request.state.principal, body, key)
            return answer

        return direct


def _validated(model: Any, value: Any) -> Any:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise MalformedJson("an object has the same key twice")
    return made


def _refuse_constant(name: str) -> Any:
    raise MalformedJson(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise MalformedJson("a number is too large")
    return number


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [item for item in level if isinstance(item, dict | list)]
        if not inner:
            return
        level = [part for item in inner for part in (item.values() if isinstance(item, dict) else item)]
    raise _too_deep()


def _too_deep() -> InvalidInput:
    return InvalidInput(f"the body is nested deeper than {MAX_DEPTH} levels", code="too_deep")
