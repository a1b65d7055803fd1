"""`/api/users`, `/api/teams`, `/api/invitations`, `/api/me`, `/api/audit/trail`: people and what they did.

Who may do what is the table of `people.roles`; what is not said there is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from holdfast.clock import iso
from holdfast.errors import Forbidden, InvalidInput, NotFound
from holdfast.gateway import page_sessions, tokens
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import Answer, Iso, LoginOut, OkOut
from holdfast.gateway.guard import address_of
from holdfast.gateway.page_sessions import PageSession
from holdfast.gateway.pages import MAX_NUMBER, CursorParam, number, page
from holdfast.gateway.routes.system import logged_in
from holdfast.gateway.tokens import Principal, Scope, Token
from holdfast.gateway.wire import Text, Wire, json_response
from holdfast.log import Origin, Tx, audit
from holdfast.people import Invitation, Right, Role, Team, User, roles, teams, users

router = APIRouter(tags=["people"], route_class=StrictRoute)

MAX_PAGE = 499
# Who comes with an invitation is nobody yet.
_NOBODY = Principal("nobody", "nobody", Scope.READ, frozenset(), frozenset())
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


class TeamIn(Wire):
    id: Annotated[Text, Field(min_length=1, max_length=63)]
    name: Name | None = None
    agents: Agents = Field(default_factory=list)


class TeamPatch(Wire):
    name: Name | None = None
    agents: Agents | None = None


class TeamOut(Answer):
    id: str
    name: str
    space_id: str
    agents: list[str]
    members: list[str] = Field(description="Their logins.")
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


class PasswordIn(Wire):
    password: Password = Field(description="The one that holds now.")
    new_password: Password


class PageSessionOut(Answer):
    id: str
    address: str | None
    program: str | None
    created_at: Iso
    last_used_at: Iso
    expires_at: Iso
    current: bool


class OwnTokenIn(Wire):
    name: Annotated[Text, Field(min_length=1, max_length=80)]
    scope: Annotated[str, Field(pattern="^(read|write)$")] = "write"
    days: Annotated[int, Field(ge=1, le=3650)] | None = None


class OwnTokenOut(Answer):
    id: str
    name: str
    scope: str
    created_at: Iso
    expires_at: Iso | None
    token: str | None = Field(description="Only in the answer that makes it.")


class ActOut(Answer):
    seq: int
    at: Iso
    act: str
    actor: str
    surface: str
    address: str | None
    on_behalf_of: str | None
    target: str
    details: dict[str, str]
    before: str
    digest: str


@router.get("/api/users", response_model=list[UserOut])
async def user_list(here: Here, caller: Caller) -> Response:
    """Everyone who may log in, or could."""
    caller.require_right(Right.PEOPLE)

    def read() -> list[dict[str, Any]]:
        with here.read_as(caller) as tx:
            all_teams = teams.listing(tx)
            return [_user_json(user, all_teams) for user in users.listing(tx)]

    return page(await here.hold.threads(read), None)


@router.post("/api/users", response_model=UserOut, status_code=201)
async def add_user(here: Here, caller: Caller, body: UserIn) -> Response:
    """Make somebody who may log in. To let them choose their own password, invite them instead."""
    _require_giving(caller, body.role)

    def write() -> dict[str, Any]:
        password = None if body.password is None else users.hashed(body.password)
        with here.write_as(caller, ordered=False) as tx:
            made = users.add(tx, body.login, role=body.role, name=body.name, password=password)
            return _user_json(made, [])

    return json_response(await here.hold.threads(write), 201)


@router.patch("/api/users/{id}", response_model=UserOut)
async def change_user(here: Here, caller: Caller, id_: Ref, body: UserPatch) -> Response:
    """Rename somebody, change their role, set a new password, let them in or out."""
    caller.require_right(Right.PEOPLE)

    def write() -> dict[str, Any]:
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
            return _user_json(new, teams.listing(tx))

    return json_response(await here.hold.threads(write))


@router.get("/api/teams", response_model=list[TeamOut])
async def team_list(here: Here, caller: Caller) -> Response:
    """All teams for who manages them; one's own for everyone else."""
    own = None if caller.may(Right.PEOPLE) else {team.id for team in caller.teams}

    def read() -> list[dict[str, Any]]:
        with here.read_as(caller) as tx:
            logins = _logins(tx)
            return [_team_json(team, logins) for team in teams.listing(tx) if own is None or team.id in own]

    return page(await here.hold.threads(read), None)


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
    return await _written(here, caller, lambda tx: teams.change(tx, id_, name=body.name, agents=body.agents))


@router.delete("/api/teams/{id}", response_model=OkOut)
async def remove_team(here: Here, caller: Caller, id_: Ref) -> Response:
    """End a team; its space and what was said in it stay."""
    caller.require_right(Right.PEOPLE)

    def write() -> None:
        with here.write_as(caller, ordered=False) as tx:
            teams.remove(tx, id_)

    await here.hold.threads(write)
    return json_response({"ok": True})


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


@router.get("/api/invitations", response_model=list[InvitationOut])
async def invitation_list(here: Here, caller: Caller) -> Response:
    """The invitations that are still open."""
    caller.require_right(Right.PEOPLE)

    def read() -> list[dict[str, Any]]:
        with here.read_as(caller) as tx:
            return [_invitation_json(one) for one in users.open_invitations(tx)]

    return page(await here.hold.threads(read), None)


@router.post("/api/invitations", response_model=InvitationOut, status_code=201)
async def invite(here: Here, caller: Caller, body: InvitationIn) -> Response:
    """An invitation for one person: send them its link, `/invitation#CODE`, which is not shown again."""
    _require_giving(caller, body.role)

    def write() -> dict[str, Any]:
        with here.write_as(caller, ordered=False) as tx:
            if body.team_id is not None:
                teams.get(tx, body.team_id)
            made, code = users.invite(tx, body.role, by=caller.actor, team_id=body.team_id, days=body.days)
            return _invitation_json(made) | {"code": code}

    return json_response(await here.hold.threads(write), 201)


@router.delete("/api/invitations/{id}", response_model=OkOut)
async def withdraw(here: Here, caller: Caller, id_: Ref) -> Response:
    caller.require_right(Right.PEOPLE)

    def write() -> None:
        with here.write_as(caller, ordered=False) as tx:
            users.withdraw(tx, id_)

    await here.hold.threads(write)
    return json_response({"ok": True})


@router.post("/api/invitations/accept", response_model=LoginOut)
async def accept(here: Here, body: AcceptIn, request: Request) -> Response:
    """Choose a login and a password by an invitation, and be logged in."""
    origin = Origin("page", address_of(request.scope))

    def write() -> str:
        password = users.hashed(body.password)
        with here.write_as(replace(_NOBODY, origin=origin), ordered=False) as tx:
            return _accepted(tx, body, password).id

    user_id = await here.hold.threads(write)
    person = await here.hold.threads(here.book.of_user, user_id)
    return await logged_in(here, replace(person, origin=origin), request)


def _accepted(tx: Tx, body: AcceptIn, password: users.Hashed) -> User:
    user, team_id = users.accept_invitation(tx, body.code, body.login, password, body.name)
    if team_id is not None:
        teams.join(tx, team_id, user)
    return user


@router.put("/api/me/password", response_model=OkOut)
async def own_password(here: Here, caller: Caller, body: PasswordIn) -> Response:
    """Choose another password; every other login ends."""
    user_id = _at_page(caller)

    def write() -> None:
        users.log_in(here.hold.store, caller.name, body.password, caller.origin or audit.LOCAL)
        new = users.hashed(body.new_password)
        with here.write_as(caller, ordered=False) as tx:
            users.change(tx, users.get(tx, user_id), password=new)
            page_sessions.end_of_token(tx, user_id, but=caller.session_id)

    await here.hold.threads(write)
    return json_response({"ok": True})


@router.get("/api/me/sessions", response_model=list[PageSessionOut])
async def own_sessions(here: Here, caller: Caller) -> Response:
    """Where one is logged in."""

    def read() -> list[PageSession]:
        with here.read_as(caller) as tx:
            return [one for one in page_sessions.listing(tx, _holder(caller)) if one.is_open(tx.now)]

    rows = await here.hold.threads(read)
    return page([_session_json(one, caller.session_id) for one in rows], None)


@router.delete("/api/me/sessions/{id}", response_model=OkOut)
async def end_own_session(here: Here, caller: Caller, id_: Ref) -> Response:
    """Log out somewhere else."""

    _require_login(caller)

    def write() -> None:
        with here.write_as(caller, ordered=False) as tx:
            if id_ not in {one.id for one in page_sessions.listing(tx, _holder(caller))}:
                raise NotFound(f"no login {id_[:80]!r}", code="unknown_login")
            page_sessions.end(tx, id_)
            audit.note(tx, "logout", caller.name, by=caller.actor)

    await here.hold.threads(write)
    return json_response({"ok": True})


@router.get("/api/me/tokens", response_model=list[OwnTokenOut])
async def own_tokens(here: Here, caller: Caller) -> Response:
    user_id = _person(caller)

    def read() -> list[Token]:
        with here.read_as(caller) as tx:
            return [one for one in tokens.listing(tx, user_id) if one.revoked_at is None]

    return page([_token_json(one) for one in await here.hold.threads(read)], None)


@router.post("/api/me/tokens", response_model=OwnTokenOut, status_code=201)
async def add_own_token(here: Here, caller: Caller, body: OwnTokenIn) -> Response:
    """A token that may do what one may oneself, or only read it."""
    caller.require_right(Right.TOKENS)
    user_id = _at_page(caller)

    def write() -> dict[str, Any]:
        with here.write_as(caller, ordered=False) as tx:
            ends = None if body.days is None else tx.now + body.days * 86_400_000
            user, scope = users.get(tx, user_id), Scope.parse(body.scope)
            made, text = tokens.add(tx, body.name, scope=scope, expires_at=ends, user=user)
            return _token_json(made) | {"token": text}

    return json_response(await here.hold.threads(write), 201)


@router.delete("/api/me/tokens/{id}", response_model=OkOut)
async def revoke_own_token(here: Here, caller: Caller, id_: Ref) -> Response:
    user_id = _at_page(caller)

    def write() -> None:
        with here.write_as(caller, ordered=False) as tx:
            tokens.revoke(tx, id_, user_id=user_id)

    await here.hold.threads(write)
    return json_response({"ok": True})


@router.get("/api/audit/trail", response_model=list[ActOut])
async def trail(
    here: Here,
    caller: Caller,
    act: Annotated[str | None, Query(max_length=80, description="One kind, such as login or team.")] = None,
    actor: Annotated[str | None, Query(max_length=256)] = None,
    target: Annotated[str | None, Query(max_length=512)] = None,
    since: Annotated[int | None, Query(ge=0, le=MAX_NUMBER, description="Milliseconds since 1970.")] = None,
    until: Annotated[int | None, Query(ge=0, le=MAX_NUMBER, description="Milliseconds since 1970.")] = None,
    limit: Annotated[int, Query(ge=1, description=f"At most {MAX_PAGE} come at once.")] = 100,
    cursor: CursorParam = None,
) -> Response:
    """Who did what, the newest first. Each act holds the digest of the one before it."""
    caller.require_right(Right.AUDIT)
    which = audit.ActFilter(act=act, actor=actor, target=target, since=since, until=until)
    most = min(limit, MAX_PAGE)
    before = None if cursor is None else number(cursor, 0)

    def read() -> list[audit.Act]:
        with here.read_as(caller) as tx:
            return audit.listing(tx, which, before=before, limit=most + 1)

    rows = await here.hold.threads(read)
    return page([row.json() for row in rows[:most]], rows[most - 1].seq if len(rows) > most else None)


async def _written(here: Gateway, caller: Principal, change: Any, status: int = 200) -> Response:
    def write() -> dict[str, Any]:
        with here.write_as(caller, ordered=False) as tx:
            return _team_json(change(tx), _logins(tx))

    return json_response(await here.hold.threads(write), status)


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


def _person(caller: Principal) -> str:
    if caller.user_id is None:
        raise Forbidden(
            "this is for people, and a token of the home is none",
            code="no_person",
            hint="Log in as somebody.",
        )
    return caller.user_id


def _at_page(caller: Principal) -> str:
    _require_login(caller)
    return _person(caller)


def _require_login(caller: Principal) -> None:
    """Who finds a lost token can do what it may do, and neither make others nor shut its owner out."""
    if caller.session_id is None:
        raise Forbidden(
            "this is for who is logged in, not for a token", code="token_forbidden", hint="Log in first."
        )


def _holder(caller: Principal) -> str:
    """What one's page sessions stand on: the person, or the token."""
    return caller.user_id or caller.id


def _user_json(user: User, all_teams: list[Team]) -> dict[str, Any]:
    return {
        "id": user.id,
        "login": user.login,
        "name": user.name,
        "role": user.role.value,
        "hasPassword": user.has_password,
        "issuer": user.issuer,
        "teams": [team.id for team in all_teams if user.id in team.members],
        "disabled": not user.active,
        "createdAt": iso(user.created_at),
        "lastLoginAt": None if user.last_login_at is None else iso(user.last_login_at),
    }


def _logins(tx: Tx) -> dict[str, str]:
    return {user.id: user.login for user in users.listing(tx)}


def _team_json(team: Team, logins: dict[str, str]) -> dict[str, Any]:
    return {
        "id": team.id,
        "name": team.name,
        "spaceId": team.space_id,
        "agents": list(team.agents),
        "members": sorted(logins[id_] for id_ in team.members if id_ in logins),
        "createdAt": iso(team.created_at),
    }


def _invitation_json(one: Invitation) -> dict[str, Any]:
    return {
        "id": one.id,
        "role": one.role.value,
        "teamId": one.team_id,
        "invitedBy": one.invited_by,
        "createdAt": iso(one.created_at),
        "expiresAt": iso(one.expires_at),
        "code": None,
    }


def _session_json(one: PageSession, current: str | None) -> dict[str, Any]:
    return {
        "id": one.id,
        "address": one.address,
        "program": one.program,
        "createdAt": iso(one.created_at),
        "lastUsedAt": iso(one.last_used_at),
        "expiresAt": iso(one.expires_at),
        "current": one.id == current,
    }


def _token_json(one: Token) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "scope": one.scope.name.lower(),
        "createdAt": iso(one.created_at),
        "expiresAt": None if one.expires_at is None else iso(one.expires_at),
        "token": None,
    }
