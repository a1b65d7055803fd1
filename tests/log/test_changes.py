from __future__ import annotations

import threading

from builders import append, in_threads
from holdfast.clock import ManualClock
from holdfast.log import OWNER, Store, changes


def emit(store: Store, *names: str) -> None:
    with store.write(OWNER) as tx:
        for name in names:
            changes.emit(tx, "x", name)


def test_changes_come_back_in_order_and_by_pages(store: Store, clock: ManualClock) -> None:
    with store.write(OWNER) as tx:
        changes.emit(tx, "topic.deleted", "t", {"name": "🌊", "n": None})
        changes.emit(tx, "log.appended", "a")
        changes.emit(tx, "log.appended", "b")
    with store.read(OWNER) as tx:
        seen = changes.since(tx, 0)
        assert [(c.type, c.entity_id) for c in seen] == [
            ("topic.deleted", "t"),
            ("log.appended", "a"),
            ("log.appended", "b"),
        ]
        assert (seen[0].payload, seen[1].payload) == ({"name": "🌊", "n": None}, None)
        assert seen[0].created_at == clock.now()
        assert changes.since(tx, 0, limit=1) == seen[:1]
        assert changes.since(tx, seen[0].seq) == seen[1:]
        assert changes.bounds(tx) == (seen[0].seq, seen[-1].seq)


def test_the_bounds_of_an_empty_feed_hold_nothing(store: Store) -> None:
    with store.read(OWNER) as tx:
        assert changes.bounds(tx) == (1, 0)


def test_a_page_is_bounded(store: Store) -> None:
    emit(store, *map(str, range(changes.MAX_PAGE + 1)))
    with store.read(OWNER) as tx:
        assert len(changes.since(tx, 0, limit=10**9)) == changes.MAX_PAGE
        assert len(changes.since(tx, 0, limit=0)) == 1


def test_waiters_are_rung_after_the_commit_and_only_then(store: Store) -> None:
    rung: list[list[str]] = []

    def look() -> None:
        with store.read(OWNER) as tx:
            rung.append([c.entity_id for c in changes.since(tx, 0)])

    end = store.signals.subscribe(changes.SIGNAL, look)
    emit(store, "a", "b")
    try:
        with store.write(OWNER) as tx:
            changes.emit(tx, "x", "lost")
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert rung == [["a", "b"]]
    end()
    end()
    emit(store, "c")
    assert len(rung) == 1


def test_a_reader_that_follows_many_writers_misses_nothing(store: Store) -> None:
    """Numbers become visible in the order in which they were given, so none appears behind the reader."""
    done = threading.Event()
    seen: list[int] = []

    def follow() -> None:
        last = False
        while not last:
            last = done.is_set()
            with store.read(OWNER) as tx:
                seen.extend(c.seq for c in changes.since(tx, seen[-1] if seen else 0, limit=7))
            last = last and seen[-1:] == [newest(store)]

    reader = threading.Thread(target=follow)
    reader.start()
    made = in_threads(8, lambda n: [append(store, f"{n}-{i}").position for i in range(25)])
    done.set()
    reader.join()
    with store.read(OWNER) as tx:
        kept = [c.seq for c in changes.since(tx, 0)]
    assert seen == kept
    assert len(seen) == 200
    assert len({position for each in made for position in each}) == 200


def newest(store: Store) -> int:
    with store.read(OWNER) as tx:
        return changes.bounds(tx)[1]
