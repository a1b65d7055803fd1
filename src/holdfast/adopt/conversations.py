"""Conversations and notes that were kept elsewhere, written into the log: whole, in order, and once.

Each reader of a foreign form gives `Conversation`s; this writes them. Who runs an import again, or had hooks
log a session while it went on, gets only what is not there yet.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import sqlalchemy as sa

from holdfast.adopt.report import Report
from holdfast.board.ingest import prepare_all
from holdfast.errors import HoldfastError
from holdfast.log import FOR_OWNER, OWNER, EntryDraft, EntryType, Tx, entries
from holdfast.log.tables import entries as table
from holdfast.text import clean_json, clean_text

if TYPE_CHECKING:
    from holdfast.runtime import Holdfast

BATCH: Final = 100
MOST_TEXT: Final = 1024 * 1024
MOST_RAW: Final = 16_000
Kind = Literal["user", "assistant", "action", "note"]


@dataclass(frozen=True, slots=True)
class Message:
    """One thing that was said, done or noted. `id` is its own where it comes from, and stays the same;
    what has none is known by its words.

    `logged_as`: the key under which a hook may have logged it, in other words.
    """

    id: str
    kind: Kind
    text: str
    at: int | None = None
    raw: str | None = None
    logged_as: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What stands under one session key; `origin` names the program that it comes from."""

    origin: str
    key: str
    messages: tuple[Message, ...]
    title: str = ""
    source: Mapping[str, Any] = field(default_factory=dict)


def take_over(
    hold: Holdfast, conversations: Iterable[Conversation], report: Report, *, dry_run: bool
) -> Report:
    """Write what is not in the log yet. What cannot be written is noted, and the rest goes on."""
    for found in conversations:
        one = replace(found, key=clean_text(found.key))
        report.begin(one.title or one.key)
        try:
            added = _take_over(hold, one, dry_run=dry_run)
        except HoldfastError as error:
            report.note("sessions", "failed", one.key, error.message)
            continue
        report.entries_added += added
        known = len(one.messages) - added
        report.count("sessions", "unchanged" if not added else "grown" if known else "added")
    return report


def _take_over(hold: Holdfast, conversation: Conversation, *, dry_run: bool) -> int:
    with hold.store.read(OWNER) as tx:
        new = _not_known(tx, conversation)
    if dry_run:
        return len(new)
    for start in range(0, len(new), BATCH):
        drafts = [_draft(conversation, one, key) for key, one in new[start : start + BATCH]]

        def write(tx: Tx, drafts: list[EntryDraft] = drafts) -> None:
            entries.append_many(tx, prepare_all(tx, drafts, hold.settings.board))

        hold.store.run(OWNER, write)
    return len(new)


def _not_known(tx: Tx, conversation: Conversation) -> list[tuple[str, Message]]:
    """The messages whose id is not in the log, and whose words no hook has logged under this key."""
    keys = _keys(conversation)
    known: set[str] = set()
    ordered = [*keys, *(one.logged_as for one in keys.values() if one.logged_as)]
    for start in range(0, len(ordered), 500):
        part = table.c.idempotency_key.in_(ordered[start : start + 500])
        known |= set(tx.conn.execute(sa.select(table.c.idempotency_key).where(part)).scalars())
    said = _logged_by_hooks(tx, conversation)
    new = []
    for key, message in keys.items():
        mark = _mark(message.kind, message.text)
        if key in known or message.logged_as in known:
            continue
        if said[mark] > 0:
            said[mark] -= 1
            continue
        new.append((key, message))
    return new


def _logged_by_hooks(tx: Tx, conversation: Conversation) -> Counter[str]:
    """How often each text stands under the key already, from elsewhere than an import."""
    found: Counter[str] = Counter()
    columns = (table.c.content, table.c.raw, table.c.agent_id, table.c.type, table.c.idempotency_key)
    query = sa.select(*columns).where(table.c.session_key == conversation.key, table.c.deleted_at.is_(None))
    for content, raw, agent, type_, key in tx.conn.execute(query):
        if str(key or "").startswith(f"import:{conversation.origin}:"):
            continue
        kind = "action" if type_ == EntryType.ACTION else "user" if agent == "user" else "assistant"
        found[_mark(kind, content if kind == "action" or raw is None else raw)] += 1
    return found


def _mark(kind: str, text: str) -> str:
    return hashlib.sha256(f"{kind}\n{' '.join(clean_text(text).split())}".encode()).hexdigest()


def _keys(conversation: Conversation) -> dict[str, Message]:
    """The messages by their keys; one without an id is known by its words and which of them it is."""
    found: dict[str, Message] = {}
    times: Counter[str] = Counter()
    for message in conversation.messages:
        if not message.text.strip():
            continue
        words = _mark(message.kind, message.text)
        key = _key(conversation, message.id or f"{words}:{times[words]}")
        times[words] += 1
        if key in found and _mark(found[key].kind, found[key].text) != words:
            key = _key(conversation, f"{message.id}:{words}")
        found.setdefault(key, message)
    return found


def _key(conversation: Conversation, id_: str) -> str:
    named = f"{conversation.key}\n{id_}"
    return f"import:{conversation.origin}:{hashlib.sha256(named.encode('utf-8', 'replace')).hexdigest()[:40]}"


def _draft(conversation: Conversation, message: Message, key: str) -> EntryDraft:
    own = message.kind == "user"
    source = {"channel": conversation.origin, "sessionKey": conversation.key, "imported": True}
    titled = {"title": conversation.title} if conversation.title else {}
    types = {"action": EntryType.ACTION, "note": EntryType.NOTE}
    return EntryDraft(
        content=clean_text(message.text[:MOST_TEXT]),
        type=types.get(message.kind, EntryType.CONVERSATION),
        audience=FOR_OWNER,
        role="user" if own else None,
        session_key=conversation.key,
        agent_id="user" if own else conversation.origin,
        agent_label=None if own else conversation.origin,
        raw=None if message.raw is None else clean_text(message.raw[:MOST_RAW]),
        source=clean_json({**source, **titled, **conversation.source}),
        idempotency_key=key,
        created_at=message.at,
    )
