"""PostgreSQL past psycopg: the same values, the same errors, each statement prepared once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import Unavailable
from holdfast.log import OWNER, Store

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)
LONGS = st.integers(-(2**63), 2**63 - 1)
ALL = """SELECT %(text)s::text, %(number)s::bigint, %(part)s::double precision, %(flag)s::boolean,
 %(texts)s::text[], 100 %% 7, %(text)s::text"""


@pytest.fixture(scope="module")
def store(postgres_url: str) -> Iterator[Store]:
    made = Store(postgres_url)
    yield made
    made.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS | st.none(), LONGS | st.none(), st.floats(allow_nan=False), st.booleans(), st.lists(TEXTS))
def test_values_come_back_as_they_were_given(
    store: Store, text: str | None, number: int | None, part: float, flag: bool, texts: list[str]
) -> None:
    given_ = {"text": text, "number": number, "part": part, "flag": flag, "texts": texts}
    with store.read(OWNER) as tx, tx.driver(ALL) as connection:
        assert connection.execute(ALL, given_).fetchall() == [(text, number, part, flag, texts, 2, text)]
        assert connection.execute("SELECT %s::text", (text,)).fetchone() == (text,)


def test_a_statement_is_prepared_once_whatever_it_is_called_with_and_stays_so_after_a_rollback(
    store: Store,
) -> None:
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT $1::text ||%'"
    asked = "SELECT %(one)s::text || %(two)s::text"
    with store.read(OWNER) as tx, tx.driver(asked) as connection:
        for two in ("b", "a longer one", None, "b"):
            expected = None if two is None else f"a{two}"
            assert connection.execute(asked, {"one": "a", "two": two}).fetchone() == (expected,)
        assert connection.execute(prepared).fetchone() == (1,)
        for _ in range(8):  # so often that psycopg would prepare it, and drop all it knows when it rolls back
            tx.conn.exec_driver_sql("SELECT 1 + 1")
        tx.conn.rollback()
        assert connection.execute(asked, {"one": "a", "two": "c"}).fetchone() == ("ac",)


def test_a_failure_is_named_as_psycopg_names_it(store: Store) -> None:
    for wrong, kind in (("SELECT nonsense", sa.exc.ProgrammingError), ("SELECT 1 / %s", sa.exc.DataError)):
        with pytest.raises(kind), store.read(OWNER) as tx, tx.driver(wrong) as connection:
            connection.execute(wrong, (0,) if "%s" in wrong else None)
    with store.read(OWNER) as tx, tx.driver("SELECT 1") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_ends_the_connection_is_told_as_unavailable_and_the_next_use_has_a_new_one(
    store: Store,
) -> None:
    own = "SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(Unavailable), store.read(OWNER) as tx, tx.driver(own) as connection:
        connection.execute(own)
    with store.read(OWNER) as tx, tx.driver("SELECT 1") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_rows_are_written_in_order_few_or_many(store: Store) -> None:
    insert = "INSERT INTO numbers VALUES (%(n)s)"
    for count in (3, 40):
        with store.write(OWNER) as tx:
            tx.conn.exec_driver_sql("CREATE TEMPORARY TABLE numbers (n bigint, at serial) ON COMMIT DROP")
            with tx.driver(insert) as connection:
                connection.executemany(insert, [{"n": n} for n in range(count)])
                found = connection.execute("SELECT n FROM numbers ORDER BY at").fetchall()
            assert found == [(n,) for n in range(count)]
