"""`/api/log` and `/api/ingest`: entries in and out, as every agent that speaks HTTP uses them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Header, Path, Query
from starlette.responses import Response

from holdfast.errors import Forbidden, InvalidInput, NotFound, TooLarge
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import LogIn, LogPatch, entry_json, json_response
from holdfast.log import Classification, Cursor, Entry, EntryDraft, EntryFilter, EntryType, entries, ingest

router = APIRouter(tags=["log"])

MAX_OFFSET = 10_000
EntryPath = Annotated[str, Path(alias="id", max_length=256)]
IdempotencyKey = Annotated[str | None, Header(alias="X-Idempotency-Key", min_length=1, max_length=512)]


@router.post("/api/log", status_code=201, responses={200: {"description": "It was there already."}})
async def append(here: Here, caller: Caller, body: LogIn, key: IdempotencyKey = None) -> Response:
    """Write one entry. The same idempotency key again answers with the entry that was written first."""
    draft = body.draft(key)
    _require_space(caller, draft)

    def write() -> entries.Appended:
        with here.hold.store.write() as tx:
            return entries.append(tx, draft)

    done = await here.hold.threads(write)
    return json_response(entry_json(done.entry, raw=True), 201 if done.created else 200)


@router.post("/api/ingest", status_code=202)
async def ingest_batch(
    here: Here,
    caller: Caller,
    body: Annotated[LogIn | list[LogIn], Body()],
    key: IdempotencyKey = None,
) -> Response:
    """Accept one entry or a list of them; they are written soon, in order, and once."""
    batch = body if isinstance(body, list) else [body]
    drafts = _batch(here, caller, batch, key)

    def write() -> str:
        with here.hold.store.write(ordered=False) as tx:
            return ingest.accept(tx, drafts).id

    id_ = await here.hold.threads(write) if drafts else None
    return json_response({"ok": True, "queued": True, "id": id_, "count": len(drafts)}, 202)


@router.get("/api/log")
async def listing(
    here: Here,
    caller: Caller,
    topic_id: Annotated[str | None, Query(alias="topicId")] = None,
    task_id: Annotated[str | None, Query(alias="taskId")] = None,
    session_key: Annotated[str | None, Query(alias="sessionKey")] = None,
    type_: Annotated[EntryType | None, Query(alias="type")] = None,
    status: Annotated[Classification | None, Query(alias="classificationStatus")] = None,
    related: Annotated[str | None, Query(alias="relatedLogId", description="One or more, by comma.")] = None,
    space_id: Annotated[str | None, Query(alias="spaceId")] = None,
    allowed: Annotated[str | None, Query(alias="allowedSpaceIds", description="By comma.")] = None,
    include_raw: Annotated[bool, Query(alias="includeRaw")] = False,
    limit: Annotated[int, Query(ge=1, description="At most 1,000 come at once.")] = 100,
    cursor: Annotated[str | None, Query(description="The X-Next-Cursor of the page before.")] = None,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> Response:
    """Entries, newest first."""
    where = EntryFilter(
        session_key=session_key,
        topic_id=topic_id,
        task_id=task_id,
        space_ids=_spaces(caller, space_id, allowed),
        agent_ids=caller.agents,
        related_ids=_csv(related),
        types=None if type_ is None else frozenset((type_,)),
        status=status,
    )
    start = None if cursor is None else Cursor.parse(cursor)

    def read() -> entries.Page:
        with here.hold.store.read() as tx:
            return entries.listing(tx, where, limit=limit, cursor=start, offset=offset, raw=include_raw)

    page = await here.hold.threads(read)
    headers = {} if page.next is None else {"X-Next-Cursor": str(page.next)}
    return json_response([entry_json(e, raw=include_raw) for e in page.entries], headers=headers)


@router.get("/api/log/{id}")
async def get(
    here: Here,
    caller: Caller,
    id_: EntryPath,
    include_raw: Annotated[bool, Query(alias="includeRaw")] = False,
) -> Response:
    """One entry."""

    def read() -> Entry:
        with here.hold.store.read() as tx:
            return _seen(caller, entries.get(tx, id_))

    return json_response(entry_json(await here.hold.threads(read), raw=include_raw))


@router.patch("/api/log/{id}")
async def patch(here: Here, caller: Caller, id_: EntryPath, body: LogPatch) -> Response:
    """Change what an entry is about, or correct its text; the text before is kept as a revision."""
    annotations = body.annotations()
    if "space_id" in annotations:
        _require_space(caller, EntryDraft(content="", space_id=annotations["space_id"]))

    def write() -> Entry:
        with here.hold.store.write() as tx:
            entry = _seen(caller, entries.get(tx, id_))
            if body.content is not None:
                entry = entries.correct(tx, id_, body.content)
            return entries.annotate(tx, id_, annotations) if annotations else entry

    return json_response(entry_json(await here.hold.threads(write)))


@router.delete("/api/log/{id}")
async def delete(here: Here, caller: Caller, id_: EntryPath) -> Response:
    """Hide an entry from every view at once; its text is erased after the retention period."""

    def write() -> Entry:
        with here.hold.store.write() as tx:
            _seen(caller, entries.get(tx, id_))
            return entries.delete(tx, id_)

    entry = await here.hold.threads(write)
    return json_response({"ok": True, "deleted": True, "id": entry.id})


def _batch(here: Gateway, caller: Principal, batch: list[LogIn], key: str | None) -> list[EntryDraft]:
    limits = here.hold.settings.gateway.limits
    if len(batch) > limits.ingest_batch:
        raise TooLarge(f"a batch holds at most {limits.ingest_batch} entries", hint="Send it in parts.")
    drafts = []
    for index, item in enumerate(batch):
        header = None if key is None else (key if len(batch) == 1 else f"{key}:{index}")
        draft = item.draft(header)
        _require_space(caller, draft)
        if len(item.content) + len(item.raw or "") > limits.entry_bytes:
            raise TooLarge(f"entry {index} is larger than {limits.entry_bytes} bytes")
        drafts.append(draft)
    return drafts


def _seen(caller: Principal, entry: Entry) -> Entry:
    """The entry, unless it is deleted or the caller may not see it: both look like nothing there."""
    hidden = not (caller.may_see_space(entry.space_id) and caller.may_see_agent(entry.agent_id))
    if hidden or entry.deleted_at is not None:
        raise NotFound(f"no entry {entry.id!r}", code="unknown_entry")
    return entry


def _require_space(caller: Principal, draft: EntryDraft) -> None:
    if not caller.may_see_space(draft.space_id):
        raise Forbidden(
            "this token may write only to its own spaces",
            code="space_forbidden",
            hint="Send a spaceId that it may see.",
        )


def _spaces(caller: Principal, space_id: str | None, allowed: str | None) -> frozenset[str] | None:
    wanted = _csv(allowed)
    if space_id is not None:
        wanted = frozenset((space_id,)) if wanted is None else wanted & {space_id}
    if caller.spaces is None:
        return wanted
    return caller.spaces if wanted is None else wanted & caller.spaces


def _csv(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    parts = frozenset(part.strip() for part in text.split(",") if part.strip())
    if len(parts) > 500:
        raise InvalidInput("at most 500 values can be listed")
    return parts
