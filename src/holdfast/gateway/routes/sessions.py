"""`/api/sessions`: what conversations there are, and their turns."""

from __future__ import annotations

import secrets
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field, StrictInt
from starlette.responses import Response

from holdfast.board import spaces
from holdfast.context import SpawnParams
from holdfast.errors import NotFound
from holdfast.gateway.access import may_use_key
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here, Unlimited
from holdfast.gateway.contract import answer, answers
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import (
    MAX_NUMBER,
    MAX_OFFSET,
    CursorParam,
    Id,
    LineOut,
    SessionOut,
    TurnOut,
    Wire,
    line_out,
    number,
    session_out,
    turn_out,
)
from holdfast.log import Entry, Session, SessionStatus, Turn, Tx, entries, sessions, turns

router = APIRouter(tags=["sessions"], route_class=StrictRoute)

MAX_PAGE = 499
Most = Annotated[int, Query(ge=1, description=f"At most {MAX_PAGE} come at once.")]
Position = Annotated[int, Query(ge=0, le=MAX_NUMBER)]


class ForkIn(Wire):
    before_turn: Annotated[StrictInt, Field(ge=1, le=2**31 - 1)]


class SpaceOfSessionIn(Wire):
    space_id: Id | None


@router.get("/api/sessions", response_model=list[SessionOut])
async def listing(
    here: Here,
    caller: Caller,
    status: Literal["active", "archived", "all"] = "active",
    agent_id: Annotated[str | None, Query(alias="agentId")] = None,
    limit: Most = 100,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
    cursor: CursorParam = None,
) -> Response:
    """Sessions, most recently used first."""
    most, skip = min(limit, MAX_PAGE), number(cursor, offset, most=MAX_OFFSET)

    def read() -> list[Session]:
        with here.read_as(caller) as tx:
            return sessions.listing(
                tx,
                status=None if status == "all" else SessionStatus(status),
                agent_ids=None if agent_id is None else frozenset((agent_id,)),
                limit=most + 1,
                offset=skip,
            )

    rows = await here.hold.threads(read)
    more = len(rows) > most and skip + most <= MAX_OFFSET
    return answers([session_out(s) for s in rows[:most]], skip + most if more else None)


@router.get("/api/sessions/{key:path}/turns", response_model=list[TurnOut])
async def turn_list(
    here: Here,
    caller: Caller,
    key: str,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Most = 50,
    cursor: CursorParam = None,
) -> Response:
    """The turns of a session, newest first; X-Next-Cursor will do as `cursor` or as `before`."""
    most = min(limit, MAX_PAGE)
    end = before if cursor is None else number(cursor, 0, most=2**31 - 1)

    def read() -> tuple[Session, list[Turn]]:
        with here.read_as(caller) as tx:
            session = sessions.find(tx, key)
            return session, turns.listing(tx, session.id, before=end, limit=most + 1)

    session, rows = await here.hold.threads(read)
    shown = [turn_out(t, session.agent_id) for t in rows[:most]]
    return answers(shown, rows[most - 1].number if len(rows) > most else None)


@router.get("/api/sessions/{key:path}/transcript", response_model=list[LineOut])
async def transcript(
    here: Here, caller: Caller, key: str, after: Position = 0, limit: Most = 100, cursor: CursorParam = None
) -> Response:
    """What was said and done in a session, in order; X-Next-Cursor will do as `cursor` or as `after`."""
    most, start = min(limit, MAX_PAGE), number(cursor, after)

    def read() -> list[Entry]:
        with here.read_as(caller) as tx:
            return entries.transcript(tx, sessions.find(tx, key).id, after=start, limit=most + 1)

    rows = await here.hold.threads(read)
    shown = [line_out(e) for e in rows[:most]]
    return answers(shown, rows[most - 1].position if len(rows) > most else None)


@router.put("/api/sessions/{key:path}/space", response_model=SessionOut)
async def give_space(here: Here, caller: Unlimited, key: str, body: SpaceOfSessionIn) -> Response:
    """Put a session into a space, or take it out: who hears it may read what is shared with that space."""

    def write() -> Session:
        with here.write_as(caller) as tx:
            if body.space_id is not None:
                spaces.require(tx, body.space_id)
            return sessions.give_space(tx, sessions.find(tx, key), body.space_id)

    return answer(session_out(await here.hold.threads(write)))


@router.post("/api/sessions/{key:path}/reset", response_model=SessionOut)
async def reset(here: Here, caller: Caller, key: str) -> Response:
    """Archive the session and begin its successor; what runs in it is stopped."""
    session = await here.hold.runs.reset(lambda tx: own_session(here, tx, caller, key))
    return answer(session_out(session))


@router.post("/api/sessions/{key:path}/fork", response_model=SessionOut, status_code=201)
async def fork(here: Here, caller: Unlimited, key: str, body: ForkIn) -> Response:
    """A new session of the same agent that knows what was said before a turn, to say it otherwise."""

    def begin() -> tuple[Session, Session, int]:
        with here.write_as(caller) as tx:
            parent = sessions.find(tx, key)
            asked = entries.get(tx, turns.by_number(tx, parent.id, body.before_turn).input_id or "")
            agent = parent.agent_id or here.hold.settings.default_agent_id
            named = f"agent:{agent}:web:dm:{secrets.token_hex(6)}"
            made = sessions.ensure(tx, named, audience=parent.audience, agent_id=agent)
            return parent, made, asked.position

    parent, child, before = await here.hold.threads(begin)
    await here.hold.context.prepare_subagent_spawn(
        SpawnParams(
            parent_session_id=parent.id,
            parent_session_key=parent.key,
            child_session_id=child.id,
            child_session_key=child.key,
            context_mode="fork",
            before=before,
        )
    )
    return answer(session_out(child), 201)


@router.post("/api/sessions/{key:path}/archive", response_model=SessionOut)
async def archive(here: Here, caller: Caller, key: str) -> Response:
    """End the session and what runs in it; the next message to its key begins a new one."""
    session = await here.hold.runs.archive(lambda tx: own_session(here, tx, caller, key))
    return answer(session_out(session))


@router.get("/api/sessions/{key:path}", response_model=SessionOut)
async def get(here: Here, caller: Caller, key: str) -> Response:
    """One session, by its key or its id."""

    def read() -> Session:
        with here.read_as(caller) as tx:
            return sessions.find(tx, key)

    return answer(session_out(await here.hold.threads(read)))


def own_session(here: Gateway, tx: Tx, caller: Principal, key: str) -> Session:
    """The session, for who may end it: who may speak in it. To others it is not there."""
    found = here.find_session(tx, caller, key)
    if not may_use_key(tx, caller, found.key):
        raise NotFound(f"no session {key[:80]!r}", code="unknown_session")
    return found
