"""The durable side of the embedded index: one SQLite file that everything else can be made from.

Documents live here in full; segments hold only what a scan needs. A write is one transaction with its
log position. What changed about sealed rows since their segment was written is noted in `dead` and
`moved`, vectors not yet synced into a segment's file in `vectors`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import Unavailable
from holdfast.memory.documents import Document
from holdfast.memory.engine.symbols import Group, Groups, Symbols

try:
    import pysqlite3 as sqlite
except ImportError:
    import sqlite3 as sqlite

_SCHEMA = """
create table if not exists meta (key text primary key, value) without rowid;
create table if not exists docs (
    num integer primary key autoincrement, id text not null unique, text text not null,
    source text not null, audience text not null, agent text,
    spaces text not null, collection text, topic text, task text,
    session text, speaker text, writer text, at integer not null, curated integer not null, thread text,
    ordinal integer not null, position integer, path text, from_line integer, to_line integer,
    payload text not null);
create table if not exists symbols (code integer primary key, name text not null);
create table if not exists groups (code integer primary key, body text not null);
create table if not exists spaces (code integer primary key, fingerprint text unique, dims integer);
create table if not exists segments (name text primary key) without rowid;
create table if not exists dead (num integer primary key);
create table if not exists moved (num integer primary key);
create table if not exists vectors (
    space integer, num integer, data blob not null, primary key (space, num)) without rowid;
create table if not exists journal (seq integer primary key autoincrement, kind text not null, nums text);
"""
JOURNAL_ROWS: Final = 10_000
"""How far back the journal reaches; a reader that is further behind begins anew."""

_FIELDS = (
    *("id", "text", "source", "audience", "agent", "spaces", "collection", "topic", "task", "session"),
    *("speaker", "writer", "at", "curated", "thread", "ordinal", "position", "path", "from_line"),
    *("to_line", "payload"),
)
_TABLES = ("meta", "docs", "symbols", "groups", "spaces", "segments", "dead", "moved", "vectors", "journal")
_INSERT = f"insert into docs (num, {', '.join(_FIELDS)}) values ({', '.join('?' * 22)})"
_SELECT = f"select num, {', '.join(_FIELDS)} from docs"
_AMONG = "(select value from json_each(?))"

Happened = Literal["new", "dead", "moved", "vectors", "segments"]


class Store:
    """One writing connection behind the index's lock, and a few reading ones."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._idle: list[Any] = []
        self._guard = threading.Lock()
        try:
            self._writer = self._connect()
            if read_only:
                return
            self._writer.execute("pragma synchronous = normal")
            _drop_if_laid_out_otherwise(self._writer)
            self._writer.executescript(_SCHEMA)
        except sqlite.DatabaseError as error:
            raise damaged(path, str(error)) from error

    def _connect(self) -> Any:
        connection = sqlite.connect(str(self._path), isolation_level=None, check_same_thread=False)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma busy_timeout = 10000")
        connection.execute("pragma cache_size = -8000")
        if self._read_only:
            connection.execute("pragma query_only = on")
        return connection

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """What a reader looks up in here is of one state of the index, whatever is written meanwhile."""
        with self._told():
            self._writer.execute("begin")
            try:
                yield
            finally:
                self._writer.execute("rollback")

    def journal_end(self) -> int:
        """The number of the last thing that happened."""
        row = self._writer.execute("select seq from sqlite_sequence where name = 'journal'").fetchone()
        return int(row[0]) if row else 0

    def journal_after(self, seq: int) -> list[tuple[int, Happened, list[int]]]:
        rows = self._writer.execute("select seq, kind, nums from journal where seq > ? order by seq", (seq,))
        return [(seq, kind, json.loads(nums)) for seq, kind, nums in rows]

    def symbols_from(self, code: int) -> list[tuple[int, str]]:
        """Names from a code on."""
        return list(self._writer.execute("select code, name from symbols where code >= ?", (code,)))

    def groups_from(self, code: int) -> list[tuple[int, Group]]:
        rows = self._writer.execute("select code, body from groups where code >= ? order by code", (code,))
        return [(code, _group(json.loads(body))) for code, body in rows]

    def documents_at(self, nums: Sequence[int]) -> dict[int, Document]:
        """Documents by number, within the moment that is looked at."""
        if not nums:
            return {}
        rows = self._writer.execute(f"{_SELECT} where num in {_AMONG}", (json.dumps(list(nums)),))
        return {row[0]: _document(row[1:]) for row in rows}

    def documents_between(self, low: int, high: int) -> dict[int, Document]:
        rows = self._writer.execute(f"{_SELECT} where num between ? and ? order by num", (low, high))
        return {row[0]: _document(row[1:]) for row in rows}

    def vectors_of(self, space: int, nums: Sequence[int]) -> tuple[list[int], list[bytes]]:
        """The vectors of some documents that are kept here."""
        query = f"select num, data from vectors where space = ? and num in {_AMONG}"
        rows = self._writer.execute(query, (space, json.dumps(list(nums)))).fetchall()
        return [num for num, _ in rows], [data for _, data in rows]

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """One transaction; the caller holds the index's lock."""
        with self._told():
            self._writer.execute("begin immediate")
            try:
                yield self._writer
                self._writer.execute("commit")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("rollback")
                raise

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """A connection of one's own for the time of a read."""
        with self._guard:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._connect()
        try:
            with self._told():
                yield connection
        finally:
            with self._guard:
                self._idle.append(connection)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say in our own words what SQLite cannot do."""
        try:
            yield
        except sqlite.OperationalError as error:
            raise unusable(self._path, str(error)) from error
        except sqlite.DatabaseError as error:
            raise damaged(self._path, str(error)) from error

    def checkpoint(self) -> None:
        """Make what was committed survive a loss of power before files it replaces are removed."""
        with self._told():
            self._writer.execute("pragma wal_checkpoint(truncate)").fetchall()

    def close(self) -> None:
        with self._guard:
            for connection in [*self._idle, self._writer]:
                connection.close()
            self._idle.clear()

    def meta(self, key: str, default: Any) -> Any:
        row = self._writer.execute("select value from meta where key = ?", (key,)).fetchone()
        return default if row is None else row[0]

    def symbols(self) -> Symbols:
        return Symbols(self._writer.execute("select code, name from symbols"))

    def groups(self) -> Groups:
        rows = self._writer.execute("select code, body from groups").fetchall()
        return Groups((code, _group(json.loads(body))) for code, body in rows)

    def spaces(self) -> dict[str, tuple[int, int]]:
        rows = self._writer.execute("select fingerprint, code, dims from spaces")
        return {fingerprint: (code, dims) for fingerprint, code, dims in rows}

    def names(self) -> list[str]:
        return [name for (name,) in self._writer.execute("select name from segments order by name")]

    def next_num(self) -> int:
        row = self._writer.execute("select seq from sqlite_sequence where name = 'docs'").fetchone()
        return 1 + (row[0] if row else 0)

    def count(self) -> int:
        found: int = self._writer.execute("select count(*) from docs").fetchone()[0]
        return found

    def documents_after(self, num: int, limit: int) -> list[tuple[int, Document]]:
        """The next documents in order of number, for rebuilding."""
        rows = self._writer.execute(f"{_SELECT} where num > ? order by num limit ?", (num, limit))
        return [(row[0], _document(row[1:])) for row in rows]

    def numbers(self, ids: Iterable[str]) -> dict[str, int]:
        with self.reading() as connection:
            return dict(
                connection.execute(f"select id, num from docs where id in {_AMONG}", (json.dumps(list(ids)),))
            )

    def documents(self, nums: Sequence[int]) -> dict[int, Document]:
        with self.reading() as connection:
            rows = connection.execute(f"{_SELECT} where num in {_AMONG}", (json.dumps(list(nums)),))
            return {row[0]: _document(row[1:]) for row in rows}

    def documents_named(self, ids: Iterable[str]) -> dict[str, Document]:
        with self.reading() as connection:
            rows = connection.execute(f"{_SELECT} where id in {_AMONG}", (json.dumps(list(ids)),))
            return {row[1]: _document(row[1:]) for row in rows}

    def column(self, table: str) -> NDArray[np.int64]:
        rows = self._writer.execute(f"select num from {table}").fetchall()
        return np.array([num for (num,) in rows], dtype=np.int64)

    def pending_vectors(self, space: int) -> tuple[list[int], list[bytes]]:
        rows = self._writer.execute("select num, data from vectors where space = ?", (space,)).fetchall()
        return [num for num, _ in rows], [data for _, data in rows]


def _drop_if_laid_out_otherwise(connection: Any) -> None:
    """Another version of Holdfast kept other fields: the index is made anew, as a missing one is."""
    known = {name for _, name, *_ in connection.execute("pragma table_info(docs)")}
    if known and known != {"num", *_FIELDS}:
        for table in _TABLES:
            connection.execute(f"drop table if exists {table}")


def set_meta(connection: Any, key: str, value: Any) -> None:
    connection.execute(
        "insert into meta values (?, ?) on conflict (key) do update set value = excluded.value",
        (key, value),
    )


def tell(connection: Any, kind: Happened, nums: Sequence[int] = ()) -> None:
    """Say what a transaction does, for readers in other processes."""
    if nums or kind == "segments":
        done = connection.execute("insert into journal (kind, nums) values (?, ?)", (kind, json.dumps(nums)))
        if done.lastrowid % (JOURNAL_ROWS // 10) == 0:
            connection.execute("delete from journal where seq <= ?", (done.lastrowid - JOURNAL_ROWS,))


def insert(connection: Any, numbered: Iterable[tuple[int, Document]]) -> None:
    connection.executemany(_INSERT, ((num, *_row(document)) for num, document in numbered))


def remove(connection: Any, nums: Sequence[int]) -> None:
    among = (json.dumps(list(nums)),)
    connection.execute(f"delete from docs where num in {_AMONG}", among)
    connection.execute(f"delete from moved where num in {_AMONG}", among)
    for (space,) in connection.execute("select code from spaces").fetchall():
        connection.execute(f"delete from vectors where space = ? and num in {_AMONG}", (space, *among))


def note(connection: Any, table: str, nums: Iterable[int]) -> None:
    """Remember numbers in `dead` or `moved`."""
    connection.executemany(f"insert or ignore into {table} values (?)", ((num,) for num in nums))


def rewrite(connection: Any, changed: Iterable[tuple[int, Document]]) -> None:
    """Store the new places of documents that moved."""
    connection.executemany(
        "update docs set audience = ?, spaces = ?, topic = ?, task = ? where num = ?",
        (
            (document.audience, _spaces_text(document.spaces), document.topic, document.task, num)
            for num, document in changed
        ),
    )


def put_vectors(connection: Any, space: int, nums: Iterable[int], data: Iterable[bytes]) -> None:
    connection.executemany(
        "insert or replace into vectors values (?, ?, ?)",
        ((space, num, blob) for num, blob in zip(nums, data, strict=True)),
    )


def drop_vectors(connection: Any, sealed: int) -> None:
    connection.execute("delete from vectors where num <= ?", (sealed,))


def add_space(connection: Any, fingerprint: str, dims: int) -> int:
    """A new vector space; its code names its files."""
    added = connection.execute("insert into spaces (fingerprint, dims) values (?, ?)", (fingerprint, dims))
    return int(added.lastrowid)


def name_segments(connection: Any, names: Iterable[str]) -> None:
    connection.execute("delete from segments")
    connection.executemany("insert into segments values (?)", ((name,) for name in names))


def keep_only(connection: Any, table: str, held: NDArray[np.int64]) -> None:
    """Forget the numbers in a redo table whose rows lie in segments written since."""
    noted = np.array([num for (num,) in connection.execute(f"select num from {table}")], np.int64)
    done = np.unique(noted[~np.isin(noted, held)]).tolist()
    connection.execute(f"delete from {table} where num in {_AMONG}", (json.dumps(done),))


def save_names(connection: Any, symbols: Symbols, groups: Groups) -> None:
    """Save names made since the last commit; the caller forgets them once it has committed."""
    connection.executemany("insert or replace into symbols values (?, ?)", symbols.unsaved)
    connection.executemany(
        "insert or replace into groups values (?, ?)",
        ((code, json.dumps([*_named(group), sorted(group.spaces)])) for code, group in groups.unsaved),
    )


def unusable(path: Path, why: str) -> Unavailable:
    return Unavailable(
        f"the search index at {path} cannot be used: {why}",
        code="index_unavailable",
        hint="See that the disk has room and that the folder may be written; then try again.",
    )


def damaged(path: Path, why: str) -> Unavailable:
    return Unavailable(
        f"the search index at {path} cannot be read: {why}",
        code="index_damaged",
        hint="Delete the folder; the index is derived and is built again from the log and the files.",
    )


def _group(body: list[Any]) -> Group:
    audience, agent, collection, source, spaces = body
    return Group(audience, agent, collection, source, frozenset(spaces))


def _named(group: Group) -> tuple[str | None, ...]:
    return group.audience, group.agent, group.collection, group.source


def _row(document: Document) -> tuple[Any, ...]:
    return (
        document.id,
        document.text,
        document.source,
        document.audience,
        document.agent,
        _spaces_text(document.spaces),
        document.collection,
        document.topic,
        document.task,
        document.session,
        document.speaker,
        document.writer,
        document.at,
        document.curated,
        document.thread,
        document.ordinal,
        document.position,
        document.path,
        document.from_line,
        document.to_line,
        json.dumps(document.payload) if document.payload else "{}",
    )


def _document(row: Sequence[Any]) -> Document:
    values = dict(zip(_FIELDS, row, strict=True))
    values["spaces"] = _spaces(values["spaces"])
    values["curated"] = bool(values["curated"])
    values["payload"] = {} if values["payload"] == "{}" else json.loads(values["payload"])
    return Document(**values)


@lru_cache(maxsize=1024)
def _spaces_text(spaces: frozenset[str]) -> str:
    return json.dumps(sorted(spaces))


@lru_cache(maxsize=1024)
def _spaces(body: str) -> frozenset[str]:
    """Many documents share the same few sets of spaces."""
    return frozenset(json.loads(body))
