"""`/api/memory`: search and read what an agent remembers."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.clock import iso
from holdfast.errors import NotFound
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import json_response
from holdfast.log import FOR_OWNER
from holdfast.memory import Ask, Chat
from holdfast.runtime import readers

router = APIRouter(tags=["memory"])

AgentParam = Annotated[str | None, Query(alias="agentId", description="Unset: the default agent.")]
SessionParam = Annotated[
    str | None, Query(alias="sessionKey", description="The chat that asks; unset: a private one.")
]


@router.get("/api/memory/search")
async def search(
    here: Here,
    caller: Caller,
    q: Annotated[str, Query(min_length=1, max_length=4000)],
    agent_id: AgentParam = None,
    session_key: SessionParam = None,
    max_results: Annotated[int | None, Query(alias="maxResults", ge=1, le=100)] = None,
    min_score: Annotated[float | None, Query(alias="minScore", ge=0, le=1)] = None,
    explain: Annotated[bool, Query(description="Show the parts of each score.")] = False,
) -> Response:
    """What memory has on a question, with its sources; an empty answer says why."""
    agent = _agent(here, caller, agent_id)
    reader = await here.hold.threads(here.reader_for, caller, session_key)
    ask = Ask(q, agent, reader, Chat.of(session_key), max_results, min_score)
    found = await here.readers.answer(readers.memory_search, (ask, explain))
    return Response(found, media_type="application/json")


@router.get("/api/memory/get")
async def get(
    here: Here,
    caller: Caller,
    path: Annotated[str, Query(min_length=1, max_length=1024)],
    agent_id: AgentParam = None,
    session_key: SessionParam = None,
    start: Annotated[int, Query(alias="from", ge=1, le=10_000_000)] = 1,
    lines: Annotated[int | None, Query(ge=1, le=10_000)] = None,
) -> Response:
    """Lines of a memory file."""
    agent = _agent(here, caller, agent_id)

    def read() -> dict[str, object]:
        reader, chat = here.reader_for(caller, session_key), Chat.of(session_key)
        return here.hold.memory.read(agent, path, reader, start=start, lines=lines, chat=chat)

    return json_response(await here.hold.threads(read))


@router.get("/api/memory/files")
async def files(
    here: Here,
    caller: Caller,
    agent_id: AgentParam = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 200,
) -> Response:
    """The files that an agent remembers by, as `GET /api/memory/get` takes their paths."""
    agent = _agent(here, caller, agent_id)

    def read() -> list[dict[str, object]]:
        if not here.reader_for(caller, None).may_read_of(FOR_OWNER, agent):
            return []
        found = ((one, *each) for one in here.hold.collections(agent) for each in one.files())
        return [
            {"path": one.address(path), "bytes": facts.st_size, "updatedAt": iso(facts.st_mtime_ns // 10**6)}
            for one, path, facts in islice(found, limit)
        ]

    return json_response(await here.hold.threads(read))


@router.get("/api/memory/status")
async def status(here: Here, caller: Caller, agent_id: AgentParam = None) -> Response:
    """What is indexed, by whom it is embedded, and how fresh it is."""
    agent = _agent(here, caller, agent_id)
    return json_response(await here.hold.threads(lambda: here.hold.memory.status(agent)))


def _agent(here: Gateway, caller: Principal, agent_id: str | None) -> str:
    """The agent that is asked for, if it is there and the caller may speak for it.

    Memory lies in no space, so that one limited to spaces sees none, as with sessions.
    """
    settings = here.hold.settings
    agent = settings.agent(agent_id or settings.default_agent_id).id
    if caller.spaces is not None or not caller.may_see_agent(agent):
        raise NotFound(f"no agent {agent!r}", code="unknown_agent")
    return agent
