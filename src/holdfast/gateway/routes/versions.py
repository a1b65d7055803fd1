"""`/api/config/versions`, `/api/skills/versions`: what gateways of one store share, as it was and is.

Only who may change the config may look: a text tells of all agents and channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.skills import archive
from holdfast.clock import iso
from holdfast.errors import Conflict
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Admin, Gateway, Here
from holdfast.gateway.contract import Answer, Iso, answer
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import Wire
from holdfast.log import Tx, versions
from holdfast.log.versions import CONFIG, SKILL, Version
from holdfast.runtime.shared_home import config_diff, skill_diff

router = APIRouter(tags=["system"], route_class=StrictRoute)

Number = Annotated[int, Path(ge=1, le=2**31 - 1)]
SkillName = Annotated[str, Path(min_length=1, max_length=64)]
Before = Annotated[int | None, Query(ge=1, le=2**31 - 1)]
Limit = Annotated[int, Query(ge=1, le=versions.MAX_LISTED)]


class SharedVersionOut(Answer):
    name: str = Field(description="The skill's; empty for the config.")
    version: int
    at: Iso
    by: str
    surface: str
    what: str
    sha256: str | None
    size: int
    removed: bool


class SharedVersionsOut(Answer):
    shared: bool = Field(description="Whether config and skills lie in the store; if not there are none.")
    versions: list[SharedVersionOut]


class SharedVersionTextOut(Answer):
    version: SharedVersionOut
    files: dict[str, str] = Field(description="The texts by name, secrets masked.")
    diff: str = Field(description="What it changed of the version before it, as a unified diff.")


class SkillFilesIn(Wire):
    files: Annotated[dict[str, str | None], Field(min_length=1, max_length=500)] = Field(
        description="Texts by path; null takes a file away. What is not named stays."
    )
    read: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        default=None,
        description="The version that was read, 0 for none: `skill_changed` if it is not the newest.",
    )


@router.get("/api/config/versions", response_model=SharedVersionsOut)
async def config_history(here: Here, caller: Admin, before: Before = None, limit: Limit = 50) -> Response:
    """Who changed the config, when and through which surface; the newest first."""
    return await _listed(
        here, caller, lambda tx: versions.history(tx, CONFIG, "", before=before, limit=limit)
    )


@router.get("/api/config/versions/{number}", response_model=SharedVersionTextOut)
async def config_version(here: Here, caller: Admin, number: Number) -> Response:
    """A version of the config, and what it changed."""

    def read() -> SharedVersionTextOut:
        with here.read_as(caller) as tx:
            version, content = versions.get(tx, CONFIG, "", number)
            text = here.hold.config.shown((content or b"").decode())
            diff = config_diff(tx, here.hold.config, number - 1, number)
        return SharedVersionTextOut(version=_out(version), files={"config": text}, diff=diff)

    return answer(await here.hold.threads(read))


@router.post("/api/config/versions/{number}/rollback", response_model=SharedVersionOut)
async def roll_config_back(here: Here, caller: Admin, number: Number) -> Response:
    """Make an earlier config the newest, in every gateway; it must be valid today."""

    def write() -> SharedVersionOut:
        _require_shared(here)
        here.hold.shared.roll_back_config(here.hold.config, number, caller.author)
        with here.read_as(caller) as tx:
            return _out(versions.history(tx, CONFIG, "", limit=1)[0])

    return answer(await here.hold.threads(write))


@router.get("/api/skills/versions", response_model=SharedVersionsOut)
async def skill_history(
    here: Here,
    caller: Admin,
    name: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    before: Before = None,
    limit: Limit = 50,
) -> Response:
    """The versions of a skill, the newest first; without a name the newest of each."""
    if name is None:
        return await _listed(here, caller, lambda tx: versions.current(tx, SKILL))
    return await _listed(
        here, caller, lambda tx: versions.history(tx, SKILL, name, before=before, limit=limit)
    )


@router.get("/api/skills/versions/{name}/{number}", response_model=SharedVersionTextOut)
async def skill_version(here: Here, caller: Admin, name: SkillName, number: Number) -> Response:
    """A version of a skill: its files, and what it changed."""

    def read() -> SharedVersionTextOut:
        with here.read_as(caller) as tx:
            version, content = versions.get(tx, SKILL, name, number)
            files = {} if content is None else archive.texts(content)
            diff = skill_diff(tx, name, number - 1, number)
        return SharedVersionTextOut(version=_out(version), files=files, diff=diff)

    return answer(await here.hold.threads(read))


@router.post("/api/skills/versions/{name}/{number}/rollback", response_model=SharedVersionOut)
async def roll_skill_back(here: Here, caller: Admin, name: SkillName, number: Number) -> Response:
    """Make an earlier version of a skill the newest, in every gateway."""
    return await _written(here, lambda: here.hold.shared.roll_back_skill(name, number, caller.author))


@router.put("/api/skills/versions/{name}", response_model=SharedVersionOut)
async def edit_skill(here: Here, caller: Admin, name: SkillName, body: SkillFilesIn) -> Response:
    """Change texts of a skill, or begin one, as a new version in every gateway."""
    edit = here.hold.shared.edit_skill
    return await _written(here, lambda: edit(name, body.files, caller.author, read=body.read))


@router.delete("/api/skills/versions/{name}", response_model=SharedVersionOut)
async def withdraw_skill(here: Here, caller: Admin, name: SkillName) -> Response:
    """Take a skill of the store away from every gateway; its versions stay."""
    return await _written(here, lambda: here.hold.shared.withdraw_skill(name, caller.author))


async def _listed(here: Gateway, caller: Principal, read: Callable[[Tx], list[Version]]) -> Response:
    shared = here.hold.config.is_shared

    def found() -> SharedVersionsOut:
        if not shared:
            return SharedVersionsOut(shared=False, versions=[])
        with here.read_as(caller) as tx:
            return SharedVersionsOut(shared=True, versions=[_out(one) for one in read(tx)])

    return answer(await here.hold.threads(found))


async def _written(here: Gateway, write: Callable[[], Version]) -> Response:
    _require_shared(here)
    return answer(_out(await here.hold.threads(write)))


def _require_shared(here: Gateway) -> None:
    if not here.hold.config.is_shared:
        raise Conflict(
            "config and skills of this home lie in files, which have no versions",
            code="config_in_files",
            hint="`holdfast config use store` keeps them.",
        )


def _out(version: Version) -> SharedVersionOut:
    return SharedVersionOut(**{**version.told(), "at": iso(version.at)})
