"""`/api/skills`: what an agent knows how to do, and what stands in the way of the rest."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.agents.skills import Checked, SlashCommand
from holdfast.errors import NotFound
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import Answer, answers

router = APIRouter(tags=["agents"], route_class=StrictRoute)


class ReasonOut(Answer):
    kind: str
    text: str


class SkillOut(Answer):
    name: str
    description: str
    tier: str
    location: str
    homepage: str | None
    emoji: str | None
    eligible: bool
    reasons: list[ReasonOut]
    user_invocable: bool
    model_invocable: bool
    command: str | None


@router.get("/api/skills", response_model=list[SkillOut])
async def listing(
    here: Here, caller: Caller, agent_id: Annotated[str | None, Query(alias="agentId", max_length=256)] = None
) -> Response:
    """The skills of an agent, by name; those that cannot be used say why."""
    config = here.hold.settings
    agent = agent_id or config.default_agent_id
    if caller.spaces is not None or not caller.may_see_agent(agent):
        raise NotFound(f"no agent {agent[:64]!r}", hint="Name one that this token may see.")
    config.agent(agent)
    room, taken = here.hold.agency.skills, here.hold.agency.runs.commands.names

    def read() -> list[SkillOut]:
        commands = {command.skill: command for command in room.commands(agent, taken)}
        return [_skill(each, commands.get(each.skill.name)) for each in room.checked(agent)]

    return answers(await here.hold.threads(read))


def _skill(each: Checked, command: SlashCommand | None) -> SkillOut:
    skill = each.skill
    return SkillOut(
        name=skill.name,
        description=skill.description,
        tier=skill.tier.label,
        location=str(skill.path),
        homepage=skill.homepage,
        emoji=skill.emoji,
        eligible=each.eligible,
        reasons=[ReasonOut(kind=reason.kind, text=reason.text) for reason in each.reasons],
        user_invocable=skill.user_invocable,
        model_invocable=skill.model_invocable,
        command=None if command is None else f"/{command.name}",
    )
