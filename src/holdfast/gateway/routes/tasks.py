"""`/api/tasks`: what is to be done; and the board in figures."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from holdfast.board import Keyset, Task, TaskStatus, Topic, stats, tasks, topics
from holdfast.board.stats import BoardMetricsOut
from holdfast.clock import Millis
from holdfast.gateway.access import own_view, placed_by, require_spaces
from holdfast.gateway.board_wire import TaskIn, TaskOut, TaskPatch, task_out
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here, Unlimited
from holdfast.gateway.contract import DeletedOut, answer, answers, deleted
from holdfast.gateway.scope import Asked
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import MAX_OFFSET, CursorParam, DueBefore
from holdfast.log import FOR_OWNER, Audience, Tx, audit, space_of

router = APIRouter(tags=["board"], route_class=StrictRoute)

TaskPath = Annotated[str, Path(alias="id", max_length=256)]


@router.get("/api/tasks", response_model=list[TaskOut])
async def listing(
    here: Here,
    caller: Caller,
    ask: Asked,
    topic_id: Annotated[str | None, Query(alias="topicId", max_length=256)] = None,
    status: TaskStatus | None = None,
    due_before: DueBefore = None,
    limit: Annotated[int, Query(ge=1, description="At most 500 come at once.")] = 100,
    cursor: CursorParam = None,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> Response:
    """Tasks within sight, most recently changed first."""
    start = None if cursor is None else Keyset.parse(cursor)
    due = None if due_before is None else Millis(due_before)

    def read() -> tasks.Page:
        with here.read_as(caller, ask.session_key) as tx:
            view = ask.view(tx, caller)
            return tasks.listing(
                tx,
                view,
                topic_id=topic_id,
                status=status,
                due_before=due,
                limit=limit,
                cursor=start,
                offset=offset,
            )

    found = await here.hold.threads(read)
    return answers([task_out(task) for task in found.tasks], found.next)


@router.post(
    "/api/tasks",
    status_code=201,
    response_model=TaskOut,
    responses={200: {"description": "It was there already.", "model": TaskOut}},
)
async def upsert(here: Here, caller: Caller, body: TaskIn) -> Response:
    """Make a task in a topic, or change the one of the same id."""
    values = body.fields()
    title, topic_id = values.pop("title"), values.pop("topic_id", None)

    def write() -> tasks.Upserted:
        with here.write_as(caller) as tx:
            if body.id is not None and (caller.limited or tasks.get_many(tx, [body.id])):
                tasks.get(tx, body.id, own_view(caller))
            topic = _require_places(tx, caller, topic_id, values.get("space_id"))
            heard = FOR_OWNER if topic is None else _audience(tx, caller, topic, values.get("space_id"))
            made: dict[str, Any] = {"id_": body.id, "created_by": body.created_by, "audience": heard}
            return tasks.upsert(tx, title, topic_id=topic_id, **made, **values)

    done = await here.hold.threads(write)
    return answer(task_out(done.task), 201 if done.created else 200)


@router.get("/api/tasks/{id}", response_model=TaskOut)
async def get(here: Here, caller: Caller, ask: Asked, id_: TaskPath) -> Response:
    """One task."""

    def read() -> Task:
        with here.read_as(caller, ask.session_key) as tx:
            return tasks.get(tx, id_, ask.view(tx, caller))

    return answer(task_out(await here.hold.threads(read)))


@router.patch("/api/tasks/{id}", response_model=TaskOut)
async def patch(here: Here, caller: Caller, id_: TaskPath, body: TaskPatch) -> Response:
    """Change a task."""
    values = body.fields()

    def write() -> Task:
        with here.write_as(caller) as tx:
            tasks.get(tx, id_, own_view(caller))
            _require_places(tx, caller, values.get("topic_id"), values.get("space_id"))
            return tasks.update(tx, id_, values)

    return answer(task_out(await here.hold.threads(write)))


@router.delete("/api/tasks/{id}", response_model=DeletedOut)
async def delete(here: Here, caller: Caller, id_: TaskPath) -> Response:
    """Remove a task; what was logged under it stays in the log."""

    def write() -> None:
        with here.write_as(caller) as tx:
            tasks.get(tx, id_, own_view(caller))
            tasks.delete(tx, id_)
            audit.note(tx, "deleted.task", id_, by=caller.actor)

    await here.hold.threads(write)
    return deleted(id_)


@router.get("/api/metrics/board", response_model=BoardMetricsOut)
async def metrics(here: Here, caller: Unlimited) -> Response:
    """The board in figures."""

    def read() -> BoardMetricsOut:
        with here.read_as(caller) as tx:
            return stats.figures(tx)

    return answer(await here.hold.threads(read))


def _require_places(tx: Tx, caller: Principal, topic_id: str | None, space_id: str | None) -> Topic | None:
    """A task goes only into a topic that the caller sees, and into a space that is its own."""
    require_spaces(caller, () if space_id is None else (space_id,))
    return None if topic_id is None else topics.get(tx, topic_id, own_view(caller))


def _audience(tx: Tx, caller: Principal, topic: Topic, space_id: str | None) -> Audience:
    """A task of a topic that is shared is shared with it; another as what is put into its space by name."""
    if space_of(topic.audience) is not None and space_id is None:
        return topic.audience
    return placed_by(tx, caller, space_id if caller.spaces is None else space_id or topic.space_id)
