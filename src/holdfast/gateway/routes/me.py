"""`/api/me`: what somebody who is logged in sees to themselves: password, logins, tokens."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from holdfast.clock import iso
from holdfast.errors import Forbidden, NotFound
from holdfast.gateway import page_sessions, tokens
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import Answer, Iso, OkOut
from holdfast.gateway.page_sessions import PageSession
from holdfast.gateway.pages import page
from holdfast.gateway.tokens import Principal, Scope, Token
from holdfast.gateway.wire import Text, Wire, json_response
from holdfast.log import audit
from holdfast.people import Right, users

router = APIRouter(tags=["people"], route_class=StrictRoute)

Password = Annotated[str, Field(min_length=1, max_length=users.MOST_PASSWORD)]
Ref = Annotated[str, Path(alias="id", min_length=1, max_length=256)]


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
