"""What people do to messages later: they change them, take them back, or put a sign to them.

The log follows, so that no model is shown what is not there any more; a turn that waits answers the new
words, or is not run. The agent is told with its next turn of what it has answered already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.channels import marks
from holdfast.channels.inbound import Changed
from holdfast.context import Trust
from holdfast.log import Entry, EntryFilter, NoteDraft, TurnStatus, Tx, entries, notes, turns
from holdfast.text import clip

KIND: Final = "message-changed"
MOST_LOOKED: Final = 300
MOST_QUOTED: Final = 600


@dataclass(frozen=True, slots=True)
class Outcome:
    """`found`: the message was in the log. `stops`: the turn that nothing is left to answer for."""

    found: bool = False
    stops: str | None = None


def follow(tx: Tx, change: Changed, session_key: str, words: str | None) -> Outcome:
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
    if not marks.is_ours(tx, change.surface.channel, change.message_id):
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
            key=f"{KIND}:{change.surface.address}:{change.message_id}:{tx.now}",
            session_key=about.session_key,
            audience=about.audience,
            kind=KIND,
            text=text,
            trust=Trust.OUTSIDE.label,
            source=f"channel/{change.surface.channel}",
        ),
    )


def _who(change: Changed) -> str:
    return clip(" ".join((change.sender_name or change.sender).split()), 80) or "Somebody"
