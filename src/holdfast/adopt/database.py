"""OpenClaw's newer storage, one SQLite database for each agent, opened for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.errors import InvalidInput, Unavailable
from holdfast.log.transcripts import Line, SessionMeta, parse_line, parse_sessions_json

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
