"""The sessions of one agent: `sessions.json` and transcripts, archived ones too, or the newer database."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.adopt.report import Report
from holdfast.clock import Millis, parse_iso
from holdfast.errors import HoldfastError, InvalidInput, Unavailable
from holdfast.ids import AgentId, SessionId
from holdfast.keys import SessionKey, canonical_key
from holdfast.log import SYSTEM, Store, sessions
from holdfast.log.transcripts import Line, SessionMeta, parse_line, parse_sessions_json
from holdfast.log.transfer import Arrival, Imported, import_lines, import_transcript
from holdfast.text import clean_json

Unpack = Callable[[bytes], bytes]


class Database:
    """`transcript_events` holds the lines of transcripts, `session_nodes` what `sessions.json` did."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unpack = _unpacker()
        try:
            self._conn = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            self._conn.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            self._columns = {row[1] for row in self._conn.execute("PRAGMA table_info(transcript_events)")}
        except sqlite3.Error as error:
            raise Unavailable(f"{path} cannot be read: {error}", code="foreign_database") from error
        if not {"session_id", "seq", "event_json"} <= self._columns:
            self._conn.close()
            raise InvalidInput(f"{path} holds no transcripts of a form that is known here")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exc: object) -> None:
        self._conn.close()

    def session_ids(self) -> list[str]:
        return [
            str(row[0]) for row in self._rows("SELECT DISTINCT session_id FROM transcript_events ORDER BY 1")
        ]

    def unreadable(self, session_id: str) -> int:
        """How many events are compressed in a way that cannot be undone here."""
        if "event_zstd" not in self._columns or self._unpack is not None:
            return 0
        query = "SELECT count(*) FROM transcript_events WHERE session_id = ? AND event_json IS NULL"
        return int(next(self._rows(query, session_id))[0])

    def node(self, session_id: str) -> tuple[str, SessionMeta] | None:
        """The key whose current session this is, and what is known of it."""
        query = "SELECT session_key, entry_json FROM session_nodes WHERE current_session_id = ? LIMIT 1"
        row = next(self._rows(query, session_id), None)
        if row is None:
            return None
        records = parse_sessions_json('{"it":' + (row[1] or "{}") + "}")
        return str(row[0]), records["it"]

    def lines(self, session_id: str) -> Iterator[Line]:
        packed = "event_zstd" if "event_zstd" in self._columns else "NULL"
        query = f"SELECT seq, event_json, {packed} FROM transcript_events WHERE session_id = ? ORDER BY seq"
        for seq, text, data in self._rows(query, session_id):
            if text is None and data is not None and self._unpack is not None:
                text = self._unpack(data).decode("utf-8", "surrogateescape")
            yield parse_line(text or "", int(seq))

    def _rows(self, query: str, *values: str) -> Iterator[tuple]:  # type: ignore[type-arg]
        try:
            yield from self._conn.execute(query, values)
        except sqlite3.Error as error:
            raise Unavailable(f"{self.path} cannot be read: {error}", code="foreign_database") from error


def _unpacker() -> Unpack | None:
    """Whatever can undo zstd here: the standard library from 3.14 on, or one of two packages."""
    from importlib import import_module

    for name in ("compression.zstd", "pyzstd"):
        try:
            unpack: Unpack = import_module(name).decompress
            return unpack
        except ImportError:
            continue
    try:
        zstandard = import_module("zstandard")
    except ImportError:
        return None
    return lambda data: bytes(zstandard.ZstdDecompressor().decompressobj().decompress(data))


MAX_FAULTS_NAMED: Final = 3

_FILE: Final = re.compile(
    r"(?P<id>.+?)(?:-topic-[^.]+)?\.jsonl(?:\.(?P<cause>deleted|reset|archived)[.-](?P<at>.+))?"
)
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)[-:](\d\d)[-:](\d\d)(.*)")
_CHAT_TYPES: Final = {"direct": "direct", "dm": "direct", "group": "group", "room": "room", "channel": "room"}
_BULKY: Final = frozenset(("skillsSnapshot", "systemPromptReport"))


@dataclass(frozen=True, slots=True)
class _Place:
    """One session to take in: under which key, and what was known of it."""

    key: SessionKey
    known: Mapping[str, Any]
    current: bool


def adopt_sessions(store: Store, folder: Path, agent_id: str, report: Report) -> None:
    """Take in all sessions of `agents/<id>`; the database wins over older files of the same session."""
    in_database: set[str] = set()
    database = folder / "agent" / "openclaw-agent.sqlite"
    if database.is_file():
        in_database = _adopt_database(store, database, agent_id, report)
    files = folder / "sessions"
    if not files.is_dir():
        return
    named = _named(files, agent_id, report)
    transcripts = sorted(p for p in files.iterdir() if ".jsonl" in p.name)
    holders = Counter(_plain_id(path) for path in transcripts)
    for path in transcripts:
        match = _FILE.fullmatch(path.name)
        if match is None or path.is_symlink() or not path.is_file():
            report.note("sessions", "left out", _shown(path), "not a transcript")
        elif match["id"] in in_database and match["cause"] is None:
            report.note("sessions", "left out", _shown(path), "its session was taken from the database")
        else:
            shared = holders[_plain_id(path)] > 1
            id_ = path.name.replace(".jsonl", "") if shared else _plain_id(path)
            _adopt_file(store, path, id_, match, agent_id, named.get(path.name), report)


def _adopt_file(
    store: Store,
    path: Path,
    id_: str,
    match: re.Match[str],
    agent_id: str,
    named: _Place | None,
    report: Report,
) -> None:
    report.begin(_shown(path))
    place = named or _orphan(agent_id, id_)
    there = _key_there(store, id_)
    try:
        done = import_transcript(
            store,
            path,
            there or place.key,
            session_id=id_,
            agent_id=agent_id,
            current=place.current,
            archived_at=None if place.current else _archived_at(match["at"], path),
            cause=match["cause"] or "import",
            known=place.known,
            lenient=True,
            dry_run=report.dry_run,
        )
    except HoldfastError as error:
        empty = path.stat().st_size == 0
        report.note("sessions", "left out" if empty else "failed", _shown(path), error.message)
        return
    _tell(done, _shown(path), report)


def _adopt_database(store: Store, path: Path, agent_id: str, report: Report) -> set[str]:
    taken: set[str] = set()
    try:
        with Database(path) as database:
            for id_ in database.session_ids():
                unreadable = database.unreadable(id_)
                if unreadable:
                    why = f"{unreadable} compressed events; pip install zstandard, then run this again"
                    report.note("sessions", "left out", f"{_shown(path)}: {id_}", why)
                    continue
                _adopt_rows(store, database, id_, agent_id, report)
                taken.add(id_)
    except HoldfastError as error:
        report.note("sessions", "failed", _shown(path), error.message)
    return taken


def _adopt_rows(store: Store, database: Database, id_: str, agent_id: str, report: Report) -> None:
    name = f"{_shown(database.path)}: {id_}"
    report.begin(name)
    try:
        node = database.node(id_)
        place = (
            _orphan(agent_id, id_) if node is None else _Place(_key(agent_id, node[0]), _known(node[1]), True)
        )
        arrival = Arrival(
            key=_key_there(store, id_) or place.key,
            session_id=SessionId(id_),
            agent_id=AgentId(agent_id),
            current=place.current,
            archived_at=None if place.current else store.clock.now(),
            known=place.known,
        )
        done = import_lines(store, database.lines(id_), arrival, dry_run=report.dry_run, by_id=True)
    except HoldfastError as error:
        report.note("sessions", "failed", name, error.message)
        return
    _tell(done, name, report)


def _tell(done: Imported, name: str, report: Report) -> None:
    report.entries_added += done.added
    if done.created:
        report.count("sessions", "added")
    elif done.added:
        report.note("sessions", "grown", name, f"{done.added} lines more")
    else:
        report.count("sessions", "unchanged")
    for fault in done.faults[:MAX_FAULTS_NAMED] if done.changed else ():
        report.note(
            "sessions", "damaged", f"{name}, line {fault.lineno}", f"{fault.reason}; kept as it stands"
        )
    if done.changed and done.bad_lines > MAX_FAULTS_NAMED:
        report.remark("sessions", "damaged", name, f"{done.bad_lines} bad lines in all")


def _named(folder: Path, agent_id: str, report: Report) -> dict[str, _Place]:
    """What `sessions.json` says, by the name of the transcript."""
    path = folder / "sessions.json"
    try:
        records = parse_sessions_json(path.read_text("utf-8", "surrogateescape")) if path.is_file() else {}
    except (HoldfastError, OSError) as error:
        why = error.message if isinstance(error, HoldfastError) else str(error.strerror)
        report.note("sessions", "failed", _shown(path), f"{why}; its transcripts come as archived sessions")
        return {}
    named: dict[str, _Place] = {}
    for key, meta in records.items():
        name = _file_name(folder, meta)
        try:
            place = _Place(_key(agent_id, key), _known(meta), True)
        except InvalidInput as error:
            report.note("sessions", "refused", f"{_shown(path)}: {key[:80]!r}", error.message)
            continue
        if name is None:
            report.note("sessions", "left out", place.key, "its transcript is not there")
        elif name in named:
            report.note("sessions", "left out", place.key, f"it shares {name} with {named[name].key}")
        else:
            named[name] = place
    return named


def _file_name(folder: Path, meta: SessionMeta) -> str | None:
    """The transcript of a record, looked for by name within the folder and nowhere else."""
    given = Path(meta.session_file.replace("\\", "/")).name if meta.session_file else ""
    for name in (given, f"{Path(meta.session_id or '').name}.jsonl"):
        if name.endswith(".jsonl") and (folder / name).is_file():
            return name
    return None


def _key(agent_id: str, written: str) -> SessionKey:
    """Older stores leave the agent out of their keys."""
    return canonical_key(written if written.startswith("agent:") else f"agent:{agent_id}:{written}")


def _orphan(agent_id: str, id_: str) -> _Place:
    """A transcript that no record names comes as an archived session, under a key made of its id."""
    tail = re.sub(r"[^\w.-]", "-", id_)[:200]
    return _Place(canonical_key(f"agent:{agent_id}:openclaw:{tail}"), {}, False)


def _key_there(store: Store, id_: str) -> SessionKey | None:
    """The key under which the session was taken in before."""
    with store.read(SYSTEM) as tx:
        found = sessions.get_many(tx, [id_])
    return SessionKey(found[0].key) if found else None


def _plain_id(path: Path) -> str:
    return path.name.partition(".jsonl")[0]


def _known(meta: SessionMeta) -> dict[str, Any]:
    """What a record says of its session, under our names; the rest is kept beside it."""
    rest = {name: value for name, value in meta.extra.items() if name not in _BULKY}
    return {
        "chat_type": _CHAT_TYPES.get(meta.chat_type or ""),
        "updated_at": meta.updated_at,
        "input_tokens": _count(meta.input_tokens),
        "output_tokens": _count(meta.output_tokens),
        "total_tokens": _count(meta.total_tokens),
        "context_tokens": _count(meta.context_tokens),
        "compaction_count": _count(meta.compaction_count),
        "memory_flush_at": meta.memory_flush_at,
        "memory_flush_compaction_count": _count(meta.memory_flush_compaction_count),
        "label": _text(rest.get("label")) or _text(rest.get("displayName")),
        "parent_key": _text(rest.get("spawnedBy")),
        "meta": {"openclaw": clean_json(rest)} if rest else None,
    }


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < 1 << 53 else None


def _text(value: object) -> str | None:
    return clean_json(value)[:512] if isinstance(value, str) and value else None


def _archived_at(stamp: str | None, path: Path) -> int:
    """The time in the file's name, written with dashes or as milliseconds; else when it was last changed."""
    match = _STAMP.fullmatch(stamp or "")
    if match is not None:
        try:
            return parse_iso(f"{match[1]}:{match[2]}:{match[3]}{match[4]}")
        except InvalidInput:
            pass
    if stamp and stamp.isdecimal() and 10**11 < int(stamp) < 10**14:
        return Millis(int(stamp))
    return int(path.stat().st_mtime * 1000)


def _shown(path: Path) -> str:
    """A path from `agents/` on."""
    return "/".join(path.parts[-4:])
