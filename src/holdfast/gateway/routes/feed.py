"""`/api/changes` and `/api/stream`: what changed, to be read in pages or followed live."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import Response, StreamingResponse

from holdfast.errors import InvalidInput, Unavailable
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.views import may_see
from holdfast.gateway.wire import change_json, json_response
from holdfast.log import changes

router = APIRouter(tags=["changes"])

MAX_SEQ = 2**63 - 1


@router.get("/api/changes")
async def listing(
    here: Here,
    caller: Caller,
    since_seq: Annotated[int, Query(alias="sinceSeq", ge=0, le=MAX_SEQ)] = 0,
    limit: Annotated[int, Query(ge=1, description="At most 1,000 come at once.")] = 200,
) -> Response:
    """Changes behind `sinceSeq`, oldest first; X-Next-Cursor is the `sinceSeq` of the next page."""
    most = min(limit, changes.MAX_PAGE)

    def read() -> tuple[list[dict[str, Any]], int | None]:
        with here.hold.store.read() as tx:
            batch = changes.since(tx, since_seq, limit=most)
            data = here.views.of(tx, batch)
            seen = [change_json(c, data[c.seq]) for c in batch if may_see(caller, c, data[c.seq])]
            return seen, batch[-1].seq if len(batch) == most else None

    rows, last = await here.hold.threads(read)
    return json_response(rows, headers={} if last is None else {"X-Next-Cursor": str(last)})


@router.get("/api/stream", response_class=StreamingResponse)
async def stream(
    here: Here,
    caller: Caller,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Server-sent events. With `Last-Event-ID`, what was missed comes first."""
    if here.stream is None:
        raise Unavailable("the gateway is not serving yet", code="starting")
    events = here.stream.events(caller, _seq(last_event_id))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _seq(text: str | None) -> int | None:
    if text is None or not text.strip():
        return None
    if not text.strip().isdecimal() or int(text) > MAX_SEQ:
        raise InvalidInput(f"not an event id: {text[:40]!r}", code="bad_event_id")
    return int(text)
