"""Bodies and heads of requests, bounded: JSON that two readers could take differently is refused before it is
stored, a form's parts are read where they lie, and who sends a head a byte at a time is hung up on.
"""

from __future__ import annotations

import asyncio
import json
import math
import mmap
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import HTTP
from typing import Any, Final

from fastapi import Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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


MAX_HEADERS: Final = 8 * 1024
_END: Final = b"\r\n\r\n"

Body = bytes | mmap.mmap


class MalformedForm(InvalidInput):
    code = "malformed_form"
    status = 400


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a form; `file_name` is None for a plain value."""

    name: str
    file_name: str | None
    mime_type: str
    start: int
    end: int


def boundary_of(content_type: str) -> bytes:
    """What separates the parts."""
    header: Message = Message()
    header["content-type"] = content_type
    boundary = header.get_param("boundary")
    plain = isinstance(boundary, str) and 0 < len(boundary) <= 70 and boundary.isascii()
    if header.get_content_type() != "multipart/form-data" or not plain:
        raise MalformedForm("the body is not a form", hint="Send multipart/form-data with a boundary.")
    return str(boundary).encode()


def parts(body: Body, boundary: bytes, *, most: int) -> Iterator[Part]:
    """The parts in their order, at most `most`; `MalformedForm` where the body breaks the rules."""
    mark = b"\r\n--" + boundary
    if body[: len(mark) - 2] != mark[2:]:
        raise MalformedForm("the form does not begin with its boundary")
    at = len(mark) - 2
    for _ in range(most + 1):
        if body[at : at + 2] == b"--":
            return
        if body[at : at + 2] != b"\r\n":
            raise MalformedForm("a boundary is not followed by a line's end")
        head = body.find(_END, at, at + MAX_HEADERS)
        end = -1 if head < 0 else body.find(mark, head + 2)
        if end < 0:
            raise MalformedForm("a part of the form has no end")
        yield _part(body[at + 2 : head + 4], head + 4, max(end, head + 4))
        at = end + len(mark)
    raise InvalidInput(f"a form has at most {most} parts", code="too_many_files")


def _part(head: bytes, start: int, end: int) -> Part:
    headers = BytesHeaderParser(policy=HTTP).parsebytes(head)
    disposition = headers.get("content-disposition")
    params = {} if disposition is None else dict(disposition.params)
    name = params.get("name")
    if name is None:
        raise MalformedForm("a part of the form has no name")
    kind = headers.get("content-type")
    mime_type = "text/plain" if kind is None else str(kind.content_type)
    return Part(str(name), params.get("filename"), mime_type, start, end)


MAX_HEAD: Final = 64 * 1024
NOT_SNIFFED: Final = ("X-Content-Type-Options", "nosniff")


class HeadLimits(HttpToolsProtocol):
    """One connection. A clock runs while a head is awaited that has begun, and from the first moment on."""

    def __init__(self, *args: Any, head_seconds: Callable[[], float], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seconds = head_seconds
        self._clock: asyncio.TimerHandle | None = None
        self._in_head = True
        self._size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._start()
            self._size += len(data)
        super().data_received(data)
        if self._size > MAX_HEAD:
            self._refuse("431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start()

    def on_headers_complete(self) -> None:
        self._in_head, self._size = False, 0
        self._stop()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True

    def _start(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(self._seconds(), self._refuse, "408 Request Timeout")

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _refuse(self, status: str) -> None:
        """In the middle of an answer to an earlier request there is nothing to say: then it just ends."""
        self._stop()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            lines = (f"HTTP/1.1 {status}", ": ".join(NOT_SNIFFED), "Content-Length: 0", "Connection: close")
            self.transport.write("\r\n".join([*lines, "", ""]).encode())
        self.transport.close()
