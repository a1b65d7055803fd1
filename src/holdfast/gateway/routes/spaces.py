"""`/api/spaces`: the places of the board, and which of them sees which."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from holdfast.board import Space, View, spaces
from holdfast.board.visibility import narrowed
from holdfast.errors import Forbidden, InvalidInput
from holdfast.gateway.access import may_use_key
from holdfast.gateway.board_wire import AllowedOut, ConnectivityIn, SpaceIn, SpaceOut, space_out
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import answer, answers
from holdfast.gateway.scope import Asked, Placed
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import CursorParam

router = APIRouter(tags=["board"], route_class=StrictRoute)


@router.get("/api/spaces", response_model=list[SpaceOut])
async def listing(
    here: Here,
    caller: Caller,
    ask: Placed,
    limit: Annotated[int, Query(ge=1, description="At most 1,000 come at once.")] = 1000,
    cursor: CursorParam = None,
) -> Response:
    """Spaces, by id."""
    most = min(limit, spaces.MAX_SPACES)

    def read() -> list[Space]:
        with here.read_as(caller) as tx:
            ids = narrowed(ask.view(tx, caller).spaces, caller.spaces)
            return spaces.listing(tx, ids=ids, after=cursor or "", limit=most + 1)

    found = await here.hold.threads(read)
    after = found[most - 1].id if len(found) > most else None
    return answers([space_out(space, caller) for space in found[:most]], after)


@router.post(
    "/api/spaces",
    status_code=201,
    response_model=SpaceOut,
    responses={200: {"description": "It was there already.", "model": SpaceOut}},
)
async def upsert(here: Here, caller: Caller, body: SpaceIn) -> Response:
    """Make the space of this name, or change the one there is: one space for each slug."""
    _require_all(caller)

    def write() -> spaces.Upserted:
        with here.write_as(caller) as tx:
            return spaces.upsert(
                tx, body.name, id_=body.id, color=body.color, default_visible=body.default_visible
            )

    done = await here.hold.threads(write)
    return answer(space_out(done.space, caller), 201 if done.created else 200)


@router.get("/api/spaces/allowed", response_model=AllowedOut)
async def allowed(here: Here, caller: Caller, ask: Asked) -> Response:
    """The spaces that are within sight of a space, given by its id or told by a session."""

    def read() -> View:
        with here.read_as(caller, ask.session_key) as tx:
            own = may_use_key(tx, caller, ask.session_key)
            return (ask if own else replace(ask, session_key=None)).view(tx, caller)

    view = await here.hold.threads(read)
    if view.source is None or not caller.may_see_space(view.source):
        raise InvalidInput("no space to look from", code="no_space", hint="Send spaceId.")
    return answer(AllowedOut(space_id=view.source, allowed_space_ids=sorted(view.spaces or ())))


@router.patch("/api/spaces/{id}/connectivity", response_model=SpaceOut)
async def connect(
    here: Here,
    caller: Caller,
    id_: Annotated[str, Path(alias="id", max_length=256)],
    body: ConnectivityIn,
) -> Response:
    """Say which spaces this one sees. `defaultVisible` counts only for spaces that are made later."""
    if not caller.may_see_space(id_):
        raise spaces.unknown(id_)
    _require_all(caller)

    def write() -> Space:
        with here.write_as(caller) as tx:
            return spaces.connect(tx, id_, body.connectivity, default_visible=body.default_visible)

    return answer(space_out(await here.hold.threads(write), caller))


def _require_all(caller: Principal) -> None:
    """What spaces there are, and which sees which, is for everyone who has something in them."""
    if caller.limited:
        raise Forbidden(
            "a token with limits does not change spaces",
            code="space_forbidden",
            hint="Use one without limits.",
        )
