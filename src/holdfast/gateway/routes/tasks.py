"""`/api/tasks`: what is to be done; and the board in figures."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from holdfast.board import Keyset, Task, TaskStatus, stats, tasks, topics
from holdfast.gateway.board_wire import BoardMetricsOut, TaskIn, TaskOut, TaskPatch, task_json
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here, Unlimited
from holdfast.gateway.contract import DeletedOut
from holdfast.gateway.pages import MAX_OFFSET, CursorParam, page
from holdfast.gateway.scope import Asked, own_view, require_spaces
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import json_response
from holdfast.log import SYSTEM, Tx

router = APIRouter(tags=["board"], route_class=StrictRoute)

TaskPath = Annotated[str, Path(alias="id", max_length=256)]


@router.get("/api/tasks", response_model=list[TaskOut])
async def listing(
    here: Here,
    caller: Caller,
    ask: Asked,
    topic_id: Annotated[str | None, Query(alias="topicId", max_length=256)] = None,
    status: TaskStatus | None = None,
    limit: Annotated[int, Query(ge=1, description="At most 500 come at once.")] = 100,
    cursor: CursorParam = None,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> Response:
    """Tasks within sight, most recently changed first."""
    start = None if cursor is None else Keyset.parse(cursor)

    def read() -> tasks.Page:
        with here.hold.store.read(SYSTEM) as tx:
            view = ask.view(tx, caller)
            return tasks.listing(
                tx, view, topic_id=topic_id, status=status, limit=limit, cursor=start, offset=offset
            )

    found = await here.hold.threads(read)
    return page([task_json(task) for task in found.tasks], found.next)


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
        with here.hold.store.write(SYSTEM) as tx:
            if body.id is not None and tasks.get_many(tx, [body.id]):
                tasks.get(tx, body.id, own_view(caller))
            _require_places(tx, caller, topic_id, values.get("space_id"))
            return tasks.upsert(
                tx, title, topic_id=topic_id, id_=body.id, created_by=body.created_by, **values
            )

    done = await here.hold.threads(write)
    return json_response(task_json(done.task), 201 if done.created else 200)


@router.get("/api/tasks/{id}", response_model=TaskOut)
async def get(here: Here, caller: Caller, ask: Asked, id_: TaskPath) -> Response:
    """One task."""

    def read() -> Task:
        with here.hold.store.read(SYSTEM) as tx:
            return tasks.get(tx, id_, ask.view(tx, caller))

    return json_response(task_json(await here.hold.threads(read)))


@router.patch("/api/tasks/{id}", response_model=TaskOut)
async def patch(here: Here, caller: Caller, id_: TaskPath, body: TaskPatch) -> Response:
    """Change a task."""
    values = body.fields()

    def write() -> Task:
        with here.hold.store.write(SYSTEM) as tx:
            tasks.get(tx, id_, own_view(caller))
            _require_places(tx, caller, values.get("topic_id"), values.get("space_id"))
            return tasks.update(tx, id_, values)

    return json_response(task_json(await here.hold.threads(write)))


@router.delete("/api/tasks/{id}", response_model=DeletedOut)
async def delete(here: Here, caller: Caller, id_: TaskPath) -> Response:
    """Remove a task; what was logged under it stays in the log."""

    def write() -> None:
        with here.hold.store.write(SYSTEM) as tx:
            tasks.get(tx, id_, own_view(caller))
            tasks.delete(tx, id_)

    await here.hold.threads(write)
    return json_response({"ok": True, "deleted": True, "id": id_})


@router.get("/api/metrics/board", response_model=BoardMetricsOut)
async def metrics(here: Here, caller: Unlimited) -> Response:
    """The board in figures."""

    def read() -> dict[str, Any]:
        with here.hold.store.read(SYSTEM) as tx:
            return stats.figures(tx)

    return json_response(await here.hold.threads(read))


def _require_places(tx: Tx, caller: Principal, topic_id: str | None, space_id: str | None) -> None:
    """A task goes only into a topic that the caller sees, and into a space that is its own."""
    if topic_id is not None:
        topics.get(tx, topic_id, own_view(caller))
    require_spaces(caller, () if space_id is None else (space_id,))
