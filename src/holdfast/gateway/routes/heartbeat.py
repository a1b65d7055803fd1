"""`/api/heartbeat`: how the agents' heartbeats stand, and one at once."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from holdfast.agents.heartbeat import HeartbeatOut, Heartbeats
from holdfast.clock import iso
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here, Unlimited
from holdfast.gateway.contract import Answer, Iso, answer, answers
from holdfast.gateway.tokens import Principal

router = APIRouter(tags=["agents"], route_class=StrictRoute)


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
    if not caller.is_owner:
        for one in found:
            one["prompt"] = None
    return answers(found)


@router.post("/api/heartbeat/{agent}/now", response_model=BeatOut, status_code=202)
async def now(
    here: Here, caller: Unlimited, room: Room, agent: Annotated[str, Path(min_length=1, max_length=64)]
) -> Response:
    """A heartbeat at once, whatever the hour; while its session is busy it waits for that.

    For tokens without limits: what it says is delivered to people.
    """
    item = await here.hold.threads(room.now, agent)
    return answer(BeatOut(agent_id=agent, due_at=iso(item.due_at), agenda_id=item.id), 202)


def _sees(caller: Principal, agent_id: str) -> bool:
    """A heartbeat lies in no space, so that one limited to spaces sees none."""
    return caller.spaces is None and caller.may_see_agent(agent_id)
