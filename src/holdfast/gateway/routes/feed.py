"""`/api/changes` and `/api/stream`: what changed, to be read in pages or followed live."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import Response, StreamingResponse

from holdfast.errors import InvalidInput, Unavailable
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import answers
from holdfast.gateway.scope import Placed, visible_changes
from holdfast.gateway.wire import MAX_NUMBER, ChangeOut, CursorParam, change_out, number
from holdfast.log import changes

router = APIRouter(tags=["changes"], route_class=StrictRoute)


@router.get("/api/changes", response_model=list[ChangeOut])
async def listing(
    here: Here,
    caller: Caller,
    ask: Placed,
    since_seq: Annotated[int, Query(alias="sinceSeq", ge=0, le=MAX_NUMBER)] = 0,
    limit: Annotated[int, Query(ge=1, description="At most 1,000 come at once.")] = 200,
    cursor: CursorParam = None,
) -> Response:
    """Changes behind `sinceSeq`, oldest first; X-Next-Cursor will do as `cursor` or as `sinceSeq`."""
    after = number(cursor, since_seq)
    most = min(limit, changes.MAX_PAGE)

    def read() -> tuple[list[ChangeOut], int | None]:
        with here.read_as(caller) as tx:
            batch = changes.since(tx, after, limit=most)
            seen = [change_out(*one) for one in visible_changes(tx, here.views, caller, ask, batch)]
            last = batch[-1].seq if batch else after
            return seen, last if last < changes.bounds(tx)[1] else None

    rows, last = await here.hold.threads(read)
    return answers(rows, last)


@router.get(
    "/api/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream(
    here: Here,
    caller: Caller,
    ask: Placed,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Server-sent events. With `Last-Event-ID`, what was missed comes first."""
    if here.stream is None:
        raise Unavailable("the gateway is not serving yet", code="starting")

    def check() -> None:
        with here.read_as(caller) as tx:
            ask.view(tx, caller)

    await here.hold.threads(check)
    events = here.stream.events(caller, _seq(last_event_id), ask)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _seq(text: str | None) -> int | None:
    digits = (text or "").strip()
    if not digits:
        return None
    if not digits.isdecimal() or len(digits) > 19 or int(digits) > MAX_NUMBER:
        raise InvalidInput(f"not an event id: {digits[:40]!r}", code="bad_event_id")
    return int(digits)
