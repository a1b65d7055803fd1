"""Sessions as files: exported as transcripts, and taken in again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.ids import AgentId, SessionId
from holdfast.keys import SessionKey, canonical_key, parse_key
from holdfast.log import entries, sessions
from holdfast.log.audience import SYSTEM, of_key
from holdfast.log.entry_model import Entry, EntryDraft
from holdfast.log.sessions import Session, SessionStatus
from holdfast.log.store import Store, Tx
from holdfast.log.tables import entries as table
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
    read_transcript,
    to_drafts,
    write_transcript,
)
from holdfast.log.transcripts.native import IMPORT_PREFIX, is_open

BATCH_LINES: Final = 250
BATCH_CHARS: Final = 4_000_000
MAX_FAULTS: Final = 20

_SESSION_ID: Final = re.compile(r"[\w.:@+-]{1,200}")
_EPOCH: Final = Millis(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """How a session comes in. `current` lets it be the active one of its key, if there is none yet."""

    key: SessionKey
    session_id: SessionId
    agent_id: AgentId
    current: bool = True
    started_at: Millis = _EPOCH
    archived_at: Millis | None = None
    cause: str = "import"
    known: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, or would do. `faults` are the first bad lines, which are kept as they stand."""

    session_id: SessionId
    key: str
    created: bool
    lines: int
    added: int
    bad_lines: int
    faults: tuple[BadLine, ...] = ()

    @property
    def changed(self) -> bool:
        return self.created or self.added > 0


def import_transcript(
    store: Store,
    file: Path,
    key: str,
    *,
    session_id: str | None = None,
    agent_id: str | None = None,
    current: bool = True,
    archived_at: int | None = None,
    cause: str = "import",
    known: Mapping[str, Any] | None = None,
    lenient: bool = False,
    dry_run: bool = False,
) -> Imported:
    """Take in a JSONL transcript as a session of `key`; again, only what the file has gained is added.

    The session's id is the one given, else the header's, else the file's name. A file that does not begin
    like a transcript is refused, unless `lenient`.
    """
    parsed = parse_key(canonical_key(key))
    with _opened(file) as stream:
        lines = read_transcript(stream)
        first = next(lines, None)
        _check_start(file, first, lenient)
        arrival = Arrival(
            key=parsed.key,
            session_id=_usable_id(session_id, _header_id(first), file.name.partition(".jsonl")[0]),
            agent_id=AgentId(agent_id or parsed.agent_id or "main"),
            current=current,
            started_at=Millis(int(file.stat().st_mtime * 1000)),
            archived_at=None if archived_at is None else Millis(archived_at),
            cause=cause,
            known=known or {},
        )
        return import_lines(store, chain([first] if first else [], lines), arrival, dry_run=dry_run)


def import_lines(
    store: Store, lines: Iterable[Line], arrival: Arrival, *, dry_run: bool = False, by_id: bool = False
) -> Imported:
    """Take in lines from anywhere. With `by_id` a line whose id the session has already is passed over,
    even where its text differs: the same events may have been imported in another form before."""
    there = _session_there(store, arrival)
    met = _Met(set() if not by_id else _message_ids(store, arrival.session_id))
    drafts = to_drafts(
        met.watch(lines),
        arrival.key,
        arrival.session_id,
        arrival.agent_id,
        default_at=arrival.started_at,
    )
    created = there is None
    added = 0
    for batch in _batches(drafts):
        met.note_times(batch)
        known = _known(store, batch)
        missing = [d for d in batch if d.idempotency_key not in known]
        ended = [d for d in batch if is_open(known.get(d.idempotency_key) or "") and not is_open(d.raw or "")]
        if dry_run or not (missing or ended or there is None):
            added += len(missing)
            continue
        with store.write(SYSTEM) as tx:
            if there is None:
                there = _make(tx, arrival, batch)
            added += _write(tx, there.id, missing, ended)
    if there is not None and added and not dry_run:
        _bring_up_to_date(store, there.id, arrival, met)
    return Imported(
        arrival.session_id, arrival.key, created, met.lines, added, met.bad_lines, tuple(met.faults)
    )


class _Met:
    """What goes by while lines are read: their number, the bad ones, and the times of the last."""

    def __init__(self, known_ids: set[str]) -> None:
        self.known_ids = known_ids
        self.lines = 0
        self.bad_lines = 0
        self.faults: list[BadLine] = []
        self.last_at = 0
        self.last_user_at = 0

    def watch(self, lines: Iterable[Line]) -> Iterator[Line]:
        for line in lines:
            self.lines += 1
            if isinstance(line, BadLine):
                if line.fault != "blank":
                    self.bad_lines += 1
                    self.faults += [line] * (len(self.faults) < MAX_FAULTS)
            elif line.id in self.known_ids:
                continue
            yield line

    def note_times(self, batch: Iterable[EntryDraft]) -> None:
        for draft in batch:
            at = draft.created_at or 0
            self.last_at = max(self.last_at, at)
            if draft.role == "user":
                self.last_user_at = max(self.last_user_at, at)


def _opened(file: Path) -> IO[bytes]:
    try:
        return file.open("rb")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {file}", hint="Give the path of a .jsonl transcript.") from error
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read: {error.strerror}", hint="Check its permissions."
        ) from error


def _check_start(file: Path, first: Line | None, lenient: bool) -> None:
    if first is None:
        raise InvalidInput(f"{file} is empty", hint="Give an OpenClaw transcript: JSON lines.")
    if isinstance(first, BadLine) and not lenient:
        raise InvalidInput(
            f"{file}, line 1: not a transcript: {first.reason}",
            hint="Give an OpenClaw transcript: JSON lines.",
        )


def _header_id(first: Line | None) -> str | None:
    return first.id if isinstance(first, Header) else None


def _usable_id(*candidates: str | None) -> SessionId:
    for text in candidates:
        if text and _SESSION_ID.fullmatch(text):
            return SessionId(text)
    raise InvalidInput("the transcript names no usable session id", hint="Rename the file to <id>.jsonl.")


def _session_there(store: Store, arrival: Arrival) -> Session | None:
    with store.read(SYSTEM) as tx:
        found = sessions.get_many(tx, [arrival.session_id])
    if found and found[0].key != arrival.key:
        raise Conflict(
            f"session {arrival.session_id} is here already, under the key {found[0].key}",
            code="session_known",
            hint=f"Import it with --key {found[0].key}.",
        )
    return found[0] if found else None


def _batches(drafts: Iterable[EntryDraft]) -> Iterator[list[EntryDraft]]:
    batch: list[EntryDraft] = []
    chars = 0
    for draft in drafts:
        batch.append(draft)
        chars += len(draft.raw or "")
        if len(batch) >= BATCH_LINES or chars >= BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _known(store: Store, batch: Iterable[EntryDraft]) -> dict[str | None, str | None]:
    """Which of these are in the log already, with their `raw`."""
    query = sa.select(table.c.idempotency_key, table.c.raw)
    keys = [draft.idempotency_key for draft in batch]
    with store.read(SYSTEM) as tx:
        rows = tx.conn.execute(query.where(table.c.idempotency_key.in_(keys)))
        return {row.idempotency_key: row.raw for row in rows}


def _message_ids(store: Store, session_id: str) -> set[str]:
    query = sa.select(table.c.source["messageId"].as_string()).where(table.c.session_id == session_id)
    with store.read(SYSTEM) as tx:
        return {id_ for id_ in tx.conn.execute(query).scalars() if id_}


def _make(tx: Tx, arrival: Arrival, batch: list[EntryDraft]) -> Session:
    parsed = parse_key(arrival.key)
    began = Millis(batch[0].created_at or tx.now)
    active = arrival.current and arrival.archived_at is None and sessions.active(tx, arrival.key) is None
    values: dict[str, Any] = {
        "agent_id": parsed.agent_id or arrival.agent_id,
        "chat_type": parsed.chat_type,
        "channel": parsed.channel,
        "created_at": began,
        "updated_at": began,
        "last_external_at": began,
    }
    if not active:
        values |= {"archived_at": arrival.archived_at or tx.now, "archive_cause": arrival.cause}
    values |= {name: value for name, value in arrival.known.items() if value is not None}
    status = SessionStatus.ACTIVE if active else SessionStatus.ARCHIVED
    values.setdefault("audience", of_key(arrival.key))
    return sessions.adopt(tx, Session(id=arrival.session_id, key=arrival.key, status=status, **values))


def _write(tx: Tx, session_id: str, missing: list[EntryDraft], ended: list[EntryDraft]) -> int:
    """Append what is new. A last line that had been torn off gives way to the whole line."""
    torn = _open_end(tx, session_id)
    if missing and torn is not None and torn.idempotency_key not in {d.idempotency_key for d in ended}:
        entries.delete(tx, torn.id)
    for draft in ended:
        match = sa.update(table).where(table.c.idempotency_key == draft.idempotency_key)
        tx.conn.execute(match.values(raw=draft.raw, updated_at=tx.now))
    return sum(done.created for done in entries.append_many(tx, missing))


def _open_end(tx: Tx, session_id: str) -> Entry | None:
    """The last imported entry of a session, if it is a fragment that its writer had not finished."""
    query = (
        sa.select(table.c.id)
        .where(table.c.session_id == session_id, table.c.deleted_at.is_(None))
        .where(table.c.idempotency_key.startswith(IMPORT_PREFIX))
        .order_by(table.c.position.desc())
        .limit(1)
    )
    id_ = tx.conn.execute(query).scalar()
    entry = None if id_ is None else entries.get(tx, id_)
    return entry if entry is not None and is_open(entry.raw or "") else None


def _bring_up_to_date(store: Store, session_id: str, arrival: Arrival, met: _Met) -> None:
    with store.write(SYSTEM) as tx:
        session = sessions.get(tx, session_id)
        values: dict[str, Any] = {} if session.turn_count else dict(arrival.known)
        values["updated_at"] = max(session.updated_at, met.last_at, values.get("updated_at") or 0)
        values["last_external_at"] = max(session.last_external_at, met.last_user_at)
        sessions.update(tx, session, **{k: v for k, v in values.items() if v is not None})


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
