"""`/api/log` and `/api/ingest`: entries in and out, as every agent that speaks HTTP uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Header, Path, Query
from pydantic import Field, ValidationError
from starlette.responses import Response

from holdfast.board import log_view, sharing
from holdfast.board.ingest import prepare
from holdfast.coding_agents import hook
from holdfast.errors import InvalidInput, TooLarge
from holdfast.gateway.access import audience_of, own_view, repeated, require_draft, require_places
from holdfast.gateway.bodies import DirectRoute, StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import Answer, DeletedOut, answer, answers, deleted, dumps
from holdfast.gateway.scope import Asked, Placed
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import (
    MAX_OFFSET,
    CursorParam,
    EntryOut,
    FullEntryOut,
    LogIn,
    LogPatch,
    entry_out,
    full_entry_out,
)
from holdfast.keys import effective_key
from holdfast.log import (
    Classification,
    Cursor,
    Entry,
    EntryDraft,
    EntryFilter,
    EntryType,
    Tx,
    audit,
    entries,
    entry_model,
    ingest,
)

router = APIRouter(tags=["log"], route_class=StrictRoute)

_PLACES = ("space_id", "topic_id", "task_id")
EntryPath = Annotated[str, Path(alias="id", max_length=256)]
IdempotencyKey = Annotated[str | None, Header(alias="X-Idempotency-Key", min_length=1, max_length=512)]


class AcceptedOut(Answer):
    ok: Literal[True]
    queued: Literal[True]
    id: str | None = Field(description="The agenda item that will write them; null for an empty list.")
    count: int


async def append(here: Here, caller: Caller, body: LogIn, key: IdempotencyKey = None) -> Response:
    """Write one entry. The same idempotency key again answers with the entry that was written first."""
    draft = body.draft(key)

    def write() -> entry_model.Appended:
        with here.write_as(caller) as tx:
            own = _allowed(here, tx, caller, draft)
            done = entries.append(tx, prepare(tx, own, here.hold.settings.board))
            if not done.created:
                repeated(done.entry)
            return done

    written = await here.hold.threads(write)
    return answer(full_entry_out(written.entry, raw=True), 201 if written.created else 200)


router.add_api_route(
    "/api/log",
    append,
    methods=["POST"],
    status_code=201,
    response_model=FullEntryOut,
    responses={200: {"description": "It was there already.", "model": FullEntryOut}},
    route_class_override=DirectRoute,
)


@router.post("/api/ingest", status_code=202, response_model=AcceptedOut)
async def ingest_batch(
    here: Here,
    caller: Caller,
    body: Annotated[LogIn | list[LogIn], Body()],
    key: IdempotencyKey = None,
) -> Response:
    """Accept one entry or a list of them; they are written soon, in order, and once."""
    batch = body if isinstance(body, list) else [body]
    drafts = _batch(here, batch, key)

    def write() -> str:
        with here.write_as(caller, ordered=False) as tx:
            return ingest.accept(tx, [_allowed(here, tx, caller, draft) for draft in drafts]).id

    id_ = await here.hold.threads(write) if drafts else None
    return answer(AcceptedOut(ok=True, queued=True, id=id_, count=len(drafts)), 202)


@router.get("/api/log", response_model=list[FullEntryOut])
async def listing(
    here: Here,
    caller: Caller,
    ask: Placed,
    topic_id: Annotated[str | None, Query(alias="topicId")] = None,
    task_id: Annotated[str | None, Query(alias="taskId")] = None,
    session_key: Annotated[str | None, Query(alias="sessionKey")] = None,
    turn_id: Annotated[str | None, Query(alias="turnId", max_length=256)] = None,
    agent_id: Annotated[str | None, Query(alias="agentId", max_length=256)] = None,
    type_: Annotated[EntryType | None, Query(alias="type")] = None,
    status: Annotated[Classification | None, Query(alias="classificationStatus")] = None,
    related: Annotated[str | None, Query(alias="relatedLogId", description="One or more, by comma.")] = None,
    include_raw: Annotated[bool, Query(alias="includeRaw")] = False,
    limit: Annotated[int, Query(ge=1, description="At most 1,000 come at once.")] = 100,
    cursor: CursorParam = None,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> Response:
    """Entries, newest first."""
    where = EntryFilter(
        session_key=session_key,
        turn_id=turn_id,
        topic_id=topic_id,
        task_id=task_id,
        agent_ids=None if agent_id is None else frozenset((agent_id,)),
        related_ids=_csv(related),
        types=None if type_ is None else frozenset((type_,)),
        status=status,
    )
    start = None if cursor is None else Cursor.parse(cursor)

    def read() -> entry_model.Page:
        with here.read_as(caller) as tx:
            view = ask.view(tx, caller)
            return log_view.listing(
                tx, view, where, limit=limit, cursor=start, offset=offset, raw=include_raw
            )

    found = await here.hold.threads(read)
    return answers([full_entry_out(e, raw=include_raw) for e in found.entries], found.next)


@router.get("/api/log/{id}", response_model=FullEntryOut)
async def get(
    here: Here,
    caller: Caller,
    ask: Asked,
    id_: EntryPath,
    include_raw: Annotated[bool, Query(alias="includeRaw")] = False,
) -> Response:
    """One entry."""

    def read() -> Entry:
        with here.read_as(caller, ask.session_key) as tx:
            return log_view.get(tx, id_, ask.view(tx, caller))

    return answer(full_entry_out(await here.hold.threads(read), raw=include_raw))


@router.patch("/api/log/{id}", response_model=EntryOut)
async def patch(here: Here, caller: Caller, id_: EntryPath, body: LogPatch) -> Response:
    """Change what an entry is about, or correct its text; the text before is kept as a revision."""
    annotations = body.annotations()
    named = {name: annotations[name] for name in (*_PLACES, "related_id") if name in annotations}

    def write() -> Entry:
        with here.write_as(caller) as tx:
            entry = log_view.get(tx, id_, own_view(caller))
            require_places(tx, caller, EntryDraft(content="", **named))
            _require_kept(caller, named)
            if body.content is not None:
                entry = entries.correct(tx, id_, body.content)
            return entries.annotate(tx, id_, annotations) if annotations else entry

    return answer(entry_out(await here.hold.threads(write)))


@router.delete("/api/log/{id}", response_model=DeletedOut)
async def delete(here: Here, caller: Caller, id_: EntryPath) -> Response:
    """Hide an entry from every view at once; its text is erased after the retention period."""

    def write() -> Entry:
        with here.write_as(caller) as tx:
            log_view.get(tx, id_, own_view(caller))
            audit.note(tx, "deleted.entry", id_, by=caller.actor)
            return entries.delete(tx, id_)

    entry = await here.hold.threads(write)
    return deleted(entry.id)


def take_in_waiting(here: Gateway) -> None:
    """Write what hooks of coding agents put aside while no gateway ran; each has a key, so it comes once."""
    for files, batch in hook.waiting(here.hold.home.path / hook.HOOKS):
        for file, waiting in zip(files, batch, strict=True):
            try:
                drafts = [LogIn.model_validate(one).draft() for one in waiting]
            except ValidationError:
                hook.set_aside(file)
                continue
            with here.write_as(here.book.home, ordered=False) as tx:
                ingest.accept(tx, [_allowed(here, tx, here.book.home, draft) for draft in drafts])
            file.unlink(missing_ok=True)


def _allowed(here: Gateway, tx: Tx, caller: Principal, draft: EntryDraft) -> EntryDraft:
    """The draft in its session and with who may read it, if the caller may write it at all."""
    draft = replace(draft, session_key=_session_key(here, draft))
    require_draft(tx, caller, draft)
    return replace(draft, audience=audience_of(tx, caller, draft, here.hold.settings.is_private))


def _session_key(here: Gateway, draft: EntryDraft) -> str | None:
    """The session that an entry belongs to, by all that its host says of it; a key that cannot be read stays
    as it was sent."""
    source = draft.source or {}
    named = {
        "session_key": draft.session_key,
        "conversation_id": source.get("conversationId"),
        "thread_id": source.get("threadId"),
        "channel_id": source.get("channelId"),
        "provider": source.get("channel"),
    }
    given = {name: one for name, one in named.items() if isinstance(one, str) and one}
    if not given.keys() & {"session_key", "conversation_id", "channel_id"}:
        return draft.session_key
    try:
        return effective_key(**given, agent_id=here.hold.settings.default_agent_id)
    except InvalidInput:
        return draft.session_key


def _require_kept(caller: Principal, named: Mapping[str, Any]) -> None:
    """A caller limited to spaces takes nothing out of them."""
    moved = [named[name] for name in _PLACES if name in named]
    if caller.spaces is not None and moved and not any(moved):
        raise sharing.outside()


def _batch(here: Gateway, batch: list[LogIn], key: str | None) -> list[EntryDraft]:
    limits = here.hold.settings.gateway.limits
    if len(batch) > limits.ingest_batch:
        raise TooLarge(f"a batch holds at most {limits.ingest_batch} entries", hint="Send it in parts.")
    drafts = []
    for index, item in enumerate(batch):
        header = None if key is None else (key if len(batch) == 1 else f"{key}:{index}")
        draft = item.draft(header)
        if _size(item) > limits.entry_bytes:
            raise TooLarge(f"entry {index} is larger than {limits.entry_bytes} bytes")
        drafts.append(draft)
    return drafts


def _size(item: LogIn) -> int:
    texts = (item.content, item.raw or "", item.summary or "", dumps(item.source or {}))
    return sum(len(text.encode()) for text in texts)


def _csv(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    parts = frozenset(part.strip() for part in text.split(",") if part.strip())
    if len(parts) > 500:
        raise InvalidInput("at most 500 values can be listed")
    return parts
