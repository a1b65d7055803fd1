"""`/api/agent`: ask an agent, and follow, stop or resume the run that answers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response, StreamingResponse

from holdfast.agents.loop.asks import AcceptedRunOut
from holdfast.agents.loop.run_status import RunOut
from holdfast.errors import InvalidInput
from holdfast.gateway import run_stream
from holdfast.gateway.asking import (
    MAX_IDEMPOTENCY,
    AgentIn,
    accept_sent,
    require_own_run,
    require_run,
    serving,
)
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import answer

router = APIRouter(tags=["agents"], route_class=StrictRoute)

MAX_WAIT_MS = 300_000
RunId = Annotated[str, Path(alias="runId", max_length=256)]
KeyHeader = Annotated[str | None, Header(alias="X-Idempotency-Key", min_length=1, max_length=MAX_IDEMPOTENCY)]


@router.post("/api/agent", response_model=AcceptedRunOut, status_code=202)
async def ask(here: Here, caller: Caller, body: AgentIn, key: KeyHeader = None) -> Response:
    """Ask an agent. It is stored and promised an answer at once; a repeat finds the same run."""
    accepted = await accept_sent(here, caller, body, key)
    return answer(accepted.json(), 202)


@router.get("/api/agent/{runId}/wait", response_model=RunOut)
async def wait(
    here: Here,
    caller: Caller,
    run_id: RunId,
    timeout_ms: Annotated[int, Query(alias="timeoutMs", ge=0, le=MAX_WAIT_MS)] = 30_000,
) -> Response:
    """The run once it has ended; as it stands if it has not in that time."""
    if caller.limited:  # to others a run that is there is shown, and the wait itself finds out whether it is
        await require_run(here, caller, run_id)
    status = await run_stream.ended(here, run_id, timeout_ms / 1000)
    return answer(status.json())


@router.get(
    "/api/agent/{runId}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    here: Here,
    caller: Caller,
    run_id: RunId,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Server-sent events of one run, from its beginning or from behind `Last-Event-ID`, to its end."""
    serving(here)
    after = _seq(last_event_id)
    await require_run(here, caller, run_id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    text = run_stream.sse(here, caller, run_id, after)
    return StreamingResponse(text, media_type="text/event-stream", headers=headers)


@router.post("/api/agent/{runId}/cancel", response_model=RunOut)
async def cancel(here: Here, caller: Caller, run_id: RunId) -> Response:
    """Stop the run; one that has ended stays as it is."""
    await require_own_run(here, caller, run_id)
    return answer((await here.hold.runs.cancel(run_id)).json())


@router.post("/api/agent/{runId}/resume", response_model=RunOut)
async def resume(here: Here, caller: Caller, run_id: RunId) -> Response:
    """Go on with a run that was interrupted."""
    await require_own_run(here, caller, run_id)
    return answer((await here.hold.runs.resume(run_id)).json())


@router.get("/api/agent/{runId}", response_model=RunOut)
async def status(here: Here, caller: Caller, run_id: RunId) -> Response:
    """How the run stands."""
    await require_run(here, caller, run_id)
    return answer((await here.hold.runs.status(run_id)).json())


def _seq(text: str | None) -> int:
    digits = (text or "0").strip()
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 15:
        raise InvalidInput(f"not an event id: {digits[:40]!r}", code="bad_event_id")
    return int(digits)
