"""`/api/chains`: all that follows from one message, seen and stopped; `/api/halt`: the switch for all."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.loop.ending import Stopped, StoppedOut
from holdfast.clock import iso
from holdfast.errors import InvalidInput
from holdfast.gateway.access import require_key
from holdfast.gateway.asking import require_agents
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Admin, Caller, Gateway, Here
from holdfast.gateway.contract import Answer, Iso, answer, answers
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import Text, Wire
from holdfast.keys import MAX_KEY_LENGTH
from holdfast.log import Session, agenda, chains, sessions
from holdfast.runtime import chain_view
from holdfast.runtime.chain_view import ChainOut, ChainTreeOut

router = APIRouter(tags=["agents"], route_class=StrictRoute)

ChainId = Annotated[str, Path(alias="id", min_length=1, max_length=128)]
Reason = Annotated[Text, Field(min_length=1, max_length=400)]


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

    def read() -> list[ChainOut]:
        with here.read_as(caller) as tx:
            return chain_view.listing(tx, here.hold.settings, live=live, limit=min(limit, chains.MAX_PAGE))

    return answers(await here.hold.threads(read))


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

    def read() -> ChainTreeOut:
        with here.read_as(caller) as tx:
            return chain_view.whole(tx, here.hold.settings, id_)

    return answer(await here.hold.threads(read))


@router.post("/api/chains/{id}/stop", response_model=StoppedOut)
async def stop(here: Here, caller: Caller, id_: ChainId, body: StopIn | None = None) -> Response:
    """Stop a chain with all that lives in it, wherever that is; nothing more comes of it."""
    known = await here.hold.threads(_own_chain, here, caller, id_)
    return _told(await here.hold.runs.stop_chain(known, reason=_reason(caller, body)))


@router.get("/api/halt", response_model=HaltOut)
async def halted(here: Here, caller: Admin) -> Response:
    """Whether everything stands still until it is released."""
    return answer(_halt_out(await here.hold.threads(_halt, here, caller)))


@router.post("/api/halt", response_model=HaltedOut)
async def halt(here: Here, caller: Admin, body: StopIn | None = None) -> Response:
    """Stop everything, and begin no agent's work until it is released, after any restart too."""
    stopped = await here.hold.runs.halt(reason=_reason(caller, body))
    now = _halt_out(await here.hold.threads(_halt, here, caller))
    return answer(HaltedOut(**now.model_dump(), stopped=stopped.json()))


@router.delete("/api/halt", response_model=ReleasedOut)
async def release(here: Here, caller: Admin) -> Response:
    """Let work begin again: what was kept meanwhile is answered now."""
    before = await here.hold.runs.release()
    told = _halt_out(before).model_copy(update={"halted": False})
    return answer(ReleasedOut(**told.model_dump(), released=before is not None))


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


def _halt_out(found: agenda.Halt | None) -> HaltOut:
    if found is None:
        return HaltOut(
            halted=False,
            since=None,
            reason=None,
        )
    return HaltOut(
        halted=True,
        since=iso(found.since),
        reason=found.reason,
    )


def _reason(caller: Principal, body: StopIn | None) -> str:
    given = None if body is None else body.reason
    return f"stopped by {caller.name}" if given is None else given


def _told(stopped: Stopped) -> Response:
    return answer(stopped.json())
