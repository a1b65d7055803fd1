"""`multipart/form-data` (RFC 7578), read where the body lies: a part is a place in it, not a copy."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import HTTP
from typing import Final

from holdfast.errors import InvalidInput

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
