"""`/api/topics`: what the log is about, in the user's order, and each topic's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from holdfast.board import Keyset, Topic, TopicStatus, log_view, membership, topics
from holdfast.board.tags import owner_of
from holdfast.clock import Millis
from holdfast.errors import NotFound
from holdfast.gateway.access import own_view, placed_by, require_spaces
from holdfast.gateway.board_wire import OrderIn, TopicIn, TopicOut, TopicPatch, topic_out
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import DeletedOut, answer, answers, deleted
from holdfast.gateway.scope import Asked, Placed
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import MAX_OFFSET, CursorParam, DueBefore, FullEntryOut, full_entry_out
from holdfast.log import Cursor, EntryFilter, Tx, audit, entry_model

router = APIRouter(tags=["board"], route_class=StrictRoute)

TopicPath = Annotated[str, Path(alias="id", max_length=256)]
Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET)]


@router.get("/api/topics", response_model=list[TopicOut])
async def listing(
    here: Here,
    caller: Caller,
    ask: Asked,
    status: TopicStatus | None = None,
    due_before: DueBefore = None,
    limit: Annotated[int, Query(ge=1, description="At most 500 come at once.")] = 100,
    cursor: CursorParam = None,
    offset: Offset = 0,
) -> Response:
    """Topics within sight, in the order that the user gave them."""
    start = None if cursor is None else Keyset.parse(cursor)
    due = None if due_before is None else Millis(due_before)

    def read() -> topics.Page:
        with here.read_as(caller, ask.session_key) as tx:
            view = ask.view(tx, caller)
            return topics.listing(
                tx, view, status=status, due_before=due, limit=limit, cursor=start, offset=offset
            )

    found = await here.hold.threads(read)
    return answers([topic_out(topic) for topic in found.topics], found.next)


@router.post(
    "/api/topics",
    status_code=201,
    response_model=TopicOut,
    responses={200: {"description": "It was there already.", "model": TopicOut}},
)
async def upsert(here: Here, caller: Caller, body: TopicIn) -> Response:
    """Make a topic, or change the one of the same id, or of the same name in the same space."""
    values = body.fields()
    name = values.pop("name")

    def write() -> topics.Upserted:
        with here.write_as(caller) as tx:
            tags = values.get("tags", ())
            if body.id is None:
                require_spaces(caller, membership(owner_of(body.space_id, tags), tags))
            old = topics.find(tx, name, id_=body.id, space_id=body.space_id, tags=tags)
            hidden = old is not None and not own_view(caller).sees(old.space_ids)
            if hidden or (old is None and body.id is not None and caller.limited):
                raise NotFound(f"no topic {body.id!r}", code="unknown_topic")
            new = _made_by(tx, caller, body.space_id, tags) if old is None else {}
            done = topics.upsert(tx, name, id_=body.id, created_by=body.created_by, **new, **values)
            require_spaces(caller, done.topic.space_ids - (frozenset() if old is None else old.space_ids))
            return done

    done = await here.hold.threads(write)
    return answer(topic_out(done.topic), 201 if done.created else 200)


@router.post("/api/topics/reorder", response_model=list[TopicOut])
async def reorder(here: Here, caller: Caller, body: OrderIn) -> Response:
    """Put topics into this order; those that are not named keep their places."""

    def write() -> list[Topic]:
        with here.write_as(caller) as tx:
            return topics.reorder(tx, body.ordered_ids, own_view(caller))

    return answers([topic_out(topic) for topic in await here.hold.threads(write)])


@router.get("/api/topics/{id}", response_model=TopicOut)
async def get(here: Here, caller: Caller, ask: Asked, id_: TopicPath) -> Response:
    """One topic."""

    def read() -> Topic:
        with here.read_as(caller, ask.session_key) as tx:
            return topics.get(tx, id_, ask.view(tx, caller))

    return answer(topic_out(await here.hold.threads(read)))


@router.patch("/api/topics/{id}", response_model=TopicOut)
async def patch(here: Here, caller: Caller, id_: TopicPath, body: TopicPatch) -> Response:
    """Change a topic. New tags without a space move it to the first space that they name."""

    def write() -> Topic:
        with here.write_as(caller) as tx:
            old = topics.get(tx, id_, own_view(caller))
            new = topics.update(tx, id_, body.fields())
            require_spaces(caller, new.space_ids - old.space_ids)
            return new

    return answer(topic_out(await here.hold.threads(write)))


@router.delete("/api/topics/{id}", response_model=DeletedOut)
async def delete(here: Here, caller: Caller, id_: TopicPath) -> Response:
    """Remove a topic and its tasks; what was logged under it stays in the log."""

    def write() -> None:
        with here.write_as(caller) as tx:
            topics.get(tx, id_, own_view(caller))
            topics.delete(tx, id_)
            audit.note(tx, "deleted.topic", id_, by=caller.actor)

    await here.hold.threads(write)
    return deleted(id_)


@router.get("/api/topics/{id}/thread", response_model=list[FullEntryOut])
async def thread(
    here: Here,
    caller: Caller,
    ask: Placed,
    id_: TopicPath,
    include_raw: Annotated[bool, Query(alias="includeRaw")] = False,
    limit: Annotated[int, Query(ge=1, description="At most 1,000 come at once.")] = 400,
    cursor: CursorParam = None,
    offset: Offset = 0,
) -> Response:
    """What was logged under a topic, newest first."""
    start = None if cursor is None else Cursor.parse(cursor)
    where = EntryFilter(topic_id=id_)

    def read() -> entry_model.Page:
        with here.read_as(caller) as tx:
            view = ask.view(tx, caller)
            topics.get(tx, id_, view)
            return log_view.listing(
                tx, view, where, limit=limit, cursor=start, offset=offset, raw=include_raw
            )

    found = await here.hold.threads(read)
    return answers([full_entry_out(entry, raw=include_raw) for entry in found.entries], found.next)


def _made_by(tx: Tx, caller: Principal, space_id: str | None, tags: Sequence[str]) -> dict[str, Any]:
    """Who may read a new topic. Tags sort; only a space that is given by its id shares."""
    named = space_id if caller.spaces is None else owner_of(space_id, tags)
    agent = None if caller.agents is None else min(caller.agents, default=None)
    return {"audience": placed_by(tx, caller, named), "agent_id": agent}
