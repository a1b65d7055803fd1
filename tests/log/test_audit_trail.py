"""The audit trail: only ever added to, and whole or seen not to be."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.clock import ManualClock
from holdfast.log import OWNER, Origin, Store, Tx, audit
from holdfast.log.tables import audit_trail as table


def act(store: Store, name: str = "login", target: str = "ada", **details: str) -> None:
    with store.write(OWNER) as tx:
        tx.origin = Origin("page", "10.0.0.7")
        audit.note(tx, name, target, by="user:ada", **details)


def verified(store: Store) -> audit.Verified:
    with store.read(OWNER) as tx:
        return audit.verify(tx)


def test_an_act_says_who_did_what_from_where_and_for_whom(store: Store) -> None:
    with store.write(OWNER) as tx:
        tx.origin = Origin("api", "::1")
        audit.note(tx, "token.added", "laptop", by="user:ada", behalf_of="user:bob", scope="read")
        audit.note(tx, "token.revoked", "phone")
    with store.read(OWNER) as tx:
        second, first = audit.listing(tx)
    told = first.json()
    assert {k: told[k] for k in ("seq", "act", "actor", "surface", "address", "onBehalfOf", "target")} == {
        "seq": 1,
        "act": "token.added",
        "actor": "user:ada",
        "surface": "api",
        "address": "::1",
        "onBehalfOf": "user:bob",
        "target": "laptop",
    }
    assert first.details == {"scope": "read"}
    assert (second.seq, second.actor, second.before) == (2, "owner", first.digest)


def test_what_is_not_committed_was_not_done(store: Store) -> None:
    act(store)

    def broken_off(tx: Tx) -> None:
        audit.note(tx, "login", "mal")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.run(OWNER, broken_off)
    act(store, target="bob")
    with store.read(OWNER) as tx:
        assert [(one.seq, one.target) for one in audit.listing(tx)] == [(2, "bob"), (1, "ada")]
    assert verified(store).faults == []


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (sa.delete(table).where(table.c.seq == 3), "between 2 and 4: 1 missing"),
        (sa.delete(table).where(table.c.seq < 3), "before 3"),
        (sa.update(table).where(table.c.seq == 3).values(actor="user:mal"), "at 3: its words"),
        (sa.update(table).where(table.c.seq == 3).values(details={"scope": "admin"}), "at 3: its words"),
        (sa.update(table).where(table.c.seq == 4).values(before="0" * 64), "at 4: it does not follow on 3"),
    ],
)
def test_what_was_changed_or_taken_out_shows(store: Store, spoil: sa.Executable, told: str) -> None:
    for name in "abcde":
        act(store, target=name, scope="read")
    assert verified(store) == audit.Verified(5, 5, verified(store).digest, [])
    with store.write(OWNER) as tx:
        tx.conn.execute(spoil)
    assert any(fault.startswith(told) for fault in verified(store).faults), verified(store).faults


def test_a_row_that_was_made_anew_with_its_digest_breaks_the_chain_behind_it(store: Store) -> None:
    for name in "abc":
        act(store, target=name)
    with store.write(OWNER) as tx:
        second = audit.listing(tx)[1].json() | {"actor": "user:mal"}
        forged = audit._digest(second)
        values = {"actor": "user:mal", "digest": forged}
        tx.conn.execute(sa.update(table).where(table.c.seq == 2).values(values))
    assert verified(store).faults == ["at 3: it does not follow on 2"]


def test_the_oldest_are_let_go_and_the_chain_goes_on(store: Store, clock: ManualClock) -> None:
    for name in "abc":
        act(store, target=name)
    clock.advance(hours=24 * 30)
    act(store, target="new")
    clock.advance(hours=24 * 10)
    with store.write(OWNER) as tx:
        assert audit.prune(tx, 35) == 3
    found = verified(store)
    assert (found.acts, found.last_seq, found.faults) == (2, 5, [])
    with store.read(OWNER) as tx:
        assert [one.act for one in audit.in_order(tx)] == ["login", "audit.let_go"]
    clock.advance(hours=24 * 50)
    with store.write(OWNER) as tx:
        assert audit.prune(tx, 35) == 1
    found = verified(store)
    assert (found.acts, found.last_seq, found.faults) == (2, 6, [])


def test_what_is_exported_can_be_checked_by_anyone(store: Store) -> None:
    import hashlib

    act(store, target="Grüße \N{SMILING FACE WITH SUNGLASSES}", note="a\nb")
    with store.read(OWNER) as tx:
        line = json.loads(json.dumps(next(audit.in_order(tx)).json()))
    digest = line.pop("digest")
    text = json.dumps(line, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == digest


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=6))
def test_any_words_are_kept_whole_and_in_the_chain(sqlite_store: Store, said: list[tuple[str, str]]) -> None:
    for target, detail in said:
        act(sqlite_store, target=target, detail=detail)
    assert verified(sqlite_store).faults == []


def test_acts_are_found_by_kind_actor_and_target(store: Store) -> None:
    act(store, "login")
    act(store, "login.failed", "bob")
    act(store, "logins", "eve")
    with store.read(OWNER) as tx:
        by_kind = audit.listing(tx, audit.ActFilter(act="login"))
        assert [one.act for one in by_kind] == ["login.failed", "login"]
        assert [one.seq for one in audit.listing(tx, audit.ActFilter(target="eve"))] == [3]
        assert audit.listing(tx, audit.ActFilter(actor="user:mal")) == []
        assert [one.seq for one in audit.listing(tx, before=3, limit=1)] == [2]
