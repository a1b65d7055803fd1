"""`/api/engine`: the context engine for hosts that are not Python; each call is about one session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field, StrictBool, StrictInt
from starlette.responses import Response

from holdfast.context import (
    AssistantMessage,
    CompactResult,
    ContextRoom,
    Message,
    Named,
    SpawnParams,
    SubagentEndedParams,
    ToolCall,
    ToolResult,
    Trust,
    UserMessage,
    wire,
)
from holdfast.context.engine import CompactOutcome
from holdfast.context.lossless.recall import answer_tool
from holdfast.gateway.access import heard_under, require_key
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import Answer, OkOut, answer, foreign, ok
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import Id, Text, Timestamp, Wire
from holdfast.log import Session, sessions

router = APIRouter(tags=["engine"], prefix="/api/engine", route_class=StrictRoute)

Key = Annotated[Text, Field(min_length=1, max_length=512)]
Tokens = Annotated[StrictInt, Field(ge=1, le=100_000_000)]
Many = 2_000


def room_of(here: Gateway) -> ContextRoom:
    """The context room of the open home."""
    return here.hold.context


class CallIn(Wire):
    id: Id
    name: Id
    arguments: dict[str, Any] = Field(default_factory=dict)


class MessageIn(Wire):
    """A message of the host. `trust` may say that it is from elsewhere; nobody is the operator here.

    `key` is the host's own name for it: whatever call brings it again, it is written once. `at` is when it
    was said.
    """

    role: Literal["user", "assistant", "toolResult"]
    content: Text = ""
    tool_calls: Annotated[tuple[CallIn, ...], Field(max_length=200)] = ()
    tool_call_id: Id | None = None
    tool_name: Id | None = None
    is_error: StrictBool = False
    trust: Literal["user", "model", "tool", "other_session", "outside"] | None = None
    key: Id | None = None
    at: Timestamp | None = None

    def message(self) -> Message:
        own = {"user": Trust.USER, "assistant": Trust.MODEL, "toolResult": Trust.TOOL}[self.role]
        trust = own if self.trust is None else min(own, Trust.parse(self.trust))
        named = Named(self.key, self.at)
        if self.role == "assistant":
            calls = tuple(ToolCall(c.id, c.name, c.arguments) for c in self.tool_calls)
            return AssistantMessage(text=self.content, trust=trust, named=named, calls=calls)
        if self.role == "toolResult":
            return ToolResult(
                text=self.content,
                trust=trust,
                named=named,
                call_id=self.tool_call_id or "unknown",
                name=self.tool_name or "unknown",
                is_error=self.is_error,
            )
        return UserMessage(text=self.content, trust=trust, named=named)


Messages = Annotated[tuple[MessageIn, ...], Field(max_length=Many)]


class SessionIn(Wire):
    session_key: Key


class BootstrapIn(SessionIn):
    messages: Messages = ()


class IngestIn(SessionIn):
    message: MessageIn
    key: Id | None = None
    is_heartbeat: StrictBool = False


class IngestBatchIn(SessionIn):
    """With `advancementKey` the batch is one turn, which counts once whatever is repeated."""

    messages: Messages
    key: Id | None = None
    advancement_key: Id | None = None
    is_heartbeat: StrictBool = False


class AssembleIn(SessionIn):
    """`messages` is all that the host has; `pending` is what is new for certain."""

    token_budget: Tokens
    messages: Messages = ()
    pending: Messages = ()
    available_tools: Annotated[tuple[Id, ...], Field(max_length=1000)] = ()
    citations_mode: Literal["auto", "on", "off"] = "auto"
    model: Annotated[Text, Field(max_length=256)] = ""
    prompt: Text | None = None
    is_heartbeat: StrictBool = False


class CompactIn(SessionIn):
    token_budget: Tokens
    force: StrictBool = False
    current_token_count: Tokens | None = None
    reason: Literal["threshold", "overflow", "manual", "request"] = "manual"
    instructions: Annotated[Text, Field(max_length=10_000)] | None = None


class AfterTurnIn(SessionIn):
    turn_id: Id
    token_budget: Tokens
    prompt_tokens: Annotated[StrictInt, Field(ge=0, le=100_000_000)] = 0
    messages: Messages = ()
    is_heartbeat: StrictBool = False


class SpawnIn(Wire):
    parent_session_key: Key
    child_session_key: Key
    context_mode: Literal["isolated", "fork"] = "isolated"
    ttl_ms: Annotated[StrictInt, Field(ge=1, le=31_536_000_000)] | None = None


class EndedIn(Wire):
    child_session_key: Key
    reason: Literal["completed", "deleted", "swept", "released"] = "completed"


class RecallIn(SessionIn):
    """`tool` with its arguments: the two by which an agent reads what its context no longer shows."""

    tool: Literal["context_read", "context_search"]
    arguments: dict[str, Any] = Field(default_factory=dict)


class EngineNameOut(Answer):
    id: str
    name: str
    owns_compaction: bool


class BootstrapOut(Answer):
    session_id: str
    session_key: str
    engine: EngineNameOut


class IngestOut(Answer):
    ingested: int
    duplicate: bool
    status: Literal["committed", "duplicate"]


class AssembleOut(Answer):
    messages: list[dict[str, Any]]
    estimated_tokens: int
    system_prompt_addition: str | None


class CompactedOut(Answer):
    summary_id: str | None
    first_kept_entry_id: str | None
    tokens_before: int
    tokens_after: int
    extractive: bool
    session_id: str | None
    session_key: str | None


class CompactOut(Answer):
    ok: bool
    compacted: bool
    outcome: CompactOutcome
    reason: str
    result: CompactedOut


class AfterTurnOut(Answer):
    used: int
    window: int
    band: str
    flush_due: bool
    compaction_due: bool


class RollbackOut(Answer):
    child_session_key: str
    reason: Literal["deleted"]


class SpawnOut(Answer):
    prepared: Literal[True]
    child_session_id: str
    rollback: RollbackOut = Field(description="Send this to onSubagentEnded if the spawn fails.")


@router.post("/bootstrap", response_model=BootstrapOut)
async def bootstrap(here: Here, caller: Caller, body: BootstrapIn) -> Response:
    """Let the engine meet a session; history that is sent along is taken in once."""
    session = await _session(here, caller, body.session_key, create=True)
    room = room_of(here)
    await room.bootstrap(session, _messages(body.messages))
    info = room.engine(session.agent_id).info
    engine = EngineNameOut(id=info.id, name=info.name, owns_compaction=info.owns_compaction)
    return answer(BootstrapOut(session_id=session.id, session_key=session.key, engine=engine))


@router.post("/ingest", response_model=IngestOut)
async def ingest(here: Here, caller: Caller, body: IngestIn) -> Response:
    """Store one message; with a `key` a repeat changes nothing."""
    session = await _session(here, caller, body.session_key, create=True)
    done = await room_of(here).ingest(
        session, body.message.message(), key=body.key, is_heartbeat=body.is_heartbeat
    )
    return answer(_ingested(done.ingested, done.duplicate))


@router.post("/ingestBatch", response_model=IngestOut)
async def ingest_batch(here: Here, caller: Caller, body: IngestBatchIn) -> Response:
    """Store the messages of a turn."""
    session = await _session(here, caller, body.session_key, create=True)
    found = _messages(body.messages)
    room = room_of(here)
    if body.advancement_key is not None:
        done_turn = await room.commit_turn(
            session, body.advancement_key, found, is_heartbeat=body.is_heartbeat
        )
        status = done_turn.status
        duplicate = status == "duplicate"
        return answer(_ingested(0 if duplicate else len(found), duplicate))
    done = await room.ingest_batch(session, found, key=body.key, is_heartbeat=body.is_heartbeat)
    return answer(_ingested(done.ingested, done.duplicate))


@router.post("/assemble", response_model=AssembleOut)
async def assemble(here: Here, caller: Caller, body: AssembleIn) -> Response:
    """The messages that fit the budget; calling again with what came back changes nothing.

    Each has the `key` that the host gave it, and its `form`: empty is whole, else what was left off.
    """
    session = await _session(here, caller, body.session_key)
    room = room_of(here)
    result = await room.assemble(
        session,
        token_budget=body.token_budget,
        model=body.model,
        available_tools=frozenset(body.available_tools),
        citations_mode=body.citations_mode,
        prompt=body.prompt,
        transcript=_messages(body.messages),
        live=_messages(body.pending),
        is_heartbeat=body.is_heartbeat,
    )
    ids = [m.mark.entry_id for m in result.messages if m.mark is not None]
    keys = await here.hold.threads(room.host_keys, session, ids)
    return answer(
        AssembleOut(
            messages=[_shown(m, keys) for m in result.messages],
            estimated_tokens=result.estimated_tokens,
            system_prompt_addition=result.system_prompt_addition,
        )
    )


@router.post("/compact", response_model=CompactOut)
async def compact(here: Here, caller: Caller, body: CompactIn) -> Response:
    """Have older history summarised. `outcome` tells what became of it; only `failed` is not ok."""
    session = await _session(here, caller, body.session_key)
    result = await room_of(here).compact(
        session,
        window=body.token_budget,
        reason=body.reason,
        force=body.force,
        current_tokens=body.current_token_count,
        instructions=body.instructions,
    )
    return answer(_compacted(result))


@router.post("/afterTurn", response_model=AfterTurnOut)
async def after_turn(here: Here, caller: Caller, body: AfterTurnIn) -> Response:
    """Tell the engine that a turn is over, and learn what is due."""
    session = await _session(here, caller, body.session_key)
    found = await room_of(here).host_after_turn(
        session,
        turn_id=body.turn_id,
        messages=_messages(body.messages),
        used=body.prompt_tokens,
        window=body.token_budget,
        is_heartbeat=body.is_heartbeat,
    )
    return answer(
        AfterTurnOut(
            used=found.pressure.used,
            window=found.pressure.window,
            band=found.pressure.band,
            flush_due=found.flush_due,
            compaction_due=found.compaction_due,
        )
    )


@router.post("/recall", response_model=dict[str, Any])
async def recall(here: Here, caller: Caller, body: RecallIn) -> Response:
    """What a session's context no longer shows, read or searched; it is data, whatever it says."""
    session = await _session(here, caller, body.session_key)
    found = await here.hold.threads(
        lambda: answer_tool(here.hold.store, body.tool, body.arguments, session=session)
    )
    return foreign(found)


@router.post("/prepareSubagentSpawn", response_model=SpawnOut)
async def prepare_subagent_spawn(here: Here, caller: Caller, body: SpawnIn) -> Response:
    """Ready the child's context; the answer says how to take it back."""
    parent = await _session(here, caller, body.parent_session_key)
    child = await _session(here, caller, body.child_session_key, create=True)
    params = SpawnParams(
        parent_session_id=parent.id,
        parent_session_key=parent.key,
        child_session_id=child.id,
        child_session_key=child.key,
        context_mode=body.context_mode,
        ttl_ms=body.ttl_ms,
    )
    await room_of(here).prepare_subagent_spawn(params)
    rollback = RollbackOut(child_session_key=child.key, reason="deleted")
    return answer(SpawnOut(prepared=True, child_session_id=child.id, rollback=rollback))


@router.post("/onSubagentEnded", response_model=OkOut)
async def on_subagent_ended(here: Here, caller: Caller, body: EndedIn) -> Response:
    """Clean up behind a child session."""
    child = await _session(here, caller, body.child_session_key)
    await room_of(here).on_subagent_ended(
        SubagentEndedParams(child_session_id=child.id, child_session_key=child.key, reason=body.reason)
    )
    return ok()


async def _session(here: Gateway, caller: Principal, key: str, *, create: bool = False) -> Session:
    """The session of a key under which the caller may speak; made if it is not there and that is wanted."""

    def find() -> Session:
        with here.read_as(caller) as tx:
            require_key(tx, caller, key)
            known = sessions.active(tx, key)
            if known is not None or not create:
                return known if known is not None else sessions.find(tx, key)
        with here.write_as(caller) as tx:
            heard = heard_under(tx, caller, key, here.hold.settings.is_private)
            return sessions.ensure(tx, key, audience=heard)

    return await here.hold.threads(find)


def _messages(found: Sequence[MessageIn]) -> list[Message]:
    return [message.message() for message in found]


def _shown(message: Message, keys: Mapping[str, str]) -> dict[str, Any]:
    mark = message.mark
    entry_id, form = (None, None) if mark is None else (mark.entry_id, mark.form)
    return {
        **wire(message),
        "trust": message.trust.label,
        "entryId": entry_id,
        "key": keys.get(entry_id or ""),
        "form": form,
    }


def _ingested(count: int, duplicate: bool) -> IngestOut:
    return IngestOut(
        ingested=count,
        duplicate=duplicate,
        status="duplicate" if duplicate else "committed",
    )


def _compacted(result: CompactResult) -> CompactOut:
    return CompactOut(
        ok=result.ok,
        compacted=result.compacted,
        outcome=result.outcome,
        reason=result.reason,
        result=CompactedOut(
            summary_id=result.summary_id,
            first_kept_entry_id=result.first_kept_id,
            tokens_before=result.tokens_before,
            tokens_after=result.tokens_after,
            extractive=result.extractive,
            session_id=result.successor_session_id,
            session_key=result.successor_session_key,
        ),
    )
