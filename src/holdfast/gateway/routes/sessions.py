"""`/api/sessions`: what conversations there are, and their turns."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import entry_json, json_response, session_json, turn_json
from holdfast.log import Entry, Session, SessionStatus, Turn, Tx, entries, sessions, turns

router = APIRouter(tags=["sessions"])

Most = Annotated[int, Query(ge=1, description="At most 500 come at once.")]
Position = Annotated[int, Query(ge=0, le=2**63 - 1)]


@router.get("/api/sessions")
async def listing(
    here: Here,
    caller: Caller,
    status: Literal["active", "archived", "all"] = "active",
    agent_id: Annotated[str | None, Query(alias="agentId")] = None,
    limit: Most = 100,
    offset: Annotated[int, Query(ge=0, le=10_000)] = 0,
) -> Response:
    """Sessions, most recently used first."""
    agents = caller.agents
    if agent_id is not None:
        agents = frozenset((agent_id,)) if agents is None else agents & {agent_id}

    def read() -> list[Session]:
        with here.hold.store.read() as tx:
            return sessions.listing(
                tx,
                status=None if status == "all" else SessionStatus(status),
                agent_ids=agents,
                limit=limit,
                offset=offset,
            )

    return json_response([session_json(s) for s in await here.hold.threads(read)])


@router.get("/api/sessions/{key:path}/turns")
async def turn_list(
    here: Here,
    caller: Caller,
    key: str,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Most = 50,
) -> Response:
    """The turns of a session, newest first."""

    def read() -> list[Turn]:
        with here.hold.store.read() as tx:
            return turns.listing(tx, _session(tx, caller, key).id, before=before, limit=limit)

    return json_response([turn_json(t) for t in await here.hold.threads(read)])


@router.get("/api/sessions/{key:path}/transcript")
async def transcript(
    here: Here, caller: Caller, key: str, after: Position = 0, limit: Most = 100
) -> Response:
    """What was said and done in a session, in order; X-Next-Cursor is the `after` of the next page."""
    most = min(limit, 500)

    def read() -> list[Entry]:
        with here.hold.store.read() as tx:
            return entries.transcript(tx, _session(tx, caller, key).id, after=after, limit=most)

    rows = await here.hold.threads(read)
    headers = {"X-Next-Cursor": str(rows[-1].position)} if len(rows) == most else {}
    return json_response(
        [entry_json(e) | {"role": e.role, "turnId": e.turn_id} for e in rows], headers=headers
    )


@router.post("/api/sessions/{key:path}/reset")
async def reset(here: Here, caller: Caller, key: str) -> Response:
    """Archive the session and begin its successor."""

    def write() -> Session:
        with here.hold.store.write() as tx:
            return sessions.reset(tx, _session(tx, caller, key), cause="reset")

    return json_response(session_json(await here.hold.threads(write)))


@router.post("/api/sessions/{key:path}/archive")
async def archive(here: Here, caller: Caller, key: str) -> Response:
    """End the session; the next message to its key begins a new one."""

    def write() -> Session:
        with here.hold.store.write() as tx:
            return sessions.archive(tx, _session(tx, caller, key), cause="archive")

    return json_response(session_json(await here.hold.threads(write)))


@router.get("/api/sessions/{key:path}")
async def get(here: Here, caller: Caller, key: str) -> Response:
    """One session, by its key or its id."""

    def read() -> Session:
        with here.hold.store.read() as tx:
            return _session(tx, caller, key)

    return json_response(session_json(await here.hold.threads(read)))


def _session(tx: Tx, caller: Principal, key: str) -> Session:
    found = sessions.find(tx, key)
    if not caller.may_see_agent(found.agent_id):
        raise NotFound(f"no session {key[:80]!r}", code="unknown_session")
    return found
