from __future__ import annotations

import pytest

from builders import claim, in_threads, item
from holdfast.clock import ManualClock
from holdfast.errors import Conflict, NotFound
from holdfast.log import OWNER, Store, check, outbox
from holdfast.log.outbox import Delivery, DeliveryStatus, Parcel


def parcel(key: str = "p", target: str = "web", **fields: object) -> Parcel:
    return Parcel(key=key, kind="chat", target=target, payload={"text": "hi"}, **fields)  # type: ignore[arg-type]


def post(store: Store, what: Parcel) -> Delivery:
    with store.write(OWNER) as tx:
        return outbox.post(tx, what)


def test_a_parcel_waits_with_an_agenda_item_that_will_deliver_it(store: Store) -> None:
    made = post(store, parcel())
    with store.read(OWNER) as tx:
        assert outbox.get(tx, made.id) == made
    due = item(store, made.agenda_id or "")
    assert (due.kind, due.payload, due.lane) == (outbox.KIND, {"outboxId": made.id}, "deliver:web")
    assert check(store) == []


def test_the_same_key_again_finds_the_parcel_that_is_there(store: Store) -> None:
    made = in_threads(6, lambda n: post(store, parcel("p\0")))
    assert len({one.id for one in made}) == 1


def test_parcels_for_one_target_go_out_in_order(store: Store) -> None:
    first, second, other = (post(store, parcel(k, t)) for k, t in (("1", "a"), ("2", "a"), ("3", "b")))
    assert [i.payload["outboxId"] for i in claim(store)] == [first.id, other.id]
    assert item(store, second.agenda_id or "").status == "queued"


def test_a_delivery_is_marked_done_once(store: Store, clock: ManualClock) -> None:
    made = post(store, parcel())
    with store.write(OWNER) as tx:
        outbox.attempt_failed(tx, made.id, "no route \0", final=False)
        done = outbox.delivered(tx, made.id, receipt="r-1")
    assert (done.status, done.receipt, done.attempts, done.error) == (
        DeliveryStatus.DELIVERED,
        "r-1",
        1,
        None,
    )
    assert done.delivered_at == clock.now()
    with store.write(OWNER) as tx:
        with pytest.raises(Conflict):
            outbox.delivered(tx, made.id)
        with pytest.raises(Conflict):
            outbox.attempt_failed(tx, made.id, "late", final=True)
        with pytest.raises(NotFound):
            outbox.get(tx, "out-none")


def test_a_delivery_given_up_is_listed_as_failed(store: Store, clock: ManualClock) -> None:
    made = [post(store, parcel(str(n), f"t{n % 2}")) for n in range(3)]
    clock.advance(seconds=1)
    with store.write(OWNER) as tx:
        failed = outbox.attempt_failed(tx, made[0].id, "gone", final=True)
    with store.read(OWNER) as tx:
        assert outbox.listing(tx, status=DeliveryStatus.FAILED) == [failed]
        assert [d.id for d in outbox.listing(tx)] == [made[0].id, made[2].id, made[1].id]
        assert [d.id for d in outbox.listing(tx, target="t0", limit=1)] == [made[0].id]
        assert {d.id for d in outbox.get_many(tx, [made[1].id, "none"])} == {made[1].id}
