"""`/api/me`: what somebody who is logged in sees to themselves: password, logins, tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.clock import iso
from holdfast.errors import Forbidden, NotFound
from holdfast.gateway import page_sessions, tokens
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import Answer, Iso, OkOut, answer, answers, ok
from holdfast.gateway.page_sessions import PageSession
from holdfast.gateway.tokens import Principal, Scope, Token
from holdfast.gateway.wire import MAX_NUMBER, Text, Wire
from holdfast.log import Tx, audit
from holdfast.people import Right, User, contacts, users
from holdfast.people.contacts import Contact

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


class AwayIn(Wire):
    until: Annotated[int, Field(ge=0, le=MAX_NUMBER, description="Milliseconds since 1970.")] | None = None
    delegate: Annotated[Text, Field(min_length=1, max_length=128)] | None = Field(
        None, description="The login of who decides meanwhile."
    )


class AwayOut(Answer):
    until: Iso | None
    delegate: str | None


class ContactOut(Answer):
    handle: str = Field(description="Who one is there, as the channel tells it.")
    address: str
    linked_at: Iso


class LinkCodeOut(Answer):
    code: str
    minutes: int


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
    return ok()


@router.get("/api/me/sessions", response_model=list[PageSessionOut])
async def own_sessions(here: Here, caller: Caller) -> Response:
    """Where one is logged in."""

    def read() -> list[PageSession]:
        with here.read_as(caller) as tx:
            return [one for one in page_sessions.listing(tx, _holder(caller)) if one.is_open(tx.now)]

    rows = await here.hold.threads(read)
    return answers([_session_out(one, caller.session_id) for one in rows])


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
    return ok()


@router.get("/api/me/tokens", response_model=list[OwnTokenOut])
async def own_tokens(here: Here, caller: Caller) -> Response:
    user_id = _person(caller)

    def read() -> list[Token]:
        with here.read_as(caller) as tx:
            return [one for one in tokens.listing(tx, user_id) if one.revoked_at is None]

    return answers([_token_out(one) for one in await here.hold.threads(read)])


@router.post("/api/me/tokens", response_model=OwnTokenOut, status_code=201)
async def add_own_token(here: Here, caller: Caller, body: OwnTokenIn) -> Response:
    """A token that may do what one may oneself, or only read it."""
    caller.require_right(Right.TOKENS)
    user_id = _at_page(caller)

    def write() -> OwnTokenOut:
        with here.write_as(caller, ordered=False) as tx:
            ends = None if body.days is None else tx.now + body.days * 86_400_000
            user, scope = users.get(tx, user_id), Scope.parse(body.scope)
            made, text = tokens.add(tx, body.name, scope=scope, expires_at=ends, user=user)
            return _token_out(made).model_copy(update={"token": text})

    return answer(await here.hold.threads(write), 201)


@router.delete("/api/me/tokens/{id}", response_model=OkOut)
async def revoke_own_token(here: Here, caller: Caller, id_: Ref) -> Response:
    user_id = _at_page(caller)

    def write() -> None:
        with here.write_as(caller, ordered=False) as tx:
            tokens.revoke(tx, id_, user_id=user_id)

    await here.hold.threads(write)
    return ok()


@router.put("/api/me/away", response_model=AwayOut)
async def away(here: Here, caller: Caller, body: AwayIn) -> Response:
    """Be away, with somebody who decides meanwhile what one may decide oneself; without `until`: be back."""
    user_id = _at_page(caller)

    def write() -> AwayOut:
        with here.write_as(caller, ordered=False) as tx:
            delegate = None if body.delegate is None else users.get(tx, body.delegate)
            contacts.set_away(tx, users.get(tx, user_id), body.until, delegate)
            return _away_out(tx, users.get(tx, user_id))

    return answer(await here.hold.threads(write))


@router.get("/api/me/away", response_model=AwayOut)
async def own_away(here: Here, caller: Caller) -> Response:
    user_id = _person(caller)

    def read() -> AwayOut:
        with here.read_as(caller) as tx:
            return _away_out(tx, users.get(tx, user_id))

    return answer(await here.hold.threads(read))


@router.get("/api/me/contacts", response_model=list[ContactOut])
async def own_contacts(here: Here, caller: Caller) -> Response:
    """The chats in which one is asked for decisions."""
    user_id = _person(caller)

    def read() -> list[ContactOut]:
        with here.read_as(caller) as tx:
            return [_contact_out(one) for one in contacts.of(tx, user_id)]

    return answers(await here.hold.threads(read))


@router.post("/api/me/contacts", response_model=LinkCodeOut, status_code=201)
async def link_code(here: Here, caller: Caller) -> Response:
    """A code to write in a direct chat, `/link CODE`, which is one's own from then on."""
    user_id = _at_page(caller)

    def write() -> str:
        with here.write_as(caller, ordered=False) as tx:
            return contacts.make_code(tx, "link", user_id=user_id)

    code = await here.hold.threads(write)
    return answer(LinkCodeOut(code=code, minutes=contacts.CODE_MS // 60_000), 201)


@router.delete("/api/me/contacts", response_model=OkOut)
async def unlink(
    here: Here, caller: Caller, handle: Annotated[str, Query(min_length=1, max_length=256)]
) -> Response:
    user_id = _at_page(caller)

    def write() -> None:
        with here.write_as(caller, ordered=False) as tx:
            contacts.unlink(tx, users.get(tx, user_id), handle)

    await here.hold.threads(write)
    return ok()


def _away_out(tx: Tx, user: User) -> AwayOut:
    until = user.away_until if user.away_until is not None and user.away_until > tx.now else None
    delegate = None if until is None or user.delegate_id is None else users.get(tx, user.delegate_id).login
    return AwayOut(
        until=None if until is None else iso(until),
        delegate=delegate,
    )


def _contact_out(one: Contact) -> ContactOut:
    return ContactOut(
        handle=one.handle,
        address=one.address,
        linked_at=iso(one.linked_at),
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


def _session_out(one: PageSession, current: str | None) -> PageSessionOut:
    return PageSessionOut(
        id=one.id,
        address=one.address,
        program=one.program,
        created_at=iso(one.created_at),
        last_used_at=iso(one.last_used_at),
        expires_at=iso(one.expires_at),
        current=one.id == current,
    )


def _token_out(one: Token) -> OwnTokenOut:
    return OwnTokenOut(
        id=one.id,
        name=one.name,
        scope=one.scope.label,
        created_at=iso(one.created_at),
        expires_at=None if one.expires_at is None else iso(one.expires_at),
        token=None,
    )
