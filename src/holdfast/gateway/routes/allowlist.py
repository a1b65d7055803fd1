"""`/api/allowlist`: command patterns that run unasked, with their last use; `/api/audit`: every decision."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.approvals import AllowedCommand, allowlist, audit
from holdfast.agents.policy import exec_settings
from holdfast.clock import iso
from holdfast.errors import NotFound
from holdfast.gateway.access import seen_agents
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import Answer, Iso, OkOut, answer, answers, ok
from holdfast.gateway.tokens import Principal, Scope
from holdfast.gateway.wire import MAX_NUMBER, MAX_OFFSET, CursorParam, Text, Wire, number

router = APIRouter(tags=["agents"], route_class=StrictRoute)

MAX_PAGE = 499
AgentParam = Annotated[str | None, Query(alias="agentId", max_length=256, description="Only this agent's.")]
Most = Annotated[int, Query(ge=1, description=f"At most {MAX_PAGE} come at once.")]
Pattern = Annotated[Text, Field(min_length=1, max_length=500)]


class AllowedCommandOut(Answer):
    agent_id: str
    pattern: str
    source: Literal["config", "person"] = Field(description="Those of the config are changed there.")
    created_by: str | None
    created_at: Iso | None
    last_used_at: Iso | None
    last_used_command: str | None = Field(description="Secrets are masked.")


class AllowIn(Wire):
    agent_id: Annotated[Text, Field(min_length=1, max_length=256)]
    pattern: Pattern


class AuditOut(Answer):
    seq: int
    event: audit.Event
    agent_id: str
    session_key: str | None
    tool: str
    command: str = Field(description="Secrets are masked.")
    rule: str
    reason: str
    actor: str | None
    approval_id: str | None
    created_at: Iso


@router.get("/api/allowlist", response_model=list[AllowedCommandOut])
async def listing(
    here: Here,
    caller: Caller,
    agent_id: AgentParam = None,
    limit: Most = 200,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
    cursor: CursorParam = None,
) -> Response:
    """The patterns in force, by agent: the config's, then those that people added."""
    most, skip = min(limit, MAX_PAGE), number(cursor, offset, most=MAX_OFFSET)
    rows = await here.hold.threads(_in_force, here, caller, agent_id)
    more = len(rows) > skip + most and skip + most <= MAX_OFFSET
    return answers([_allowed_out(row) for row in rows[skip : skip + most]], skip + most if more else None)


@router.post("/api/allowlist", response_model=AllowedCommandOut, status_code=201)
async def add(here: Here, caller: Caller, body: AllowIn) -> Response:
    """Let commands of a pattern run unasked from now on."""
    _require_agent(here, caller, body.agent_id)

    def write() -> AllowedCommand:
        with here.write_as(caller) as tx:
            return allowlist.allow(tx, body.agent_id, body.pattern, by=caller.actor)

    return answer(_allowed_out(await here.hold.threads(write)), 201)


@router.delete("/api/allowlist", response_model=OkOut)
async def remove(
    here: Here,
    caller: Caller,
    agent_id: Annotated[str, Query(alias="agentId", min_length=1, max_length=256)],
    pattern: Annotated[str, Query(min_length=1, max_length=500)],
) -> Response:
    """Take back a pattern that a person added; commands of it are asked for again."""
    _require_agent(here, caller, agent_id)

    def write() -> None:
        with here.write_as(caller) as tx:
            allowlist.disallow(tx, agent_id, pattern, by=caller.actor)

    await here.hold.threads(write)
    return ok()


@router.get("/api/audit", response_model=list[AuditOut])
async def trail(
    here: Here, caller: Caller, agent_id: AgentParam = None, limit: Most = 100, cursor: CursorParam = None
) -> Response:
    """Every decision on a tool call, newest first: what was asked, by which rule it went, who decided."""
    most = min(limit, MAX_PAGE)
    before = None if cursor is None else number(cursor, 0, most=MAX_NUMBER)

    def read() -> list[audit.Record]:
        with here.read_as(caller) as tx:
            agents = seen_agents(caller, agent_id)
            return audit.listing(tx, agent_ids=agents, before=before, limit=most + 1)

    rows = await here.hold.threads(read)
    return answers([_audit_out(row) for row in rows[:most]], rows[most - 1].seq if len(rows) > most else None)


def _in_force(here: Gateway, caller: Principal, agent_id: str | None) -> list[AllowedCommand]:
    config, agents = here.hold.settings, seen_agents(caller, agent_id)
    ids = [agent.id for agent in config.agent_list if agents is None or agent.id in agents]
    with here.read_as(caller) as tx:
        return [
            row for id_ in ids for row in allowlist.in_force(tx, id_, exec_settings(config, id_).allowlist)
        ]


def _require_agent(here: Gateway, caller: Principal, agent_id: str) -> None:
    """Only who may administer everything decides what runs unasked on this machine."""
    caller.require(Scope.ADMIN)
    caller.require_unlimited()
    if not any(agent.id == agent_id for agent in here.hold.settings.agent_list):
        raise NotFound(f"no agent {agent_id[:80]!r}", code="unknown_agent")


def _allowed_out(row: AllowedCommand) -> AllowedCommandOut:
    return AllowedCommandOut(
        agent_id=row.agent_id,
        pattern=row.pattern,
        source=row.source,
        created_by=row.created_by,
        created_at=_time(row.created_at),
        last_used_at=_time(row.last_used_at),
        last_used_command=row.last_used_command,
    )


def _audit_out(row: audit.Record) -> AuditOut:
    return AuditOut(
        seq=row.seq,
        event=row.event,
        agent_id=row.agent_id,
        session_key=row.session_key,
        tool=row.tool,
        command=row.command,
        rule=row.rule,
        reason=row.reason,
        actor=row.actor,
        approval_id=row.approval_id,
        created_at=iso(row.created_at),
    )


def _time(at: int | None) -> str | None:
    return None if at is None else iso(at)
