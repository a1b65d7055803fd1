"""`/api/approvals`: what agents ask a person for, and the person's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.approvals import Approval, ApprovalStatus, requests, workflow
from holdfast.agents.approvals.workflow import Vote
from holdfast.agents.policy import exec_settings
from holdfast.clock import iso
from holdfast.config.runtime import TeamsConfig
from holdfast.config.tools import Exec
from holdfast.gateway.access import seen_agents
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import Answer, Iso, answer, answers
from holdfast.gateway.tokens import Principal, Scope
from holdfast.gateway.wire import MAX_OFFSET, CursorParam, Text, Wire, number
from holdfast.log import Tx
from holdfast.people import users

router = APIRouter(tags=["agents"], route_class=StrictRoute)

MAX_PAGE = 499


class ApprovalOut(Answer):
    id: str
    agent_id: str
    session_key: str | None
    turn_id: str | None
    tool: str
    command: str = Field(description="Exactly what would run: a mask could hide what is approved.")
    arguments: dict[str, Any]
    reason: str
    files: list[str] = Field(description="What it runs, and must not change until it does; the first 100.")
    why_not_always: str | None = Field(
        description="Why it can be approved once only; null: it can be allowed."
    )
    status: ApprovalStatus
    decided_by: str | None
    decided_at: Iso | None
    used_at: Iso | None
    expires_at: Iso
    created_at: Iso
    approved_by: list[str] = Field(description="Those who said yes, where several must.")
    needed: int | None = Field(description="How many must say yes; null in events.")


class ModeOut(Answer):
    """How the commands of an agent are approved."""

    agent_id: str
    security: Literal["deny", "allowlist", "full"]
    ask: Literal["off", "on-miss", "always"]
    ask_timeout_seconds: int


class DecisionIn(Wire):
    """`allow` approves the call and lets commands of the pattern, else this very one, run unasked."""

    decision: Literal["approve", "deny", "allow"]
    pattern: Annotated[Text, Field(min_length=1, max_length=500)] | None = None


@router.get("/api/approvals", response_model=list[ApprovalOut])
async def listing(
    here: Here,
    caller: Caller,
    status: Literal["pending", "approved", "denied", "expired", "all"] = "pending",
    agent_id: Annotated[str | None, Query(alias="agentId", max_length=256)] = None,
    limit: Annotated[int, Query(ge=1, description=f"At most {MAX_PAGE} come at once.")] = 100,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
    cursor: CursorParam = None,
) -> Response:
    """Calls that wait for a decision, or were decided, newest first."""
    most, skip = min(limit, MAX_PAGE), number(cursor, offset, most=MAX_OFFSET)
    agents = seen_agents(caller, agent_id)

    def read() -> list[ApprovalOut]:
        with here.read_as(caller) as tx:
            wanted = None if status == "all" else ApprovalStatus(status)
            if caller.user_id is not None and caller.limited:
                rows = _theirs(here, tx, caller, wanted, agent_id)[skip : skip + most + 1]
            else:
                rows = requests.listing(tx, status=wanted, agent_ids=agents, limit=most + 1, offset=skip)
            return _shown(here, tx, rows)

    rows = await here.hold.threads(read)
    more = len(rows) > most and skip + most <= MAX_OFFSET
    return answers(rows[:most], skip + most if more else None)


@router.get("/api/approvals/modes", response_model=list[ModeOut])
async def modes(here: Here, caller: Caller) -> Response:
    """How commands are approved now, agent by agent: which run, and when a person is asked."""
    config = here.hold.settings
    seen = seen_agents(caller, None)
    ids = [agent.id for agent in config.agent_list if seen is None or agent.id in seen]
    return answers([mode_out(id_, exec_settings(config, id_)) for id_ in ids])


@router.post("/api/approvals/{id}", response_model=ApprovalOut)
async def decide(
    here: Here, caller: Caller, id_: Annotated[str, Path(alias="id", max_length=256)], body: DecisionIn
) -> Response:
    """Answer: the owner decides what an agent may run, and whom `teams.approvals.rules` names."""
    if caller.user_id is None or not caller.limited:
        caller.require(Scope.ADMIN)

    def write() -> ApprovalOut:
        with here.write_as(caller) as tx:
            who = _decider(tx, caller)
            _require_visible(here, tx, caller, id_)
            given = workflow.decide(
                tx, here.hold.settings.teams, who, id_, body.decision, pattern=body.pattern
            )
            return _shown(here, tx, [given])[0]

    return answer(await here.hold.threads(write))


def look(tx: Tx, ids: Sequence[str], settings: TeamsConfig) -> Mapping[str, Mapping[str, Any]]:
    """What a change of kind `approval` is about."""
    votes, found = workflow.votes_of(tx, ids), requests.get_many(tx, ids)
    return {
        a.id: {
            **approval_out(requests.seen(a, tx.now), votes[a.id]).model_dump(mode="json", by_alias=True),
            "deciders": logins,
        }
        for a, logins in zip(found, workflow.logins(tx, settings, found), strict=True)
    }


def mode_out(agent_id: str, settings: Exec) -> ModeOut:
    return ModeOut(
        agent_id=agent_id,
        security=settings.security,
        ask=settings.ask,
        ask_timeout_seconds=int(settings.ask_timeout_seconds),
    )


def approval_out(approval: Approval, votes: Sequence[Vote] = (), needed: int | None = None) -> ApprovalOut:
    return ApprovalOut(
        id=approval.id,
        agent_id=approval.agent_id,
        session_key=approval.session_key,
        turn_id=approval.turn_id,
        tool=approval.tool,
        command=approval.command,
        arguments=dict(approval.arguments),
        reason=approval.reason,
        files=approval.file_names,
        why_not_always=approval.why_not_always,
        status=approval.status,
        decided_by=approval.decided_by,
        decided_at=_time(approval.decided_at),
        used_at=_time(approval.used_at),
        expires_at=iso(approval.expires_at),
        created_at=iso(approval.created_at),
        approved_by=[one.name for one in votes],
        needed=needed,
    )


def _shown(here: Gateway, tx: Tx, rows: Sequence[Approval]) -> list[ApprovalOut]:
    votes = workflow.votes_of(tx, [row.id for row in rows])
    needed = workflow.needed(tx, here.hold.settings.teams, rows)
    return [approval_out(row, votes[row.id], most) for row, most in zip(rows, needed, strict=True)]


def _decider(tx: Tx, caller: Principal) -> workflow.Decider:
    if caller.user_id is None:
        return workflow.the_owner(caller.actor)
    return workflow.person(users.get(tx, caller.user_id))


def _theirs(
    here: Gateway, tx: Tx, caller: Principal, status: ApprovalStatus | None, agent_id: str | None
) -> list[Approval]:
    """What a person may decide on, newest first; of what others decide on they are told nothing."""
    agents = None if agent_id is None else frozenset((agent_id,))
    found = requests.listing(tx, status=status, agent_ids=agents, limit=requests.MAX_PAGE)
    return workflow.decidable(tx, here.hold.settings.teams, _decider(tx, caller), found)


def _require_visible(here: Gateway, tx: Tx, caller: Principal, id_: str) -> None:
    if caller.user_id is not None and caller.limited:
        who, known = _decider(tx, caller), requests.get(tx, id_)
        if not workflow.may_decide(tx, here.hold.settings.teams, who, known):
            raise requests.unknown(id_)
        return
    agents = seen_agents(caller, None)
    if agents is not None and requests.get(tx, id_).agent_id not in agents:
        raise requests.unknown(id_)


def _time(at: int | None) -> str | None:
    return None if at is None else iso(at)
