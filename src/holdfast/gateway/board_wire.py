"""The forms that spaces, topics, tasks, drafts and attachments have on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.board import CreatedBy, Priority, Space, Task, TaskStatus, Topic, TopicStatus
from holdfast.board.attachments import Attachment
from holdfast.board.drafts import Draft
from holdfast.clock import iso
from holdfast.gateway.contract import Answer
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import Id, Text, Timestamp, Wire, iso_or_none
from holdfast.records import Iso, record

Name = Annotated[Text, Field(min_length=1, max_length=200)]
LongText = Annotated[Text, Field(max_length=20_000)]
Color = Annotated[str, Field(pattern=r"^#[0-9A-Fa-f]{6}$")]
Tags = Annotated[list[Annotated[Text, Field(max_length=80)]], Field(max_length=32)]
Order = Annotated[int, Field(ge=-(2**53), le=2**53)]


class SpaceIn(Wire):
    name: Annotated[Text, Field(min_length=1, max_length=120)]
    id: Annotated[Text, Field(min_length=1, max_length=80)] | None = None
    color: Color | None = None
    default_visible: bool | None = None


class ConnectivityIn(Wire):
    connectivity: Annotated[dict[str, bool], Field(max_length=1000)] = Field(default_factory=dict)
    default_visible: bool | None = None


class _WorkIn(Wire):
    space_id: Id | None = None
    color: Color | None = None
    description: LongText | None = None
    priority: Priority | None = None
    snoozed_until: Timestamp | None = None
    due_date: Timestamp | None = None
    pinned: bool | None = None
    tags: Tags | None = None
    digest: LongText | None = None
    digest_updated_at: Timestamp | None = None

    def fields(self) -> dict[str, Any]:
        """What was sent, under the names that the board uses."""
        sent = {name: getattr(self, name) for name in self.model_fields_set - {"id", "created_by"}}
        if "due_date" in sent:
            sent["due_at"] = sent.pop("due_date")
        if sent.get("tags", ...) is None:
            del sent["tags"]
        return sent


class TopicIn(_WorkIn):
    name: Name
    id: Id | None = None
    created_by: CreatedBy = CreatedBy.USER
    status: TopicStatus | None = None
    sort_index: Order | None = None


class TopicPatch(_WorkIn):
    """Only fields that are sent change; null takes a value away."""

    name: Name | None = None
    status: TopicStatus | None = None
    sort_index: Order | None = None

    def fields(self) -> dict[str, Any]:
        sent = super().fields()
        for name in ("name", "space_id", "sort_index", "pinned"):
            if sent.get(name, ...) is None:
                del sent[name]
        return sent


class TaskIn(_WorkIn):
    title: Name
    id: Id | None = None
    topic_id: Id | None = None
    created_by: CreatedBy = CreatedBy.USER
    status: TaskStatus | None = None


class TaskPatch(_WorkIn):
    """Only fields that are sent change; null takes a value away."""

    title: Name | None = None
    topic_id: Id | None = None
    status: TaskStatus | None = None


class OrderIn(Wire):
    ordered_ids: Annotated[list[Id], Field(min_length=1, max_length=1000)]


class DraftIn(Wire):
    key: Annotated[Text, Field(min_length=1, max_length=240)]
    value: Annotated[Text, Field(max_length=50_000)] = ""


@record
class SpaceOut(TypedDict):
    id: str
    name: str
    color: str | None
    defaultVisible: bool
    connectivity: dict[str, bool]
    createdAt: Iso
    updatedAt: Iso


class AllowedOut(Answer):
    space_id: str
    allowed_space_ids: list[str]


@record
class _WorkOut(TypedDict):
    id: str
    spaceId: str
    spaceIds: Annotated[list[str], Field(description="Every space that it lies in.")]
    audience: Annotated[str, Field(description="Who may read it.")]
    createdBy: CreatedBy
    color: str | None
    description: str | None
    priority: Priority
    snoozedUntil: Iso | None
    dueDate: Iso | None
    pinned: bool
    tags: list[str]
    digest: str | None
    digestUpdatedAt: Iso | None
    createdAt: Iso
    updatedAt: Iso


@record
class TopicOut(_WorkOut):
    name: str
    sortIndex: int
    status: TopicStatus


@record
class TaskOut(_WorkOut):
    topicId: str
    title: str
    status: TaskStatus


@record
class DraftOut(TypedDict):
    key: str
    value: str
    createdAt: Iso
    updatedAt: Iso


@record
class AttachmentOut(TypedDict):
    id: str
    logId: str | None
    spaceId: str | None
    fileName: str
    mimeType: str
    sizeBytes: int
    sha256: str
    createdAt: Iso


class PolicyOut(Answer):
    allowed_mime_types: list[str]
    max_files: int
    max_bytes: int


def space_out(space: Space, caller: Principal | None = None) -> SpaceOut:
    """A space; a caller limited to spaces learns of its own alone."""
    seen = None if caller is None else caller.spaces
    edges = {to: on for to, on in space.connectivity.items() if seen is None or to in seen}
    return {
        "id": space.id,
        "name": space.name,
        "color": space.color,
        "defaultVisible": space.default_visible,
        "connectivity": edges,
        "createdAt": iso(space.created_at),
        "updatedAt": iso(space.updated_at),
    }


def topic_out(topic: Topic) -> TopicOut:
    return {
        **_work(topic),
        "name": topic.name,
        "sortIndex": topic.sort_index,
        "status": topic.status,
    }


def task_out(task: Task) -> TaskOut:
    return {**_work(task), "topicId": task.topic_id, "title": task.title, "status": task.status}


def _work(item: Topic | Task) -> _WorkOut:
    return {
        "id": item.id,
        "spaceId": item.space_id,
        "spaceIds": sorted(item.space_ids),
        "audience": item.audience,
        "createdBy": item.created_by,
        "color": item.color,
        "description": item.description,
        "priority": item.priority,
        "snoozedUntil": iso_or_none(item.snoozed_until),
        "dueDate": iso_or_none(item.due_at),
        "pinned": item.pinned,
        "tags": list(item.tags),
        "digest": item.digest,
        "digestUpdatedAt": iso_or_none(item.digest_updated_at),
        "createdAt": iso(item.created_at),
        "updatedAt": iso(item.updated_at),
    }


def draft_out(draft: Draft) -> DraftOut:
    return {
        "key": draft.key,
        "value": draft.value,
        "createdAt": iso(draft.created_at),
        "updatedAt": iso(draft.updated_at),
    }


def attachment_out(one: Attachment) -> AttachmentOut:
    return {
        "id": one.id,
        "logId": one.entry_id,
        "spaceId": one.space_id,
        "fileName": one.file_name,
        "mimeType": one.mime_type,
        "sizeBytes": one.size_bytes,
        "sha256": one.sha256,
        "createdAt": iso(one.created_at),
    }
