"""Inserts on the hot path: compiled once per engine and shape, run past SQLAlchemy's per-call machinery."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.log.store import Tx

Shape = tuple[str, ...]


class PreparedInsert:
    """An insert of rows given as mappings; some 100 µs cheaper a statement than the ordinary way.

    Columns that are None are left to their default: the SQLite driver takes a microsecond to bind each.
    With `ignore` (columns, condition) a row that meets an equal one in that unique index is left out.
    """

    def __init__(
        self,
        table: sa.Table,
        *,
        returning: str | None = None,
        ignore: tuple[list[str], str] | None = None,
    ) -> None:
        self._table = table
        self._returning = returning
        self._ignore = ignore
        self._json = frozenset(c.name for c in table.columns if isinstance(c.type, sa.JSON))
        self._compiled: dict[tuple[bool, Shape], str] = {}

    def one(self, tx: Tx, row: Mapping[str, Any]) -> Any:
        """Insert a row; the returned column, or None if the row was left out."""
        shape = _shape(row)
        sql = self._sql(tx, shape)
        with tx.driver(sql) as connection:
            cursor = connection.execute(sql, self._values(tx, shape, row))
            found = cursor.fetchone() if self._returning else None
        return None if found is None else found[0]

    def many(self, tx: Tx, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows in order."""
        for shape, alike in groupby(rows, _shape):
            sql = self._sql(tx, shape)
            values = [self._values(tx, shape, row) for row in alike]
            with tx.driver(sql) as connection:
                connection.cursor().executemany(sql, values)

    def _values(self, tx: Tx, shape: Shape, row: Mapping[str, Any]) -> Any:
        values = [_encode(row[name]) if name in self._json else row[name] for name in shape]
        return dict(zip(shape, values, strict=True)) if tx.postgres else values

    def _sql(self, tx: Tx, shape: Shape) -> str:
        known = self._compiled.get((tx.postgres, shape))
        if known is None:
            known = self._compiled[tx.postgres, shape] = self._compile(tx, shape)
        return known

    def _compile(self, tx: Tx, shape: Shape) -> str:
        insert: Any = (postgresql if tx.postgres else sqlite).insert(self._table)
        statement = insert.values({name: sa.bindparam(name) for name in shape})
        if self._ignore is not None:
            columns, condition = self._ignore
            statement = statement.on_conflict_do_nothing(
                index_elements=columns, index_where=sa.text(condition)
            )
        if self._returning is not None:
            statement = statement.returning(self._table.c[self._returning])
        return str(statement.compile(dialect=tx.conn.dialect))


def _shape(row: Mapping[str, Any]) -> Shape:
    return tuple([name for name, value in row.items() if value is not None])


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
