"""The forms that spaces, topics, tasks, drafts and attachments have on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.board import CreatedBy, Priority, Space, Task, TaskStatus, Topic, TopicStatus
from holdfast.board.attachments import Attachment
from holdfast.board.drafts import Draft
from holdfast.clock import iso
from holdfast.gateway.contract import Answer, Iso
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import Id, Text, Timestamp, Wire

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


class SpaceOut(Answer):
    id: str
    name: str
    color: str | None
    default_visible: bool
    connectivity: dict[str, bool]
    created_at: Iso
    updated_at: Iso


class AllowedOut(Answer):
    space_id: str
    allowed_space_ids: list[str]


class _WorkOut(Answer):
    id: str
    space_id: str
    space_ids: list[str] = Field(description="Every space that it lies in.")
    audience: str = Field(description="Who may read it.")
    created_by: CreatedBy
    color: str | None
    description: str | None
    priority: Priority
    snoozed_until: Iso | None
    due_date: Iso | None
    pinned: bool
    tags: list[str]
    digest: str | None
    digest_updated_at: Iso | None
    created_at: Iso
    updated_at: Iso


class TopicOut(_WorkOut):
    name: str
    sort_index: int
    status: TopicStatus


class TaskOut(_WorkOut):
    topic_id: str
    title: str
    status: TaskStatus


class DraftOut(Answer):
    key: str
    value: str
    created_at: Iso
    updated_at: Iso


class AttachmentOut(Answer):
    id: str
    log_id: str | None
    space_id: str | None
    file_name: str
    mime_type: str
    size_bytes: int
    sha256: str
    created_at: Iso


class PolicyOut(Answer):
    allowed_mime_types: list[str]
    max_files: int
    max_bytes: int


class BoardMetricsOut(Answer):
    spaces: int
    topics: dict[str, int] = Field(description="By status.")
    tasks: dict[str, int] = Field(description="By status.")
    pending: int = Field(description="Entries not yet sorted; counted up to 10,000.")
    failed: int = Field(description="Entries that could not be sorted; counted up to 10,000.")


def space_json(space: Space, caller: Principal | None = None) -> dict[str, Any]:
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


def topic_json(topic: Topic) -> dict[str, Any]:
    named = {"name": topic.name, "sortIndex": topic.sort_index}
    return {"id": topic.id} | named | _work_json(topic)


def task_json(task: Task) -> dict[str, Any]:
    return {"id": task.id, "topicId": task.topic_id, "title": task.title} | _work_json(task)


def _work_json(item: Topic | Task) -> dict[str, Any]:
    return {
        "spaceId": item.space_id,
        "spaceIds": sorted(item.space_ids),
        "audience": item.audience,
        "createdBy": item.created_by,
        "color": item.color,
        "description": item.description,
        "priority": item.priority,
        "status": item.status,
        "snoozedUntil": _time(item.snoozed_until),
        "dueDate": _time(item.due_at),
        "pinned": item.pinned,
        "tags": list(item.tags),
        "digest": item.digest,
        "digestUpdatedAt": _time(item.digest_updated_at),
        "createdAt": iso(item.created_at),
        "updatedAt": iso(item.updated_at),
    }


def draft_json(draft: Draft) -> dict[str, Any]:
    return {
        "key": draft.key,
        "value": draft.value,
        "createdAt": iso(draft.created_at),
        "updatedAt": iso(draft.updated_at),
    }


def attachment_json(one: Attachment) -> dict[str, Any]:
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


def _time(at: int | None) -> str | None:
    return None if at is None else iso(at)
