"""`/api/config/…`, `/api/tokens`, `/api/doctor`: what the owner sets, and what is wrong."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import cache
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from holdfast.board import sharing, spaces
from holdfast.clock import DAY_MS, iso
from holdfast.config.root import config_schema
from holdfast.errors import InvalidInput, TooLarge, Unavailable
from holdfast.gateway import tokens
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Admin, Gateway, Here
from holdfast.gateway.contract import Answer, Iso, OkOut, answer, answers, dumps, ok
from holdfast.gateway.tokens import Scope, Token
from holdfast.gateway.wire import Text, Wire
from holdfast.log import audit

router = APIRouter(tags=["system"], route_class=StrictRoute)

DOCTOR_SECONDS: Final = 60
MOST_TEXT: Final = 1_000_000
Ref = Annotated[str, Path(alias="id", min_length=1, max_length=256)]
Names = Annotated[list[Annotated[Text, Field(min_length=1, max_length=256)]], Field(max_length=100)]


class ConfigTextOut(Answer):
    path: str
    text: str = Field(description="As it is written, with every secret masked.")
    error: str | None = Field(description="Why the file as it stands is not in use.")
    shared: bool = Field(description="Whether it lies in the store, for every gateway on it.")
    restart: list[str] = Field(description="Keys that were changed and count when the gateway starts next.")


class ConfigTextIn(Wire):
    text: str
    before: str = Field(description="The text that was read.")


class SchemaOut(Answer):
    json_schema: dict[str, Any] = Field(description="JSON Schema of the config file, with the docs' words.")


class TokenIn(Wire):
    name: Annotated[Text, Field(min_length=1, max_length=80)]
    scope: Literal["read", "write", "admin"] = "write"
    spaces: Names | None = None
    agents: Names | None = None
    days: Annotated[int, Field(ge=1, le=3650)] | None = None


class TokenOut(Answer):
    id: str
    name: str
    scope: Literal["read", "write", "admin"]
    spaces: list[str] | None
    agents: list[str] | None
    created_at: Iso
    expires_at: Iso | None
    last_used_at: Iso | None
    token: str | None = Field(description="Only in the answer that makes it.")


class FindingOut(Answer):
    check: str
    level: Literal["ok", "warn", "fail"]
    message: str
    mend: str
    mended: bool
    fixable: bool = Field(description="`POST /api/doctor/mend` can do it.")


class MendIn(Wire):
    check: Annotated[Text, Field(pattern=r"^[a-z][a-z0-9 _-]{0,40}$")]


@router.get("/api/config/schema", response_model=SchemaOut)
async def schema(here: Here, caller: Admin) -> Response:
    """What may stand in the config, with what each setting means."""
    return Response(await here.hold.threads(_schema), media_type="application/json")


@router.get("/api/config/text", response_model=ConfigTextOut)
async def config_text(here: Here, caller: Admin) -> Response:
    """The config file as it is written."""
    return answer(await here.hold.threads(_config_text, here))


@router.put("/api/config/text", response_model=ConfigTextOut)
async def save_config_text(here: Here, caller: Admin, body: ConfigTextIn) -> Response:
    """Save the config file; nothing is written unless the whole is valid. What is masked stays as it was."""

    def write() -> ConfigTextOut:
        if len(body.text) > MOST_TEXT:
            raise TooLarge(f"a config has at most {MOST_TEXT:,} characters")
        here.hold.config.save_text(body.text, before=body.before, author=caller.author)
        if not here.hold.config.is_shared:
            with here.write_as(caller, ordered=False) as tx:
                audit.note(tx, "config.changed", "as text")
        return _config_text(here)

    return answer(await here.hold.threads(write))


@router.get("/api/tokens", response_model=list[TokenOut])
async def token_list(here: Here, caller: Admin) -> Response:
    """The home's tokens that hold; people's own are theirs."""

    def read() -> list[Token]:
        with here.read_as(caller) as tx:
            return [one for one in tokens.listing(tx) if one.revoked_at is None and one.user_id is None]

    return answers([_token(one) for one in await here.hold.threads(read)])


@router.post("/api/tokens", response_model=TokenOut, status_code=201)
async def add_token(here: Here, caller: Admin, body: TokenIn) -> Response:
    """Make a token; its text is in this answer and never shown again. Spaces that it names are shared."""

    def write() -> TokenOut:
        with here.write_as(caller, ordered=False) as tx:
            for space in body.spaces or ():
                spaces.require(tx, space)
            sharing.mark_shared(tx, frozenset(body.spaces or ()))
            ends = None if body.days is None else tx.now + body.days * DAY_MS
            made, text = tokens.add(
                tx,
                body.name,
                scope=Scope.parse(body.scope),
                spaces=body.spaces or None,
                agents=body.agents or None,
                expires_at=ends,
            )
            return _token(made).model_copy(update={"token": text})

    return answer(await here.hold.threads(write), 201)


@router.delete("/api/tokens/{id}", response_model=OkOut)
async def revoke_token(here: Here, caller: Admin, id_: Ref) -> Response:
    """End a token, and the logins that stand on it, at once."""

    def write() -> None:
        with here.write_as(caller, ordered=False) as tx:
            tokens.revoke(tx, id_)

    await here.hold.threads(write)
    return ok()


@router.get("/api/doctor", response_model=list[FindingOut])
async def doctor(here: Here, caller: Admin) -> Response:
    """What `holdfast doctor` finds: looked at by a process of its own, as a person would start it."""
    return answers(await _examined(here))


@router.post("/api/doctor/mend", response_model=list[FindingOut])
async def mend(here: Here, caller: Admin, body: MendIn) -> Response:
    """Have the doctor mend what one check found, as `holdfast doctor --fix` does; what is found then."""
    found = await _examined(here, "--fix", "--only", body.check)

    def note() -> None:
        with here.write_as(caller, ordered=False) as tx:
            audit.note(tx, "doctor.mended", body.check)

    await here.hold.threads(note)
    return answers(found)


async def _examined(here: Gateway, *options: str) -> list[FindingOut]:
    """One at a time, within a time, whoever asks and whether or not they wait for it."""
    try:
        async with asyncio.timeout(DOCTOR_SECONDS), here.examining:
            code, said, complained = await _doctor(here, *options)
    except TimeoutError:
        raise Unavailable("the doctor took too long", hint="Run `holdfast doctor` in a terminal.") from None
    if code == 2:
        raise InvalidInput(complained.decode("utf-8", "replace").strip()[:400] or "the doctor refused")
    try:
        return [FindingOut.model_validate(one) for one in json.loads(said)]
    except ValueError:
        raise Unavailable(
            "the doctor could not say what it found", hint="Run `holdfast doctor` in a terminal."
        ) from None


async def _doctor(here: Gateway, *options: str) -> tuple[int | None, bytes, bytes]:
    command = [sys.executable, "-m", "holdfast", "--home", str(here.hold.home.path), "doctor", "--json"]
    process = await asyncio.create_subprocess_exec(
        *command, *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        said, complained = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said, complained


@cache
def _schema() -> str:
    return dumps({"jsonSchema": config_schema()})


def _config_text(here: Gateway) -> ConfigTextOut:
    store = here.hold.config
    error = store.last_error
    told = None if error is None else error.message
    waiting = [] if here.services is None else here.services.config_trail.waiting_for_restart()
    return ConfigTextOut(
        path=str(store.path),
        text=store.shown_text(),
        error=told,
        shared=store.is_shared,
        restart=waiting,
    )


def _token(one: Token) -> TokenOut:
    return TokenOut(
        id=one.id,
        name=one.name,
        scope=one.scope.label,
        spaces=None if one.spaces is None else list(one.spaces),
        agents=None if one.agents is None else list(one.agents),
        created_at=iso(one.created_at),
        expires_at=None if one.expires_at is None else iso(one.expires_at),
        last_used_at=None if one.last_used_at is None else iso(one.last_used_at),
        token=None,
    )
