"""The text by which an entry or a topic may be found: what was said, and nothing that a machine added.

The search index, the classifier and the continuity block all read texts through these functions. Digests and
reserved tags are shown as context but never found, so that nothing feeds on itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import sqlalchemy as sa

from holdfast.board import noise, tasks, topics
from holdfast.board.rules import MEMORY_ACTION, NOT_SEMANTIC, TOOL_ACTIVITY, UNANCHORED_TOOL_ACTIVITY
from holdfast.board.sanitise import sanitise
from holdfast.board.tables import tasks as task_table
from holdfast.board.tables import topics as topic_table
from holdfast.config.board import BoardConfig
from holdfast.log import Change, Entry, EntryType, Tx
from holdfast.memory.documents import Document
from holdfast.memory.echoes import without_echoes
from holdfast.memory.following import plain_text

_SILENT: Final[frozenset[str]] = frozenset((EntryType.SYSTEM, EntryType.IMPORT))
_ACTION: Final = EntryType.ACTION.value
_CONVERSATION: Final = EntryType.CONVERSATION.value
MAX_PLACES: Final = 20_000
_CHANNEL: Final = re.compile(r'"channel": ?"([^"\\]*)"')
_CHUNK: Final = 500
_TRACES = frozenset((TOOL_ACTIVITY, UNANCHORED_TOOL_ACTIVITY, MEMORY_ACTION))


class Said(Protocol):
    """As much of an entry as tells what it says."""

    @property
    def type(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def code(self) -> str | None: ...
    @property
    def role(self) -> str | None: ...
    @property
    def session_key(self) -> str | None: ...
    @property
    def source(self) -> Mapping[str, Any] | None: ...


def semantic_text(entry: Said, *, tool_traces: bool = False) -> str:
    """What an entry says, or "" when it is none that should be found.

    Rows from before the rules are judged by their text, so that they read as if they had been filtered.
    """
    code, kind = entry.code, entry.type
    if code in NOT_SEMANTIC and not (tool_traces and code in _TRACES):
        return ""
    if kind in _SILENT:
        return ""
    if kind == _ACTION:
        trace = noise.tool_of(entry.content, entry.source or {}, entry.role) is not None
        return entry.content if tool_traces or not trace else ""
    text = sanitise(entry.content).strip()
    return "" if kind == _CONVERSATION and _is_noise(entry, text) else text


def _channel(entry: Said) -> str:
    """Where it came from. What is stored of that is mostly a flat object, of which no more is read: hundreds
    are looked at for one search."""
    stored = getattr(entry, "stored_source", None)
    if isinstance(stored, str) and stored.count("{") == 1:
        match = _CHANNEL.search(stored)
        if match is not None or '"channel"' not in stored:
            return "" if match is None else match[1].lower()
    return str((entry.source or {}).get("channel") or "").lower()


def _trusted(entry: Said) -> Mapping[str, Any] | None:
    """What is told of an entry's origin where that says who sent it or how far it is trusted; most does not,
    unread."""
    stored = getattr(entry, "stored_source", None)
    silent = isinstance(stored, str) and '"trust"' not in stored and '"sender"' not in stored
    return None if silent else entry.source


def topic_text(name: str, description: str | None, tags: Iterable[str]) -> str:
    """The text of a topic or a task for the index; its digest and its reserved tags are left out."""
    plain = [tag for tag in tags if not tag.strip().lower().startswith("system:")]
    return "\n".join(part for part in (name, description or "", " ".join(plain)) if part)


def _is_noise(entry: Said, text: str) -> bool:
    if noise.is_of_the_runtime(_trusted(entry), entry.role, text):
        return True
    channel = _channel(entry)
    if noise.is_plain(channel, entry.session_key, text):
        return False
    text = "" if noise.is_of_a_person(_trusted(entry)) else text
    return (
        noise.is_scaffold(text)
        or noise.is_control_plane(channel, text)
        or noise.is_cron(channel, noise.key_of(entry.session_key), text)
        or noise.is_classifier_payload(text)
    )


def findable_text(options: Callable[[], BoardConfig]) -> Callable[[Entry], str | None]:
    """What of an entry goes into the index: its words as the board reads them, without quoted memory."""

    def text_of(entry: Entry) -> str | None:
        if entry.type is EntryType.IMPORT:
            return plain_text(entry)
        text = semantic_text(entry, tool_traces=options().search.include_tool_call_logs)
        return (without_echoes(text) if entry.role == "assistant" else text).strip() or None

    return text_of


class BoardPlaces:
    """The board's topics and tasks as documents: name, description and plain tags; never a digest."""

    def changed(self, tx: Tx, batch: Sequence[Change]) -> Mapping[str, Document | None]:
        kinds = ("topic.", "task.")
        ids = {c.entity_id for c in batch if c.type.startswith(kinds)}
        found: dict[str, Document | None] = dict.fromkeys(sorted(ids))
        return found | {d.id: d for d in _documents(tx, sorted(ids))}

    def all(self, tx: Tx) -> Sequence[Document]:
        found: list[Document] = []
        for table in (topic_table, task_table):
            query = sa.select(table.c.id).order_by(table.c.updated_at.desc()).limit(MAX_PLACES)
            ids = list(tx.conn.execute(query).scalars())
            for start in range(0, len(ids), _CHUNK):
                found += _documents(tx, ids[start : start + _CHUNK])
        return found


def _documents(tx: Tx, ids: Sequence[str]) -> list[Document]:
    if not ids:
        return []
    of_topics = [
        Document(
            id=one.id,
            text=topic_text(one.name, one.description, one.tags),
            source="topic",
            audience=one.audience,
            agent=one.agent_id,
            spaces=one.space_ids,
            topic=one.id,
            at=one.created_at,
        )
        for one in topics.get_many(tx, ids)
    ]
    of_tasks = [
        Document(
            id=one.id,
            text=topic_text(one.title, one.description, one.tags),
            source="task",
            audience=one.audience,
            spaces=one.space_ids,
            topic=one.topic_id,
            task=one.id,
            at=one.created_at,
        )
        for one in tasks.get_many(tx, ids)
    ]
    return [*of_topics, *of_tasks]
