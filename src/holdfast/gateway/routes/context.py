"""`…/turns/{n}/context`, `…/whatif`, `…/trace`: what a model was given in a turn, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field, StrictInt
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from holdfast.agents.models.types import ModelRef
from holdfast.clock import iso
from holdfast.context import Manifest, Replay, manifest_json, manifests_of_turn, what_if_json, wire
from holdfast.context.engine_records import EngineOut
from holdfast.context.manifest import ManifestOut
from holdfast.context.replay import WhatIfOut
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Here, Unlimited
from holdfast.gateway.contract import Answer, Iso, answer, answers
from holdfast.gateway.routes.conversation import SpokenOut, spoken
from holdfast.gateway.routes.engine import room_of
from holdfast.gateway.wire import Text, TurnOut, Wire, turn_out
from holdfast.log import Entry, EntryFilter, Session, Turn, entries, sessions, turns

router = APIRouter(tags=["sessions"], route_class=StrictRoute)

Number = Annotated[int, Path(ge=1, le=2**31 - 1)]
MAX_SPANS = 500


class MessageOut(Answer):
    """A message as it was sent; calls, call ids and pictures stand beside it where it has them."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    role: str
    kind: str
    content: str
    trust: str
    source: str


class ContextOut(Answer):
    manifest: ManifestOut
    identical: bool
    difference: str | None = None
    messages: list[MessageOut]
    tools: list[dict[str, Any]]


class SpanOut(Answer):
    """One step of a turn on its time line. A tool call that has not come back has no end."""

    kind: Literal["model", "tool"]
    name: str = Field(description="The model, or the tool.")
    started_at: Iso
    ended_at: Iso | None
    failed: bool
    error: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cost: float | None
    call: int | None = Field(description="Of a model call: its number, to see its context by.")
    entry_id: str | None


class TraceOut(Answer):
    turn: TurnOut
    spans: list[SpanOut]


class WhatIfIn(Wire):
    """What to change; all else stays as it was. With `toTurn` a range of turns is looked at, as a table."""

    engine: Annotated[Text, Field(min_length=1, max_length=120)] | None = None
    window: Annotated[StrictInt, Field(ge=1_000, le=100_000_000)] | None = None
    model: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    to_turn: Annotated[StrictInt, Field(ge=1, le=2**31 - 1)] | None = None


@router.post("/api/sessions/{key:path}/turns/{number}/whatif", response_model=WhatIfOut)
async def what_if(here: Here, caller: Unlimited, key: str, number: Number, body: WhatIfIn) -> Response:
    """What the model would have seen of a turn under another engine, window or model. No model is asked."""

    def find() -> Session:
        with here.read_as(caller) as tx:
            return sessions.find(tx, key)

    session = await here.hold.threads(find)
    window = body.window
    if body.model is not None and window is None:
        window = here.hold.agency.models.about(ModelRef.parse(body.model)).window
    look = room_of(here).hindsight
    given: dict[str, Any] = {"engine": body.engine, "window": window, "model": body.model}
    if body.to_turn is not None:
        rows = [row.json() async for row in look.what_ifs(session, number, body.to_turn, **given)]
        return answer(WhatIfOut(turns=rows))
    return answer(what_if_json(await look.what_if(session, number, **given)))


@router.get("/api/engines", response_model=list[EngineOut])
async def engines(here: Here, caller: Unlimited) -> Response:
    """Every context engine: whether it is in use, how its calls go, and what it is still to be told."""
    return answers(await here.hold.threads(room_of(here).engine_health))


@router.get("/api/sessions/{key:path}/turns/{number}/context", response_model=ContextOut)
async def turn_context(
    here: Here,
    caller: Unlimited,
    key: str,
    number: Number,
    call: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    anew: bool = False,
) -> Response:
    """The manifest of a turn's last model call (or of `call`) and its exact payload. With `anew` the engine
    builds it again, and `difference` says where that is not what was sent.

    For tokens without limits: what a model is given may come from anything that its surface may read.
    """

    def read() -> tuple[Session, Replay]:
        with here.read_as(caller) as tx:
            session = sessions.find(tx, key)
        return session, room_of(here).replay(session, number, call)

    session, found = await here.hold.threads(read)
    differs = None
    if anew:
        differs = (await room_of(here).hindsight.rebuild(session, number, call)).difference
    return answer(
        ContextOut(
            manifest=manifest_json(found.manifest),
            identical=found.identical and differs is None,
            difference=differs,
            messages=[
                MessageOut.model_validate({**wire(m), "trust": m.trust.label, "source": m.source})
                for m in found.messages
            ],
            tools=[] if found.tools is None else json.loads(found.tools),
        )
    )


@router.get("/api/sessions/{key:path}/turns/{number}/trace", response_model=TraceOut)
async def turn_trace(here: Here, caller: Unlimited, key: str, number: Number) -> Response:
    """The model and tool calls of a turn in their order, with times, tokens and cost."""

    def read() -> tuple[Turn, str | None, list[Entry], list[Manifest]]:
        with here.read_as(caller) as tx:
            session = sessions.find(tx, key)
            turn = turns.by_number(tx, session.id, number)
            said = entries.listing(tx, EntryFilter(turn_id=turn.id), limit=MAX_SPANS, raw=True).entries
            return turn, session.agent_id, said, manifests_of_turn(tx, turn.id)

    turn, agent_id, said, asked = await here.hold.threads(read)
    said.sort(key=lambda entry: entry.position)
    told = turn_out(turn, agent_id)
    return answer(TraceOut(turn=told, spans=list(_spans(turn, [spoken(one) for one in said], asked))))


def _spans(turn: Turn, said: Sequence[SpokenOut], asked: Sequence[Manifest]) -> Iterator[SpanOut]:
    """Each model call from when its context was built to its answer, with the tools it called behind it."""
    results = {one["result"]["callId"]: one for one in said if one["result"] is not None}
    answered = [one for one in said if one["role"] == "assistant" and one["usage"] is not None]
    for index, manifest in enumerate(asked):
        reply = answered[index] if index < len(answered) else None
        yield _model_span(turn, manifest, reply)
        for called in [] if reply is None else reply["calls"]:
            result = results.get(called["callId"])
            yield SpanOut(
                kind="tool",
                name=called["name"],
                started_at=reply["createdAt"] if reply is not None else iso(manifest.created_at),
                ended_at=None if result is None else result["createdAt"],
                failed=result is not None and result["result"] is not None and result["result"]["isError"],
                error=None,
                input_tokens=None,
                output_tokens=None,
                cache_read_tokens=None,
                cost=None,
                call=None,
                entry_id=None if result is None else result["id"],
            )


def _model_span(turn: Turn, manifest: Manifest, reply: SpokenOut | None) -> SpanOut:
    used = {} if reply is None or reply["usage"] is None else reply["usage"]
    cost = used.get("cost")
    ended = iso(turn.ended_at) if reply is None and turn.ended_at is not None else None
    return SpanOut(
        kind="model",
        name=manifest.model if reply is None or reply["model"] is None else reply["model"],
        started_at=iso(manifest.created_at),
        ended_at=ended if reply is None else reply["createdAt"],
        failed=manifest.refused is not None or (reply is None and turn.error is not None),
        error=manifest.refused or (turn.error if reply is None else None),
        input_tokens=used.get("input"),
        output_tokens=used.get("output"),
        cache_read_tokens=used.get("cacheRead"),
        cost=cost.get("total") if isinstance(cost, dict) else None,
        call=manifest.call,
        entry_id=None if reply is None else reply["id"],
    )
