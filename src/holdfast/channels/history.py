"""What was said before: given with the message that is answered, as words from outside, only quoted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.channels.inbound import Inbound
from holdfast.channels.transport import Said
from holdfast.clock import iso
from holdfast.context import Trust
from holdfast.context.transcript import SAID_BEFORE
from holdfast.log import (
    Audience,
    Classification,
    Entry,
    EntryDraft,
    EntryFilter,
    EntryType,
    NoteDraft,
    Tx,
    entries,
    meet,
    notes,
)
from holdfast.text import clip

KIND: Final = SAID_BEFORE
UNANSWERED: Final = "unanswered"
MOST_CHARS: Final = 48_000
MOST_LINE: Final = 2_000
_MORE: Final = 200

BEFORE: Final = "Said in this group since the agent was last spoken to, and not answered:"
WITHIN: Final = "Said in this thread before the agent was spoken to there:"
ABOVE: Final = "Said in the channel before this thread began:"


def keep(tx: Tx, message: Inbound, session_key: str, agent_id: str, heard: Audience) -> Entry:
    """A message that is not answered, in the log for people and for what comes later; in no transcript."""
    source = {
        "channel": message.surface.channel,
        "surface": message.surface.address,
        "messageId": message.message_id,
        "sender": message.sender,
        "agent": agent_id,
        UNANSWERED: True,
    }
    draft = EntryDraft(
        content=message.text,
        audience=heard,
        role="user",
        agent_id="user",
        agent_label=message.speaker,
        session_key=session_key,
        status=Classification.CLASSIFIED,
        code="filtered_non_semantic",
        source=source,
        idempotency_key=f"heard:{message.key}",
    )
    return entries.append(tx, draft).entry


def give_unanswered(tx: Tx, message: Inbound, session_key: str, limit: int) -> int:
    """Leave for the next turn what was said here since the last message that was answered; how many."""
    if limit <= 0:
        return 0
    newest = entries.listing(tx, EntryFilter(session_key=session_key), limit=min(1000, limit + _MORE)).entries
    found: list[Entry] = []
    for entry in newest:
        source = entry.source or {}
        if source.get("surface") != message.surface.address:
            continue
        if not source.get(UNANSWERED):
            break
        found.append(entry)
    _leave(tx, session_key, f"{KIND}:{message.key}", BEFORE, found[:limit], message.surface.channel)
    return len(found[:limit])


def give_parent(tx: Tx, message: Inbound, session_key: str, session_id: str, parent: str, limit: int) -> int:
    """Leave for a thread's first turn what was said where it was opened; how many messages these are."""
    if limit <= 0:
        return 0
    spoken = EntryFilter(session_key=parent, types=frozenset({EntryType.CONVERSATION}))
    newest = entries.listing(tx, spoken, limit=min(1000, limit + _MORE)).entries
    found = [entry for entry in newest if _is_said(entry)][:limit]
    _leave(tx, session_key, f"{KIND}:thread:{session_id}", ABOVE, found, message.surface.channel)
    return len(found)


def give_thread(tx: Tx, message: Inbound, session_key: str, heard: Audience, found: Sequence[Said]) -> int:
    """Leave for a thread's first turn what the service has of it; how many messages these are."""
    said = [one for one in found if one.text.strip()]
    if not said:
        return 0
    text = f"{WITHIN}\n{quoted_lines(said)}"
    key = f"{KIND}:within:{message.surface.address}:{message.message_id}"
    _post(tx, session_key, key, text, heard, message.surface.channel)
    return len(said)


def quoted_lines(said: Sequence[Said], most: int = MOST_CHARS) -> str:
    """The same for what a service tells, which comes oldest first."""
    lines: list[str] = []
    for one in reversed(said):
        who = "agent" if one.ours else clip(" ".join(one.who.split()), 80) or "someone"
        line = f"[{iso(one.at)[:16].replace('T', ' ')}] {who}: {clip(' '.join(one.text.split()), MOST_LINE)}"
        most -= len(line) + 1
        if most < 0:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def quoted(found: Iterable[Entry], most: int = MOST_CHARS) -> str:
    """Lines of who said what when, oldest first; where they are too many, the oldest go."""
    lines: list[str] = []
    room = most
    for entry in found:
        who = entry.agent_label or ("agent" if entry.role == "assistant" else "someone")
        said = clip(" ".join(entry.content.split()), MOST_LINE)
        line = f"[{iso(entry.created_at)[:16].replace('T', ' ')}] {who}: {said}"
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _leave(tx: Tx, session_key: str, key: str, head: str, found: Sequence[Entry], channel: str) -> None:
    if not found:
        return
    heard = meet(entry.audience for entry in found)
    _post(tx, session_key, key, f"{head}\n{quoted(found)}", heard, channel)


def _post(tx: Tx, session_key: str, key: str, text: str, heard: Audience, channel: str) -> None:
    notes.post(
        tx,
        NoteDraft(
            key=key,
            session_key=session_key,
            audience=heard,
            kind=KIND,
            text=text,
            trust=Trust.OUTSIDE.label,
            source=f"channel/{channel}",
        ),
    )


def _is_said(entry: Entry) -> bool:
    """Words of people and of the agent; not tools' results, nor what the runtime noted."""
    source = entry.source or {}
    return entry.role in ("user", "assistant") and bool(entry.content.strip()) and "note" not in source
