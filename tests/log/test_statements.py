"""Statements that go past SQLAlchemy give what it would give."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from builders import enqueue
from holdfast.errors import Unavailable
from holdfast.log import OWNER, Store
from holdfast.log.statements import Insert, Statement, Update, among
from holdfast.log.tables import agenda, leases

ALL = sa.select(agenda).order_by(agenda.c.id)


def test_a_row_is_as_sqlalchemy_reads_it(store: Store) -> None:
    enqueue(store, lane="l", payload={"a": [1, None, "🌊", {"b": 0.5}], "%": "100 %"})
    enqueue(store, lane="m", payload={})
    with store.read(OWNER) as tx:
        usual = [tuple(row) for row in tx.conn.execute(ALL)]
        assert Statement(ALL).rows(tx) == usual
        assert Statement(ALL).first(tx) == usual[0]
        assert Statement(ALL.where(sa.false())).first(tx) is None


def test_a_list_of_texts_is_bound_as_one_value(store: Store) -> None:
    names = ["plain", "it's", 'quo"ted', "[1]", "🌊", ""]
    insert = Statement(sa.insert(leases))
    chosen = Statement(sa.select(leases.c.name).where(among(leases.c.name, "names")))
    with store.write(OWNER) as tx:
        for name in names:
            insert.run(tx, name=name, owner="o", until=1, revision=0)
        for wanted in ([], names[:1], names[1:4], [*names, "none"]):
            found = {name for (name,) in chosen.rows(tx, names=wanted)}
            assert found == set(wanted) & set(names)
        usual = sa.select(leases.c.name).where(among(leases.c.name, "names"))
        assert set(tx.conn.execute(usual, {"names": names[:2]}).scalars()) == set(names[:2])


def test_an_update_sets_the_columns_that_are_named_and_counts_its_rows(store: Store) -> None:
    made = enqueue(store, lane="l", payload={"a": 1})
    change = Update(agenda, agenda.c.id == sa.bindparam("item"))
    with store.write(OWNER) as tx:
        assert change.run(tx, {"payload": {"b": [2]}, "cancel_requested": True}, item=made.id) == 1
        assert change.run(tx, {"error": "late"}, item=made.id) == 1
        assert change.run(tx, {"error": None}, item="none") == 0
        row = tx.conn.execute(ALL).one()
    assert (row.payload, row.cancel_requested, row.error) == ({"b": [2]}, True, "late")
    assert (row.lane, row.status) == ("l", "queued")


def test_an_insert_takes_the_place_of_the_row_that_was_there_whatever_the_order_of_its_columns(
    store: Store,
) -> None:
    put = Insert(leases, replace=["name"])
    with store.write(OWNER) as tx:
        put.one(tx, {"revision": 1, "until": 2, "owner": "a", "name": "n"})
        put.one(tx, {"name": "n", "owner": "b", "until": 3, "revision": 4})
        put.many(tx, [{"until": 6, "name": "m", "revision": 5, "owner": "c"}])
        rows = tx.conn.execute(sa.select(leases).order_by(leases.c.name)).mappings().all()
    assert [dict(row) for row in rows] == [
        {"name": "m", "owner": "c", "until": 6, "revision": 5},
        {"name": "n", "owner": "b", "until": 3, "revision": 4},
    ]


def test_what_goes_wrong_is_told_as_for_any_statement(store: Store) -> None:
    insert = Statement(sa.insert(leases))
    with pytest.raises(sa.exc.IntegrityError), store.write(OWNER) as tx:
        insert.run(tx, name="a", owner=None, until=1, revision=0)
    if not store.postgres:
        with pytest.raises(Unavailable, match="writing"), store.read(OWNER) as tx:
            insert.run(tx, name="a", owner="o", until=1, revision=0)
