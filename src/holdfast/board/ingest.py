"""The one way into the log for everything that the board may sort: clean the text, settle the scope, filter.

Whoever appends an entry calls `prepare` first, in the same transaction, and appends what it returns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from holdfast.board import lineage, noise, spaces, visibility
from holdfast.board.pending import enqueue, lane_of
from holdfast.board.reads import Query
from holdfast.board.rules import Decision, Facts, Scope, decide, normalised_source, without_claims
from holdfast.config.board import BoardConfig
from holdfast.errors import InvalidInput
from holdfast.keys import BoardTaskKey, board_key_of
from holdfast.log import Classification, Entry, EntryDraft, Tx, agenda, entries

MAX_ID: Final = 256
_DEFAULTS: Final = BoardConfig()


def prepare(tx: Tx, draft: EntryDraft, options: BoardConfig = _DEFAULTS) -> EntryDraft:
    """The draft as it is to be stored; what is left to sort is put on the agenda.

    The text as it was sent is kept in `raw` when cleaning changed it. Besides the agenda's, ten small queries
    at most.
    """
    return prepare_all(tx, [draft], options)[0]


def prepare_all(tx: Tx, drafts: Sequence[EntryDraft], options: BoardConfig = _DEFAULTS) -> list[EntryDraft]:
    """`prepare` for drafts of which none is written before all are prepared: what is known of a session is
    looked up once."""
    spaces_known: dict[str, str | None] = {}
    enqueued: set[str | None] = set()
    found: list[EntryDraft] = []
    for draft in drafts:
        applied = apply(draft, decide(draft, gather(tx, draft, options)))
        prepared = in_session_space(tx, applied, spaces_known)
        key = prepared.session_key
        waits = prepared.status is Classification.PENDING and options.classifier.enabled
        if waits and key not in enqueued:
            if not agenda.is_live(tx, lane_of(key)):
                enqueue(tx, key, options.classifier)
            enqueued.add(key)
        found.append(prepared)
    return found


def in_session_space(tx: Tx, draft: EntryDraft, known: dict[str, str | None]) -> EntryDraft:
    """What waits to be sorted counts for the space that its session has, until sorting says otherwise.

    `known` are the spaces of sessions that were looked up.
    """
    key = draft.session_key
    if draft.status is not Classification.PENDING or draft.space_id is not None or not key:
        return draft
    if key not in known:
        known[key] = visibility.source_space(tx, None, key)
    space = known[key]
    return draft if space is None else replace(draft, space_id=space, space_follows=True)


def apply(draft: EntryDraft, decision: Decision) -> EntryDraft:
    changed = decision.content != draft.content
    return replace(
        draft,
        content=decision.content,
        raw=draft.content if changed and draft.raw is None else draft.raw,
        topic_id=decision.scope.topic_id,
        task_id=decision.scope.task_id,
        space_id=decision.scope.space_id,
        space_follows=decision.scope.origin in ("link", "related"),
        status=decision.status,
        code=decision.code,
        source=normalised_source(draft.source, decision.scope),
        idempotency_key=draft.idempotency_key or identity(draft),
    )


def identity(draft: EntryDraft) -> str | None:
    """The key of a message whose sender gave none but named it: delivered twice, it is still one entry.

    The text is part of it, since hosts give one message id to a message and to what follows from it.
    """
    source = draft.source or {}
    named = next((n for n in ("eventId", "messageId") if isinstance(source.get(n), str) and source[n]), None)
    if named is None:
        return None
    parts = (
        source[named],
        source.get("channel"),
        draft.session_key,
        draft.agent_id,
        draft.type,
        draft.content,
    )
    return f"{named}:{sha256(json.dumps(parts).encode()).hexdigest()}"


def gather(tx: Tx, draft: EntryDraft, options: BoardConfig = _DEFAULTS) -> Facts:
    """Look up what the draft names."""
    source = draft.source or {}
    found = lineage.find(tx, draft.session_key) if draft.session_key and _is_child(draft) else None
    link = None if found is None else found.scope
    related = _related(tx, draft.related_id)
    places = [one for one in (link, related) if one is not None]
    task_ids = [draft.task_id, source.get("boardScopeTaskId"), *(one.task_id for one in places)]
    topic_ids = [draft.topic_id, source.get("boardScopeTopicId"), *(one.topic_id for one in places)]
    board = _board_ids(draft.session_key)
    known_tasks = _tasks(tx, _ids([*task_ids, board[1]]))
    space_ids = _ids([draft.space_id, source.get("boardScopeSpaceId"), *(one.space_id for one in places)])
    return Facts(
        topics=_topics(tx, _ids([*topic_ids, board[0], *known_tasks.values()])),
        tasks=known_tasks,
        spaces=_spaces(tx, draft, space_ids),
        link=link,
        awaits_link=found is not None and link is None,
        related=related,
        ignored_prefixes=tuple(options.ignore_session_prefixes),
    )


def as_draft(entry: Entry) -> EntryDraft:
    """A stored entry as it would come in now: how old rows are held to the same rules."""
    return EntryDraft(
        content=entry.content,
        type=entry.type,
        role=entry.role,
        session_key=entry.session_key,
        agent_id=entry.agent_id,
        space_id=entry.space_id,
        topic_id=entry.topic_id,
        task_id=entry.task_id,
        related_id=entry.related_id,
        status=entry.status,
        code=entry.code,
        source=None if entry.source is None else without_claims(entry.source),
    )


def _board_ids(session_key: str | None) -> tuple[str | None, str | None]:
    try:
        key = board_key_of(session_key)
    except InvalidInput:
        return None, None
    if key is None:
        return None, None
    return key.topic_id, key.task_id if isinstance(key, BoardTaskKey) else None


def _spaces(tx: Tx, draft: EntryDraft, ids: list[str]) -> frozenset[str]:
    """The spaces that may be meant. One that the row itself names is taken at its word, known or not."""
    if not ids:
        return frozenset()
    return frozenset(spaces.known(tx, ids)) | frozenset({draft.space_id} if draft.space_id else ())


def _related(tx: Tx, related_id: str | None) -> Scope | None:
    found = entries.get_many(tx, [related_id]) if related_id else []
    return Scope(found[0].topic_id, found[0].task_id, found[0].space_id, "related") if found else None


def _ids(values: Iterable[object]) -> list[str]:
    return sorted({one.strip() for one in values if isinstance(one, str) and 0 < len(one) <= MAX_ID} - {""})


def _topics(tx: Tx, ids: list[str]) -> dict[str, str]:
    """Those that the writer may name: one that is not theirs to read is not there for them."""
    found = _TOPICS.rows(tx, ids=ids) if ids else []
    return {id_: space for id_, space, audience in found if tx.reader.may_read(audience)}


def _tasks(tx: Tx, ids: list[str]) -> dict[str, str]:
    found = _TASKS.rows(tx, ids=ids) if ids else []
    return {id_: topic for id_, topic, audience in found if tx.reader.may_read(audience)}


def _is_child(draft: EntryDraft) -> bool:
    """Only sessions of subagents are linked, so that all others cost no look-up."""
    key = noise.key_of(draft.session_key)
    return key is not None and key.is_subagent


_TOPICS: Final = Query("SELECT id, space_id, audience FROM topics WHERE id IN :ids")
_TASKS: Final = Query("SELECT id, topic_id, audience FROM tasks WHERE id IN :ids")
