"""Sessions as transcripts: what was imported comes back as it was, and ours is chained on behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Final

from holdfast.log import entries, sessions
from holdfast.log.audience import SYSTEM
from holdfast.log.entries import Entry
from holdfast.log.sessions import Session
from holdfast.log.store import Store, Tx
from holdfast.log.transcripts import (
    BadLine,
    CompactionLine,
    Header,
    Line,
    MessageLine,
    from_raw,
    header_for,
    line_of_entry,
    markdown_parts,
    write_transcript,
)
from holdfast.log.transcripts.drafts import IMPORT_PREFIX

PAGE: Final = 250


def export_transcript(store: Store, session: Session | str, out: IO[bytes], *, cwd: str = "") -> int:
    """Write a session as OpenClaw's JSONL; returns the number of lines."""
    with store.read(SYSTEM) as tx:
        found = sessions.find(tx, session) if isinstance(session, str) else session
        return write_transcript(session_lines(tx, found, cwd=cwd), out)


def export_markdown(store: Store, session: Session | str, out: IO[bytes]) -> int:
    """Write who said what in a session, to be read by people; returns the number of messages."""
    count = 0
    with store.read(SYSTEM) as tx:
        found = sessions.find(tx, session) if isinstance(session, str) else session
        for part in markdown_parts(session_lines(tx, found)):
            out.write((b"\n" if count else b"") + part.encode())
            count += 1
    return count


def session_lines(tx: Tx, session: Session, *, cwd: str = "") -> Iterator[Line]:
    """A session's lines: those that were imported as they were, then ours, chained on behind them."""
    parent: str | None = None
    imported = False
    for entry in _entries(tx, session.id):
        if is_imported(entry):
            line = _as_it_was(entry)
            imported = True
            parent = parent if isinstance(line, BadLine | Header) else line.id or parent
            yield line
    if not imported:
        yield header_for(session.id, session.created_at, cwd)
    for entry in _entries(tx, session.id):
        if not is_imported(entry):
            yield line_of_entry(entry, parent)
            parent = entry.id


def is_imported(entry: Entry) -> bool:
    """Whether an entry is a line that came in by an import."""
    return entry.raw is not None and (entry.idempotency_key or "").startswith(IMPORT_PREFIX)


def _entries(tx: Tx, session_id: str) -> Iterator[Entry]:
    after = 0
    while page := entries.transcript(tx, session_id, after=after, limit=PAGE):
        yield from page
        after = page[-1].position


def _as_it_was(entry: Entry) -> Line:
    """The line of an imported entry; one whose text was corrected since has the new text in it."""
    line = next(from_raw([entry.raw or ""]))
    if entry.revision and isinstance(line, MessageLine):
        return replace(line, message={**line.message, "content": entry.content})
    if entry.revision and isinstance(line, CompactionLine):
        return replace(line, summary=entry.content)
    return line
