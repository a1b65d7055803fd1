"""Who may read what is written to the board, and letting more people read it.

The audience of what comes in is told by who writes it, and where: never by what it says or where it is
sorted. To share more widely is an act of somebody who may read it all; `Shared` is what goes into the audit
trail.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import sqlalchemy as sa
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.board import spaces, tasks, topics
from holdfast.board.tables import spaces as space_table
from holdfast.board.tables import tasks as task_table
from holdfast.board.tables import topics as topic_table
from holdfast.board.tags import DEFAULT_NAME, DEFAULT_SPACE, Label
from holdfast.board.visibility import EVERYTHING, spaces_of_tasks, spaces_of_topics
from holdfast.errors import Conflict, Forbidden
from holdfast.keys import board_key_of
from holdfast.log import (
    FOR_OWNER,
    Audience,
    EntryDraft,
    EntryFilter,
    Tx,
    changes,
    covers,
    entries,
    for_space,
    parse_audience,
    sessions,
    space_of,
    surfaces,
)
from holdfast.log.surfaces import Declared
from holdfast.records import record

MOST_SHARED = 5_000


def mark_shared(tx: Tx, space_ids: frozenset[str] | None) -> None:
    """Somebody else holds these spaces from now on: what is put into them by name is theirs to read too."""
    if DEFAULT_SPACE in (space_ids or ()):
        spaces.ensure(tx, [Label(DEFAULT_SPACE, DEFAULT_NAME)])
    for id_ in sorted(space_ids or ()):
        tx.conn.execute(sa.update(space_table).where(space_table.c.id == id_).values(shared=True))


def is_shared(tx: Tx, space_id: str) -> bool:
    query = sa.select(space_table.c.shared).where(space_table.c.id == space_id)
    return bool(tx.conn.execute(query).scalar())


def for_placed(tx: Tx, space_id: str | None, held: frozenset[str] | None) -> Audience:
    """The audience of what somebody puts into a space by name: topics, tasks, files, entries.

    `held` are the spaces that the writer is limited to; None for the owner.
    """
    if held is not None:
        if space_id is None or space_id not in held:
            raise outside()
        return for_space(space_id)
    return for_space(space_id) if space_id is not None and is_shared(tx, space_id) else FOR_OWNER


def for_draft(
    tx: Tx, draft: EntryDraft, declared: Declared, *, held: frozenset[str] | None, may_widen: bool
) -> Audience:
    """The audience of an entry that comes in over an interface: by its surface, then by the space it names.

    A host that knows better says so in `source.audience`: narrower always, wider only if its token may.
    """
    if held is not None:
        named = for_space(_named_space(tx, draft, held))
    else:
        named = heard_under_key(tx, draft.session_key, declared)
        if named == FOR_OWNER:
            named = for_placed(tx, _explicit_space(draft), None)
    asked = (draft.source or {}).get("audience")
    return named if asked is None else _asked(str(asked), named, may_widen=may_widen)


def heard_under_key(tx: Tx, key: str | None, declared: Declared) -> Audience:
    """Who hears what is said under a session's key; a chat about a shared topic is that topic's."""
    board = board_key_of(key)
    if board is None:
        return surfaces.heard_under(tx, key, declared)
    query = sa.select(topic_table.c.audience).where(topic_table.c.id == board.topic_id)
    of_topic = tx.conn.execute(query).scalar()
    return Audience(of_topic) if of_topic is not None and space_of(of_topic) is not None else FOR_OWNER


def outside() -> Forbidden:
    return Forbidden(
        "this token may write only to its own spaces",
        code="space_forbidden",
        hint="Send a spaceId that it may see.",
    )


def _asked(asked: str, named: Audience, *, may_widen: bool) -> Audience:
    wanted = parse_audience(asked)
    if covers(named, wanted) or (may_widen and covers(wanted, named)):
        return wanted
    raise Forbidden(
        f"this would be read by others than {named!r}",
        code="audience_forbidden",
        hint="Leave source.audience out, or name a narrower one.",
    )


def _explicit_space(draft: EntryDraft) -> str | None:
    claimed = (draft.source or {}).get("boardScopeSpaceId")
    return draft.space_id or (claimed if isinstance(claimed, str) and claimed else None)


def _named_space(tx: Tx, draft: EntryDraft, held: frozenset[str]) -> str:
    """The space that a limited writer puts an entry into: the one it names, else its topic's or task's."""
    explicit = _explicit_space(draft)
    if explicit is not None:
        if explicit not in held:
            raise outside()
        return explicit
    board = board_key_of(draft.session_key)
    topic_ids = [draft.topic_id, None if board is None else board.topic_id]
    found: frozenset[str] = frozenset()
    for members in (spaces_of_topics(tx, topic_ids), spaces_of_tasks(tx, [draft.task_id])):
        found = found or frozenset().union(*members.values()) & held
    if not found:
        raise outside()
    return min(found)


@record
class SharedOut(TypedDict):
    kind: Literal["entry", "topic", "session"]
    id: str
    before: str
    audience: str
    entries: Annotated[int, Field(description="How many entries can be read by more people now.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One act of sharing: what, how far it could be read before, and how far now."""

    kind: Literal["entry", "topic", "session"]
    id: str
    before: Audience
    after: Audience
    entries: int = 0

    def json(self) -> SharedOut:
        return {
            "kind": self.kind,
            "id": self.id,
            "before": self.before,
            "audience": self.after,
            "entries": self.entries,
        }


def share_entry(tx: Tx, id_: str, audience: Audience) -> Shared:
    """Let more people read one entry."""
    before = entries.get(tx, id_)
    after = entries.widen(tx, id_, audience)
    return Shared(kind="entry", id=id_, before=before.audience, after=after.audience, entries=1)


def share_topic(tx: Tx, id_: str, audience: Audience, *, with_entries: bool) -> Shared:
    """Let more people see a topic with its tasks; what was said under it only if that is asked for.

    Its digest goes: the next one is made from what all of its readers may read.
    """
    topic = topics.get(tx, id_, EVERYTHING)
    _require_wider(topic.audience, audience)
    topics.require_free_name(tx, replace(topic, audience=audience))
    values = {"audience": audience, "digest": None, "digest_updated_at": None}
    tx.conn.execute(sa.update(topic_table).where(topic_table.c.id == id_).values(**values))
    changes.emit(tx, "topic.upserted", id_)
    for task in tasks.of_topic(tx, id_):
        if covers(audience, task.audience):
            tx.conn.execute(sa.update(task_table).where(task_table.c.id == task.id).values(**values))
            changes.emit(tx, "task.upserted", task.id)
    count = _share_entries(tx, EntryFilter(topic_id=id_), audience) if with_entries else 0
    return Shared(kind="topic", id=id_, before=topic.audience, after=audience, entries=count)


def share_session(tx: Tx, key: str, audience: Audience) -> Shared:
    """Let more people read what was said in a session so far, and hear what is said in it from now on."""
    session = sessions.find(tx, key)
    _require_wider(session.audience, audience)
    count = _share_entries(tx, EntryFilter(session_id=session.id), audience)
    sessions.update(tx, session, audience=audience)
    return Shared(kind="session", id=session.key, before=session.audience, after=audience, entries=count)


def _share_entries(tx: Tx, where: EntryFilter, audience: Audience) -> int:
    """Widen what can be; what others hear already, and these would not, stays as it is."""
    count, cursor = 0, None
    while count < MOST_SHARED:
        page = entries.listing(tx, where, limit=entries.MAX_PAGE, cursor=cursor)
        for entry in page.entries:
            if entry.audience != audience and covers(audience, entry.audience):
                entries.widen(tx, entry.id, audience)
                count += 1
        cursor = page.next
        if cursor is None:
            break
    return count


def _require_wider(before: str, after: Audience) -> None:
    if not covers(after, before):
        raise Conflict(
            f"not everyone who may read it now is among {after!r}",
            code="audience_narrower",
            hint="An audience is only ever widened.",
        )
