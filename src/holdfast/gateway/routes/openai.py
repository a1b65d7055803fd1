"""`/v1/chat/completions`: an agent behind OpenAI's protocol. `model` names it, `user` a session of it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final

from fastapi import APIRouter, Header, Request
from starlette.responses import Response, StreamingResponse

from holdfast.agents.loop import Accepted, Ask, RunStatus
from holdfast.context import Message, draft_of
from holdfast.errors import Conflict, HoldfastError, Unauthorized
from holdfast.gateway import openai_wire
from holdfast.gateway.asking import (
    MAX_IDEMPOTENCY,
    accept,
    named_by,
    own_key,
    require_address,
    require_own,
    serving,
)
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.openai_chunks import Chunks, Head, completion
from holdfast.gateway.openai_errors import error_json
from holdfast.gateway.openai_wire import ChatIn
from holdfast.gateway.routes.models import agent_of
from holdfast.gateway.run_stream import PING, live_events
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import dumps, json_response
from holdfast.ids import AgentId, uuid7
from holdfast.keys import MAX_KEY_LENGTH, DirectKey
from holdfast.log import (
    Classification,
    EntryDraft,
    Session,
    SessionStatus,
    Tx,
    entries,
    sessions,
    turns,
)

log = logging.getLogger(__name__)

# OpenAI describes this route itself, and its errors are not problems: OpenAPI leaves it out.
router = APIRouter(route_class=StrictRoute, include_in_schema=False)

CHANNEL: Final = "openai"
_LOOK_SECONDS: Final = 2.0
_HUNG_UP: Final = "the client hung up"
_STOPPING: Final[set[asyncio.Future[None]]] = set()

SessionHeader = Annotated[str | None, Header(alias="X-Session-Key", min_length=1, max_length=MAX_KEY_LENGTH)]
KeyHeader = Annotated[str | None, Header(min_length=1, max_length=MAX_IDEMPOTENCY)]


class RunFailed(HoldfastError):
    """The agent could not answer."""

    code = "run_failed"
    status: ClassVar[int] = 502


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request: its run, and whether its session was made for it alone."""

    caller: Principal
    accepted: Accepted
    head: Head
    once: bool


@router.post("/v1/chat/completions")
async def chat(
    request: Request,
    here: Here,
    caller: Caller,
    body: ChatIn,
    session_key: SessionHeader = None,
    idempotency_key: KeyHeader = None,
    x_idempotency_key: KeyHeader = None,
) -> Response:
    """Ask the agent that `model` names; the answer comes whole or in chunks."""
    serving(here)
    body.require_possible()
    asked = await _ask(here, caller, body, session_key, own_key(idempotency_key or x_idempotency_key))
    headers = {"X-Run-Id": asked.accepted.run_id}
    if body.stream:
        chunks = Chunks(asked.head, with_usage=body.with_usage, whole=body.form is not None)
        text = _stream(here, caller, asked, chunks)
        headers |= {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(text, media_type="text/event-stream", headers=headers)
    status = await _ended(here, asked, request)
    reply = "" if status.silent else (status.reply or "")
    finish, handed = status.meta.get("finish"), status.meta.get("handed") or ()
    whole = completion(asked.head, reply, finish, status.usage, handed)
    return json_response(whole, headers=headers)


async def _ask(
    here: Gateway, caller: Principal, body: ChatIn, session_key: str | None, key: str | None
) -> _Asked:
    """A session has its own history; without one, a request brings all of it, into a session made for it."""
    agent = agent_of(body.model, here.hold.settings, caller)
    said = openai_wire.said(body.messages)
    named = session_key or _session_of(agent, body.user)
    ask = Ask(
        text=said.text,
        session_key=named or _session_for(agent, key),
        agent_id=agent,
        images=said.images,
        tools=body.specs,
        must_call=body.must_call,
        form=body.form,
        thinking=body.thinking,
        key=key,
        **named_by(caller),
        mode="queue",
        source={"channel": CHANNEL},
        one_off=named is None,
    )
    if named is not None and not said.results:
        accepted = await accept(here, caller, ask)
    else:
        known = said.history() if named is None else said.answers()
        accepted = await _accept_after(here, caller, replace(ask, commands=False), known)
    return _Asked(caller, accepted, Head(accepted.run_id, body.model, accepted.accepted_at), named is None)


def _session_of(agent: str, user: str | None) -> str | None:
    return None if user is None else str(DirectKey(AgentId(agent), CHANNEL, user))


def _session_for(agent: str, key: str | None) -> str:
    """A session for one request; the same one for its repeat."""
    own = uuid7() if key is None else hashlib.sha256(key.encode()).hexdigest()[:32]
    return str(DirectKey(AgentId(agent), CHANNEL, f"once-{own}"))


async def _accept_after(here: Gateway, caller: Principal, ask: Ask, before: list[Message]) -> Accepted:
    """What the client has of the conversation and its ask, in one transaction."""
    await require_address(here, caller, ask)
    assert ask.session_key is not None

    def write(tx: Tx) -> Accepted:
        if ask.key is None or turns.by_key(tx, ask.key) is None:
            session = sessions.ensure(tx, str(ask.session_key), agent_id=ask.agent_id, channel=CHANNEL)
            entries.append_many(tx, [_remembered(message, session) for message in before])
        return here.hold.runs.accept_in(tx, ask)

    accepted = await here.hold.threads(here.run_as, caller, write)
    if not accepted.created:
        await require_own(here, caller, accepted.run_id)
    return accepted


def _remembered(message: Message, session: Session) -> EntryDraft:
    """A client sends its history with every request: it is shown to the model, and sorted nowhere."""
    draft = draft_of(message)
    return replace(
        draft,
        audience=session.audience,
        session_key=session.key,
        session_id=session.id,
        agent_id=draft.agent_id or session.agent_id,
        status=Classification.CLASSIFIED,
        code="filtered_non_semantic",
        source={**(draft.source or {}), "channel": CHANNEL, "history": True},
    )


async def _ended(here: Gateway, asked: _Asked, request: Request) -> RunStatus:
    """The run at its end; who hangs up before stops it, and a gateway that stops says so."""
    run_id = asked.accepted.run_id
    waiting = asyncio.ensure_future(here.hold.runs.wait(run_id))
    stop = asyncio.ensure_future(serving(here).stopping.wait())
    both: set[asyncio.Future[Any]] = {waiting, stop}
    try:
        while not waiting.done():
            await asyncio.wait(both, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() and stop.done():
                raise _left_running(run_id)
            if not waiting.done() and await request.is_disconnected():
                await here.hold.runs.cancel(run_id, reason=_HUNG_UP)
    finally:
        waiting.cancel()
        stop.cancel()
    status = waiting.result()
    await _put_away(here, asked)
    if not status.ok:
        raise _failure(status.status.value, status.error)
    return status


async def _stream(here: Gateway, caller: Principal, asked: _Asked, chunks: Chunks) -> AsyncIterator[str]:
    run_id = asked.accepted.run_id
    ended = False
    try:
        yield _data(chunks.begin())
        async with aclosing(live_events(here, caller, run_id)) as events:
            async for event in events:
                if event is None:
                    yield PING
                    continue
                ended = event.final
                for chunk in chunks.of(event):
                    yield _data(chunk)
                if chunks.broken:
                    yield _error(_broke_off())
                    return
                if event.final:
                    await _put_away(here, asked)
                    for text in _last(chunks, event.data):
                        yield text
        if not ended:
            yield _error(_left_running(run_id))
    except Unauthorized as error:
        yield _error(error)
    finally:
        if not ended:
            _stop_soon(here, asked)


def _stop_soon(here: Gateway, asked: _Asked) -> None:
    """Who hangs up stops the run. Not awaited: what hung up is being cancelled. A gateway's own stop is no
    word of the client's, and its run goes on after the restart."""
    if here.services is not None and not here.services.stopping.is_set():
        stopping = asyncio.ensure_future(_stop(here, asked))
        _STOPPING.add(stopping)
        stopping.add_done_callback(_STOPPING.discard)


async def _stop(here: Gateway, asked: _Asked) -> None:
    try:
        await here.hold.runs.cancel(asked.accepted.run_id, reason=_HUNG_UP)
        await here.hold.runs.wait(asked.accepted.run_id)
        await _put_away(here, asked)
    except HoldfastError as error:
        log.warning("run %s of a client that hung up: %s", asked.accepted.run_id, error.message)


def _last(chunks: Chunks, data: Any) -> list[str]:
    if data.get("status") != "committed":
        return [_error(_failure(str(data.get("status")), data.get("error")))]
    return [*(_data(chunk) for chunk in chunks.end(data)), "data: [DONE]\n\n"]


def _failure(status: str, error: str | None) -> HoldfastError:
    if status == "cancelled":
        return Conflict("the run was stopped", code="run_cancelled")
    if status == "interrupted":
        return RunFailed("the run was cut off", code="run_interrupted", hint="Ask again.")
    return RunFailed(error or "the run failed")


def _broke_off() -> RunFailed:
    """What is tried next is not for this client, who has half of an answer: its run is stopped."""
    return RunFailed("the answer broke off", code="answer_broke_off", hint="Ask again.")


def _left_running(run_id: str) -> RunFailed:
    """No error that clients answer by asking again: the run is there, and would be doubled."""
    return RunFailed(
        "the gateway stops; the run goes on when it is back",
        code="stopping",
        hint=f"GET /api/agent/{run_id}/wait gives its end.",
    )


def _error(error: HoldfastError) -> str:
    told = {"detail": error.message, "hint": error.hint, "code": error.code}
    return _data(error_json(error.status, told))


async def _put_away(here: Gateway, asked: _Asked) -> None:
    """A session that served one request is archived, so that it is in nobody's way; if it can be."""
    if not asked.once:
        return

    def archive(tx: Tx) -> None:
        session = sessions.get(tx, asked.accepted.session_id)
        if session.status is SessionStatus.ACTIVE:
            sessions.archive(tx, session, cause="answered")

    try:
        await here.hold.threads(here.run_as, asked.caller, archive)
    except HoldfastError as error:
        log.warning("session %s was not put away: %s", asked.accepted.session_key, error.message)


def _data(body: dict[str, Any]) -> str:
    return f"data: {dumps(body)}\n\n"
