"""`/api/conversation`, `/api/chats`, `/api/turns`: what was said, as a page shows it, and the turns of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from holdfast.agents.tools.outputs import kept_outputs
from holdfast.board import attachments, log_view, topics
from holdfast.board.attachments import Attachment
from holdfast.context import message_body
from holdfast.errors import InvalidInput
from holdfast.gateway.board_wire import AttachmentOut, attachment_out
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Here
from holdfast.gateway.contract import answer, answers
from holdfast.gateway.scope import Ask
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import (
    CursorParam,
    LineOut,
    SessionOut,
    Timestamp,
    TurnOut,
    line_out,
    session_out,
    turn_out,
)
from holdfast.keys import MAX_KEY_LENGTH
from holdfast.log import (
    Cursor,
    Entry,
    EntryFilter,
    Session,
    SessionStatus,
    Turn,
    TurnStatus,
    Tx,
    entries,
    entry_model,
    sessions,
    turns,
)
from holdfast.records import record
from holdfast.text import clip

router = APIRouter(tags=["sessions"], route_class=StrictRoute)

MAX_ENTRIES: Final = 200
MAX_CHATS: Final = 100
MAX_TURNS: Final = 200
MAX_SHOWN: Final = 4_000
MAX_SEARCHED: Final = 5_000
_STRETCH: Final = 500
_TITLE: Final = 80
_CRON_MARK: Final = re.compile(r"\[cron:([^\]\n]+)\] ")
_GOES_ON: Final = (TurnStatus.ACCEPTED, TurnStatus.RUNNING)


@record
class CalledOut(TypedDict):
    callId: str
    name: str
    arguments: dict[str, Any]


@record
class CallResultOut(TypedDict):
    callId: str
    name: str
    isError: bool
    chars: Annotated[int, Field(description=f"`content` has at most {MAX_SHOWN} of them; the entry has all.")]
    outputs: Annotated[list[str], Field(description="Names of what was too long for the model and is kept.")]


@record
class SpokenOut(LineOut):
    """An entry with what its message holds besides words."""

    thinking: str | None
    calls: list[CalledOut]
    result: CallResultOut | None
    images: Annotated[int, Field(description="Pictures that it has; they are in its `raw`.")]
    files: Annotated[list[AttachmentOut], Field(description="Files that came with it.")]
    cutOff: Annotated[bool, Field(description="The answer broke off here.")]  # noqa: N815
    model: str | None
    usage: Annotated[dict[str, Any] | None, Field(description="Of the model call that said it.")]


@record
class ConversationOut(TypedDict):
    entries: Annotated[list[SpokenOut], Field(description="Newest first.")]
    turns: Annotated[list[TurnOut], Field(description="The turns that they belong to, and those that go on.")]
    next: Annotated[str | None, Field(description="There is more; send this back as `cursor`.")]


@record
class ChatOut(SessionOut):
    title: Annotated[
        str | None, Field(description="Its label, else the first words that a person said in it.")
    ]
    preview: Annotated[str | None, Field(description="The last words that were said in it.")]
    running: bool


KeyParam = Annotated[str | None, Query(alias="sessionKey", max_length=MAX_KEY_LENGTH)]
TopicParam = Annotated[str | None, Query(alias="topicId", max_length=256)]
TaskParam = Annotated[str | None, Query(alias="taskId", max_length=256)]


@router.get("/api/conversation", response_model=ConversationOut)
async def conversation(
    here: Here,
    caller: Caller,
    session_key: KeyParam = None,
    topic_id: TopicParam = None,
    task_id: TaskParam = None,
    q: Annotated[str | None, Query(max_length=200, description="Only what has these words.")] = None,
    before: Annotated[Timestamp | None, Query(description="Only what was said until then.")] = None,
    limit: Annotated[int, Query(ge=1, description=f"At most {MAX_ENTRIES} come at once.")] = 60,
    cursor: CursorParam = None,
) -> Response:
    """What was said under a session's key, or about a topic or a task of it, with the turns around it."""
    if (session_key is None) == (topic_id is None):
        raise InvalidInput("name a session or a topic", hint="Send ?sessionKey=… or ?topicId=….")
    start = Cursor.parse(cursor) if cursor is not None else None if before is None else Cursor(before + 1, 0)
    most = min(limit, MAX_ENTRIES)

    def read() -> ConversationOut:
        with here.read_as(caller) as tx:
            where = _place(tx, caller, session_key, topic_id, task_id)
            found = _page(tx, caller, where, start, most, (q or "").casefold().strip())
            files = attachments.of_entries(tx, [entry.id for entry in found.entries])
            own = _turns(tx, found.entries, session_key if cursor is None else None)
            return ConversationOut(
                entries=[spoken(entry, files.get(entry.id, ())) for entry in found.entries],
                turns=own,
                next=None if found.next is None else str(found.next),
            )

    return answer(await here.hold.threads(read))


@router.get("/api/chats", response_model=list[ChatOut])
async def chats(
    here: Here,
    caller: Caller,
    agent_id: Annotated[str | None, Query(alias="agentId", max_length=256)] = None,
    limit: Annotated[int, Query(ge=1, description=f"At most {MAX_CHATS} come at once.")] = 50,
    offset: Annotated[int, Query(ge=0, le=10_000)] = 0,
) -> Response:
    """Sessions to talk in, the last used first, each with a title, its last words and whether it runs."""

    def read() -> list[ChatOut]:
        with here.read_as(caller) as tx:
            found = sessions.listing(
                tx,
                status=SessionStatus.ACTIVE,
                agent_ids=None if agent_id is None else frozenset((agent_id,)),
                limit=min(limit, MAX_CHATS),
                offset=offset,
            )
            return [_chat(tx, session) for session in found]

    return answers(await here.hold.threads(read))


@router.get("/api/turns", response_model=list[TurnOut])
async def recent_turns(
    here: Here,
    caller: Caller,
    status: Annotated[TurnStatus | None, Query(description="Unset: all.")] = None,
    limit: Annotated[int, Query(ge=1, description=f"At most {MAX_TURNS} come at once.")] = 50,
) -> Response:
    """The newest turns of all sessions that the caller may read, newest first."""

    def read() -> list[TurnOut]:
        with here.read_as(caller) as tx:
            found = turns.recent(tx, status=status, limit=min(limit, MAX_TURNS))
            return _told(tx, found)

    return answers(await here.hold.threads(read))


def spoken(entry: Entry, files: Sequence[Attachment] = ()) -> SpokenOut:
    """An entry as a page shows it: what its `raw` holds is taken apart here, and nowhere else."""
    body = message_body(entry.raw)
    blocks = [part for part in body.get("content") or () if isinstance(part, dict)]
    thoughts = [str(part.get("thinking", "")) for part in blocks if part.get("type") == "thinking"]
    source = entry.source or {}
    usage = body.get("usage")
    return {
        **line_out(entry),
        "content": _words(entry, blocks),
        "thinking": "\n\n".join(thoughts) or None,
        "calls": [_called(part) for part in blocks if part.get("type") == "toolCall"],
        "result": _result(entry, source, body),
        "images": sum(part.get("type") == "image" for part in blocks),
        "files": [attachment_out(one) for one in files],
        "cutOff": isinstance(source.get("partial"), str),
        "model": _model(body),
        "usage": usage if isinstance(usage, dict) else None,
    }


def _words(entry: Entry, blocks: list[dict[str, Any]]) -> str:
    """What was said. The line by which the log tells of a call is nobody's words: calls stand apart."""
    if entry.role == "toolResult":
        return clip(entry.content, MAX_SHOWN)
    if entry.role == "assistant" and any(part.get("type") == "toolCall" for part in blocks):
        return "\n\n".join(str(part.get("text", "")) for part in blocks if part.get("type") == "text")
    return entry.content


def _called(part: dict[str, Any]) -> CalledOut:
    given = part.get("arguments")
    return {
        "callId": str(part.get("id", "")),
        "name": str(part.get("name", "")),
        "arguments": given if isinstance(given, dict) else {"text": given},
    }


def _result(entry: Entry, source: Any, body: Any) -> CallResultOut | None:
    if entry.role != "toolResult":
        return None
    told = {**body, **source}
    return {
        "callId": str(told.get("toolCallId", "")),
        "name": str(told.get("toolName", "")),
        "isError": told.get("isError") is True,
        "chars": len(entry.content),
        "outputs": list(kept_outputs(entry.content)),
    }


def _model(body: Any) -> str | None:
    provider, model = body.get("provider"), body.get("model")
    return f"{provider}/{model}" if isinstance(provider, str) and isinstance(model, str) else None


def _place(
    tx: Tx, caller: Principal, session_key: str | None, topic_id: str | None, task_id: str | None
) -> EntryFilter:
    """Which entries: of all sessions that had the key, of one by its id, or of a topic that may be seen."""
    if topic_id is not None:
        topics.get(tx, topic_id, Ask().view(tx, caller))
        return EntryFilter(topic_id=topic_id, task_id=task_id)
    found = _session(tx, session_key or "")
    if found is None or found.key == session_key:
        return EntryFilter(session_key=session_key)
    return EntryFilter(session_id=found.id)


def _session(tx: Tx, key: str) -> Session | None:
    """A session that is there; one that was never spoken in is merely empty."""
    known = sessions.active(tx, key)
    return known if known is not None else next(iter(sessions.get_many(tx, [key])), None)


def _page(
    tx: Tx, caller: Principal, where: EntryFilter, start: Cursor | None, most: int, words: str
) -> entry_model.Page:
    view = Ask().view(tx, caller)
    if not words:
        return log_view.listing(tx, view, where, limit=most, cursor=start, raw=True)
    found: list[Entry] = []
    for _ in range(MAX_SEARCHED // _STRETCH):
        stretch = log_view.listing(tx, view, where, limit=_STRETCH, cursor=start, raw=True)
        found += [entry for entry in stretch.entries if words in entry.content.casefold()]
        start = stretch.next
        if start is None or len(found) >= most:
            break
    if len(found) > most:
        last = found[most - 1]
        return entry_model.Page(found[:most], Cursor(last.created_at, last.position))
    return entry_model.Page(found, start)


def _turns(tx: Tx, shown: Sequence[Entry], session_key: str | None) -> list[TurnOut]:
    """The turns of these entries; on a session's first page also its newest, which may say nothing yet."""
    ids = list(dict.fromkeys(entry.turn_id for entry in shown if entry.turn_id is not None))
    found = {turn.id: turn for turn in turns.get_many(tx, ids)}
    session = None if session_key is None else _session(tx, session_key)
    if session is not None:
        found |= {turn.id: turn for turn in turns.listing(tx, session.id, limit=5)}
    return _told(tx, sorted(found.values(), key=lambda turn: turn.id, reverse=True))


def _told(tx: Tx, found: Sequence[Turn]) -> list[TurnOut]:
    agents = {s.id: s.agent_id for s in sessions.get_many(tx, sorted({t.session_id for t in found}))}
    return [turn_out(turn, agents.get(turn.session_id)) for turn in found]


def _chat(tx: Tx, session: Session) -> ChatOut:
    newest = turns.listing(tx, session.id, limit=1)
    last = entries.listing(tx, EntryFilter(session_id=session.id), limit=6).entries
    said = next((entry for entry in last if entry.role in ("user", "assistant") and entry.content), None)
    return {
        **session_out(session),
        "title": session.label or _first_words(tx, session),
        "preview": None if said is None else _line(_spoken(said)),
        "running": bool(newest) and newest[0].status in _GOES_ON,
    }


def _first_words(tx: Tx, session: Session) -> str | None:
    opening = entries.transcript(tx, session.id, limit=6)
    said = next((e for e in opening if e.role == "user" and not e.content.startswith("/")), None)
    return None if said is None else _line(_spoken(said))


def _spoken(entry: Entry) -> str:
    """What a person reads of it: a standing task's prompt by its name, not by the mark that is for models."""
    mark = _CRON_MARK.match(entry.content) if (entry.source or {}).get("channel") == "cron" else None
    return entry.content if mark is None else f"{mark[1]}: {entry.content[mark.end() :]}"


def _line(text: str) -> str:
    return clip(" ".join(text.split()), _TITLE)
