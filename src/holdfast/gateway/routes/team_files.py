"""`/api/teams/{id}/files`: the files of a team, which its members alone, and the owner, read and edit.

They are what the team's agents work on in the team's session. Who is not in the team learns nothing of them,
not even whether there is such a team.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.clock import iso
from holdfast.context.workspace.editing import MOST_PATH, TeamFiles, digest
from holdfast.errors import Forbidden, NotFound
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import Answer, Iso, answer, answers
from holdfast.gateway.tokens import Principal, Scope
from holdfast.gateway.wire import Wire
from holdfast.log import audit
from holdfast.people import Right, teams

router = APIRouter(tags=["people"], route_class=StrictRoute)

Ref = Annotated[str, Path(alias="id", min_length=1, max_length=64)]
FilePath = Annotated[str, Query(min_length=1, max_length=MOST_PATH)]


class TeamFileOut(Answer):
    path: str
    bytes: int
    updated_at: Iso


class TeamFileTextOut(Answer):
    path: str
    text: str
    digest: str


class TeamFileIn(Wire):
    path: Annotated[str, Field(min_length=1, max_length=MOST_PATH)]
    text: Annotated[str, Field(max_length=1_000_000)]
    before: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="The digest of the text that was read; null: there was no such file."
    )


@router.get("/api/teams/{id}/files", response_model=list[TeamFileOut])
async def team_files(here: Here, caller: Caller, id_: Ref) -> Response:
    """All plain files of the team's folder."""

    def read() -> list[TeamFileOut]:
        found = _files(here, caller, id_).listing()
        return [TeamFileOut(path=one.path, bytes=one.size, updated_at=iso(one.at)) for one in found]

    return answers(await here.hold.threads(read))


@router.get("/api/teams/{id}/file", response_model=TeamFileTextOut)
async def team_file(here: Here, caller: Caller, id_: Ref, path: FilePath) -> Response:
    def read() -> TeamFileTextOut:
        text = _files(here, caller, id_).read(path)
        return TeamFileTextOut(path=path, text=text, digest=digest(text))

    return answer(await here.hold.threads(read))


@router.put("/api/teams/{id}/file", response_model=TeamFileTextOut)
async def save_team_file(here: Here, caller: Caller, id_: Ref, body: TeamFileIn) -> Response:
    """Save a file whole, if it is still what was read; the texts before are kept."""

    def write() -> TeamFileTextOut:
        files = _files(here, caller, id_)
        _require_writer(caller)
        files.save(body.path, body.text, before=body.before, now=here.hold.clock.now())
        with here.write_as(caller, ordered=False) as tx:
            audit.note(tx, "file.saved", f"team:{id_}/{body.path}")
        return TeamFileTextOut(path=body.path, text=body.text, digest=digest(body.text))

    return answer(await here.hold.threads(write))


def _files(here: Gateway, caller: Principal, id_: str) -> TeamFiles:
    """Those of a team that the caller is in; the owner is in every one."""
    theirs = any(one.id == id_ for one in caller.teams)
    if not caller.is_owner and not (caller.user_id is not None and theirs):
        raise NotFound(f"no team {id_!r}", code="unknown_team")
    if not theirs:
        with here.read_as(caller) as tx:
            teams.get(tx, id_)
    folder = here.hold.home.team_workspace(id_)
    return TeamFiles(folder, folder.with_name("history"))


def _require_writer(caller: Principal) -> None:
    caller.require(Scope.WRITE)
    if caller.user_id is not None:
        caller.require_right(Right.WRITE_BOARD)
    elif not caller.is_owner:
        raise Forbidden("files of a team are its members'", code="forbidden")
