"""`/api/users`, `/api/teams`, `/api/invitations`: who may log in, and what they share.

Who may do what is the table of `people.roles`; what is not said there is refused.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from holdfast.channels import team_groups
from holdfast.clock import iso
from holdfast.errors import Forbidden, InvalidInput, NotFound
from holdfast.gateway import page_sessions
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import Answer, Iso, LoginOut, OkOut, answer, answers, ok
from holdfast.gateway.guard import address_of
from holdfast.gateway.routes.system import logged_in
from holdfast.gateway.tokens import NOBODY_YET, Principal
from holdfast.gateway.wire import Text, Wire
from holdfast.log import Origin, Tx
from holdfast.people import Budget, Invitation, Right, Role, Team, User, budgets, roles, teams, users

router = APIRouter(tags=["people"], route_class=StrictRoute)

MAX_PAGE = 499
Name = Annotated[Text, Field(min_length=1, max_length=120)]
Login = Annotated[Text, Field(min_length=1, max_length=128)]
Password = Annotated[str, Field(min_length=1, max_length=users.MOST_PASSWORD)]
Ref = Annotated[str, Path(alias="id", min_length=1, max_length=256)]
Agents = Annotated[list[Annotated[Text, Field(min_length=1, max_length=64)]], Field(max_length=200)]


class UserIn(Wire):
    """Somebody new; without a password they come in by an identity provider only."""

    login: Login
    name: Name | None = None
    role: Role = Role.MEMBER
    password: Password | None = None


class UserPatch(Wire):
    name: Name | None = None
    role: Role | None = None
    password: Password | None = None
    disabled: bool | None = None


class UserOut(Answer):
    id: str
    login: str
    name: str
    role: Role
    has_password: bool
    issuer: str | None
    teams: list[str]
    disabled: bool
    created_at: Iso
    last_login_at: Iso | None


class BudgetIO(Wire):
    """What a team may use; null is no limit. Days and months are those of UTC."""

    tokens_per_day: Annotated[int, Field(ge=0, le=budgets.MOST)] | None = None
    tokens_per_month: Annotated[int, Field(ge=0, le=budgets.MOST)] | None = None
    cost_per_day: Annotated[float, Field(ge=0, le=budgets.MOST)] | None = None
    cost_per_month: Annotated[float, Field(ge=0, le=budgets.MOST)] | None = None


class TeamSpentOut(Answer):
    tokens: int
    cost: float


class TeamUsageOut(Answer):
    day: TeamSpentOut
    month: TeamSpentOut


class TeamIn(Wire):
    id: Annotated[Text, Field(min_length=1, max_length=63)]
    name: Name | None = None
    agents: Agents = Field(default_factory=list)


class TeamPatch(Wire):
    name: Name | None = None
    agents: Agents | None = None
    budget: BudgetIO | None = None


class TeamChannelIn(Wire):
    address: Annotated[Text, Field(min_length=1, max_length=480)]


class TeamChannelOut(Answer):
    """A group of a chat service that is a team's; `exposed`: others write there, so it is a group again."""

    address: str
    exposed: bool


class TeamOut(Answer):
    id: str
    name: str
    space_id: str
    agents: list[str]
    members: list[str] = Field(description="Their logins.")
    budget: BudgetIO
    channels: list[TeamChannelOut]
    created_at: Iso


class InvitationIn(Wire):
    role: Role = Role.MEMBER
    team_id: Annotated[Text, Field(min_length=1, max_length=63)] | None = None
    days: Annotated[int, Field(ge=1, le=90)] = users.INVITED_DAYS


class InvitationOut(Answer):
    id: str
    role: Role
    team_id: str | None
    invited_by: str
    created_at: Iso
    expires_at: Iso
    code: str | None = Field(description="Only in the answer that makes it.")


class AcceptIn(Wire):
    code: Annotated[str, Field(min_length=1, max_length=512)]
    login: Login
    name: Name | None = None
    password: Password


@router.get("/api/users", response_model=list[UserOut])
async def user_list(here: Here, caller: Caller) -> Response:
    """Everyone who may log in, or could."""
    caller.require_right(Right.PEOPLE)

    def read() -> list[UserOut]:
        with here.read_as(caller) as tx:
            all_teams = teams.listing(tx)
            return [_user_out(user, all_teams) for user in users.listing(tx)]

    return answers(await here.hold.threads(read))


@router.post("/api/users", response_model=UserOut, status_code=201)
async def add_user(here: Here, caller: Caller, body: UserIn) -> Response:
    """Make somebody who may log in. To let them choose their own password, invite them instead."""
    _require_giving(caller, body.role)

    def write() -> UserOut:
        password = None if body.password is None else users.hashed(body.password)
        with here.write_as(caller, ordered=False) as tx:
            made = users.add(tx, body.login, role=body.role, name=body.name, password=password)
            return _user_out(made, [])

    return answer(await here.hold.threads(write), 201)


@router.patch("/api/users/{id}", response_model=UserOut)
async def change_user(here: Here, caller: Caller, id_: Ref, body: UserPatch) -> Response:
    """Rename somebody, change their role, set a new password, let them in or out."""
    caller.require_right(Right.PEOPLE)

    def write() -> UserOut:
        password = None if body.password is None else users.hashed(body.password)
        with here.write_as(caller, ordered=False) as tx:
            user = users.get(tx, id_)
            _require_giving(caller, user.role)
            if body.role is not None:
                _require_giving(caller, body.role)
            new = users.change(
                tx, user, name=body.name, role=body.role, password=password, disabled=body.disabled
            )
            if password is not None or body.disabled:
                page_sessions.end_of_token(tx, user.id)
            return _user_out(new, teams.listing(tx))

    return answer(await here.hold.threads(write))


@router.get("/api/teams", response_model=list[TeamOut])
async def team_list(here: Here, caller: Caller) -> Response:
    """All teams for who manages them; one's own for everyone else."""
    own = None if caller.may(Right.PEOPLE) else {team.id for team in caller.teams}

    def read() -> list[TeamOut]:
        with here.read_as(caller) as tx:
            logins = _logins(tx)
            return [_team_out(team, logins) for team in teams.listing(tx) if own is None or team.id in own]

    return answers(await here.hold.threads(read))


@router.post("/api/teams", response_model=TeamOut, status_code=201)
async def add_team(here: Here, caller: Caller, body: TeamIn) -> Response:
    """Make a team with a space of its own."""
    caller.require_right(Right.PEOPLE)
    _require_agents(here, caller, body.agents)
    return await _written(
        here, caller, lambda tx: teams.add(tx, body.id, name=body.name, agents=body.agents), 201
    )


@router.patch("/api/teams/{id}", response_model=TeamOut)
async def change_team(here: Here, caller: Caller, id_: Ref, body: TeamPatch) -> Response:
    caller.require_right(Right.PEOPLE)
    _require_agents(here, caller, body.agents or ())
    given = None if body.budget is None else Budget(**body.budget.model_dump())
    if given is not None and not caller.may(Right.HOME):
        raise Forbidden("only the owner sets budgets", code="role_forbidden", hint="Ask the owner.")
    return await _written(
        here, caller, lambda tx: teams.change(tx, id_, name=body.name, agents=body.agents, budget=given)
    )


@router.get("/api/teams/{id}/usage", response_model=TeamUsageOut)
async def team_usage(here: Here, caller: Caller, id_: Ref) -> Response:
    """What a team has used today and this month; for its members and who manages teams."""
    if not caller.may(Right.PEOPLE) and id_ not in {team.id for team in caller.teams}:
        raise NotFound(f"no team {id_[:80]!r}", code="unknown_team")

    def read() -> TeamUsageOut:
        with here.read_as(caller) as tx:
            team = teams.get(tx, id_)
            since = {name: begin for name, (begin, _) in budgets.periods(tx.now).items()}
            day, month = (budgets.spent(tx, team, since[name]) for name in ("day", "month"))
            return TeamUsageOut(
                day=TeamSpentOut(tokens=day.tokens, cost=day.cost),
                month=TeamSpentOut(tokens=month.tokens, cost=month.cost),
            )

    return answer(await here.hold.threads(read))


@router.delete("/api/teams/{id}", response_model=OkOut)
async def remove_team(here: Here, caller: Caller, id_: Ref) -> Response:
    """End a team; its space and what was said in it stay."""
    caller.require_right(Right.PEOPLE)

    def write() -> None:
        with here.write_as(caller, ordered=False) as tx:
            teams.remove(tx, id_)

    await here.hold.threads(write)
    return ok()


@router.put("/api/teams/{id}/members/{user}", response_model=TeamOut)
async def join(
    here: Here, caller: Caller, id_: Ref, user: Annotated[str, Path(min_length=1, max_length=256)]
) -> Response:
    """Take somebody into a team: they may read what is shared with it from now on."""
    caller.require_right(Right.PEOPLE)
    return await _written(here, caller, lambda tx: teams.join(tx, id_, users.get(tx, user)))


@router.delete("/api/teams/{id}/members/{user}", response_model=TeamOut)
async def leave(
    here: Here, caller: Caller, id_: Ref, user: Annotated[str, Path(min_length=1, max_length=256)]
) -> Response:
    caller.require_right(Right.PEOPLE)
    return await _written(here, caller, lambda tx: teams.leave(tx, id_, users.get(tx, user)))


@router.post("/api/teams/{id}/channels", response_model=TeamOut)
async def attach_channel(here: Here, caller: Caller, id_: Ref, body: TeamChannelIn) -> Response:
    """Make a group of a chat service a team's own, by its address, such as `slack:channel:C42`.

    What is said there from then on all members of the team read, its agents answer, and its budget pays for.
    """
    caller.require_right(Right.HOME)
    private = here.hold.settings.is_private
    return await _written(here, caller, lambda tx: team_groups.attach(tx, id_, body.address, private))


@router.delete("/api/teams/{id}/channels", response_model=TeamOut)
async def detach_channel(
    here: Here, caller: Caller, id_: Ref, address: Annotated[str, Query(min_length=1, max_length=480)]
) -> Response:
    """Let it be a group like others again; what was said in it stays the team's."""
    caller.require_right(Right.HOME)
    return await _written(here, caller, lambda tx: team_groups.detach(tx, id_, address))


@router.get("/api/invitations", response_model=list[InvitationOut])
async def invitation_list(here: Here, caller: Caller) -> Response:
    """The invitations that are still open."""
    caller.require_right(Right.PEOPLE)

    def read() -> list[InvitationOut]:
        with here.read_as(caller) as tx:
            return [_invitation_out(one) for one in users.open_invitations(tx)]

    return answers(await here.hold.threads(read))


@router.post("/api/invitations", response_model=InvitationOut, status_code=201)
async def invite(here: Here, caller: Caller, body: InvitationIn) -> Response:
    """An invitation for one person: send them its link, `/invitation#CODE`, which is not shown again."""
    _require_giving(caller, body.role)

    def write() -> InvitationOut:
        with here.write_as(caller, ordered=False) as tx:
            if body.team_id is not None:
                teams.get(tx, body.team_id)
            made, code = users.invite(tx, body.role, by=caller.actor, team_id=body.team_id, days=body.days)
            return _invitation_out(made).model_copy(update={"code": code})

    return answer(await here.hold.threads(write), 201)


@router.delete("/api/invitations/{id}", response_model=OkOut)
async def withdraw(here: Here, caller: Caller, id_: Ref) -> Response:
    caller.require_right(Right.PEOPLE)

    def write() -> None:
        with here.write_as(caller, ordered=False) as tx:
            users.withdraw(tx, id_)

    await here.hold.threads(write)
    return ok()


@router.post("/api/invitations/accept", response_model=LoginOut)
async def accept(here: Here, body: AcceptIn, request: Request) -> Response:
    """Choose a login and a password by an invitation, and be logged in."""
    origin = Origin("page", address_of(request.scope))

    def write() -> str:
        password = users.hashed(body.password)
        with here.write_as(replace(NOBODY_YET, origin=origin), ordered=False) as tx:
            return _accepted(tx, body, password).id

    user_id = await here.hold.threads(write)
    person = await here.hold.threads(here.book.of_user, user_id)
    return await logged_in(here, replace(person, origin=origin), request)


def _accepted(tx: Tx, body: AcceptIn, password: users.Hashed) -> User:
    user, team_id = users.accept_invitation(tx, body.code, body.login, password, body.name)
    if team_id is not None:
        teams.join(tx, team_id, user)
    return user


async def _written(here: Gateway, caller: Principal, change: Any, status: int = 200) -> Response:
    def write() -> TeamOut:
        with here.write_as(caller, ordered=False) as tx:
            return _team_out(change(tx), _logins(tx))

    return answer(await here.hold.threads(write), status)


def _require_giving(caller: Principal, role: Role) -> None:
    """Nobody makes, changes or removes somebody who may do more than they themselves may."""
    caller.require_right(Right.PEOPLE)
    giver = caller.giver
    if not roles.may_give(giver, role):
        raise Forbidden(
            f"{giver.value} may not make or change {role.value}",
            code="role_forbidden",
            hint="Ask somebody who may do at least as much.",
        )


def _require_agents(here: Gateway, caller: Principal, agents: Any) -> None:
    """A team gets agents that there are; beyond those of one's own teams only the owner hands them out."""
    known = {agent.id for agent in here.hold.settings.agent_list}
    unknown = sorted(set(agents) - known)
    if unknown:
        raise InvalidInput(
            f"no agent {unknown[0]!r}", code="unknown_agent", hint="See agents.list in the config."
        )
    if caller.agents is not None and not set(agents) <= caller.agents:
        raise Forbidden(
            "only the owner gives a team further agents",
            code="agent_forbidden",
            hint="Name agents of a team of your own.",
        )


def _user_out(user: User, all_teams: list[Team]) -> UserOut:
    return UserOut(
        id=user.id,
        login=user.login,
        name=user.name,
        role=user.role,
        has_password=user.has_password,
        issuer=user.issuer,
        teams=[team.id for team in all_teams if user.id in team.members],
        disabled=not user.active,
        created_at=iso(user.created_at),
        last_login_at=None if user.last_login_at is None else iso(user.last_login_at),
    )


def _logins(tx: Tx) -> dict[str, str]:
    return {user.id: user.login for user in users.listing(tx)}


def _team_out(team: Team, logins: dict[str, str]) -> TeamOut:
    return TeamOut(
        id=team.id,
        name=team.name,
        space_id=team.space_id,
        agents=list(team.agents),
        members=sorted(logins[id_] for id_ in team.members if id_ in logins),
        budget=BudgetIO.model_validate(asdict(team.budget), by_name=True),
        channels=[TeamChannelOut(address=one.address, exposed=one.exposed) for one in team.channels],
        created_at=iso(team.created_at),
    )


def _invitation_out(one: Invitation) -> InvitationOut:
    return InvitationOut(
        id=one.id,
        role=one.role,
        team_id=one.team_id,
        invited_by=one.invited_by,
        created_at=iso(one.created_at),
        expires_at=iso(one.expires_at),
        code=None,
    )
