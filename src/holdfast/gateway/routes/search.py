"""`GET /api/search`: topics, tasks, entries and notes of the whole history, within sight."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.board.search import SearchAsk
from holdfast.board.search_forms import found_forms
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import Answer
from holdfast.gateway.scope import Asked, sight_of
from holdfast.gateway.wire import json_response

router = APIRouter(tags=["board"], route_class=StrictRoute)


class SearchOut(Answer):
    """Every hit has its `id`, its `score` and the `parts` that add up to it."""

    ok: Literal[True]
    q: str
    mode: str = Field(description="hybrid, text, or empty when there was nothing to look for.")
    topics: list[dict[str, Any]]
    tasks: list[dict[str, Any]]
    logs: list[dict[str, Any]]
    notes: list[dict[str, Any]]
    took: int = Field(description="Milliseconds; those of the first time for an answer given again.")


@router.get(
    "/api/search",
    response_model=SearchOut,
    responses={429: {"description": "Too many searches at once: `search_busy`."}},
)
async def search(
    here: Here,
    caller: Caller,
    ask: Asked,
    q: Annotated[str, Query(max_length=100_000, description="What to look for.")] = "",
    topic_id: Annotated[str | None, Query(alias="topicId", max_length=256)] = None,
    include_pending: Annotated[bool | None, Query(alias="includePending")] = None,
    limit_topics: Annotated[int | None, Query(alias="limitTopics", ge=1, le=800)] = None,
    limit_tasks: Annotated[int | None, Query(alias="limitTasks", ge=1, le=800)] = None,
    limit_logs: Annotated[int | None, Query(alias="limitLogs", ge=1, le=5000)] = None,
) -> Response:
    """Hybrid search, best first; what a topic's entries score counts for the topic too."""
    options = here.hold.settings.board
    wanted = SearchAsk(
        q=q,
        sight=sight_of(ask, caller),
        topic_id=topic_id,
        include_pending=options.include_pending if include_pending is None else include_pending,
        topics=limit_topics or options.search.limit_topics,
        tasks=limit_tasks or options.search.limit_tasks,
        logs=limit_logs or options.search.limit_logs,
    )
    board = here.hold.board
    async with board.search.gate.entering():
        found, forms = await here.hold.threads(lambda: _made(board.search.run(wanted)))
    told = {"ok": True, "q": q[:2000], "mode": found.mode}
    return json_response(told | forms | {"took": found.took_ms})


def _made(found: Any) -> tuple[Any, dict[str, list[dict[str, Any]]]]:
    return found, found_forms(found)
