"""`sessions.*` and `chat.*`: conversations, read and spoken into."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from holdfast.gateway.asking import require_own_run
from holdfast.gateway.routes.sessions import own_session
from holdfast.gateway.rpc.agent_methods import AskIn, send
from holdfast.gateway.rpc.methods import Methods
from holdfast.gateway.rpc.peer import Peer
from holdfast.gateway.tokens import Scope
from holdfast.gateway.wire import Text, Wire, entry_json, session_json
from holdfast.keys import MAX_KEY_LENGTH
from holdfast.log import Entry, EntryFilter, EntryType, Session, SessionStatus, entries, sessions

methods = Methods()

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
    return {"sessions": [session_json(s) for s in rows[: sent.limit]], "more": more}


@methods.add("sessions.get", SessionIn)
async def get(peer: Peer, sent: SessionIn) -> dict[str, Any]:
    def read() -> Session:
        with peer.here.read_as(peer.caller) as tx:
            return sessions.find(tx, sent.session_key)

    return session_json(await peer.here.hold.threads(read))


@methods.add("sessions.reset", SessionIn, Scope.WRITE)
async def reset(peer: Peer, sent: SessionIn) -> dict[str, Any]:
    """Archive the session and begin its successor; what runs in it is stopped."""
    here, caller = peer.here, peer.caller
    after = await here.hold.runs.reset(lambda tx: own_session(here, tx, caller, sent.session_key))
    return session_json(after)


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
async def chat_send(peer: Peer, sent: ChatIn) -> dict[str, Any]:
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
    return {"session": session_json(session), "messages": _lines(shown)}


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


def _lines(rows: list[Entry]) -> list[dict[str, Any]]:
    return [entry_json(e) | {"role": e.role, "turnId": e.turn_id} for e in rows]
