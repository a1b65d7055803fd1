"""`/api/heartbeat`: how the agents' heartbeats stand, and one at once."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.heartbeat import Heartbeats
from holdfast.clock import iso
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here, Unlimited
from holdfast.gateway.contract import Answer, Iso
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import json_response

router = APIRouter(tags=["agents"], route_class=StrictRoute)


class ItemOut(Answer):
    text: str
    scheduled: bool
    due: bool
    last_at: Iso | None


class HoursOut(Answer):
    start: str | None
    end: str | None
    timezone: str


class HeartbeatOut(Answer):
    agent_id: str
    last_at: Iso | None
    last_status: str | None
    last_reason: str | None
    turn_id: str | None
    delivery: str | None
    next_at: Iso | None
    enabled: bool
    every: str
    target: str
    prompt: str | None = Field(description="What the agent is told, if not HEARTBEAT.md; to admins alone.")
    active_hours: HoursOut | None
    session_key: str | None
    active: bool
    tokens_today: int
    cost_today: float
    items: list[ItemOut]


class BeatOut(Answer):
    agent_id: str
    due_at: Iso
    agenda_id: str


async def _room(request: Request) -> Heartbeats:
    return cast("Heartbeats", request.app.state.gateway.hold.agency.heartbeats)


Room = Annotated[Heartbeats, Depends(_room)]


@router.get("/api/heartbeat", response_model=list[HeartbeatOut])
async def listing(here: Here, caller: Caller, room: Room) -> Response:
    """One for each agent that the caller may see."""
    agents = [agent.id for agent in here.hold.settings.agent_list if _sees(caller, agent.id)]
    found = await here.hold.threads(room.statuses, agents)
    return json_response(found if caller.is_owner else [one | {"prompt": None} for one in found])


@router.post("/api/heartbeat/{agent}/now", response_model=BeatOut, status_code=202)
async def now(
    here: Here, caller: Unlimited, room: Room, agent: Annotated[str, Path(min_length=1, max_length=64)]
) -> Response:
    """A heartbeat at once, whatever the hour; while its session is busy it waits for that.

    For tokens without limits: what it says is delivered to people.
    """
    item = await here.hold.threads(room.now, agent)
    told: dict[str, Any] = {"agentId": agent, "dueAt": iso(item.due_at), "agendaId": item.id}
    return json_response(told, 202)


def _sees(caller: Principal, agent_id: str) -> bool:
    """A heartbeat lies in no space, so that one limited to spaces sees none."""
    return caller.spaces is None and caller.may_see_agent(agent_id)
