"""`/api/sessions/{key}/turns/{n}/context`: what a model was given in a turn, to the byte."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from holdfast.context import Replay, manifest_json, wire
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Here, Unlimited
from holdfast.gateway.contract import Answer
from holdfast.gateway.routes.engine import room_of
from holdfast.gateway.wire import json_response
from holdfast.log import sessions

router = APIRouter(tags=["sessions"], route_class=StrictRoute)

Number = Annotated[int, Path(ge=1, le=2**31 - 1)]


class ContextOut(Answer):
    manifest: dict[str, Any]
    identical: bool
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


@router.get("/api/sessions/{key:path}/turns/{number}/context", response_model=ContextOut)
async def turn_context(
    here: Here,
    caller: Unlimited,
    key: str,
    number: Number,
    call: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
) -> Response:
    """The manifest of a turn's last model call (or of `call`) and its exact payload.

    For tokens without limits: what a model is given may come from anything that its surface may read.
    """

    def read() -> Replay:
        with here.read_as(caller) as tx:
            session = sessions.find(tx, key)
        return room_of(here).replay(session, number, call)

    found = await here.hold.threads(read)
    return json_response(
        {
            "manifest": manifest_json(found.manifest),
            "identical": found.identical,
            "messages": [{**wire(m), "trust": m.trust.label, "source": m.source} for m in found.messages],
            "tools": [] if found.tools is None else json.loads(found.tools),
        }
    )
