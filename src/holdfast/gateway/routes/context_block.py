"""`GET /api/context`: the continuity of a conversation, ready for a prompt."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field
from starlette.responses import Response

from holdfast.board.block import MAX_CHARS, MIN_CHARS
from holdfast.board.context import ContextAsk, Mode
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import Answer
from holdfast.gateway.scope import Asked, sight_of
from holdfast.gateway.wire import json_response

router = APIRouter(tags=["board"], route_class=StrictRoute)


def _without_what_was_not_sent(schema: dict[str, Any]) -> None:
    schema["required"] = [name for name in schema["required"] if name not in ("sessionKey", "q")]


class ContextBlockOut(Answer):
    """`sessionKey` and `q` are there when they were sent."""

    model_config = ConfigDict(json_schema_extra=_without_what_was_not_sent)

    ok: Literal[True]
    session_key: str
    q: str
    mode: Mode
    layers: list[str] = Field(description="The sections of which something stands in the block.")
    block: str = Field(description="At most `maxChars` long, however that is counted.")
    data: dict[str, Any] = Field(description="The same as plain values, and what was left out.")


@router.get("/api/context", response_model=ContextBlockOut)
async def context(
    here: Here,
    caller: Caller,
    ask: Asked,
    q: Annotated[str, Query(max_length=100_000, description="What the turn is about.")] = "",
    mode: Annotated[Mode | None, Query(description="Unset: as configured.")] = None,
    include_pending: Annotated[bool | None, Query(alias="includePending")] = None,
    max_chars: Annotated[int | None, Query(alias="maxChars", ge=MIN_CHARS, le=MAX_CHARS)] = None,
    working_set_limit: Annotated[int | None, Query(alias="workingSetLimit", ge=0, le=40)] = None,
    timeline_limit: Annotated[int | None, Query(alias="timelineLimit", ge=0, le=40)] = None,
) -> Response:
    """Layer A always, recall as the mode says; a block that goes into a prompt as it is."""
    options = here.hold.settings.board
    wanted = ContextAsk(
        q=q,
        sight=sight_of(ask, caller),
        mode=mode or options.context_mode,
        include_pending=options.include_pending if include_pending is None else include_pending,
        max_chars=max_chars or options.context_max_chars,
        working_set_limit=options.working_set_limit if working_set_limit is None else working_set_limit,
        timeline_limit=options.timeline_limit if timeline_limit is None else timeline_limit,
    )
    made = await here.hold.threads(here.hold.board.continuity.build, wanted)
    return json_response(made.json())
