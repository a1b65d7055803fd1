"""A request of OpenAI's protocol as a run: taken into its session, waited for or followed, and put away."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Protocol

from starlette.requests import Request as HttpRequest

from holdfast.agents.loop import Accepted, Ask, RunEvent, RunStatus
from holdfast.agents.loop.ending import FLUSH
from holdfast.agents.loop.run_status import status_of
from holdfast.board.rules import NON_SEMANTIC, NOT_STORED
from holdfast.context import draft_of
from holdfast.context.transcript import message_of
from holdfast.errors import Conflict, Forbidden, HoldfastError, NotFound, Unauthorized
from holdfast.gateway.access import require_key
from holdfast.gateway.asking import accept, named_by, placed, require_address, require_own, serving
from holdfast.gateway.context import Gateway
from holdfast.gateway.openai.requests import Request, error_json, unsupported
from holdfast.gateway.run_stream import PING, live_events
from holdfast.gateway.tokens import Principal
from holdfast.ids import AgentId, uuid7
from holdfast.keys import DirectKey, parse_key
from holdfast.log import (
    Classification,
    EntryDraft,
    Session,
    SessionStatus,
    Turn,
    Tx,
    audit,
    entries,
    entry_model,
    sessions,
    turns,
)

log = logging.getLogger(__name__)

CHANNEL: Final = "openai"
STORED: Final = "stored"
DELETED: Final = "deleted"
BROUGHT: Final = "brought"
ANSWERED: Final = "answered"
_ONCE: Final = "once-"
_LOOK_SECONDS: Final = 2.0
_HUNG_UP: Final = "the client hung up"
_STOPPING: Final[set[asyncio.Future[None]]] = set()


class RunFailed(HoldfastError):
    """The agent could not answer."""

    code = "run_failed"
    status: ClassVar[int] = 502


class Frames(Protocol):
    """One of the two forms of a stream; one that is `broken` has told words that do not count."""

    @property
    def broken(self) -> bool: ...
    def begin(self) -> Iterator[str]: ...
    def of(self, event: RunEvent) -> Iterator[str]: ...
    def end(self, data: Mapping[str, Any]) -> Iterator[str]: ...
    def failed(self, error: Mapping[str, Any]) -> Iterator[str]: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """One request and its run. The session of one that is `once` was made for it, and is put away after."""

    caller: Principal
    accepted: Accepted
    once: bool
    stored: bool

    @property
    def run_id(self) -> str:
        return self.accepted.run_id


async def begin(
    here: Gateway, caller: Principal, request: Request, agent: str, session_key: str | None, key: str | None
) -> Asked:
    """A session has its own history; without one, a request brings all of it, into a session made for it."""
    if not request.stored and (session_key or request.previous):
        where = "X-Session-Key" if session_key else "previous_response_id"
        raise unsupported(
            "store", f"what is not stored has no {where}", "Send what came before, or store it."
        )
    if session_key and request.previous:
        raise unsupported("previous_response_id", "it names a session itself", "Leave out X-Session-Key.")
    own = request.stored and request.previous is None
    named = session_key or (_session_of(agent, request.user) if own else None)
    said = request.said
    ask = Ask(
        text=said.text,
        wordless=said.wordless,
        session_key=named or _session_for(agent, key),
        agent_id=agent,
        images=said.images,
        tools=request.tools.tools,
        must_call=request.tools.must_call,
        form=request.form,
        thinking=request.thinking,
        instructions=said.instructions or None,
        max_tokens=request.max_tokens,
        key=key,
        **named_by(caller),
        mode="queue",
        source={"channel": CHANNEL},
        one_off=named is None,
        stored=request.stored,
        noted={**request.noted, **({} if request.stored else {STORED: False})},
    )
    if named is not None and not said.results:
        accepted = await accept(here, caller, ask)
    else:
        accepted = await _accept_after(here, caller, ask, request, named)
    await _require_answerable(here, accepted)
    return Asked(caller, accepted, is_once(accepted.session_key), request.stored)


async def _accept_after(
    here: Gateway, caller: Principal, ask: Ask, request: Request, named: str | None
) -> Accepted:
    """What the client has of the conversation and its ask, in one transaction."""
    ask = placed(here, caller, replace(ask, commands=False))
    await require_address(here, caller, ask)

    def write(tx: Tx) -> Accepted:
        if ask.key is not None and turns.by_key(tx, ask.key) is not None:
            return here.hold.runs.accept_in(tx, ask)
        if request.previous is not None:
            own, before = _go_on(tx, caller, ask, request)
        else:
            known = request.said.history() if named is None else request.said.answers()
            own, before = ask, [draft_of(message) for message in known]
        heard = {} if own.heard is None else {"audience": own.heard}
        session = sessions.ensure(tx, str(own.session_key), agent_id=own.agent_id, channel=CHANNEL, **heard)
        written = entries.append_many(
            tx, [_remembered(draft, session, stored=ask.stored) for draft in before]
        )
        if own.continues:
            own = replace(own, noted={**own.noted, BROUGHT: [str(one.entry.id) for one in written]})
        return here.hold.runs.accept_in(tx, own)

    accepted = await here.hold.threads(here.run_as, caller, write)
    if not accepted.created:
        await require_own(here, caller, accepted.run_id)
    return accepted


def _go_on(tx: Tx, caller: Principal, ask: Ask, request: Request) -> tuple[Ask, list[EntryDraft]]:
    """Where a response's session can be gone on with, there; else in a new one that has what was said so far.

    That is so where the conversation went on from there before, and for who asks another agent now.
    """
    previous = find_response(tx, str(request.previous))
    if not previous.status.ended:
        raise Conflict(
            "the previous response has not ended", code="response_in_progress", hint="Wait for it."
        )
    handed = {str(one["id"]): str(one["name"]) for one in (previous.meta or {}).get("handed") or ()}
    results = [draft_of(message) for message in request.said.answers(handed)]
    session = sessions.get(tx, previous.session_id)
    if session.agent_id == ask.agent_id and _is_last(tx, previous) and _can_go_on(tx, session):
        if ask.heard != session.audience:  # a person's own needs no more
            require_key(tx, caller, session.key)
        if session.status is SessionStatus.ARCHIVED:
            session = sessions.reopen(tx, session)
        heard = None if ask.heard is None else session.audience
        once = is_once(session.key)
        return replace(ask, session_key=session.key, heard=heard, continues=True, one_off=once), results
    if ask.heard not in (None, session.audience):
        raise Forbidden(
            "what others said too is not taken along into a session of one's own",
            code="session_forbidden",
            hint="Go on from the last response there, or send what came before yourself.",
        )
    return ask, [*_said_until(tx, previous), *results]


def _is_last(tx: Tx, turn: Turn) -> bool:
    """Whether nobody spoke in the session since; what it does by itself does not count."""
    asked = (one for one in turns.listing(tx, turn.session_id) if one.trigger != FLUSH)
    return next((one.id for one in asked), None) == turn.id


def _can_go_on(tx: Tx, session: Session) -> bool:
    if session.status is SessionStatus.ACTIVE:
        return True
    return session.archive_cause == ANSWERED and sessions.active(tx, session.key) is None


def _said_until(tx: Tx, turn: Turn) -> list[EntryDraft]:
    """What was said in a session up to the end of a turn, to be said again elsewhere."""
    own = entries.listing(tx, entry_model.EntryFilter(turn_id=turn.id), limit=1).entries
    until = own[0].position + 1 if own else None
    found = entries.transcript(tx, turn.session_id, before=until)
    names = ("content", "raw", "role", "type", "source", "agent_id")
    shown = [entry for entry in found if entry.deleted_at is None and message_of(entry) is not None]
    return [EntryDraft(**{name: getattr(entry, name) for name in names}) for entry in shown]


def find_response(tx: Tx, run_id: str) -> Turn:
    """The turn of a response; one that may not be read, was not stored or was deleted is as good as none."""
    try:
        turn = turns.get(tx, run_id)
    except NotFound:
        turn = None
    if turn is None or (turn.meta or {}).get(STORED) is False or (turn.meta or {}).get(DELETED):
        raise NotFound(
            "there is no such response",
            code="response_not_found",
            hint="It may have been deleted, or not stored (`store: false`).",
        )
    return turn


def _remembered(draft: EntryDraft, session: Session, *, stored: bool) -> EntryDraft:
    """A client sends its history with every request: it is shown to the model, and sorted nowhere."""
    return replace(
        draft,
        audience=session.audience,
        session_key=session.key,
        session_id=session.id,
        agent_id=draft.agent_id or session.agent_id,
        status=Classification.CLASSIFIED,
        code=NON_SEMANTIC if stored else NOT_STORED,
        source={**(draft.source or {}), "channel": CHANNEL, "history": True},
    )


async def _require_answerable(here: Gateway, accepted: Accepted) -> None:
    """A repeat of what was not stored finds the run, and nothing that it said."""
    if accepted.created:
        return
    status = await here.hold.runs.status(accepted.run_id)
    if status.ended and status.meta.get(STORED) is False and status.reply_id is None:
        raise Conflict("the answer to this key was not stored", code="not_stored", hint="Send another key.")


def is_once(session_key: str) -> bool:
    key = parse_key(session_key)
    return isinstance(key, DirectKey) and key.channel == CHANNEL and key.peer.startswith(_ONCE)


def _session_of(agent: str, user: str | None) -> str | None:
    return None if user is None else str(DirectKey(AgentId(agent), CHANNEL, user))


def _session_for(agent: str, key: str | None) -> str:
    """A session for one request; the same one for its repeat."""
    own = uuid7() if key is None else hashlib.sha256(key.encode()).hexdigest()[:32]
    return str(DirectKey(AgentId(agent), CHANNEL, f"{_ONCE}{own}"))


async def ended(here: Gateway, asked: Asked, request: HttpRequest) -> RunStatus:
    """The run at its end; who hangs up before stops it, and a gateway that stops says so."""
    run_id = asked.run_id
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


async def stream(here: Gateway, caller: Principal, asked: Asked, frames: Frames) -> AsyncIterator[str]:
    over = False
    try:
        for text in frames.begin():
            yield text
        async with aclosing(live_events(here, caller, asked.run_id)) as events:
            async for event in events:
                if event is None:
                    yield PING
                    continue
                over = event.final
                for text in frames.of(event):
                    yield text
                if frames.broken:
                    for text in frames.failed(_told(_broke_off())):
                        yield text
                    return
                if event.final:
                    await _put_away(here, asked)
                    for text in _last(frames, event.data):
                        yield text
        if not over:
            for text in frames.failed(_told(_left_running(asked.run_id))):
                yield text
    except Unauthorized as error:
        for text in frames.failed(_told(error)):
            yield text
    finally:
        if not over:
            _stop_soon(here, asked)


def _last(frames: Frames, data: Mapping[str, Any]) -> Iterator[str]:
    if data.get("status") != "committed":
        return frames.failed(_told(_failure(str(data.get("status")), data.get("error"))))
    return frames.end(data)


def _stop_soon(here: Gateway, asked: Asked) -> None:
    """Who hangs up stops the run. Not awaited: what hung up is being cancelled. A gateway's own stop is no
    word of the client's, and its run goes on after the restart."""
    if here.services is not None and not here.services.stopping.is_set():
        stopping = asyncio.ensure_future(_stop(here, asked))
        _STOPPING.add(stopping)
        stopping.add_done_callback(_STOPPING.discard)


async def _stop(here: Gateway, asked: Asked) -> None:
    try:
        await here.hold.runs.cancel(asked.run_id, reason=_HUNG_UP)
        await here.hold.runs.wait(asked.run_id)
        await _put_away(here, asked)
    except HoldfastError as error:
        log.warning("run %s of a client that hung up: %s", asked.run_id, error.message)


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


def _told(error: HoldfastError) -> dict[str, Any]:
    return error_json(error.status, {"detail": error.message, "hint": error.hint, "code": error.code})


async def _put_away(here: Gateway, asked: Asked) -> None:
    """A session that served one request is archived, so that it is in nobody's way; of what is not stored
    nothing is left. If that fails now, the agenda sees to it later."""

    def archive(tx: Tx) -> None:
        session = sessions.get(tx, asked.accepted.session_id)
        if session.status is SessionStatus.ACTIVE:
            sessions.archive(tx, session, cause=ANSWERED)

    try:
        if asked.once:
            await here.hold.threads(here.run_as, asked.caller, archive)
        if not asked.stored:
            await here.hold.runs.forget(asked.accepted.session_id)
    except HoldfastError as error:
        log.warning("session %s was not put away: %s", asked.accepted.session_key, error.message)


async def look_up(here: Gateway, caller: Principal, run_id: str) -> RunStatus:
    """A response as it stands, for who may read it."""

    def look() -> RunStatus:
        with here.read_as(caller) as tx:
            return status_of(tx, find_response(tx, run_id).id)

    return await here.hold.threads(look)


async def delete(here: Gateway, caller: Principal, run_id: str) -> None:
    """Hide what was said in a response and what the client brought for it; its usage stays."""

    def write(tx: Tx) -> None:
        turn = find_response(tx, run_id)
        if not turn.status.ended:
            raise Conflict("the response has not ended", code="response_in_progress", hint="Wait for it.")
        own = entries.listing(tx, entry_model.EntryFilter(turn_id=turn.id), limit=entries.MAX_PAGE).entries
        brought = entries.get_many(tx, list((turn.meta or {}).get(BROUGHT) or ()))
        for entry in (*own, *brought):
            if entry.deleted_at is None:
                entries.delete(tx, entry.id)
        turns.note(tx, turn, {DELETED: True})
        audit.note(tx, "deleted.response", run_id, by=caller.actor)

    await here.hold.threads(here.run_as, caller, write)
