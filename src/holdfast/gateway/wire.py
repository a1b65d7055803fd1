"""The forms that entries, sessions and turns have on the wire: camelCase, ISO timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired

from fastapi import Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

from holdfast.clock import iso, parse_iso
from holdfast.errors import InvalidInput
from holdfast.keys import MAX_KEY_LENGTH
from holdfast.log import Change, Classification, Entry, EntryDraft, EntryType, Session, SessionStatus, Turn
from holdfast.records import Iso, record
from holdfast.text import clean_json, clean_text


def _millis(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return parse_iso(value)
        except InvalidInput as error:
            raise ValueError(error.message) from error
    return value


Text = Annotated[str, AfterValidator(clean_text)]
Id = Annotated[Text, Field(min_length=1, max_length=256)]
Label = Annotated[Text, Field(max_length=200)]
Timestamp = Annotated[
    int,
    BeforeValidator(_millis, json_schema_input_type=str | int),
    Field(ge=0, le=253_402_300_799_999, description="ISO 8601, or milliseconds since 1970."),
]


class Wire(BaseModel):
    """A body from outside: camelCase, tolerant of fields that we do not know."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=False, extra="ignore")


class LogIn(Wire):
    """One entry as any agent or program may log it. Unknown fields are ignored; `source` is kept as sent."""

    content: Text
    type: EntryType = EntryType.CONVERSATION
    summary: Text | None = None
    raw: Text | None = None
    topic_id: Id | None = None
    task_id: Id | None = None
    space_id: Id | None = None
    related_log_id: Id | None = None
    classification_status: Classification = Classification.PENDING
    classification_code: Label | None = None
    agent_id: Id | None = None
    agent_label: Label | None = None
    source: dict[str, Any] | None = None
    created_at: Timestamp | None = None
    idempotency_key: Annotated[Text, Field(min_length=1, max_length=512)] | None = None

    @field_validator("source")
    @classmethod
    def _source_can_be_kept(cls, source: dict[str, Any] | None) -> Any:
        key = (source or {}).get("sessionKey")
        if isinstance(key, str) and len(key) > MAX_KEY_LENGTH:
            raise ValueError(f"sessionKey has more than {MAX_KEY_LENGTH} characters")
        return clean_json(source)

    def draft(self, header_key: str | None = None) -> EntryDraft:
        source = self.source or {}
        session_key = source.get("sessionKey")
        return EntryDraft(
            content=self.content,
            type=self.type,
            role="user" if self.agent_id == "user" else None,
            session_key=session_key if isinstance(session_key, str) and session_key else None,
            agent_id=self.agent_id,
            agent_label=self.agent_label,
            summary=self.summary,
            raw=self.raw,
            space_id=self.space_id,
            topic_id=self.topic_id,
            task_id=self.task_id,
            related_id=self.related_log_id,
            status=self.classification_status,
            code=self.classification_code,
            source=self.source,
            idempotency_key=header_key or self.idempotency_key,
            created_at=self.created_at,
        )


class LogPatch(Wire):
    """What may be changed of an entry; only fields that are sent change, and null takes a value away."""

    content: Text | None = None
    summary: Text | None = None
    topic_id: Id | None = None
    task_id: Id | None = None
    space_id: Id | None = None
    related_log_id: Id | None = None
    classification_status: Classification | None = None
    classification_code: Label | None = None
    agent_label: Label | None = None

    def annotations(self) -> dict[str, Any]:
        """The annotations that were sent, under the names that the log room uses."""
        names = {
            "related_log_id": "related_id",
            "classification_status": "status",
            "classification_code": "code",
        }
        sent = {name: getattr(self, name) for name in self.model_fields_set - {"content"}}
        if sent.get("classification_status", ...) is None:
            del sent["classification_status"]
        return {names.get(name, name): value for name, value in sent.items()}


@record
class EntryOut(TypedDict):
    id: str
    type: EntryType
    content: str
    summary: str | None
    topicId: str | None
    taskId: str | None
    spaceId: str | None
    audience: Annotated[
        str, Field(description="Who may read it: owner, space:<id>, group:…, peer:…, anyone.")
    ]
    relatedLogId: str | None
    classificationStatus: Classification
    classificationCode: str | None
    agentId: Annotated[str | None, Field(description='"user" for a person.')]
    agentLabel: str | None
    source: Annotated[Mapping[str, Any] | None, Field(description="As it was sent.")]
    createdAt: Iso
    updatedAt: Iso
    idempotencyKey: str | None


@record
class FullEntryOut(EntryOut):
    """`raw` is there when it was asked for, and in the answer to a write."""

    raw: NotRequired[str | None]


@record
class LineOut(EntryOut):
    role: str | None
    turnId: str | None


@record
class SessionOut(TypedDict):
    sessionId: str
    sessionKey: str
    agentId: str | None
    audience: Annotated[str, Field(description="Who hears what is said in it.")]
    spaceId: Annotated[str | None, Field(description="The space that a person put it into.")]
    status: SessionStatus
    chatType: str | None
    channel: str | None
    label: str | None
    parentSessionKey: str | None
    successorId: str | None
    inputTokens: int
    outputTokens: int
    totalTokens: int
    contextTokens: int
    compactionCount: int
    memoryFlushAt: Iso | None
    memoryFlushCompactionCount: int | None
    turnCount: int
    createdAt: Iso
    updatedAt: Iso
    lastExternalAt: Iso
    archivedAt: Iso | None
    archiveCause: str | None


@record
class TurnOut(TypedDict):
    turnId: str
    sessionId: str
    sessionKey: str
    agentId: str | None
    number: int
    trigger: str
    status: str
    attempt: int
    inputId: str | None
    replyId: str | None
    model: str | None
    usage: Mapping[str, Any] | None
    error: str | None
    acceptedAt: Iso
    startedAt: Iso | None
    endedAt: Iso | None


@record
class ChangeOut(TypedDict):
    seq: int
    type: str
    entityId: str
    data: Annotated[
        Mapping[str, Any] | None, Field(description="The entity as it is now; null when it is gone.")
    ]
    eventTs: Iso


def entry_out(entry: Entry) -> EntryOut:
    return {
        "id": entry.id,
        "type": entry.type,
        "content": entry.content,
        "summary": entry.summary,
        "topicId": entry.topic_id,
        "taskId": entry.task_id,
        "spaceId": entry.space_id,
        "audience": entry.audience,
        "relatedLogId": entry.related_id,
        "classificationStatus": entry.status,
        "classificationCode": entry.code,
        "agentId": entry.agent_id,
        "agentLabel": entry.agent_label,
        "source": _source(entry),
        "createdAt": iso(entry.created_at),
        "updatedAt": iso(entry.updated_at),
        "idempotencyKey": entry.idempotency_key,
    }


def full_entry_out(entry: Entry, *, raw: bool) -> FullEntryOut:
    full: FullEntryOut = {**entry_out(entry), "raw": entry.raw}
    if not raw:
        del full["raw"]
    return full


def line_out(entry: Entry) -> LineOut:
    return {**entry_out(entry), "role": entry.role, "turnId": entry.turn_id}


def _source(entry: Entry) -> Mapping[str, Any] | None:
    """As it was sent; what was said in a session of ours says in which."""
    if entry.session_key is None or (entry.source is not None and "sessionKey" in entry.source):
        return entry.source
    return {**(entry.source or {}), "sessionKey": entry.session_key}


def session_out(session: Session) -> SessionOut:
    return {
        "sessionId": session.id,
        "sessionKey": session.key,
        "agentId": session.agent_id,
        "audience": session.audience,
        "spaceId": session.space_id,
        "status": session.status,
        "chatType": session.chat_type,
        "channel": session.channel,
        "label": session.label,
        "parentSessionKey": session.parent_key,
        "successorId": session.successor_id,
        "inputTokens": session.input_tokens,
        "outputTokens": session.output_tokens,
        "totalTokens": session.total_tokens,
        "contextTokens": session.context_tokens,
        "compactionCount": session.compaction_count,
        "memoryFlushAt": iso_or_none(session.memory_flush_at),
        "memoryFlushCompactionCount": session.memory_flush_compaction_count,
        "turnCount": session.turn_count,
        "createdAt": iso(session.created_at),
        "updatedAt": iso(session.updated_at),
        "lastExternalAt": iso(session.last_external_at),
        "archivedAt": iso_or_none(session.archived_at),
        "archiveCause": session.archive_cause,
    }


def turn_out(turn: Turn, agent_id: str | None) -> TurnOut:
    return {
        "turnId": turn.id,
        "sessionId": turn.session_id,
        "sessionKey": turn.session_key,
        "agentId": agent_id,
        "number": turn.number,
        "trigger": turn.trigger,
        "status": turn.status,
        "attempt": turn.attempt,
        "inputId": turn.input_id,
        "replyId": turn.reply_id,
        "model": turn.model,
        "usage": turn.usage,
        "error": turn.error,
        "acceptedAt": iso(turn.accepted_at),
        "startedAt": iso_or_none(turn.started_at),
        "endedAt": iso_or_none(turn.ended_at),
    }


def change_out(change: Change, data: Mapping[str, Any] | None) -> ChangeOut:
    return {
        "seq": change.seq,
        "type": change.type,
        "entityId": change.entity_id,
        "data": data,
        "eventTs": iso(change.created_at),
    }


def iso_or_none(at: int | None) -> str | None:
    return None if at is None else iso(at)


MAX_NUMBER: Final = 2**63 - 1
MAX_OFFSET: Final = 10_000

DueBefore = Annotated[
    Timestamp | None, Query(alias="dueBefore", description="Only what is due before then and not done.")
]
CursorParam = Annotated[
    str | None, Query(alias="cursor", description="The X-Next-Cursor of the page before.")
]


def number(cursor: str | None, otherwise: int, *, most: int = MAX_NUMBER) -> int:
    """Where a page begins: at its cursor if there is one."""
    if cursor is None:
        return otherwise
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 19 and int(cursor) <= most):
        raise InvalidInput(
            f"not a cursor: {cursor[:64]!r}",
            code="bad_cursor",
            hint="Send back the X-Next-Cursor header of the previous page unchanged.",
        )
    return int(cursor)
