"""The methods of the socket: parameters, the scope that each needs, and the connection it is called on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, Field, model_validator

from holdfast.agents.loop.asks import AcceptedRunOut
from holdfast.agents.loop.run_status import RunOut
from holdfast.gateway import asking, run_stream
from holdfast.gateway.asking import AgentIn, require_own_run, require_run
from holdfast.gateway.context import Gateway
from holdfast.gateway.routes.sessions import own_session
from holdfast.gateway.scope import Ask
from holdfast.gateway.tokens import Principal, Scope
from holdfast.gateway.wire import MAX_NUMBER, LineOut, SessionOut, Text, Wire, line_out, session_out
from holdfast.keys import MAX_KEY_LENGTH
from holdfast.log import Entry, EntryFilter, EntryType, Session, SessionStatus, changes, entries, sessions


class Peer(Protocol):
    """One connection with a caller who has shown a token."""

    @property
    def here(self) -> Gateway: ...

    @property
    def caller(self) -> Principal: ...

    def follow_run(self, run_id: str) -> None:
        """Send the run's events as `agent.event`, to its end; `Busy` if too many are followed."""

    def unfollow_run(self, run_id: str) -> bool: ...

    def subscribe(self, ask: Ask, after: int) -> str:
        """Send changes behind `after` as `events.change`; the subscription's id."""
        ...

    def unsubscribe(self, id_: str) -> bool: ...

    def told(self) -> dict[str, Any]:
        """Who the connection speaks for."""
        ...


In = TypeVar("In", bound=BaseModel)
Run = Callable[[Peer, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Method:
    params: type[BaseModel]
    run: Run
    scope: Scope


class Methods:
    """Deny by default: reading needs a token that may read, and what is not in the table is not there."""

    def __init__(self) -> None:
        self.table: dict[str, Method] = {}

    def add(
        self, name: str, params: type[In], scope: Scope = Scope.READ
    ) -> Callable[[Callable[[Peer, In], Awaitable[Any]]], Callable[[Peer, In], Awaitable[Any]]]:
        def added(run: Callable[[Peer, In], Awaitable[Any]]) -> Callable[[Peer, In], Awaitable[Any]]:
            self.table[name] = Method(params, run, scope)
            return run

        return added


methods = Methods()


MAX_WAIT_MS = 300_000


class AskIn(AgentIn):
    """As the body of `POST /api/agent`; `stream` asks for the run's events."""

    stream: bool = True


class RunIn(Wire):
    run_id: Annotated[str, Field(min_length=1, max_length=256)]


class WaitIn(RunIn):
    timeout_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 30_000


async def send(peer: Peer, sent: AskIn) -> AcceptedRunOut:
    """Ask, and follow the run if that is wanted and it was not answered at once."""
    accepted = await asking.accept_sent(peer.here, peer.caller, sent)
    if sent.stream and accepted.reply is None:
        peer.follow_run(accepted.run_id)
    return accepted.json()


@methods.add("agent", AskIn, Scope.WRITE)
async def ask(peer: Peer, sent: AskIn) -> AcceptedRunOut:
    return await send(peer, sent)


@methods.add("agent.steer", AskIn, Scope.WRITE)
async def steer(peer: Peer, sent: AskIn) -> AcceptedRunOut:
    """A message for the turn that runs; if none does any more, it is a turn of its own."""
    return await send(peer, sent.model_copy(update={"mode": "steer"}))


@methods.add("agent.wait", WaitIn)
async def wait(peer: Peer, sent: WaitIn) -> RunOut:
    await require_run(peer.here, peer.caller, sent.run_id)
    return (await run_stream.ended(peer.here, sent.run_id, sent.timeout_ms / 1000)).json()


@methods.add("agent.status", RunIn)
async def status(peer: Peer, sent: RunIn) -> RunOut:
    await require_run(peer.here, peer.caller, sent.run_id)
    return (await peer.here.hold.runs.status(sent.run_id)).json()


@methods.add("agent.cancel", RunIn, Scope.WRITE)
async def cancel(peer: Peer, sent: RunIn) -> RunOut:
    await require_own_run(peer.here, peer.caller, sent.run_id)
    return (await peer.here.hold.runs.cancel(sent.run_id)).json()


@methods.add("agent.resume", RunIn, Scope.WRITE)
async def resume(peer: Peer, sent: RunIn) -> RunOut:
    await require_own_run(peer.here, peer.caller, sent.run_id)
    status = await peer.here.hold.runs.resume(sent.run_id)
    peer.follow_run(sent.run_id)
    return status.json()


@methods.add("agent.subscribe", RunIn)
async def subscribe_to_run(peer: Peer, sent: RunIn) -> dict[str, Any]:
    """The events of a run that is there already: what it has said so far, then what it says."""
    await require_run(peer.here, peer.caller, sent.run_id)
    peer.follow_run(sent.run_id)
    return {"runId": sent.run_id, "subscribed": True}


@methods.add("agent.unsubscribe", RunIn)
async def unsubscribe_from_run(peer: Peer, sent: RunIn) -> dict[str, Any]:
    return {"runId": sent.run_id, "unsubscribed": peer.unfollow_run(sent.run_id)}


MAX_PAGE = 499
SessionKeyIn = Annotated[Text, Field(min_length=1, max_length=MAX_KEY_LENGTH)]
Most = Annotated[int, Field(ge=1, le=MAX_PAGE)]


class ListIn(Wire):
    status: Literal["active", "archived", "all"] = "active"
    agent_id: Annotated[str, Field(max_length=256)] | None = None
    limit: Most = 100
    offset: Annotated[int, Field(ge=0, le=10_000)] = 0


class SessionIn(Wire):
    session_key: SessionKeyIn


class HistoryIn(SessionIn):
    after: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    limit: Most = 100


class ChatIn(AskIn):
    session_key: SessionKeyIn


class ChatHistoryIn(SessionIn):
    limit: Most = 100


class AbortIn(Wire):
    session_key: SessionKeyIn | None = None
    run_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.session_key is None) == (self.run_id is None):
            raise ValueError("name a sessionKey or a runId")
        return self


@methods.add("sessions.list", ListIn)
async def listing(peer: Peer, sent: ListIn) -> dict[str, Any]:
    """Sessions that the caller sees, most recently used first."""
    agents = None if sent.agent_id is None else frozenset((sent.agent_id,))
    status = None if sent.status == "all" else SessionStatus(sent.status)

    def read() -> list[Session]:
        with peer.here.read_as(peer.caller) as tx:
            return sessions.listing(
                tx, status=status, agent_ids=agents, limit=sent.limit + 1, offset=sent.offset
            )

    rows = await peer.here.hold.threads(read)
    more = len(rows) > sent.limit
    return {"sessions": [session_out(s) for s in rows[: sent.limit]], "more": more}


@methods.add("sessions.get", SessionIn)
async def get(peer: Peer, sent: SessionIn) -> SessionOut:
    def read() -> Session:
        with peer.here.read_as(peer.caller) as tx:
            return sessions.find(tx, sent.session_key)

    return session_out(await peer.here.hold.threads(read))


@methods.add("sessions.reset", SessionIn, Scope.WRITE)
async def reset(peer: Peer, sent: SessionIn) -> SessionOut:
    """Archive the session and begin its successor; what runs in it is stopped."""
    here, caller = peer.here, peer.caller
    after = await here.hold.runs.reset(lambda tx: own_session(here, tx, caller, sent.session_key))
    return session_out(after)


@methods.add("sessions.history", HistoryIn)
async def history(peer: Peer, sent: HistoryIn) -> dict[str, Any]:
    """What was said and done in a session, in order; `next` goes on with it as `after`."""

    def read() -> list[Entry]:
        with peer.here.read_as(peer.caller) as tx:
            session = sessions.find(tx, sent.session_key)
            return entries.transcript(tx, session.id, after=sent.after, limit=sent.limit + 1)

    rows = await peer.here.hold.threads(read)
    shown = rows[: sent.limit]
    return {"entries": _lines(shown), "next": shown[-1].position if len(rows) > sent.limit else None}


@methods.add("chat.send", ChatIn, Scope.WRITE)
async def chat_send(peer: Peer, sent: ChatIn) -> AcceptedRunOut:
    """As `agent`, into a session that is named."""
    return await send(peer, sent)


@methods.add("chat.history", ChatHistoryIn)
async def chat_history(peer: Peer, sent: ChatHistoryIn) -> dict[str, Any]:
    """The newest of what was said in a session, oldest first: a page to begin a chat with."""

    def read() -> tuple[Session, list[Entry]]:
        with peer.here.read_as(peer.caller) as tx:
            session = sessions.find(tx, sent.session_key)
            spoken = EntryFilter(session_id=session.id, types=frozenset({EntryType.CONVERSATION}))
            return session, entries.listing(tx, spoken, limit=sent.limit).entries

    session, rows = await peer.here.hold.threads(read)
    shown = sorted(rows, key=lambda entry: entry.position)
    return {"session": session_out(session), "messages": _lines(shown)}


@methods.add("chat.abort", AbortIn, Scope.WRITE)
async def chat_abort(peer: Peer, sent: AbortIn) -> dict[str, Any]:
    """Stop a run, or all that runs and waits in a session, its background commands and subagents too."""
    runs = peer.here.hold.runs
    if sent.run_id is not None:
        await require_own_run(peer.here, peer.caller, sent.run_id)
        before = await runs.status(sent.run_id)
        await runs.cancel(sent.run_id)
        return {"aborted": 0 if before.ended else 1}
    named = str(sent.session_key)

    def read() -> Session:
        with peer.here.read_as(peer.caller) as tx:
            return own_session(peer.here, tx, peer.caller, named)

    session = await peer.here.hold.threads(read)
    done = await runs.stop_session(session, peer.here.reader_for(peer.caller, None))
    return {"aborted": sum(one.count for one in done.ended)}


def _lines(rows: list[Entry]) -> list[LineOut]:
    return [line_out(e) for e in rows]


class NothingIn(Wire):
    """No parameters; a `token` that comes again with `connect` is not looked at."""


class SubscribeIn(Wire):
    """As `GET /api/stream`: with `sinceSeq`, what was missed comes first."""

    since_seq: Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None = None
    space_id: Annotated[str, Field(max_length=256)] | None = None
    allowed_space_ids: Annotated[str, Field(max_length=65_536)] | None = None


class UnsubscribeIn(Wire):
    subscription_id: Annotated[str, Field(min_length=1, max_length=64)]


@methods.add("connect", NothingIn)
async def connect(peer: Peer, sent: NothingIn) -> dict[str, Any]:
    return peer.told()


@methods.add("events.subscribe", SubscribeIn)
async def subscribe_to_changes(peer: Peer, sent: SubscribeIn) -> dict[str, Any]:
    """The place to begin at is fixed before the answer: whatever happens after it comes."""
    ask = Ask(sent.space_id, sent.allowed_space_ids)

    def look() -> int:
        with peer.here.read_as(peer.caller) as tx:
            ask.view(tx, peer.caller)
            return changes.bounds(tx)[1]

    head = await peer.here.hold.threads(look)
    after = head if sent.since_seq is None else sent.since_seq
    return {"subscriptionId": peer.subscribe(ask, after), "seq": after}


@methods.add("events.unsubscribe", UnsubscribeIn)
async def unsubscribe_from_changes(peer: Peer, sent: UnsubscribeIn) -> dict[str, Any]:
    return {"subscriptionId": sent.subscription_id, "unsubscribed": peer.unsubscribe(sent.subscription_id)}
