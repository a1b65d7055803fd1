"""Small JSON forms of what the board finds and shows: for `/api/search`, `/api/context` and the tools."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from json.encoder import JSONEncoder, encode_basestring
from typing import Any, Final

from typing_extensions import TypedDict

from holdfast.board.routing import Routed
from holdfast.board.search import Found, SearchFound
from holdfast.board.shown import Showable, Shown
from holdfast.board.tasks import Task
from holdfast.board.timeline import Said
from holdfast.board.topics import Topic
from holdfast.board.work import Priority, TaskStatus, TopicStatus
from holdfast.clock import iso
from holdfast.log import Classification, EntryType
from holdfast.records import Iso, record
from holdfast.text import clip

PREVIEW: Final = 640
DIGEST: Final = 400
_json: Final = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quoted: Final[Callable[[str], str]] = encode_basestring


@record
class _Scored(TypedDict):
    id: str
    score: float
    parts: dict[str, float]


@record
class _WorkHit(_Scored):
    spaceId: str
    priority: Priority
    pinned: bool
    dueDate: Iso | None
    tags: list[str]
    digest: str | None
    updatedAt: Iso


@record
class TopicHit(_WorkHit):
    name: str
    status: TopicStatus


@record
class TaskHit(_WorkHit):
    topicId: str
    title: str
    status: TaskStatus


@record
class EntryHit(_Scored):
    """Its text is clipped."""

    type: EntryType
    content: str
    summary: str | None
    topicId: str | None
    taskId: str | None
    spaceId: str | None
    sessionKey: str | None
    agentId: str | None
    agentLabel: str | None
    classificationStatus: Classification
    createdAt: Iso


def topic_form(topic: Topic) -> dict[str, Any]:
    return {"id": topic.id, "name": topic.name} | _work(topic)


def task_form(task: Task) -> dict[str, Any]:
    return {"id": task.id, "topicId": task.topic_id, "title": task.title} | _work(task)


def entry_form(entry: Showable, text: str | None = None, *, most: int = PREVIEW) -> dict[str, Any]:
    """An entry with what it says, clipped."""
    return {
        "id": entry.id,
        "type": entry.type,
        "content": clip(entry.content if text is None else text, most),
        "summary": entry.summary,
        "topicId": entry.topic_id,
        "taskId": entry.task_id,
        "spaceId": entry.space_id,
        "sessionKey": entry.session_key,
        "agentId": entry.agent_id,
        "agentLabel": entry.agent_label,
        "classificationStatus": entry.status,
        "createdAt": iso(entry.created_at),
    }


def said_form(said: Said) -> dict[str, Any]:
    return entry_form(said.entry, said.text)


def routed_form(routed: Routed) -> dict[str, Any]:
    return {**routed.plain(), "ts": iso(routed.ts), "anchor": clip(routed.anchor, PREVIEW)}


def found_forms(found: SearchFound, *, most: int = PREVIEW) -> dict[str, list[dict[str, Any]]]:
    """The four lists of a search, each hit with its score and the parts of it."""
    return {
        "topics": [topic_form(one.item) | _scored(one) for one in found.topics],
        "tasks": [task_form(one.item) | _scored(one) for one in found.tasks],
        "logs": [entry_form(one.item, one.text, most=most) | _scored(one) for one in found.logs],
        "notes": [entry_form(one.item, one.text, most=most) | _scored(one) for one in found.notes],
    }


def fit_form(found: SearchFound) -> dict[str, Any]:
    """How likely it is that something answers the question, if that is enough, and what was not looked at."""
    return {"confidence": round(found.confidence, 4), "fits": found.fits, "behind": found.behind}


def found_json(found: SearchFound) -> str:
    """What `found_forms` gives, as the inside of a JSON object; hundreds of entries are written at once."""
    of_topics = [topic_form(one.item) | _scored(one) for one in found.topics]
    of_tasks = [task_form(one.item) | _scored(one) for one in found.tasks]
    text = _Texts()
    logs, notes = (",".join([_entry_json(one, text) for one in ones]) for ones in (found.logs, found.notes))
    lists = f'"topics":{_json(of_topics)},"tasks":{_json(of_tasks)},"logs":[{logs}],"notes":[{notes}]'
    sure = f'"confidence":{found.confidence:.4f},"fits":{_json(found.fits)},"behind":{found.behind}'
    return f"{lists},{sure}"


class _Texts(dict[str | None, str]):
    """Texts as JSON, kept while an answer is written: most entries of one share their places."""

    def __missing__(self, text: str | None) -> str:
        made = self[text] = "null" if text is None else _quoted(text)
        return made


def _entry_json(found: Found[Shown], text: _Texts) -> str:
    """An entry of `found_forms`; a number with four places reads as the rounded one."""
    entry, score, parts, said = found
    (_, id_, kind, _, status, at, _, session, agent, label, summary, space, topic, task, *_) = entry
    said = said if len(said) <= PREVIEW else clip(said, PREVIEW)
    return (
        f'{{"id":{_quoted(id_)},"type":"{kind}","content":{_quoted(said)},'
        f'"summary":{text[summary]},"topicId":{text[topic]},"taskId":{text[task]},'
        f'"spaceId":{text[space]},"sessionKey":{text[session]},'
        f'"agentId":{text[agent]},"agentLabel":{text[label]},'
        f'"classificationStatus":"{status}","createdAt":"{iso(at)}","score":{score:.4f},'
        f'"parts":{{{_pattern(tuple(parts)) % tuple(parts.values())}}}}}'
    )


@lru_cache(maxsize=1024)
def _pattern(names: tuple[str, ...]) -> str:
    """Where the numbers of these parts are filled in."""
    return ",".join(f'"{name}":%.4f' for name in names)


def _scored(found: Found[Any]) -> dict[str, Any]:
    parts = {name: round(value, 4) for name, value in found.parts.items()}
    return {"score": round(found.score, 4), "parts": parts}


def _work(item: Topic | Task) -> dict[str, Any]:
    return {
        "spaceId": item.space_id,
        "status": item.status,
        "priority": item.priority,
        "pinned": item.pinned,
        "dueDate": None if item.due_at is None else iso(item.due_at),
        "tags": list(item.tags),
        "digest": None if item.digest is None else clip(item.digest, DIGEST),
        "updatedAt": iso(item.updated_at),
    }
