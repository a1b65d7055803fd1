"""`/api/cron`: standing tasks."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.cron import CronService, Wish
from holdfast.agents.cron.tasks import StandingTaskOut
from holdfast.clock import iso
from holdfast.errors import NotFound
from holdfast.gateway.access import seen_agents
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here, Unlimited
from holdfast.gateway.contract import Answer, DeletedOut, Iso, answer, answers, deleted
from holdfast.gateway.wire import MAX_OFFSET, CursorParam, Text, Wire, number

router = APIRouter(tags=["agents"], route_class=StrictRoute)

MAX_PAGE = 499
Where = Literal["main", "isolated"]
Name = Annotated[Text, Field(min_length=1, max_length=80)]
Prompt = Annotated[Text, Field(min_length=1, max_length=32_000)]
When = Annotated[Text, Field(min_length=1, max_length=200)]
Target = Annotated[Text, Field(min_length=1, max_length=300)]
Model = Annotated[Text, Field(min_length=1, max_length=200)]
Limit = Annotated[int, Field(ge=1, le=604_800)]
TaskId = Annotated[str, Path(alias="id", max_length=256)]


class StandingTaskIn(Wire):
    """One of `cron`, `every` and `at` says when."""

    prompt: Prompt
    name: Name | None = None
    agent_id: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    cron: When | None = None
    every: When | None = None
    at: When | None = None
    tz: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    session: Where = "isolated"
    model: Model | None = None
    timeout_seconds: Limit | None = None
    deliver: Target = "last"
    enabled: bool = True


class StandingTaskPatch(Wire):
    """Only what is sent changes. With `revision`, only if nobody changed it since."""

    prompt: Prompt | None = None
    name: Name | None = None
    cron: When | None = None
    every: When | None = None
    at: When | None = None
    tz: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    session: Where | None = None
    model: Model | None = None
    timeout_seconds: Limit | None = None
    deliver: Target | None = None
    enabled: bool | None = None
    revision: int | None = None

    def sent(self) -> dict[str, Any]:
        """What was sent; null takes away a model or a limit, and says nothing of the rest."""
        values = {name: getattr(self, name) for name in self.model_fields_set - {"revision"}}
        return {k: v for k, v in values.items() if v is not None or k in ("model", "timeout_seconds")}


class StandingRunOut(Answer):
    id: str
    due_at: Iso
    agenda_id: str


async def _room(request: Request) -> CronService:
    return cast("CronService", request.app.state.gateway.hold.agency.standing)


Room = Annotated[CronService, Depends(_room)]


@router.get("/api/cron", response_model=list[StandingTaskOut])
async def listing(
    here: Here,
    caller: Caller,
    room: Room,
    limit: Annotated[int, Query(ge=1, description=f"At most {MAX_PAGE} come at once.")] = 100,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
    cursor: CursorParam = None,
) -> Response:
    """The standing tasks, oldest first."""
    most, skip = min(limit, MAX_PAGE), number(cursor, offset, most=MAX_OFFSET)

    def read() -> list[StandingTaskOut]:
        return room.listing(agent_ids=seen_agents(caller, None), limit=most + 1, offset=skip)

    rows = await here.hold.threads(read)
    more = len(rows) > most and skip + most <= MAX_OFFSET
    return answers(rows[:most], skip + most if more else None)


@router.post("/api/cron", response_model=StandingTaskOut, status_code=201)
async def add(here: Here, caller: Unlimited, room: Room, body: StandingTaskIn) -> Response:
    """A new standing task. For tokens without limits, as all that changes one: what it says is delivered."""
    agent = body.agent_id or here.hold.settings.default_agent_id
    wish = Wish(**body.model_dump(exclude={"name", "agent_id"}), name=body.name or "", agent_id=agent)
    made_by = {"kind": "api", "token": caller.name, "owner": caller.is_owner}
    return answer(await here.hold.threads(room.add, wish, made_by), 201)


@router.get("/api/cron/{id}", response_model=StandingTaskOut)
async def get(here: Here, caller: Caller, room: Room, id_: TaskId) -> Response:
    found = await here.hold.threads(room.get, id_)
    agents = seen_agents(caller, None)
    if agents is not None and found["agentId"] not in agents:
        raise NotFound("no such agent or task, or none that the token may see", code="unknown_task")
    return answer(found)


@router.patch("/api/cron/{id}", response_model=StandingTaskOut)
async def change(here: Here, caller: Unlimited, room: Room, id_: TaskId, body: StandingTaskPatch) -> Response:
    """Change a task; a new schedule, or being switched on, counts from now."""
    return answer(await here.hold.threads(room.change, id_, body.sent(), body.revision))


@router.delete("/api/cron/{id}", response_model=DeletedOut)
async def remove(here: Here, caller: Unlimited, room: Room, id_: TaskId) -> Response:
    await here.hold.threads(room.remove, id_)
    return deleted(id_)


@router.post("/api/cron/{id}/run", response_model=StandingRunOut, status_code=202)
async def run(here: Here, caller: Unlimited, room: Room, id_: TaskId) -> Response:
    """A run at once, besides the schedule."""
    item = await here.hold.threads(room.run_now, id_)
    return answer(StandingRunOut(id=id_, due_at=iso(item.due_at), agenda_id=item.id), 202)
