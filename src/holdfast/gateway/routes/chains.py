"""`/api/chains`: all that follows from one message, seen and stopped; `/api/halt`: the switch for all."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.loop.ending import Stopped
from holdfast.clock import iso
from holdfast.errors import InvalidInput
from holdfast.gateway.access import require_key
from holdfast.gateway.asking import require_agents
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Admin, Caller, Gateway, Here
from holdfast.gateway.contract import Answer, Iso
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import Text, Wire, json_response
from holdfast.keys import MAX_KEY_LENGTH
from holdfast.log import Session, agenda, chains, sessions
from holdfast.runtime import chain_view

router = APIRouter(tags=["agents"], route_class=StrictRoute)

ChainId = Annotated[str, Path(alias="id", min_length=1, max_length=128)]
Reason = Annotated[Text, Field(min_length=1, max_length=400)]


class OriginOut(Answer):
    session_key: str
    agent_id: str | None
    trigger: str
    sender: str | None
    entry_id: str | None
    text: str | None = Field(description="What was asked, clipped; null if the caller may not read it.")


class LiveOut(Answer):
    turn: int
    subagent: int
    election: int


class ChainOut(Answer):
    id: str
    state: Literal["live", "ended", "stopped"]
    origin: OriginOut
    steps: int = Field(description="Elected turns and delegates, over all sessions.")
    max_steps: int
    sent: int = Field(description="Subagents and messages to other sessions.")
    max_sent: int
    tokens: int
    max_tokens: int | None = Field(description="Null: no cap.")
    cost: float = Field(description="In dollars, as far as prices are known.")
    max_cost: float | None = Field(description="Null: no cap.")
    started_at: Iso
    updated_at: Iso
    ended_at: Iso | None
    stopped_at: Iso | None
    stop_reason: str | None
    next_due_at: Iso | None
    live: LiveOut = Field(description="How many of each sort live in it.")


class NodeOut(Answer):
    id: str
    parent_id: str | None = Field(description="What brought it about; null for the beginning.")
    depth: int
    kind: Literal["turn", "work", "delegate", "post_compaction", "subagent"]
    state: str
    session_key: str | None
    agent_id: str | None
    trigger: str | None
    mode: str | None
    text: str | None
    reply: str | None
    error: str | None
    tokens: int = Field(description="Those of a subagent are those of its turns, which stand below it.")
    cost: float
    started_at: Iso
    due_at: Iso | None
    ended_at: Iso | None
    hidden: bool = Field(description="It is in a session that the caller may not read.")


class ChainTreeOut(ChainOut):
    nodes: list[NodeOut] = Field(description="What came of each stands behind it.")
    cut: bool = Field(description="There are more than 500; the newest are told.")


class StoppedOut(Answer):
    stopped: int
    chains: list[str]
    ended: dict[str, int] = Field(description="How many of each sort ended.")
    still_running: list[str] = Field(description="Turns that had not ended yet after ten seconds.")
    text: str


class HaltOut(Answer):
    halted: bool
    since: Iso | None
    reason: str | None


class HaltedOut(HaltOut):
    stopped: StoppedOut


class ReleasedOut(HaltOut):
    released: bool = Field(description="Whether it was halted; `since` and `reason` are of that halt.")


class StopIn(Wire):
    reason: Reason | None = None


class StopManyIn(StopIn):
    """Either a session's, with what it set going in the background, or all."""

    session_key: Annotated[Text, Field(min_length=1, max_length=MAX_KEY_LENGTH)] | None = None
    all: bool = False


@router.get("/api/chains", response_model=list[ChainOut])
async def listing(
    here: Here,
    caller: Caller,
    live: bool = False,
    limit: Annotated[int, Query(ge=1, description=f"At most {chains.MAX_PAGE} come at once.")] = 50,
) -> Response:
    """Chains: those that live first, then the last used. With `live`, only those of which something lives."""

    def read() -> list[dict[str, Any]]:
        with here.read_as(caller) as tx:
            return chain_view.listing(tx, here.hold.settings, live=live, limit=min(limit, chains.MAX_PAGE))

    return json_response(await here.hold.threads(read))


@router.post("/api/chains/stop", response_model=StoppedOut)
async def stop_many(here: Here, caller: Caller, body: StopManyIn) -> Response:
    """Stop every chain that something lives of in a session, or every chain of the home."""
    if body.all == (body.session_key is not None):
        raise InvalidInput("name a session, or all", hint='Send {"sessionKey": KEY} or {"all": true}.')
    if body.session_key is None:
        caller.require_unlimited()
        return _told(await here.hold.runs.stop_all(reason=_reason(caller, body)))
    session = await here.hold.threads(_own_session, here, caller, body.session_key)
    return _told(await here.hold.runs.stop_session(session, caller.reader, reason=_reason(caller, body)))


@router.get("/api/chains/{id}", response_model=ChainTreeOut)
async def show(here: Here, caller: Caller, id_: ChainId) -> Response:
    """One chain, by its id or that of one of its turns, with the tree of what followed from what."""

    def read() -> dict[str, Any]:
        with here.read_as(caller) as tx:
            return chain_view.whole(tx, here.hold.settings, id_)

    return json_response(await here.hold.threads(read))


@router.post("/api/chains/{id}/stop", response_model=StoppedOut)
async def stop(here: Here, caller: Caller, id_: ChainId, body: StopIn | None = None) -> Response:
    """Stop a chain with all that lives in it, wherever that is; nothing more comes of it."""
    known = await here.hold.threads(_own_chain, here, caller, id_)
    return _told(await here.hold.runs.stop_chain(known, reason=_reason(caller, body)))


@router.get("/api/halt", response_model=HaltOut)
async def halted(here: Here, caller: Admin) -> Response:
    """Whether everything stands still until it is released."""
    return json_response(_halt_json(await here.hold.threads(_halt, here, caller)))


@router.post("/api/halt", response_model=HaltedOut)
async def halt(here: Here, caller: Admin, body: StopIn | None = None) -> Response:
    """Stop everything, and begin no agent's work until it is released, after any restart too."""
    stopped = await here.hold.runs.halt(reason=_reason(caller, body))
    now = _halt_json(await here.hold.threads(_halt, here, caller))
    return json_response(now | {"stopped": stopped.json()})


@router.delete("/api/halt", response_model=ReleasedOut)
async def release(here: Here, caller: Admin) -> Response:
    """Let work begin again: what was kept meanwhile is answered now."""
    before = await here.hold.runs.release()
    return json_response(_halt_json(before) | {"halted": False, "released": before is not None})


def _own_chain(here: Gateway, caller: Principal, id_: str) -> str:
    """The id of a chain that the caller may stop: one that it may read, begun where it may speak."""
    with here.read_as(caller) as tx:
        chain = chains.get(tx, id_)
        require_agents(caller)
        require_key(tx, caller, chain.session_key)
        return chain.id


def _own_session(here: Gateway, caller: Principal, key: str) -> Session:
    with here.read_as(caller) as tx:
        session = sessions.find(tx, key)
        require_agents(caller)
        require_key(tx, caller, session.key)
        return session


def _halt(here: Gateway, caller: Principal) -> agenda.Halt | None:
    with here.read_as(caller) as tx:
        return agenda.halted(tx)


def _halt_json(found: agenda.Halt | None) -> dict[str, Any]:
    if found is None:
        return {"halted": False, "since": None, "reason": None}
    return {"halted": True, "since": iso(found.since), "reason": found.reason}


def _reason(caller: Principal, body: StopIn | None) -> str:
    given = None if body is None else body.reason
    return f"stopped by {caller.name}" if given is None else given


def _told(stopped: Stopped) -> Response:
    return json_response(stopped.json())
