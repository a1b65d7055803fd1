"""`GET /api/graph`: the memory map."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.board.graph import MAX_LOGS, MapAsk, MapEdge, MapNode, MapStats
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import Answer, answer
from holdfast.gateway.scope import Asked, sight_of

router = APIRouter(tags=["board"], route_class=StrictRoute)


class GraphOut(Answer):
    ok: Literal[True]
    nodes: list[MapNode] = Field(description="Topics, agents and entities, with how often they occur.")
    edges: list[MapEdge] = Field(description="co_occurs, mentions, speaks_in; a weight up to 1.")
    stats: MapStats
    took: int


@router.get("/api/graph", response_model=GraphOut)
async def graph(
    here: Here,
    caller: Caller,
    ask: Asked,
    max_entities: Annotated[int | None, Query(alias="maxEntities", ge=1, le=5000)] = None,
    max_nodes: Annotated[int | None, Query(alias="maxNodes", ge=1, le=5000)] = None,
    min_edge_weight: Annotated[float | None, Query(alias="minEdgeWeight", ge=0, le=1)] = None,
    limit_logs: Annotated[int | None, Query(alias="limitLogs", ge=1, le=MAX_LOGS)] = None,
    include_pending: Annotated[bool | None, Query(alias="includePending")] = None,
) -> Response:
    """What the newest entries within sight name, where, and together with what."""
    options = here.hold.settings.board
    wanted = MapAsk(
        sight=await here.hold.threads(sight_of, here, caller, ask),
        include_pending=options.include_pending if include_pending is None else include_pending,
        max_entities=max_entities or options.graph.max_entities,
        max_nodes=max_nodes or options.graph.max_nodes,
        min_edge_weight=options.graph.min_edge_weight if min_edge_weight is None else min_edge_weight,
        limit_logs=limit_logs or options.graph.limit_logs,
    )
    began = time.monotonic()
    made = await here.hold.threads(here.hold.board.map.build, wanted)
    return answer(GraphOut(ok=True, **made, took=round((time.monotonic() - began) * 1000)))
