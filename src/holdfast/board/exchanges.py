"""Exchanges: what a person said and what was answered, which is the unit that is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.board.semantic import semantic_text
from holdfast.log import FOR_OWNER, Audience, Entry, EntryType, Reader, Tx, entries, heard_by, meet, sessions


@dataclass(frozen=True, slots=True)
class Exchange:
    """Entries in the order of the log. `reply` says that it begins with an answer to something earlier."""

    entries: tuple[Entry, ...]
    reply: bool = False

    @property
    def text(self) -> str:
        return "\n".join(text for entry in self.entries if (text := semantic_text(entry)))

    @property
    def audience(self) -> Audience:
        """Who may read all of it."""
        return meet(entry.audience for entry in self.entries)

    @property
    def given_space(self) -> str | None:
        """The space that its writer gave it, if one did."""
        return self.entries[0].given_space

    def hearers(self, tx: Tx) -> Reader:
        """All who hear it, as one reader: it is sorted by what they may read, into what they may see."""
        key = self.entries[0].session_key
        space = None if self.audience == FOR_OWNER or key is None else sessions.given_space(tx, key)
        return heard_by(self.audience, frozenset(() if space is None else (space,)))

    @property
    def asked(self) -> str:
        """What the person said; all of it when none of it is a person's."""
        return "\n".join(semantic_text(e) for e in self.entries if is_person(e)) or self.text


def is_person(entry: Entry) -> bool:
    """Whether a person said it: by its role, else by its agent id; without either it counts as one's."""
    if entry.type is not EntryType.CONVERSATION:
        return False
    if entry.role is not None:
        return entry.role == "user"
    return entry.agent_id in (None, "user")


def split(found: Sequence[Entry]) -> list[Exchange]:
    """Cut wherever a person speaks: what is not about the same is then free to part."""
    groups: list[list[Entry]] = []
    for entry in found:
        if not groups or is_person(entry):
            groups.append([])
        groups[-1].append(entry)
    return [Exchange(tuple(group), reply=not is_person(group[0])) for group in groups]


def before(tx: Tx, entry: Entry, *, limit: int) -> list[Entry]:
    """What the session said before an entry, oldest first; nothing for an entry without a session."""
    return [] if entry.session_key is None else entries.preceding(tx, entry, limit=limit)
