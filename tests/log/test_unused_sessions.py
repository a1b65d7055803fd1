"""Sessions that nobody uses are archived, by age and by number; what is under way stays."""

from __future__ import annotations

from builders import accept
from holdfast.clock import ManualClock
from holdfast.log import OWNER, Store, sessions
from holdfast.log.retention import archive_unused


def begin(store: Store, clock: ManualClock, *keys: str) -> None:
    for key in keys:
        clock.advance(minutes=1)
        with store.write(OWNER) as tx:
            sessions.ensure(tx, key)


def active(store: Store) -> list[str]:
    with store.read(OWNER) as tx:
        return sorted(s.key for s in sessions.listing(tx) if s.status == "active")


def test_a_session_unused_for_so_long_is_archived_and_its_words_stay(
    store: Store, clock: ManualClock
) -> None:
    begin(store, clock, "agent:main:web:dm:old")
    accept(store, key="waits", to="agent:main:web:dm:busy")
    clock.advance(hours=24 * 30, ms=60_000)
    begin(store, clock, "agent:main:web:dm:new")
    assert archive_unused(store, days=None, most=0) == 0
    assert archive_unused(store, days=30, most=0) == 1
    assert active(store) == ["agent:main:web:dm:busy", "agent:main:web:dm:new"]
    with store.write(OWNER) as tx:
        left = sessions.history(tx, "agent:main:web:dm:old")[0]
        assert left.archive_cause == "unused"
        assert sessions.ensure(tx, "agent:main:web:dm:old").id != left.id


def test_above_the_number_of_an_agent_the_least_lately_used_go(store: Store, clock: ManualClock) -> None:
    begin(store, clock, *(f"agent:main:web:dm:{n}" for n in range(5)), "agent:other:web:dm:1")
    with store.write(OWNER) as tx:
        sessions.touch(tx, sessions.ensure(tx, "agent:main:web:dm:0"), external=True)
    assert archive_unused(store, days=None, most=3) == 2
    kept = ["agent:main:web:dm:0", "agent:main:web:dm:3", "agent:main:web:dm:4", "agent:other:web:dm:1"]
    assert active(store) == kept
    assert archive_unused(store, days=None, most=3) == 0
