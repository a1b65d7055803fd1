"""Cursors of lists that are read by a number: a place in a sequence, or a count of what came before."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from holdfast.errors import InvalidInput
from holdfast.gateway.wire import json_response

MAX_NUMBER: Final = 2**63 - 1
MAX_OFFSET: Final = 10_000

CursorParam = Annotated[
    str | None, Query(alias="cursor", description="The X-Next-Cursor of the page before.")
]


def number(cursor: str | None, otherwise: int, *, most: int = MAX_NUMBER) -> int:
    """Where a page begins: at its cursor if there is one."""
    if cursor is None:
        return otherwise
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 19 and int(cursor) <= most):
        raise InvalidInput(
            f"not a cursor: {cursor[:64]!r}",
            code="bad_cursor",
            hint="Send back the X-Next-Cursor header of the previous page unchanged.",
        )
    return int(cursor)


def page(rows: list[dict[str, Any]], after: object | None) -> Response:
    """A list, with the cursor of the next page where there is one."""
    return json_response(rows, headers={} if after is None else {"X-Next-Cursor": str(after)})
