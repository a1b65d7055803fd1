"""`/api/drafts`: texts begun on one device and finished on another. They are the operator's own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.board import drafts
from holdfast.board.drafts import Draft
from holdfast.gateway.board_wire import DraftIn, DraftOut, draft_out
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Here, Unlimited
from holdfast.gateway.contract import answer, answers

router = APIRouter(tags=["board"], route_class=StrictRoute)


@router.get("/api/drafts", response_model=list[DraftOut])
async def listing(
    here: Here, caller: Unlimited, limit: Annotated[int, Query(ge=1, description="At most 500.")] = 100
) -> Response:
    """Drafts, the most recently written first."""

    def read() -> list[Draft]:
        with here.read_as(caller) as tx:
            return drafts.listing(tx, limit=limit)

    return answers([draft_out(draft) for draft in await here.hold.threads(read)])


@router.post(
    "/api/drafts",
    status_code=201,
    response_model=DraftOut,
    responses={200: {"description": "It was there already, or is forgotten.", "model": DraftOut}},
)
async def put(here: Here, caller: Unlimited, body: DraftIn) -> Response:
    """Keep a draft under its key; an empty one is forgotten."""

    def write() -> tuple[Draft, bool]:
        with here.write_as(caller) as tx:
            return drafts.put(tx, body.key, body.value)

    draft, created = await here.hold.threads(write)
    return answer(draft_out(draft), 201 if created else 200)
