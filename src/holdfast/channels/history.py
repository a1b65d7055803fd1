"""What was said before: quoted with the message that is answered, and changed or taken back later.

The log follows, so that no model is shown what is not there any more; a turn that waits answers the new
words, or is not run. The agent is told with its next turn of what it has answered already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.channels import progress
from holdfast.channels.inbound import Changed, Inbound
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
    TurnStatus,
    Tx,
    entries,
    meet,
    notes,
    turns,
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


NOTE_KIND: Final = "message-changed"
MOST_LOOKED: Final = 300
MOST_QUOTED: Final = 600


@dataclass(frozen=True, slots=True)
class Outcome:
    """`found`: the message was in the log. `stops`: the turn that nothing is left to answer for."""

    found: bool = False
    stops: str | None = None


def follow_change(tx: Tx, change: Changed, session_key: str, words: str | None) -> Outcome:
    """Have the log say what the service says; `words` are the new ones as the log writes them."""
    if change.sign is not None:
        return _signed(tx, change, session_key)
    entry = _find(tx, change, session_key)
    if entry is None or not _is_theirs(entry, change):
        return Outcome()
    answered = entry.turn_id is not None and turns.get(tx, entry.turn_id).status is not TurnStatus.ACCEPTED
    if words is not None:
        if entry.content == words:
            return Outcome(found=True)
        entries.correct(tx, entry.id, words)
        if answered:
            said = f"{_who(change)} changed an earlier message; it says now:\n{clip(words, MOST_QUOTED)}"
            _tell(tx, change, entry, said)
        return Outcome(found=True)
    entries.delete(tx, entry.id)
    if answered:
        _tell(tx, change, entry, f"{_who(change)} deleted an earlier message, which you have answered.")
    return Outcome(True, None if answered or not _alone(tx, entry) else entry.turn_id)


def _find(tx: Tx, change: Changed, session_key: str) -> Entry | None:
    newest = entries.listing(tx, EntryFilter(session_key=session_key), limit=MOST_LOOKED).entries
    named = (change.surface.address, change.message_id)
    for entry in newest:
        source = entry.source or {}
        if entry.role == "user" and (source.get("surface"), source.get("messageId")) == named:
            return entry
    return None


def _is_theirs(entry: Entry, change: Changed) -> bool:
    """Words are changed by who said them; those who keep order in a group may take any back."""
    said_by = str((entry.source or {}).get("sender") or "")
    return change.text is None or said_by.removeprefix(f"{change.surface.channel}:") == change.sender


def _alone(tx: Tx, entry: Entry) -> bool:
    """Whether a turn has no other words to answer."""
    own = entries.listing(tx, EntryFilter(turn_id=entry.turn_id), limit=20).entries
    return not any(one.role == "user" and one.id != entry.id for one in own)


def _signed(tx: Tx, change: Changed, session_key: str) -> Outcome:
    if not progress.is_ours(tx, change.surface.channel, change.message_id):
        return Outcome()
    newest = entries.listing(tx, EntryFilter(session_key=session_key), limit=1).entries
    if not newest:
        return Outcome()
    sign = clip(" ".join((change.sign or "").split()), 40)
    _tell(tx, change, newest[0], f"{_who(change)} reacted to a message of yours with {sign}.")
    return Outcome(found=True)


def _tell(tx: Tx, change: Changed, about: Entry, text: str) -> None:
    if about.session_key is None:
        return
    notes.post(
        tx,
        NoteDraft(
            key=f"{NOTE_KIND}:{change.surface.address}:{change.message_id}:{tx.now}",
            session_key=about.session_key,
            audience=about.audience,
            kind=NOTE_KIND,
            text=text,
            trust=Trust.OUTSIDE.label,
            source=f"channel/{change.surface.channel}",
        ),
    )


def _who(change: Changed) -> str:
    return clip(" ".join((change.sender_name or change.sender).split()), 80) or "Somebody"
