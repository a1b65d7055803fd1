"""Addresses that Clawboard's own clients call, each one of ours by the name that they know.

Those that have no meaning here are named in docs/http.md with the reason.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from holdfast.board.reads import ReadableRows
from holdfast.gateway.asking import AgentIn, accept, require_own_run
from holdfast.gateway.board_wire import TopicOut
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here, Unlimited
from holdfast.gateway.contract import Answer, OkOut, answer, ok
from holdfast.gateway.routes import topics
from holdfast.gateway.routes.graph import GraphOut, graph
from holdfast.gateway.wire import Id, Text, Wire
from holdfast.keys import MAX_KEY_LENGTH
from holdfast.log import sessions, turns

router = APIRouter(tags=["clawboard"], route_class=StrictRoute)


class ChatCountsOut(Answer):
    topic_chat_counts: dict[str, int]
    task_chat_counts: dict[str, int]


class ChatIn(Wire):
    """A message from the board's composer."""

    session_key: Annotated[Text, Field(min_length=1, max_length=MAX_KEY_LENGTH)]
    message: Annotated[Text, Field(min_length=1, max_length=200_000)]
    agent_id: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    request_id: Annotated[Text, Field(min_length=1, max_length=256)] | None = None


class ChatStopIn(Wire):
    session_key: Annotated[Text, Field(min_length=1, max_length=MAX_KEY_LENGTH)]
    request_id: Id | None = None


class SentMessageOut(Answer):
    queued: Literal[True]
    request_id: str = Field(description="The run; `GET /api/agent/{runId}` follows it.")


class ChatStoppedOut(Answer):
    aborted: bool
    run_id: str | None


router.add_api_route(
    "/api/topics/ensure",
    topics.upsert,
    methods=["POST"],
    status_code=201,
    response_model=TopicOut,
    responses={200: {"description": "It was there already.", "model": TopicOut}},
)
router.add_api_route("/api/clawgraph", graph, methods=["GET"], response_model=GraphOut)


@router.get("/api/log/chat-counts", response_model=ChatCountsOut)
async def chat_counts(here: Here, caller: Caller) -> Response:
    """How much was said under each topic and task, of what the caller may read."""

    def read() -> ChatCountsOut:
        with here.read_as(caller) as tx:
            of = {name: dict(query.rows(tx)) for name, query in _COUNTS.items()}
        return ChatCountsOut(topic_chat_counts=of["topic_id"], task_chat_counts=of["task_id"])

    return answer(await here.hold.threads(read))


@router.post("/api/reindex", response_model=OkOut)
async def reindex(here: Here, caller: Unlimited) -> Response:
    """Have all that was written be found now. The index follows the log by itself: nothing need be sent."""
    await here.hold.threads(here.hold.board.search.bring_up_to_date, caller.reader)
    return ok()


@router.post("/api/openclaw/chat", status_code=202, response_model=SentMessageOut)
async def chat(here: Here, caller: Caller, body: ChatIn) -> Response:
    """Ask an agent from the board: `POST /api/agent` by the name that Clawboard has for it."""
    asked = AgentIn.model_validate(
        {
            "message": body.message,
            "sessionKey": body.session_key,
            "agentId": body.agent_id,
            "idempotencyKey": body.request_id,
        }
    )
    accepted = await accept(here, caller, asked.ask(caller))
    return answer(SentMessageOut(queued=True, request_id=accepted.run_id), 202)


@router.delete("/api/openclaw/chat", response_model=ChatStoppedOut)
async def stop_chat(here: Here, caller: Caller, body: ChatStopIn) -> Response:
    """Stop the run that was asked for, or the one that runs in the session."""

    def running() -> str | None:
        with here.read_as(caller) as tx:
            found = sessions.find(tx, body.session_key)
            return next((t.id for t in turns.listing(tx, found.id, limit=5) if t.ended_at is None), None)

    run_id = body.request_id or await here.hold.threads(running)
    if run_id is None:
        return answer(ChatStoppedOut(aborted=False, run_id=None))
    await require_own_run(here, caller, run_id)
    ended = await here.hold.runs.cancel(run_id)
    return answer(ChatStoppedOut(aborted=not ended.ok, run_id=run_id))


_COUNTS: Final = {
    name: ReadableRows(
        f"SELECT {name}, count(*) FROM entries WHERE {name} IS NOT NULL AND type = 'conversation'"
        f" AND deleted_at IS NULL {{reach}} GROUP BY {name}"
    )
    for name in ("topic_id", "task_id")
}
