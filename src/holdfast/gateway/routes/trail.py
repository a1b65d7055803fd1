"""`/api/audit/trail`: who did what, found by filters, and the whole of it as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import answers
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import MAX_NUMBER, CursorParam, number
from holdfast.log import audit
from holdfast.log.audit import ActOut
from holdfast.people import Right

router = APIRouter(tags=["people"], route_class=StrictRoute)

MAX_PAGE = 499
Words = Annotated[str | None, Query(max_length=512)]
Time = Annotated[int | None, Query(ge=0, le=MAX_NUMBER, description="Milliseconds since 1970.")]


@router.get("/api/audit/trail", response_model=list[ActOut])
async def trail(
    here: Here,
    caller: Caller,
    act: Annotated[str | None, Query(max_length=80, description="One kind, such as login or team.")] = None,
    actor: Words = None,
    target: Words = None,
    surface: Words = None,
    on_behalf_of: Annotated[str | None, Query(alias="onBehalfOf", max_length=512)] = None,
    since: Time = None,
    until: Time = None,
    limit: Annotated[int, Query(ge=1, description=f"At most {MAX_PAGE} come at once.")] = 100,
    cursor: CursorParam = None,
) -> Response:
    """Who did what, the newest first. Each act holds the digest of the one before it."""
    caller.require_right(Right.AUDIT)
    which = audit.ActFilter(
        act=act,
        actor=actor,
        target=target,
        surface=surface,
        behalf_of=on_behalf_of,
        since=since,
        until=until,
    )
    most = min(limit, MAX_PAGE)
    before = None if cursor is None else number(cursor, 0)

    def read() -> list[audit.Act]:
        with here.read_as(caller) as tx:
            return audit.listing(tx, which, before=before, limit=most + 1)

    rows = await here.hold.threads(read)
    return answers([row.json() for row in rows[:most]], rows[most - 1].seq if len(rows) > most else None)


@router.get("/api/audit/trail.jsonl", response_class=StreamingResponse)
async def export(here: Here, caller: Caller) -> Response:
    """All acts that are kept, oldest first, one JSON object a line: each line can be checked by itself."""
    caller.require_right(Right.AUDIT)
    return StreamingResponse(
        _lines(here, caller),
        media_type="application/jsonl",
        headers={"Content-Disposition": 'attachment; filename="trail.jsonl"'},
    )


def _lines(here: Gateway, caller: Principal) -> Iterator[str]:
    with here.read_as(caller) as tx:
        for act in audit.in_order(tx):
            yield f"{json.dumps(act.json(), sort_keys=True, separators=(',', ':'))}\n"
