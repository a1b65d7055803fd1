"""`POST /api/share`: letting more people read something, an act of its own that stands in the trail."""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import Field, model_validator
from starlette.responses import Response

from holdfast.agents.approvals import audit
from holdfast.board import sharing
from holdfast.board.sharing import Shared, SharedOut
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Here, Unlimited
from holdfast.gateway.contract import answer
from holdfast.gateway.wire import Id, Text, Wire
from holdfast.keys import MAX_KEY_LENGTH
from holdfast.log import Tx, parse_audience
from holdfast.log import audit as trail

router = APIRouter(tags=["board"], route_class=StrictRoute)


class ShareIn(Wire):
    """One entry, topic or session, and who may read it from now on, besides those who do already."""

    entry_id: Id | None = None
    topic_id: Id | None = None
    session_key: Annotated[Text, Field(min_length=1, max_length=MAX_KEY_LENGTH)] | None = None
    audience: Annotated[Text, Field(min_length=1, max_length=800)]
    with_entries: bool = Field(False, description="With a topic: what was said under it, too.")

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if sum(one is not None for one in (self.entry_id, self.topic_id, self.session_key)) != 1:
            raise ValueError("name one of entryId, topicId and sessionKey")
        return self


@router.post("/api/share", response_model=SharedOut)
async def share(here: Here, caller: Unlimited, body: ShareIn) -> Response:
    """Let more people read something. It is never taken back: who could read it, may have."""

    def write() -> Shared:
        with here.write_as(caller) as tx:
            return share_in(tx, body, actor=caller.actor)

    return answer((await here.hold.threads(write)).json())


def share_in(tx: Tx, body: ShareIn, *, actor: str) -> Shared:
    """Share, and write down who did, what, and how far it could be read before."""
    audience = parse_audience(body.audience)
    if body.entry_id is not None:
        done = sharing.share_entry(tx, body.entry_id, audience)
    elif body.topic_id is not None:
        done = sharing.share_topic(tx, body.topic_id, audience, with_entries=body.with_entries)
    else:
        done = sharing.share_session(tx, str(body.session_key), audience)
    call = audit.Call(agent_id="", tool="share", text=f"{done.kind} {done.id}", session_key=body.session_key)
    reason = f"{done.before} -> {done.after}, {done.entries} entries"
    audit.record(tx, "shared", call, rule="share", reason=reason, actor=actor)
    trail.note(
        tx,
        "shared",
        f"{done.kind} {done.id}",
        by=actor,
        before=done.before,
        after=done.after,
        entries=str(done.entries),
    )
    return done
