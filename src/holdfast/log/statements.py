"""Statements on the hot path: compiled once per engine, on PostgreSQL prepared once and run through libpq.

psycopg still opens the connection, knows how values are written and read, and names the errors. What is left
out is what it makes anew for every statement: a cursor, a generator, a poll; half of what a small one costs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg import errors, pq
from psycopg.adapt import PyFormat, Transformer
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles

from holdfast.log.store import Tx

Row = tuple[Any, ...]
Shape = tuple[str, ...]
# PostgreSQL's type of a double; its floats ask for it, and nothing else looks at it.
_FLOAT_OID: Final = 701
Convert = Callable[[Any], Any]


class Statement:
    """A SQLAlchemy statement with bind parameters, run at a third of what the ordinary way costs.

    Parameters and columns are converted by their types, as SQLAlchemy would; a row is a plain tuple. For a
    list use `among`: an expanding `IN` has another text for every length. Enums go in as plain text.
    """

    def __init__(self, statement: Any) -> None:
        self._statement = statement
        self._forms: dict[bool, _Form] = {}

    def rows(self, tx: Tx, **given: Any) -> list[Row]:
        form, values = self._bound(tx, given)
        with tx.driver(form.sql) as connection:
            found: list[Row] = connection.execute(form.sql, values).fetchall()
        return [form.read(row) for row in found] if form.columns else found

    def first(self, tx: Tx, **given: Any) -> Row | None:
        """The first row, or None."""
        form, values = self._bound(tx, given)
        with tx.driver(form.sql) as connection:
            found: Row | None = connection.execute(form.sql, values).fetchone()
        return form.read(found) if found is not None and form.columns else found

    def run(self, tx: Tx, **given: Any) -> int:
        """How many rows it changed."""
        form, values = self._bound(tx, given)
        with tx.driver(form.sql) as connection:
            return int(connection.execute(form.sql, values).rowcount)

    def many(self, tx: Tx, rows: Sequence[Mapping[str, Any]]) -> None:
        """The same for each of the rows, in order."""
        bound = [self._bound(tx, row) for row in rows]
        if bound:
            sql = bound[0][0].sql
            with tx.driver(sql) as connection:
                connection.executemany(sql, [values for _, values in bound])

    def _bound(self, tx: Tx, given: Mapping[str, Any]) -> tuple[_Form, Any]:
        form = self._forms.get(tx.postgres)
        if form is None:
            form = self._forms[tx.postgres] = _form(self._statement, tx.conn.dialect)
        return form, form.bind(given)


class Update:
    """Updates of a table's rows, each set of changed columns compiled once.

    `where` may use bind parameters of any name that no column has.
    """

    def __init__(self, table: sa.Table, *where: sa.ColumnElement[bool]) -> None:
        self._update = sa.update(table).where(*where)
        self._columns = table.c
        self._statements: dict[frozenset[str], Statement] = {}

    def run(self, tx: Tx, values: Mapping[str, Any], **where: Any) -> int:
        """Set the columns; how many rows that changed."""
        return self._setting(frozenset(values)).run(tx, **values, **where)

    def many(self, tx: Tx, rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        """Set the columns (the first of each pair) where the second says."""
        for names, alike in groupby(rows, lambda row: frozenset(row[0])):
            self._setting(names).many(tx, [{**values, **where} for values, where in alike])

    def _setting(self, names: frozenset[str]) -> Statement:
        statement = self._statements.get(names)
        if statement is None:
            columns = {name: sa.bindparam(name, type_=self._columns[name].type) for name in sorted(names)}
            statement = self._statements[names] = Statement(self._update.values(columns))
        return statement


class Insert:
    """Inserts of rows given as mappings, each set of columns compiled once.

    Columns that are None are left to their default: the SQLite driver takes a microsecond to bind each.
    With `ignore` (columns, condition) a row that meets an equal one in that unique index is left out, with
    `replace` (columns) it takes that one's place, its Nones too.
    """

    def __init__(
        self,
        table: sa.Table,
        *,
        returning: str | None = None,
        ignore: tuple[list[str], str | None] | None = None,
        replace: Sequence[str] = (),
    ) -> None:
        self._table = table
        self._replace = replace
        self._returning = returning
        self._ignore = ignore
        self._json = frozenset(c.name for c in table.columns if isinstance(c.type, sa.JSON))
        self._compiled: dict[tuple[bool, Shape], tuple[str, Shape]] = {}

    def one(self, tx: Tx, row: Mapping[str, Any]) -> Any:
        """Insert a row; the returned column, or None if the row was left out."""
        sql, order = self._form(tx, tuple(row) if self._replace else _shape(row))
        with tx.driver(sql) as connection:
            cursor = connection.execute(sql, self._values(tx, order, row))
            found = cursor.fetchone() if self._returning else None
        return None if found is None else found[0]

    def many(self, tx: Tx, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows in order."""
        for shape, alike in groupby(rows, tuple if self._replace else _shape):
            sql, order = self._form(tx, shape)
            values = [self._values(tx, order, row) for row in alike]
            with tx.driver(sql) as connection:
                connection.executemany(sql, values)

    def _values(self, tx: Tx, order: Shape, row: Mapping[str, Any]) -> Any:
        values = [self._sent(name, row[name]) for name in order]
        return dict(zip(order, values, strict=True)) if tx.postgres else values

    def _sent(self, name: str, value: Any) -> Any:
        return _encode(value) if name in self._json and value is not None else value

    def _form(self, tx: Tx, shape: Shape) -> tuple[str, Shape]:
        """The statement for rows of these columns, and the order in which it takes their values."""
        known = self._compiled.get((tx.postgres, shape))
        if known is None:
            known = self._compiled[tx.postgres, shape] = self._compile(tx, shape)
        return known

    def _compile(self, tx: Tx, shape: Shape) -> tuple[str, Shape]:
        insert: Any = (postgresql if tx.postgres else sqlite).insert(self._table)
        statement = insert.values({name: sa.bindparam(name) for name in shape})
        if self._ignore is not None:
            columns, condition = self._ignore
            where = None if condition is None else sa.text(condition)
            statement = statement.on_conflict_do_nothing(index_elements=columns, index_where=where)
        if self._replace:
            fresh = {name: statement.excluded[name] for name in shape if name not in self._replace}
            statement = statement.on_conflict_do_update(index_elements=list(self._replace), set_=fresh)
        if self._returning is not None:
            statement = statement.returning(self._table.c[self._returning])
        compiled = statement.compile(dialect=tx.conn.dialect)
        return str(compiled), tuple(compiled.positiontup) if compiled.positional else shape


def among(column: sa.ColumnElement[str], name: str) -> sa.ColumnElement[bool]:
    """`column IN :name` for a list of texts, in one text whatever its length."""
    return _Among(column, sa.bindparam(name, type_=Texts()))


@dataclass(frozen=True, slots=True)
class _Form:
    """A statement for one engine: its text, and which values need to be converted on the way in and out."""

    sql: str
    order: tuple[str, ...] | None
    fixed: Mapping[str, Any]
    binds: tuple[tuple[str, Convert], ...]
    columns: tuple[tuple[int, Convert], ...]

    def bind(self, given: Mapping[str, Any]) -> Any:
        values = {**self.fixed, **given}
        for name, convert in self.binds:
            values[name] = convert(values[name])
        return values if self.order is None else tuple([values[name] for name in self.order])

    def read(self, row: Sequence[Any]) -> Row:
        values = list(row)
        for place, convert in self.columns:
            values[place] = convert(values[place])
        return tuple(values)


def _form(statement: Any, dialect: Any) -> _Form:
    compiled = statement.compile(dialect=dialect)
    binds = {name: _of(bind.type, dialect).bind_processor(dialect) for name, bind in compiled.binds.items()}
    shown = getattr(statement, "exported_columns", ())
    columns = [_of(column.type, dialect).result_processor(dialect, _FLOAT_OID) for column in shown]
    return _Form(
        sql=str(compiled),
        order=tuple(compiled.positiontup) if compiled.positional else None,
        fixed=compiled.params,
        binds=tuple((name, convert) for name, convert in binds.items() if convert is not None),
        columns=tuple((place, convert) for place, convert in enumerate(columns) if convert is not None),
    )


def _of(type_: Any, dialect: Any) -> Any:
    return type_.dialect_impl(dialect)


class Texts(sa.types.TypeDecorator[list[str]]):
    """A list of texts as one value: an array, or JSON where there are none."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        return dialect.type_descriptor(postgresql.ARRAY(sa.Text) if _has_arrays(dialect) else sa.Text())

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return list(value) if _has_arrays(dialect) else json.dumps(list(value), ensure_ascii=False)


class _Among(sa.ColumnElement[bool]):
    inherit_cache = False

    def __init__(self, column: sa.ColumnElement[str], texts: sa.BindParameter[list[str]]) -> None:
        self.column = column
        self.texts = texts


@compiles(_Among)
def _any(element: _Among, compiler: Any, **kw: Any) -> str:
    return f"{compiler.process(element.column, **kw)} = ANY ({compiler.process(element.texts, **kw)})"


@compiles(_Among, "sqlite")
def _json_each(element: _Among, compiler: Any, **kw: Any) -> str:
    texts = compiler.process(element.texts, **kw)
    return f"{compiler.process(element.column, **kw)} IN (SELECT value FROM json_each({texts}))"


def _has_arrays(dialect: Any) -> bool:
    return bool(dialect.name == "postgresql")


def _shape(row: Mapping[str, Any]) -> Shape:
    return tuple([name for name, value in row.items() if value is not None])


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


_PLACE: Final = re.compile(r"%(?:\((\w+)\)s|s|%)")
# So many rows are sent one by one; more go as psycopg sends many, without waiting for each answer.
_FEW: Final = 8


class Preparing:
    """Whether statements may be prepared at all: not where a pooler may give each transaction another server.

    Shared by the connections of a store, since what one of them meets is true for all.
    """

    __slots__ = ("allowed",)

    def __init__(self) -> None:
        self.allowed = True

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """A pooler is known by the process that it names: not the one that does the work."""
        if self.allowed:
            told = connection.execute("SELECT pg_backend_pid()").fetchone()
            connection.rollback()
            self.allowed = told is not None and told[0] == connection.pgconn.backend_pid


class Prepared:
    """A connection's prepared statements. For one thread at a time, as the connection is.

    Values are sent as text and take the type that the statement gives their place: a statement is prepared
    once, whatever it is called with. Its name comes from its text: under no name is there ever another one.
    """

    __slots__ = ("_connection", "_pg", "_plans", "_preparing", "_writer")

    def __init__(self, connection: psycopg.Connection[Any], preparing: Preparing | None = None) -> None:
        self._connection = connection
        self._pg = connection.pgconn
        self._preparing = preparing or Preparing()
        self._plans: dict[str, _Plan] = {}
        self._writer = Transformer(connection)

    def execute(self, sql: str, given: Mapping[str, Any] | Sequence[Any] | None = None) -> Answer:
        """Run a statement with places `%(name)s` or `%s`, or several without any."""
        if given is None:
            return Answer(self._good(self._pg.exec_(sql.encode())), _Reader(self._connection))
        plan = self._plans.get(sql)
        if plan is None:
            plan = self._plans[sql] = self._prepare(sql)
        values = [given[name] for name in plan.names] if isinstance(given, Mapping) else given
        sent: Any = self._writer.dump_sequence(values, plan.formats)
        if self._preparing.allowed:
            return Answer(self._good(self._pg.exec_prepared(plan.name, sent)), plan.reader)
        return Answer(self._good(self._pg.exec_params(plan.text, sent)), plan.reader)

    def executemany(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of the rows, in order."""
        if len(rows) > _FEW:
            self._connection.cursor().executemany(sql, rows)
            return
        for row in rows:
            self.execute(sql, row)

    def _prepare(self, sql: str) -> _Plan:
        names: list[str] = []
        text = _PLACE.sub(lambda place: _numbered(place, names), sql)
        plan = _Plan(text.encode(), names, _Reader(self._connection))
        if self._preparing.allowed:
            self._good(self._pg.prepare(plan.name, plan.text))
        return plan

    def _good(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            return result
        if self._pg.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(f"the connection is lost: {self._pg.get_error_message()}")
        raise errors.error_from_result(result, self._connection.info.encoding)


class Answer:
    """What a statement gave: its rows, and how many it touched."""

    __slots__ = ("_reader", "_result")

    def __init__(self, result: pq.abc.PGresult, reader: _Reader) -> None:
        self._result = result
        self._reader = reader

    @property
    def rowcount(self) -> int:
        return self._result.command_tuples or 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._reader.rows(self._result, self._result.ntuples)

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(iter(self._reader.rows(self._result, min(1, self._result.ntuples))), None)


class _Reader:
    """Reads the rows of one statement; how its columns are read is looked up once."""

    __slots__ = ("_transformer", "_unknown")

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._transformer = Transformer(connection)
        self._unknown = True

    def rows(self, result: pq.abc.PGresult, most: int) -> list[tuple[Any, ...]]:
        self._transformer.set_pgresult(result, set_loaders=self._unknown)
        self._unknown = False
        found = self._transformer.load_rows(0, most, tuple)
        self._transformer.set_pgresult(None, set_loaders=False)
        return found


class _Plan:
    """A statement: its text and its name at the server, the names of its places, the reader of its rows."""

    __slots__ = ("formats", "name", "names", "reader", "text")

    def __init__(self, text: bytes, names: list[str], reader: _Reader) -> None:
        self.text = text
        self.name = b"holdfast_" + sha256(text).hexdigest()[:40].encode()
        self.names = tuple(names)
        self.formats = [PyFormat.TEXT] * len(names)
        self.reader = reader


def _numbered(place: re.Match[str], names: list[str]) -> str:
    if place[0] == "%%":
        return "%"
    name = place[1]
    if name is None or name not in names:
        names.append(name or f"{len(names)}")
        return f"${len(names)}"
    return f"${names.index(name) + 1}"
