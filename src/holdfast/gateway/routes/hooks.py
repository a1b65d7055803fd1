"""`/api/hooks/{name}`: signed calls of other programs. The signature is the only thing that lets one in."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from holdfast.agents.cron import CronService
from holdfast.gateway.contract import Answer, answer

router = APIRouter(tags=["agents"])


class HookOut(Answer):
    ok: bool
    run_id: str
    duplicate: bool


@router.post(
    "/api/hooks/{name}",
    response_model=HookOut,
    status_code=202,
    responses={200: {"model": HookOut, "description": "A call that was here before."}},
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": {}}}}},
)
async def call(request: Request, name: Annotated[str, Path(max_length=64)]) -> Response:
    """Give the webhook's agent a turn on this body, which stays data from outside.

    Signed by `X-Holdfast-Signature` or GitHub's `X-Hub-Signature-256`; a token alone does not do.
    """
    room = cast("CronService", request.app.state.gateway.hold.agency.standing)
    headers = {key.lower(): value for key, value in request.headers.items()}
    done = await room.receive(name, headers, await request.body())
    told = HookOut(ok=True, run_id=done.run_id, duplicate=not done.created)
    return answer(told, 202 if done.created else 200)
