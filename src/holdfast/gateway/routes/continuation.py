"""`/api/continuation`: what agents have elected for themselves and is still to come."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import Answer, Iso
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import json_response

router = APIRouter(tags=["agents"], route_class=StrictRoute)


class ContinuationOut(Answer):
    id: str
    kind: Literal["work", "delegate", "post_compaction"]
    session_key: str
    agent_id: str
    status: str
    phase: str
    text: str
    mode: str | None
    hop: int
    chain_id: str | None
    child_session_key: str | None
    retries: int
    busy_skips: int
    error: str | None
    elected_at: Iso
    due_at: Iso | None
    ended_at: Iso | None


@router.get("/api/continuation", response_model=list[ContinuationOut])
async def listing(
    here: Here,
    caller: Caller,
    session_key: Annotated[str | None, Query(alias="sessionKey", max_length=1024)] = None,
    limit: Annotated[int, Query(ge=1, description="At most 500 come at once.")] = 100,
) -> Response:
    """Elected turns and delegates that have not ended, the next first."""
    room = here.hold.agency.continuation
    found = await room.listing(session_key=session_key, limit=min(limit, 500))
    return json_response([one for one in found if _sees(caller, one)])


@router.delete("/api/continuation/{id}", response_model=ContinuationOut)
async def cancel(
    here: Here, caller: Caller, id_: Annotated[str, Path(alias="id", min_length=1, max_length=128)]
) -> Response:
    """Take an election back, whatever it is at: a turn that runs for it is stopped, a delegate ended."""
    room = here.hold.agency.continuation
    if not _sees(caller, await room.get(id_)):
        raise NotFound(f"nothing was elected as {id_[:80]!r}", code="unknown_continuation")
    return json_response(await room.cancel(id_, reason=f"cancelled by {caller.name}"))


def _sees(caller: Principal, told: dict[str, Any]) -> bool:
    return not caller.limited or (caller.spaces is None and caller.may_see_agent(told["agentId"]))
