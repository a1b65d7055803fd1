"""Health, metrics, login, config and tokens: the gateway about itself."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, Field, model_validator
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from holdfast import __version__
from holdfast.clock import iso
from holdfast.config import public_dump
from holdfast.config.source import OWN
from holdfast.errors import Unavailable
from holdfast.gateway.asking import on_pages, serving
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Admin, Caller, Gateway, Here, Unlimited
from holdfast.gateway.contract import Answer, Iso, LoginOut, OkOut, answer, answers, ok
from holdfast.gateway.guard import address_of
from holdfast.gateway.metrics import exposition
from holdfast.gateway.page_sessions import COOKIE
from holdfast.gateway.problems import problem
from holdfast.gateway.tokens import Principal
from holdfast.log import Origin, agenda, audit, turns
from holdfast.people import Role, users
from holdfast.supervision import PartHealth, Supervisor

router = APIRouter(tags=["system"], route_class=StrictRoute)


_SOON: Final = {"Retry-After": "1"}

Secret = Annotated[str, Field(min_length=1, max_length=512)]


class Login(BaseModel):
    """A token, the code of a login link, or a person's login with their password."""

    token: Secret | None = None
    code: Secret | None = None
    login: Secret | None = None
    password: Secret | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Login:
        if sum(one is not None for one in (self.token, self.code, self.login)) != 1:
            raise ValueError("send a token, a code, or a login with its password")
        if (self.login is None) != (self.password is None):
            raise ValueError("a login goes with its password")
        return self


class HealthOut(Answer):
    status: Literal["ok"]
    version: str


class PartOut(Answer):
    name: str
    state: Literal["ok", "failing", "stuck", "down", "done"]
    vital: bool
    restarts: int
    errors: int
    last_error: str | None


class StoreProblemOut(Answer):
    code: str
    message: str
    hint: str


class StoreHealthOut(Answer):
    durability: Literal["process", "power"]
    pooled: bool
    problem: StoreProblemOut | None


class HealthDetailOut(Answer):
    ready: bool
    store: StoreHealthOut
    parts: list[PartOut]


class CallerOut(Answer):
    name: str
    scope: Literal["read", "write", "admin"]
    spaces: list[str] | None = Field(description="Null: no limit.")
    agents: list[str] | None = Field(description="Null: no limit.")
    user_id: str | None = Field(description="Null: a token, and no person.")
    role: Role | None
    teams: list[str]
    agent_id: str = Field(description="Who answers on the pages where none is named.")


class ConfigOut(Answer):
    config: dict[str, Any] = Field(description="Secrets are masked.")
    error: str | None = Field(description="Why the file as it stands is not in use.")


class McpServerOut(Answer):
    name: str
    state: Literal["ready", "starting", "failing", "off"]
    tools: list[str]
    held: list[str] = Field(description="Tools that a person has not agreed to yet.")
    error: str | None
    restarts: int


class AgendaOut(Answer):
    id: str
    kind: str
    lane: str
    status: str
    due_at: Iso
    attempts: int
    max_attempts: int
    error: str | None
    cancel_requested: bool
    session_key: str | None = Field(description="The session that it is about, if it is about one.")
    agent_id: str | None
    turn_id: str | None = Field(description="The turn that it runs, which can be cancelled by this id.")
    task_id: str | None = Field(description="The standing task that it runs.")


@router.get("/healthz", response_model=HealthOut)
async def health(
    here: Here, ready: Annotated[bool, Query(description="Ask the store too.")] = False
) -> Response:
    """Whether the process lives; with `ready`, whether it can work, and if not which part of it cannot."""
    if ready:
        if here.services is None or here.services.stopping.is_set():
            raise Unavailable("the gateway is starting or stopping", code="stopping")
        refusal = await _not_ready(here.services.supervisor)
        if refusal is not None:
            return refusal
    return answer(HealthOut(status="ok", version=__version__))


@router.get("/api/health", response_model=HealthDetailOut)
async def health_detail(here: Here, caller: Admin) -> Response:
    """How each part of the gateway fares, with the last error that it met and its restarts."""
    supervisor = serving(here).supervisor
    error = await supervisor.store_watch.look()
    parts = supervisor.parts()
    store = here.hold.store
    told = None
    if error is not None:
        told = StoreProblemOut(code=error.code, message=error.message, hint=error.hint)
    return answer(
        HealthDetailOut(
            ready=error is None and all(part.ready for part in parts),
            store=StoreHealthOut(durability=store.durability, pooled=store.pooled, problem=told),
            parts=[_part(part) for part in parts],
        )
    )


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(here: Here, caller: Unlimited) -> Response:
    """Prometheus' text format."""
    return await here.hold.threads(exposition, here)


@router.post("/api/login", response_model=LoginOut)
async def login(here: Here, body: Login, request: Request) -> Response:
    """Trade a token, the code of a login link or a password for the cookie that keeps a page logged in."""
    origin = Origin("page", address_of(request.scope))
    principal = await here.hold.threads(_who, here, body, origin)
    return await logged_in(here, replace(principal, origin=origin), request)


async def logged_in(here: Gateway, principal: Principal, request: Request) -> Response:
    """The answer that keeps a page logged in as somebody who has just proved who they are."""
    public = here.hold.settings.gateway.public_url or ""
    days = here.hold.settings.gateway.auth.cookie_days
    program = request.headers.get("user-agent")
    response = answer(LoginOut(ok=True, name=principal.name, scope=principal.scope.label))
    response.set_cookie(
        COOKIE,
        await here.hold.threads(here.book.open_session, principal, days=days, program=program),
        max_age=days * 86_400,
        httponly=True,
        samesite="strict",
        secure=public.startswith("https://") or request.url.scheme == "https",
    )
    return response


@router.post("/api/logout", response_model=OkOut)
async def logout(here: Here, caller: Caller, request: Request) -> Response:
    """End the page session, wherever its cookie has got to, and what is open by it."""
    cookie = request.cookies.get(COOKIE)
    if cookie:
        await here.hold.threads(here.book.end_session, caller, cookie)
    response = ok()
    response.delete_cookie(COOKIE, samesite="strict", httponly=True)
    return response


@router.get("/api/whoami", response_model=CallerOut)
async def whoami(here: Here, caller: Caller) -> Response:
    """Who the token speaks for, and what it may do."""
    return answer(
        CallerOut(
            name=caller.name,
            scope=caller.scope.label,
            spaces=None if caller.spaces is None else sorted(caller.spaces),
            agents=None if caller.agents is None else sorted(caller.agents),
            user_id=caller.user_id,
            role=caller.role,
            teams=[team.id for team in caller.teams],
            agent_id=on_pages(here, caller),
        )
    )


@router.get("/api/config", response_model=ConfigOut)
async def config(here: Here, caller: Admin) -> Response:
    """The config in force, secrets masked; and what is wrong with the file, if it could not be taken over."""
    error = here.hold.config.last_error
    told = None if error is None else error.message
    return answer(ConfigOut(config=public_dump(here.hold.settings), error=told))


@router.patch("/api/config", response_model=ConfigOut)
async def patch_config(here: Here, caller: Admin, body: Annotated[dict[str, Any], Body()]) -> Response:
    """Merge into the config file (RFC 7396); nothing is written unless the whole is valid.

    `agents.list` may be an object of agents by their ids: each merges into the one that it names.
    """
    author = caller.author
    new = await here.hold.threads(lambda: here.hold.config.patch(body, author))

    def note() -> None:
        """What is shared stands in the trail with its version."""
        with here.write_as(caller, ordered=False) as tx:
            told = {"keys": ", ".join(sorted(body)), "sha256": here.hold.config.digest}
            audit.note(tx, "config.changed", here.hold.config.path.name, by=caller.actor, **told)

    if not here.hold.config.is_shared or OWN & body.keys():
        await here.hold.threads(note)
    return answer(ConfigOut(config=public_dump(new), error=None))


@router.get("/api/agenda", response_model=list[AgendaOut])
async def agenda_list(here: Here, caller: Admin, limit: Annotated[int, Query(ge=1)] = 100) -> Response:
    """What is due and what runs, what is due next first; at most 500 come at once."""

    def read() -> list[agenda.Item]:
        with here.read_as(caller) as tx:
            return agenda.listing(tx, limit=limit)

    return answers([_item(item) for item in await here.hold.threads(read)])


@router.get("/api/mcp/servers", response_model=list[McpServerOut])
async def mcp_servers(here: Here, caller: Admin) -> Response:
    """The servers of others that the config names: how each stands, its tools, and what waits."""
    states = here.hold.agency.mcp.states()
    return answers(
        [McpServerOut(**asdict(one) | {"tools": list(one.tools), "held": list(one.held)}) for one in states]
    )


async def _not_ready(supervisor: Supervisor) -> Response | None:
    """Anyone may ask this, so it names the parts and what is known of the store, and no error's own words."""
    store = await supervisor.store_watch.look()
    bad = [part for part in supervisor.parts() if not part.ready]
    if store is None and not bad:
        return None
    parts = [{"name": part.name, "state": part.state} for part in bad]
    if store is not None:
        parts.insert(0, {"name": "store", "state": store.code})
        told, _, _ = store.message.partition(":")  # behind it stands what the database itself said
        return problem(503, store.code, told, hint=store.hint, headers=_SOON, parts=parts)
    told = ", ".join(f"{part.name} is {part.state}" for part in bad)
    hint = "`holdfast status` and the log say why."
    return problem(503, "part_failing", told, hint=hint, headers=_SOON, parts=parts)


def _part(part: PartHealth) -> PartOut:
    return PartOut(
        name=part.name,
        state=part.state,
        vital=part.vital,
        restarts=part.restarts,
        errors=part.errors,
        last_error=part.error,
    )


def _who(here: Gateway, body: Login, origin: Origin) -> Principal:
    if body.login is not None:
        return here.book.of_user(users.log_in(here.hold.store, body.login, body.password or "", origin).id)
    if body.token is not None:
        return here.book.principal(body.token)
    here.codes.redeem(body.code or "")
    return here.book.home


def _item(item: agenda.Item) -> AgendaOut:
    """Of what it is to do only ids are told."""
    session = item.lane if item.kind in turns.KINDS else item.payload.get("sessionKey")
    return AgendaOut(
        session_key=session,
        agent_id=item.payload.get("agentId"),
        turn_id=item.payload.get("turnId"),
        task_id=item.payload.get("taskId"),
        id=item.id,
        kind=item.kind,
        lane=item.lane,
        status=item.status,
        due_at=iso(item.due_at),
        attempts=item.attempts,
        max_attempts=item.max_attempts,
        error=item.error,
        cancel_requested=item.cancel_requested,
    )
