"""`/api/sessions/{key}/tools` and `…/outputs/{id}`: what a session's tools did, long outputs in pages."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.tools import Outputs
from holdfast.agents.tools.outputs import Page, RecordedCall, recorded_calls
from holdfast.clock import iso
from holdfast.errors import InvalidInput
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import Answer, Iso, answer, answers
from holdfast.gateway.routes.sessions import own_session
from holdfast.gateway.wire import CursorParam
from holdfast.log import Cursor, Entry, EntryFilter, Session, entries, sessions
from holdfast.text import clip

router = APIRouter(tags=["sessions"], route_class=StrictRoute)

MAX_STRETCH: Final = 400
MAX_SHOWN: Final = 2_000
PAGE_CHARS: Final = 32_000
MAX_CHARS: Final = 200_000
MAX_LINE: Final = 2**31 - 1


class ResultOut(Answer):
    entry_id: str
    text: str = Field(
        description=f"The first {MAX_SHOWN} characters; the entry has what the model was given."
    )
    chars: int = Field(description="How many the model was given.")
    is_error: bool
    outputs: list[str] = Field(description="Names of what was too long for the model and is kept.")
    at: Iso


class ToolCallOut(Answer):
    call_id: str
    name: str
    arguments: dict[str, Any]
    turn_id: str | None
    entry_id: str
    at: Iso
    result: ResultOut | None


class OutputOut(Answer):
    """Whole lines of a kept output; `from` and `offset` of `next` are where to read on."""

    id: str
    text: str
    from_: int = Field(alias="from")
    to: int
    lines: int
    next_from: int | None
    next_offset: int


@router.get("/api/sessions/{key:path}/tools", response_model=list[ToolCallOut])
async def listing(
    here: Here,
    caller: Caller,
    key: str,
    limit: Annotated[int, Query(ge=1, description=f"Entries to look at, at most {MAX_STRETCH}.")] = 200,
    cursor: CursorParam = None,
) -> Response:
    """The tool calls in a stretch of a session, newest first; there may be none in it, and more behind it."""
    before = None if cursor is None else Cursor.parse(cursor)
    most = min(limit, MAX_STRETCH)

    def read() -> tuple[list[RecordedCall], Cursor | None]:
        with here.read_as(caller) as tx:
            where = EntryFilter(session_id=sessions.find(tx, key).id)
            found = entries.listing(tx, where, limit=most, cursor=before, raw=True)
            stretch = found.entries if found.next is None else _whole(found.entries)
            last = None if found.next is None else Cursor(stretch[-1].created_at, stretch[-1].position)
            return recorded_calls(stretch), last

    calls, after = await here.hold.threads(read)
    return answers([_call_out(call) for call in calls], after)


@router.get("/api/sessions/{key:path}/outputs/{id}", response_model=OutputOut)
async def output(
    here: Here,
    caller: Caller,
    key: str,
    id_: Annotated[str, Path(alias="id", max_length=64)],
    start: Annotated[int, Query(alias="from", ge=1, le=MAX_LINE, description="The first line.")] = 1,
    offset: Annotated[int, Query(ge=0, le=MAX_LINE, description="Characters to pass over in it.")] = 0,
    chars: Annotated[int, Query(ge=1, le=MAX_CHARS)] = PAGE_CHARS,
) -> Response:
    """A page of a tool's long output, kept for the session that made it and for who may speak in that."""

    def read() -> Page:
        with here.read_as(caller) as tx:
            session = own_session(here, tx, caller, key)
        outputs = Outputs(here.hold.home, here.hold.clock)
        return outputs.page(_agent(session), session.id, id_, start=start, offset=offset, most=chars)

    found = await here.hold.threads(read)
    if start > max(1, found.total):
        raise InvalidInput(f"this output has only {found.total} lines", code="past_the_end")
    return answer(_output_out(id_, found))


def _agent(session: Session) -> str:
    return session.agent_id or ""


def _whole(stretch: list[Entry]) -> list[Entry]:
    """Without the results at its end, whose calls lie in the next stretch; unless there is nothing else."""
    end = len(stretch)
    while end and stretch[end - 1].role == "toolResult":
        end -= 1
    return stretch[:end] or stretch


def _call_out(found: RecordedCall) -> ToolCallOut:
    result = found.result
    return ToolCallOut(
        call_id=found.call.id,
        name=found.call.name,
        arguments=dict(found.call.arguments),
        turn_id=found.entry.turn_id,
        entry_id=found.entry.id,
        at=iso(found.entry.created_at),
        result=None
        if result is None
        else ResultOut(
            entry_id=result.entry.id,
            text=clip(result.entry.content, MAX_SHOWN),
            chars=len(result.entry.content),
            is_error=result.is_error,
            outputs=list(result.kept),
            at=iso(result.entry.created_at),
        ),
    )


def _output_out(id_: str, found: Page) -> OutputOut:
    return OutputOut(
        id=id_,
        text=found.text,
        **{"from": found.start},
        to=found.end,
        lines=found.total,
        next_from=found.on,
        next_offset=found.offset,
    )
