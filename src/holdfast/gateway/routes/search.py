"""`GET /api/search`: topics, tasks, entries and notes of the whole history, within sight."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.board.search import SearchAsk
from holdfast.board.search_forms import EntryHit, TaskHit, TopicHit
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import Answer
from holdfast.gateway.routing import QueryRoute, Sighted
from holdfast.gateway.scope import sight_of
from holdfast.gateway.tokens import Principal
from holdfast.runtime import readers

router = APIRouter(tags=["board"], route_class=QueryRoute)


class SearchOut(Answer):
    """Every hit has its `id`, its `score` and the `parts` that add up to it."""

    ok: Literal[True]
    q: str
    mode: str = Field(description="hybrid, text, or empty when there was nothing to look for.")
    topics: list[TopicHit]
    tasks: list[TaskHit]
    logs: list[EntryHit]
    notes: list[EntryHit]
    confidence: float = Field(
        default=1.0, description="How likely it is that something that was said answers this."
    )
    fits: bool = Field(
        default=True, description="False: nothing does, and only what is named by the question is given."
    )
    behind: int = Field(
        default=0, description="Entries that a long log still keeps the index from; they were not searched."
    )
    took: int = Field(description="Milliseconds; those of the first time for an answer given again.")


class SearchQuery(Sighted):
    q: Annotated[str, Field(max_length=100_000, description="What to look for.")] = ""
    topic_id: Annotated[str | None, Field(alias="topicId", max_length=256)] = None
    include_pending: Annotated[bool | None, Field(alias="includePending")] = None
    limit_topics: Annotated[int | None, Field(alias="limitTopics", ge=1, le=800)] = None
    limit_tasks: Annotated[int | None, Field(alias="limitTasks", ge=1, le=800)] = None
    limit_logs: Annotated[int | None, Field(alias="limitLogs", ge=1, le=5000)] = None


@router.get(
    "/api/search",
    response_model=SearchOut,
    responses={429: {"description": "Too many searches at once: `search_busy`."}},
)
async def search(here: Here, caller: Caller, query: Annotated[SearchQuery, Query()]) -> Response:
    """Hybrid search, best first; what a topic's entries score counts for the topic too."""
    async with here.hold.board.search.gate.entering():
        found = await here.readers.answer(readers.search, lambda: _wanted(here, caller, query))
        return Response(found, media_type="application/json")


def _wanted(here: Gateway, caller: Principal, query: SearchQuery) -> SearchAsk:
    options = here.hold.settings.board
    pending = options.include_pending if query.include_pending is None else query.include_pending
    return SearchAsk(
        q=query.q,
        sight=sight_of(here, caller, query.ask),
        topic_id=query.topic_id,
        include_pending=pending,
        topics=query.limit_topics or options.search.limit_topics,
        tasks=query.limit_tasks or options.search.limit_tasks,
        logs=query.limit_logs or options.search.limit_logs,
    )
