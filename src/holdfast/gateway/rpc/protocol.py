"""JSON-RPC 2.0: calls as they come in, results, failures and notices as they go out. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ValidationError

from holdfast.errors import HoldfastError, InvalidInput
from holdfast.gateway import problems
from holdfast.gateway.bodies import MalformedJson, parse
from holdfast.gateway.contract import dumps

Id: TypeAlias = str | int | float | None

MALFORMED: Final = -32700
INVALID_REQUEST: Final = -32600
NO_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
MAX_ID: Final = 256

_BY_STATUS: Final = {
    400: INVALID_PARAMS,
    401: -32001,
    403: -32003,
    404: -32004,
    409: -32009,
    413: -32013,
    422: INVALID_PARAMS,
    429: -32029,
    503: -32053,
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request; a notification wants no answer."""

    method: str
    params: dict[str, Any]
    id: Id = None
    notification: bool = False


class Refused(Exception):
    """What came in is no call; `id` is its own where that can be told."""

    def __init__(self, error: HoldfastError, code: int, id_: Id = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.code = code
        self.id = id_


def read(text: str) -> Call:
    try:
        found = parse(text.encode("utf-8", "replace"))
    except MalformedJson as error:
        raise Refused(error, MALFORMED) from error
    except InvalidInput as error:
        raise Refused(error, INVALID_REQUEST) from error
    if not isinstance(found, dict):
        raise _refused("a request is one object", None, "Send requests one by one; batches are not taken.")
    id_ = found.get("id")
    if not _is_id(id_):
        raise _refused("an id is a text or a number", None)
    method, params = found.get("method"), found.get("params", {})
    if found.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise _refused('a request has "jsonrpc": "2.0" and a method', id_)
    if not isinstance(params, dict):
        raise _refused("params are an object", id_, "Send parameters by name.")
    return Call(method, params, id_, notification="id" not in found)


def result(id_: Id, value: Any) -> str:
    return dumps({"jsonrpc": "2.0", "id": id_, "result": value})


def failure(id_: Id, error: HoldfastError, code: int | None = None) -> str:
    """The error with the problem that HTTP would answer as its data."""
    number = code if code is not None else _BY_STATUS.get(error.status, -32000)
    data = json.loads(bytes(problems.of(error).body))
    return dumps(
        {"jsonrpc": "2.0", "id": id_, "error": {"code": number, "message": error.message, "data": data}}
    )


def notice(method: str, params: Any) -> str:
    return dumps({"jsonrpc": "2.0", "method": method, "params": params})


def params_of(model: type[BaseModel], sent: dict[str, Any]) -> Any:
    try:
        return model.model_validate(sent)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        path = ".".join(str(step) for step in fault["loc"])[:200] or "params"
        raise InvalidInput(f"{path}: {problems.words_of(fault)}") from error


def _is_id(id_: Any) -> bool:
    if isinstance(id_, str):
        return len(id_) <= MAX_ID
    return id_ is None or (isinstance(id_, int | float) and not isinstance(id_, bool))


def _refused(why: str, id_: Id, hint: str = "") -> Refused:
    return Refused(InvalidInput(why, code="invalid_request", hint=hint), INVALID_REQUEST, id_)
