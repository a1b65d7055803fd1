"""`/api/classifier`: what waits to be sorted, what a session is about, why an entry lies where it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.board import EVERYTHING, decisions, log_view, routing, sharing, topics
from holdfast.clock import iso
from holdfast.gateway.access import may_use_key, own_view, require_key, require_places
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import Answer, Iso, answer, answers
from holdfast.gateway.scope import Placed
from holdfast.gateway.wire import CursorParam, EntryOut, Id, Wire, entry_out
from holdfast.log import Classification, Cursor, EntryDraft, EntryFilter, entry_model

router = APIRouter(tags=["classifier"], route_class=StrictRoute)

SessionKeyParam = Annotated[str, Query(alias="sessionKey", min_length=1, max_length=1024)]
SessionKeyField = Annotated[str, Field(min_length=1, max_length=1024)]


class RoutedOut(Answer):
    ts: Iso
    topic_id: str
    topic_name: str
    anchor: str
    task_id: str | None


class RoutingOut(Answer):
    session_key: str
    items: list[RoutedOut] = Field(description="Newest last.")


class RoutingIn(Wire):
    """A topic that a session is now about."""

    session_key: SessionKeyField
    topic_id: Id
    task_id: Id | None = None
    anchor: Annotated[str, Field(max_length=20_000)] = ""


class ReplayIn(Wire):
    """From which entry on a session is to be sorted again."""

    anchor_log_id: Id


class ReplayOut(Answer):
    ok: bool
    count: int = Field(description="Entries that are sorted again, at most 200 after the anchor.")


class DecisionOut(Answer):
    entry_id: str
    method: str
    topic_id: str | None
    task_id: str | None
    confidence: float | None
    reasons: Mapping[str, Any] | None
    attempt: int
    decided_at: Iso


@router.get("/api/classifier/pending", response_model=list[EntryOut])
async def pending(
    here: Here,
    caller: Caller,
    ask: Placed,
    limit: Annotated[int, Query(ge=1, description="At most 1,000 come at once.")] = 100,
    cursor: CursorParam = None,
) -> Response:
    """Entries that wait to be sorted, newest first."""
    where = EntryFilter(status=Classification.PENDING)
    start = None if cursor is None else Cursor.parse(cursor)

    def read() -> entry_model.Page:
        with here.read_as(caller) as tx:
            return log_view.listing(tx, ask.view(tx, caller), where, limit=limit, cursor=start)

    found = await here.hold.threads(read)
    return answers([entry_out(entry) for entry in found.entries], found.next)


@router.get("/api/classifier/session-routing", response_model=RoutingOut)
async def remembered(here: Here, caller: Caller, ask: Placed, session_key: SessionKeyParam) -> Response:
    """What a session has lately been about, as far as the caller may see it."""
    options = here.hold.settings.board.routing_memory

    def read() -> list[routing.Routed]:
        with here.read_as(caller, session_key) as tx:
            if not may_use_key(tx, caller, session_key):
                return []
            return routing.recall(tx, session_key, options, ask.view(tx, caller))

    return answer(_routing_out(session_key, await here.hold.threads(read)))


@router.post("/api/classifier/session-routing", response_model=RoutingOut)
async def remember(here: Here, caller: Caller, body: RoutingIn) -> Response:
    """Say what a session is now about, so that terse words find their place."""
    options = here.hold.settings.board.routing_memory

    def write() -> list[routing.Routed]:
        with here.write_as(caller) as tx:
            require_key(tx, caller, body.session_key)
            topic = topics.get(tx, body.topic_id, own_view(caller))
            require_places(tx, caller, EntryDraft(content="", task_id=body.task_id))
            item = routing.Routed(int(tx.now), topic.id, topic.name, body.anchor, body.task_id)
            heard = sharing.heard_under_key(tx, body.session_key, here.hold.settings.is_private)
            routing.remember(tx, body.session_key, item, options, heard)
            return routing.recall(tx, body.session_key, options, own_view(caller))

    return answer(_routing_out(body.session_key, await here.hold.threads(write)))


@router.post("/api/classifier/replay", response_model=ReplayOut)
async def replay(here: Here, caller: Caller, body: ReplayIn) -> Response:
    """Sort a session again from an entry on."""

    def write() -> int:
        with here.write_as(caller) as tx:
            anchor = log_view.get(tx, body.anchor_log_id, own_view(caller))
            require_key(tx, caller, anchor.session_key)
            return decisions.replay(tx, body.anchor_log_id, here.hold.settings.board.classifier)

    return answer(ReplayOut(ok=True, count=await here.hold.threads(write)))


@router.get("/api/classifier/decisions/{id}", response_model=DecisionOut)
async def explain(
    here: Here, caller: Caller, id_: Annotated[str, Path(alias="id", max_length=256)]
) -> Response:
    """Why an entry lies where it lies."""

    def read() -> decisions.Made:
        with here.read_as(caller) as tx:
            log_view.get(tx, id_, EVERYTHING)
            return decisions.explain(tx, id_)

    return answer(_decision_out(await here.hold.threads(read)))


def _routing_out(session_key: str, items: list[routing.Routed]) -> RoutingOut:
    rows = [
        RoutedOut(
            ts=iso(one.ts),
            topic_id=one.topic_id,
            topic_name=one.topic_name,
            anchor=one.anchor,
            task_id=one.task_id,
        )
        for one in items
    ]
    return RoutingOut(session_key=session_key, items=rows)


def _decision_out(made: decisions.Made) -> DecisionOut:
    return DecisionOut(
        entry_id=made.entry_id,
        method=made.method,
        topic_id=made.topic_id,
        task_id=made.task_id,
        confidence=made.confidence,
        reasons=made.reasons,
        attempt=made.attempt,
        decided_at=iso(made.decided_at),
    )
