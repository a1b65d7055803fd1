"""`GET /api/context`: the continuity of a conversation, ready for a prompt."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.board.block import MAX_CHARS, MIN_CHARS
from holdfast.board.context import ContextAsk, ContextBlockOut, Mode
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.routing import QueryRoute, Sighted
from holdfast.gateway.scope import sight_of
from holdfast.gateway.tokens import Principal
from holdfast.runtime import readers

router = APIRouter(tags=["board"], route_class=QueryRoute)
T = TypeVar("T")


class ContextQuery(Sighted):
    q: Annotated[str, Field(max_length=100_000, description="What the turn is about.")] = ""
    mode: Annotated[Mode | None, Field(description="Unset: as configured.")] = None
    include_pending: Annotated[bool | None, Field(alias="includePending")] = None
    max_chars: Annotated[int | None, Field(alias="maxChars", ge=MIN_CHARS, le=MAX_CHARS)] = None
    working_set_limit: Annotated[int | None, Field(alias="workingSetLimit", ge=0, le=40)] = None
    timeline_limit: Annotated[int | None, Field(alias="timelineLimit", ge=0, le=40)] = None


@router.get("/api/context", response_model=ContextBlockOut)
async def context(here: Here, caller: Caller, query: Annotated[ContextQuery, Query()]) -> Response:
    """Layer A always, recall as the mode says; a block that goes into a prompt as it is."""
    made = await here.readers.answer(readers.context, lambda: _wanted(here, caller, query))
    return Response(made, media_type="application/json")


def _wanted(here: Gateway, caller: Principal, query: ContextQuery) -> ContextAsk:
    options = here.hold.settings.board
    return ContextAsk(
        q=query.q,
        sight=sight_of(here, caller, query.ask),
        mode=query.mode or options.context_mode,
        include_pending=_given(query.include_pending, options.include_pending),
        max_chars=query.max_chars or options.context_max_chars,
        working_set_limit=_given(query.working_set_limit, options.working_set_limit),
        timeline_limit=_given(query.timeline_limit, options.timeline_limit),
    )


def _given(value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value
