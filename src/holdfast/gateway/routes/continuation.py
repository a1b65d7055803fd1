"""`/api/continuation`: what agents have elected for themselves and is still to come."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from holdfast.continuation.room import ContinuationOut
from holdfast.errors import NotFound
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import answer, answers
from holdfast.gateway.tokens import Principal

router = APIRouter(tags=["agents"], route_class=StrictRoute)


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
    return answers([one for one in found if _sees(caller, one)])


@router.delete("/api/continuation/{id}", response_model=ContinuationOut)
async def cancel(
    here: Here, caller: Caller, id_: Annotated[str, Path(alias="id", min_length=1, max_length=128)]
) -> Response:
    """Take an election back, whatever it is at: a turn that runs for it is stopped, a delegate ended."""
    room = here.hold.agency.continuation
    if not _sees(caller, await room.get(id_)):
        raise NotFound(f"nothing was elected as {id_[:80]!r}", code="unknown_continuation")
    return answer(await room.cancel(id_, reason=f"cancelled by {caller.name}"))


def _sees(caller: Principal, told: ContinuationOut) -> bool:
    return not caller.limited or (caller.spaces is None and caller.may_see_agent(told["agentId"]))
