"""The durable side of the embedded index: one SQLite file that everything else can be made from.

Documents live here in full; segments hold only what a scan needs. A write is one transaction with its
log position. What changed about sealed rows since their segment was written is noted in `dead` and
`moved`, vectors not yet synced into a segment's file in `vectors`.

Every row has a checksum. That of a document is looked at whenever it is read, those of the small tables when
the index is opened; a document that is not as it was written is passed over, and noted in `bad`.
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
from holdfast.memory.damage import is_damage, is_sound, row_sum
from holdfast.memory.documents import Document
from holdfast.memory.engine.symbols import Group, Groups, Symbols

try:
    import pysqlite3 as sqlite
except ImportError:
    import sqlite3 as sqlite

_SCHEMA = """
create table if not exists meta (key text primary key, value, sum integer) without rowid;
create table if not exists docs (
    num integer primary key autoincrement, id text not null unique, text text not null,
    source text not null, audience text not null, agent text,
    spaces text not null, collection text, topic text, task text,
    session text, speaker text, writer text, at integer not null, curated integer not null, thread text,
    ordinal integer not null, position integer, path text, from_line integer, to_line integer,
    payload text not null, sum integer);
create table if not exists symbols (code integer primary key, name text not null, sum integer);
create table if not exists groups (code integer primary key, body text not null, sum integer);
create table if not exists spaces (
    code integer primary key, fingerprint text unique, dims integer, sum integer);
create table if not exists segments (name text primary key) without rowid;
create table if not exists dead (num integer primary key, sum integer);
create table if not exists moved (num integer primary key, sum integer);
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
_COLUMNS = {
    "meta": ("key", "value"),
    "docs": ("num", *_FIELDS),
    "symbols": ("code", "name"),
    "groups": ("code", "body"),
    "spaces": ("code", "fingerprint", "dims"),
    "segments": ("name",),
    "dead": ("num",),
    "moved": ("num",),
    "vectors": ("space", "num", "data"),
    "journal": ("seq", "kind", "nums"),
}
_WITHOUT_SUM = frozenset(("segments", "vectors", "journal"))
_INSERT = f"insert into docs (num, {', '.join(_FIELDS)}, sum) values ({', '.join('?' * 23)})"
_SELECT = f"select num, {', '.join(_FIELDS)}, sum from docs"
_AMONG = "(select value from json_each(?))"
DAMAGED = "index_damaged"

Happened = Literal["new", "dead", "moved", "vectors", "segments"]


class Store:
    """One writing connection behind the index's lock, and a few reading ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[Any] = []
        self._guard = threading.Lock()
        self.bad: set[int] = set()
        with self._told():
            self._writer = self._connect()
            self._prepare()

    def _prepare(self) -> None:
        self._writer.execute("pragma synchronous = normal")
        _drop_if_laid_out_otherwise(self._writer)
        self._writer.executescript(_SCHEMA)

    def _connect(self) -> Any:
        connection = sqlite.connect(str(self._path), isolation_level=None, check_same_thread=False)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma busy_timeout = 10000")
        connection.execute("pragma cache_size = -8000")
        return connection

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
            said = str(error)
            raise (damaged if is_damage(said, self._path) else unusable)(self._path, said) from error
        except sqlite.ProgrammingError as error:  # it was closed: whoever comes late finds a sound file
            raise unusable(self._path, str(error)) from error
        except (sqlite.DatabaseError, UnicodeDecodeError) as error:
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
        found = self._rows("meta", "where key = ?", (key,))
        return found[0][1] if found else default

    def symbols(self) -> Symbols:
        return Symbols((code, name) for code, name in self._counted("symbols", 1))

    def groups(self) -> Groups:
        return Groups((code, _group(json.loads(body))) for code, body in self._counted("groups", 0))

    def spaces(self) -> dict[str, tuple[int, int]]:
        return {fingerprint: (code, dims) for code, fingerprint, dims in self._rows("spaces")}

    def names(self) -> list[str]:
        return [name for (name,) in self._rows("segments", "order by name")]

    def next_num(self) -> int:
        with self._told():
            row = self._writer.execute("select seq from sqlite_sequence where name = 'docs'").fetchone()
            high = self._writer.execute("select max(num) from docs").fetchone()
        return 1 + max(row[0] if row and isinstance(row[0], int) else 0, high[0] or 0)

    def count(self) -> int:
        with self._told():
            found: int = self._writer.execute("select count(*) from docs").fetchone()[0]
        return found

    def documents_after(self, num: int, limit: int) -> list[tuple[int, Document]]:
        """The next documents in order of number, for rebuilding."""
        while True:
            with self._told():
                found = self._writer.execute(f"{_SELECT} where num > ? order by num limit ?", (num, limit))
                rows = found.fetchall()
            good = [(row[0], _document(row[1:-1])) for row in self._sound(rows)]
            if good or not rows:
                return good
            num = rows[-1][0]

    def document_numbers(self, after: int, upto: int) -> NDArray[np.int64]:
        """The numbers of all documents within a range."""
        with self.reading() as connection:
            rows = connection.execute("select num from docs where num > ? and num <= ?", (after, upto))
            return np.array([num for (num,) in rows], dtype=np.int64)

    def problems(self) -> str | None:
        """What SQLite itself finds wrong with the file; None when it is whole."""
        with self.reading() as connection:
            found = connection.execute("pragma integrity_check(1)").fetchone()
        return None if found is None or found[0] == "ok" else str(found[0])

    def _sound(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        for row in rows:
            if is_sound(row[-1], *row[:-1]):
                yield row
            else:
                self.bad.add(row[0])

    def _rows(self, table: str, rest: str = "", values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """The rows of a small table, every one as it was written."""
        summed = table not in _WITHOUT_SUM
        columns = ", ".join((*_COLUMNS[table], "sum") if summed else _COLUMNS[table])
        with self._told():
            rows = self._writer.execute(f"select {columns} from {table} {rest}", values).fetchall()
        if not summed:
            return [tuple(row) for row in rows]
        if not all(is_sound(row[-1], *row[:-1]) for row in rows):
            raise damaged(self._path, f"a row of {table} is not as it was written")
        return [tuple(row[:-1]) for row in rows]

    def _counted(self, table: str, first: int) -> list[tuple[Any, ...]]:
        """The rows of a table whose codes count up: none may lack."""
        rows = self._rows(table, "order by code")
        if [row[0] for row in rows] != list(range(first, first + len(rows))):
            raise damaged(self._path, f"a row of {table} is missing")
        return rows

    def numbers(self, ids: Iterable[str]) -> dict[str, int]:
        with self.reading() as connection:
            return dict(
                connection.execute(f"select id, num from docs where id in {_AMONG}", (json.dumps(list(ids)),))
            )

    def documents(self, nums: Sequence[int]) -> dict[int, Document]:
        with self.reading() as connection:
            rows = connection.execute(f"{_SELECT} where num in {_AMONG}", (json.dumps(list(nums)),))
            return {row[0]: _document(row[1:-1]) for row in self._sound(rows)}

    def documents_named(self, ids: Iterable[str]) -> dict[str, Document]:
        with self.reading() as connection:
            rows = connection.execute(f"{_SELECT} where id in {_AMONG}", (json.dumps(list(ids)),))
            return {row[1]: _document(row[1:-1]) for row in self._sound(rows)}

    def column(self, table: str) -> NDArray[np.int64]:
        return np.array([num for (num,) in self._rows(table)], dtype=np.int64)

    def pending_vectors(self, space: int) -> tuple[list[int], list[bytes]]:
        rows = self._rows("vectors", "where space = ?", (space,))
        return [num for _, num, _ in rows], [data for _, _, data in rows]


class FollowedStore(Store):
    """The same file in a process that only reads it."""

    def _prepare(self) -> None:
        self._writer.execute("pragma query_only = on")

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """What is looked up in here is of one state of the index, whatever is written meanwhile."""
        with self._told():
            self._writer.execute("begin")
            try:
                yield
            finally:
                self._writer.execute("rollback")

    def journal_end(self) -> int:
        """The number of the last thing that happened."""
        with self._told():
            row = self._writer.execute("select seq from sqlite_sequence where name = 'journal'").fetchone()
        return int(row[0]) if row else 0

    def journal_after(self, seq: int) -> list[tuple[int, Happened, list[int]]]:
        rows = self._rows("journal", "where seq > ? order by seq", (seq,))
        return [(seq, kind, json.loads(nums)) for seq, kind, nums in rows]

    def symbols_from(self, code: int) -> list[tuple[int, str]]:
        return [(code, name) for code, name in self._rows("symbols", "where code >= ?", (code,))]

    def groups_from(self, code: int) -> list[tuple[int, Group]]:
        rows = self._rows("groups", "where code >= ? order by code", (code,))
        return [(code, _group(json.loads(body))) for code, body in rows]

    def documents_at(self, nums: Sequence[int]) -> dict[int, Document]:
        """Documents by number, within the moment that is looked at."""
        return self._these(f"where num in {_AMONG}", (json.dumps(list(nums)),)) if nums else {}

    def documents_between(self, low: int, high: int) -> dict[int, Document]:
        return self._these("where num between ? and ? order by num", (low, high))

    def _these(self, which: str, values: tuple[Any, ...]) -> dict[int, Document]:
        rows = self._writer.execute(f"{_SELECT} {which}", values).fetchall()
        return {row[0]: _document(row[1:-1]) for row in self._sound(rows)}

    def vectors_of(self, space: int, nums: Sequence[int]) -> tuple[list[int], list[bytes]]:
        """The vectors of some documents that are kept here."""
        rows = self._rows("vectors", f"where space = ? and num in {_AMONG}", (space, json.dumps(list(nums))))
        return [num for _, num, _ in rows], [data for _, _, data in rows]


def _drop_if_laid_out_otherwise(connection: Any) -> None:
    """Another version of Holdfast kept other fields: the index is made anew, as a missing one is.

    One from before there were checksums gets a column for them.
    """
    laid_out = {
        table: {name for _, name, *_ in connection.execute(f"pragma table_info({table})")}
        for table in _COLUMNS
    }
    found = {table: known - {"sum"} for table, known in laid_out.items()}
    if any(found[table] not in (set(), set(columns)) for table, columns in _COLUMNS.items()):
        for table in _COLUMNS:
            connection.execute(f"drop table if exists {table}")
        return
    for table, known in laid_out.items():
        if known and "sum" not in known and table not in _WITHOUT_SUM:
            connection.execute(f"alter table {table} add column sum integer")


def set_meta(connection: Any, key: str, value: Any) -> None:
    connection.execute(
        "insert into meta values (?, ?, ?)"
        " on conflict (key) do update set value = excluded.value, sum = excluded.sum",
        (key, value, row_sum(key, value)),
    )


def tell(connection: Any, kind: Happened, nums: Sequence[int] = ()) -> None:
    """Say what a transaction does, for readers in other processes."""
    if nums or kind == "segments":
        done = connection.execute("insert into journal (kind, nums) values (?, ?)", (kind, json.dumps(nums)))
        if done.lastrowid % (JOURNAL_ROWS // 10) == 0:
            connection.execute("delete from journal where seq <= ?", (done.lastrowid - JOURNAL_ROWS,))


def insert(connection: Any, numbered: Iterable[tuple[int, Document]]) -> None:
    rows = ((num, *_row(document)) for num, document in numbered)
    connection.executemany(_INSERT, ((*row, row_sum(*row)) for row in rows))


def remove(connection: Any, nums: Sequence[int]) -> None:
    among = (json.dumps(list(nums)),)
    connection.execute(f"delete from docs where num in {_AMONG}", among)
    connection.execute(f"delete from moved where num in {_AMONG}", among)
    for (space,) in connection.execute("select code from spaces").fetchall():
        connection.execute(f"delete from vectors where space = ? and num in {_AMONG}", (space, *among))


def note(connection: Any, table: str, nums: Iterable[int]) -> None:
    """Remember numbers in `dead` or `moved`."""
    rows = ((num, row_sum(num)) for num in nums)
    connection.executemany(f"insert or ignore into {table} values (?, ?)", rows)


def rewrite(connection: Any, changed: Iterable[tuple[int, Document]]) -> None:
    """Store the new places of documents that moved."""
    lying = (
        (one.audience, _spaces_text(one.spaces), one.topic, one.task, row_sum(num, *_row(one)), num)
        for num, one in changed
    )
    connection.executemany(
        "update docs set audience = ?, spaces = ?, topic = ?, task = ?, sum = ? where num = ?", lying
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
    (code,) = connection.execute("select coalesce(max(code), 0) + 1 from spaces").fetchone()
    row = (code, fingerprint, dims)
    connection.execute("insert into spaces values (?, ?, ?, ?)", (*row, row_sum(*row)))
    return int(code)


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
    bodies = [(code, json.dumps([*_named(group), sorted(group.spaces)])) for code, group in groups.unsaved]
    for table, rows in (("symbols", symbols.unsaved), ("groups", bodies)):
        summed = ((*row, row_sum(*row)) for row in rows)
        connection.executemany(f"insert or replace into {table} values (?, ?, ?)", summed)


def unusable(path: Path, why: str) -> Unavailable:
    return Unavailable(
        f"the search index at {path} cannot be used: {why}",
        code="index_unavailable",
        hint="See that the disk has room and that the folder may be written; then try again.",
    )


def damaged(path: Path, why: str) -> Unavailable:
    return Unavailable(
        f"the search index at {path} cannot be read: {why}",
        code=DAMAGED,
        hint="It is set aside and built again from the log and the files; nothing has to be done.",
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
        int(document.curated),
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
