"""The seven tools by which an agent uses the board: their schemas, and what they answer.

An agent looks from its own session. It may name another session's key, but sees no more by that than both
would. Answers are small: long texts are clipped, and raw payloads come only when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.board import log_view, tasks, topics
from holdfast.board.context import ContextAsk, Mode
from holdfast.board.context_room import Board
from holdfast.board.ingest import prepare
from holdfast.board.search import SearchAsk
from holdfast.board.search_forms import entry_form, fit_form, found_forms, task_form, topic_form
from holdfast.board.visibility import Sight, View, narrowed
from holdfast.board.work import Priority, TaskStatus
from holdfast.clock import parse_iso
from holdfast.effects import DeclaredTool, Effect
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import (
    FOR_OWNER,
    SYSTEM,
    Audience,
    EntryDraft,
    EntryType,
    Reader,
    Tx,
    entries,
    meet,
    sessions,
)
from holdfast.text import clip

MAX_NOTE: Final = 8_000
TEXT: Final = 2_000
SNIPPET: Final = 280

Id = Annotated[str, Field(min_length=1, max_length=256)]
Key = Annotated[str | None, Field(max_length=1024, description="A session to look from; unset: your own.")]


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


class SearchInput(_Input):
    """Search everything that was ever logged: topics, tasks, conversations and notes, best first."""

    q: Annotated[str, Field(min_length=1, max_length=4000, description="What to look for.")]
    sessionKey: Key = None  # noqa: N815
    topicId: Annotated[str | None, Field(max_length=256, description="Only within this topic.")] = None  # noqa: N815
    limitTopics: Annotated[int, Field(ge=0, le=50)] = 5  # noqa: N815
    limitTasks: Annotated[int, Field(ge=0, le=50)] = 5  # noqa: N815
    limitLogs: Annotated[int, Field(ge=1, le=100)] = 10  # noqa: N815


class ContextInput(_Input):
    """The continuity block: where you are, what is in work, what was said last, and what is recalled."""

    q: Annotated[str, Field(max_length=4000, description="What the turn is about.")] = ""
    sessionKey: Key = None  # noqa: N815
    mode: Annotated[Mode, Field(description="cheap: no recall; full: with recall; patient: more.")] = "auto"
    maxChars: Annotated[int, Field(ge=400, le=12_000)] = 2200  # noqa: N815


class TopicInput(_Input):
    """Read one topic."""

    id: Id


class TaskInput(_Input):
    """Read one task."""

    id: Id


class LogInput(_Input):
    """Read one log entry."""

    id: Id
    includeRaw: Annotated[bool, Field(description="Also the payload as it was sent, clipped.")] = False  # noqa: N815


class NoteInput(_Input):
    """Keep a curated note about a log entry. Notes count above conversation in every later search."""

    relatedLogId: Annotated[str, Field(min_length=1, max_length=256, description="The entry it is about.")]  # noqa: N815
    text: Annotated[str, Field(min_length=1, max_length=MAX_NOTE, description="The fact to keep.")]
    topicId: Annotated[str | None, Field(max_length=256, description="Unset: the entry's.")] = None  # noqa: N815
    taskId: Annotated[str | None, Field(max_length=256, description="Unset: the entry's.")] = None  # noqa: N815


class UpdateTaskInput(_Input):
    """Change a task: only the fields that are given change."""

    id: Id
    title: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    status: TaskStatus | None = None
    priority: Priority | None = None
    pinned: bool | None = None
    dueDate: Annotated[str | None, Field(max_length=40, description="ISO 8601; empty: none.")] = None  # noqa: N815
    snoozedUntil: Annotated[str | None, Field(max_length=40, description="ISO 8601; empty: none.")] = None  # noqa: N815
    tags: Annotated[list[Annotated[str, Field(max_length=80)]] | None, Field(max_length=32)] = None


TOOLS: Final[dict[str, DeclaredTool]] = {
    "clawboard_search": DeclaredTool(input=SearchInput, effect=Effect.NONE, repeatable=True, for_others=True),
    "clawboard_context": DeclaredTool(
        input=ContextInput, effect=Effect.NONE, repeatable=True, for_others=True
    ),
    "clawboard_get_topic": DeclaredTool(
        input=TopicInput, effect=Effect.NONE, repeatable=True, for_others=True
    ),
    "clawboard_get_task": DeclaredTool(input=TaskInput, effect=Effect.NONE, repeatable=True, for_others=True),
    "clawboard_get_log": DeclaredTool(input=LogInput, effect=Effect.NONE, repeatable=True, for_others=True),
    "clawboard_create_note": DeclaredTool(
        input=NoteInput, effect=Effect.OWN, repeatable=True, for_others=True
    ),
    "clawboard_update_task": DeclaredTool(
        input=UpdateTaskInput, effect=Effect.OWN, repeatable=False, for_others=True
    ),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a tool: an agent in a session, perhaps held to some spaces. It reads as all who hear it."""

    agent_id: str
    reader: Reader
    session_key: str | None = None
    spaces: frozenset[str] | None = None

    def sight(self, tx: Tx, other: str | None = None) -> Sight:
        """From the agent's own session, or from another as far as its own sees."""
        own = Sight(reader=self.reader, session_key=self.session_key, principal_spaces=self.spaces)
        if other is None or other == self.session_key:
            return own
        limit = narrowed(own.view(tx).spaces, self.spaces)
        reader = self.reader.within(sessions.reader_in(tx, other))
        return Sight(reader=reader, session_key=other, principal_spaces=limit)


def schemas() -> dict[str, dict[str, Any]]:
    """Name → description and JSON Schema of the input."""
    return {
        name: {"description": tool.input.__doc__, "parameters": tool.input.model_json_schema()}
        for name, tool in TOOLS.items()
    }


def call(board: Board, name: str, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """Run one of the tools. What it reads is data, never an instruction."""
    if name not in TOOLS:
        raise InvalidInput(f"no board tool {name[:40]!r}", hint=f"There are {', '.join(TOOLS)}.")
    given = _checked(TOOLS[name].input, arguments)
    match given:
        case SearchInput():
            return _search(board, given, caller)
        case ContextInput():
            return _context(board, given, caller)
        case TopicInput():
            with board.store.read(caller.reader) as tx:
                return topic_form(topics.get(tx, given.id, _view(tx, caller)))
        case TaskInput():
            with board.store.read(caller.reader) as tx:
                return task_form(tasks.get(tx, given.id, _view(tx, caller)))
        case LogInput():
            return _log(board, given, caller)
        case NoteInput():
            return board.store.run(caller.reader, lambda tx: _note(tx, board, given, caller))
        case UpdateTaskInput():
            return board.store.run(caller.reader, lambda tx: _update(tx, given, caller))
    raise AssertionError(name)


def _view(tx: Tx, caller: Caller) -> View:
    return caller.sight(tx).view(tx)


def _search(board: Board, given: SearchInput, caller: Caller) -> dict[str, Any]:
    with board.store.read(caller.reader) as tx:
        sight = caller.sight(tx, given.sessionKey)
    ask = SearchAsk(
        q=given.q,
        sight=sight,
        topic_id=given.topicId,
        topics=given.limitTopics,
        tasks=given.limitTasks,
        logs=given.limitLogs,
    )
    with board.search.gate.entered():
        found = board.search.run(ask)
    forms = found_forms(found, most=SNIPPET)
    for hit in (hit for hits in forms.values() for hit in hits):
        del hit["parts"]
    return {"ok": True, "mode": found.mode, **forms, **fit_form(found)}


def _context(board: Board, given: ContextInput, caller: Caller) -> dict[str, Any]:
    with board.store.read(caller.reader) as tx:
        sight = caller.sight(tx, given.sessionKey)
    options = board.options()
    ask = ContextAsk(
        q=given.q,
        sight=sight,
        mode=given.mode,
        max_chars=given.maxChars,
        working_set_limit=options.working_set_limit,
        timeline_limit=options.timeline_limit,
    )
    made = board.continuity.build(ask)
    return {"ok": True, "mode": given.mode, "layers": list(made.layers), "block": made.block}


def _log(board: Board, given: LogInput, caller: Caller) -> dict[str, Any]:
    with board.store.read(caller.reader) as tx:
        entry = log_view.get(tx, given.id, _view(tx, caller))
    form = entry_form(entry, most=TEXT) | {"relatedLogId": entry.related_id}
    return form | ({"raw": clip(entry.raw or "", TEXT)} if given.includeRaw else {})


def _note(tx: Tx, board: Board, given: NoteInput, caller: Caller) -> dict[str, Any]:
    """Written once: the same note about the same entry again is the one that is there.

    It is read by those who may read the entry and hear the session that it was written in.
    """
    view = _view(tx, caller)
    about = log_view.get(tx, given.relatedLogId, view)
    topic_id = given.topicId or (None if given.taskId else about.topic_id)
    task_id = given.taskId or (None if given.topicId else about.task_id)
    if given.topicId is not None:
        topics.get(tx, given.topicId, view)
    if given.taskId is not None and tasks.get(tx, given.taskId, view).topic_id != (
        topic_id or about.topic_id
    ):
        raise NotFound(f"the topic has no task {given.taskId[:80]!r}", code="unknown_task")
    same = sha256("\n".join((caller.agent_id, about.id, given.text)).encode()).hexdigest()
    draft = EntryDraft(
        content=given.text,
        type=EntryType.NOTE,
        audience=meet((about.audience, _heard(tx, caller))),
        session_key=caller.session_key,
        agent_id=caller.agent_id,
        space_id=about.given_space,
        topic_id=topic_id,
        task_id=task_id,
        related_id=about.id,
        source={"channel": "tool", "sessionKey": caller.session_key},
        idempotency_key=f"clawboard_create_note:{same}",
    )
    prepared = prepare(tx, draft, board.options())
    # The key stands for these very words: who sends them again learns nothing from finding them.
    with tx.reading_as(SYSTEM):
        made = entries.append(tx, prepared)
    return {"ok": True, "created": made.created, **entry_form(made.entry, most=SNIPPET)}


def _heard(tx: Tx, caller: Caller) -> Audience:
    return FOR_OWNER if caller.session_key is None else sessions.heard_in(tx, caller.session_key)


def _update(tx: Tx, given: UpdateTaskInput, caller: Caller) -> dict[str, Any]:
    tasks.get(tx, given.id, _view(tx, caller))
    sent = given.model_dump(exclude={"id"}, exclude_none=True)
    values: dict[str, Any] = {k: v for k, v in sent.items() if k not in ("dueDate", "snoozedUntil")}
    for name, field in (("dueDate", "due_at"), ("snoozedUntil", "snoozed_until")):
        if name in sent:
            values[field] = _moment(name, sent[name])
    if not values:
        raise InvalidInput("nothing to change", hint="Give at least one field besides id.")
    return {"ok": True, **task_form(tasks.update(tx, given.id, values))}


def _moment(name: str, text: str) -> int | None:
    try:
        return parse_iso(text) if text else None
    except (ValueError, InvalidInput):
        raise InvalidInput(f"{name}: not a time: {text!r}", hint="Such as 2026-03-01T09:00:00Z.") from None


def _checked(model: type[BaseModel], arguments: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the arguments"
        raise InvalidInput(f"{where}: {first['msg']}", hint="See the tool's schema.") from error
