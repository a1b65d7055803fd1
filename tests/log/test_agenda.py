from __future__ import annotations

import random
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from builders import claim, enqueue, examples, in_threads, item, rows
from holdfast.clock import ManualClock
from holdfast.errors import Busy, NotFound
from holdfast.log import OWNER, Store, agenda
from holdfast.log.agenda import Fail, Finish, Item, Postpone, Retry, Status
from plans import assert_no_scan, plans, recorded


def apply(store: Store, one: Item, event: agenda.Event) -> Item:
    with store.write(OWNER) as tx:
        return agenda.apply(tx, one, event)


def listed(store: Store, **options: Any) -> list[Item]:
    with store.read(OWNER) as tx:
        return agenda.listing(tx, **options)


def test_what_is_read_is_what_was_put_on(store: Store) -> None:
    made = enqueue(
        store, lane="l", key="k", payload={"a": [1, None, "🌊", "\ufffd"]}, max_attempts=3, due_at=5
    )
    assert item(store, made.id) == made
    assert listed(store) == [made]
    with store.read(OWNER) as tx:
        assert agenda.find(tx, "none") is None
        with pytest.raises(NotFound):
            agenda.get(tx, "none")


def test_strange_text_in_payload_and_key_does_no_harm(store: Store) -> None:
    made = enqueue(store, key="k\0", payload={"t": "half \ud800"})
    assert made.payload == {"t": "half \ufffd"}
    assert enqueue(store, key="k\0").id == made.id


def test_of_each_lane_one_runs_and_the_others_wait_in_order(store: Store) -> None:
    first, second = enqueue(store, lane="l"), enqueue(store, lane="l")
    other = enqueue(store, lane="m")
    assert [i.id for i in claim(store)] == [first.id, other.id]
    assert claim(store) == []
    apply(store, item(store, first.id), Finish("a"))
    assert [i.id for i in claim(store)] == [second.id]


def test_items_without_a_lane_run_side_by_side(store: Store) -> None:
    made = [enqueue(store).id for _ in range(5)]
    assert [i.id for i in claim(store)] == made


def test_the_oldest_due_comes_first_and_the_future_waits(store: Store, clock: ManualClock) -> None:
    late = enqueue(store, due_at=clock.now() + 10)
    early = enqueue(store, due_at=clock.now() - 10)
    assert [i.id for i in claim(store)] == [early.id]
    with store.read(OWNER) as tx:
        assert agenda.next_due(tx, ["work"]) == late.due_at
        assert agenda.next_due(tx, ["work"], after=late.due_at) is None
        assert agenda.next_due(tx, ["other"]) is None
    clock.advance(ms=10)
    assert [i.id for i in claim(store)] == [late.id]


def test_a_waiting_head_holds_its_lane(store: Store, clock: ManualClock) -> None:
    """Order within a lane is by due time, so one that failed and waits does not let later ones pass it."""
    first = enqueue(store, lane="l", max_attempts=3)
    enqueue(store, lane="l", due_at=clock.now() + 60_000)
    (held,) = claim(store)
    apply(store, held, Fail("a", "x", Retry(base_ms=500)))
    assert claim(store) == []
    clock.advance(ms=500)
    assert [i.id for i in claim(store)] == [first.id]


def test_caps_hold_per_kind_and_in_total(store: Store) -> None:
    for _ in range(6):
        enqueue(store, "a")
        enqueue(store, "b")
    taken = claim(store, {"a": 2, "b": 0, "c": 9})
    assert [i.kind for i in taken] == ["a", "a"]
    assert len(claim(store, {"a": 9, "b": 9}, most=3)) == 3
    assert claim(store, {"a": 0}) == []
    assert claim(store, {"a": -1}) == []


def test_a_key_that_waits_is_found_again_and_brought_forward(store: Store, clock: ManualClock) -> None:
    made = enqueue(store, key="k", due_at=clock.now() + 1_000)
    assert enqueue(store, key="k", due_at=clock.now() + 5_000) == made
    sooner = enqueue(store, key="k", due_at=clock.now())
    assert (sooner.id, sooner.due_at) == (made.id, clock.now())
    (held,) = claim(store)
    assert enqueue(store, key="k").id == made.id
    apply(store, held, Finish("a"))
    assert enqueue(store, key="k").id != made.id


def test_concurrent_first_uses_of_a_key_make_one_item(store: Store) -> None:
    def put(n: int) -> str:
        with store.write(OWNER, ordered=False) as tx:
            return agenda.enqueue(tx, "work", {"n": n}, key="k").id

    assert len(set(in_threads(8, put))) == 1
    assert rows(store, "SELECT count(*) FROM agenda") == [(1,)]


def test_a_lane_takes_only_so_many(store: Store) -> None:
    for _ in range(3):
        enqueue(store, lane="l", most_waiting=3)
    with pytest.raises(Busy):
        enqueue(store, lane="l", most_waiting=3)
    enqueue(store, lane="m", most_waiting=3)
    claim(store, most=1)
    enqueue(store, lane="l", most_waiting=3)


def test_cancelling_a_lane_empties_it_however_long_it_is(store: Store) -> None:
    (held,) = (enqueue(store, lane="l"),)
    claim(store)
    with store.write(OWNER) as tx:
        for _ in range(agenda.store.MAX_PAGE + 3):
            agenda.enqueue(tx, "work", {}, lane="l")
        agenda.enqueue(tx, "other", {}, lane="l")
    with store.write(OWNER) as tx:
        assert agenda.cancel_lane(tx, "l", kinds=["work"], reason="reset") == agenda.store.MAX_PAGE + 3
    assert [i.kind for i in listed(store, lane="l", statuses=[Status.QUEUED])] == ["other"]
    assert item(store, held.id).status is Status.RUNNING


def test_leases_that_ran_out_and_dead_owners_are_taken_back(store: Store, clock: ManualClock) -> None:
    for _ in range(3):
        enqueue(store, max_attempts=2)
    (a,) = claim(store, owner="a", most=1, lease_ms=1_000)
    (b,) = claim(store, owner="b", most=1, lease_ms=9_000)
    (c,) = claim(store, owner="c", most=1, lease_ms=9_000)
    clock.advance(ms=1_000)
    with store.write(OWNER) as tx:
        back = agenda.expire(tx, dead=lambda owner: owner == "b")
    assert [i.id for i in back] == [a.id, b.id]
    assert [(i.status, i.due_at, i.attempts, i.losses) for i in back] == [
        (Status.QUEUED, held.due_at, 0, 1) for held in (a, b)
    ]
    assert item(store, c.id) == c


def test_what_a_lost_worker_held_is_before_all_that_came_after_it(store: Store, clock: ManualClock) -> None:
    """However often that happens, and however many wait: the lane keeps its order."""
    made = []
    for _ in range(4):
        made.append(enqueue(store, lane="l").id)
        clock.advance(ms=5)
    for n in range(6):
        (held,) = claim(store, owner=f"o{n}")
        assert held.id == made[0]
        clock.advance(minutes=n)
        with store.write(OWNER) as tx:
            agenda.expire(tx, dead=lambda owner: True)
    ran = []
    while taken := claim(store):
        ran += [one.id for one in taken]
        apply(store, taken[0], Finish("a"))
    assert ran == made


def lose(store: Store, lane: str, times: int) -> None:
    for n in range(times):
        with store.write(OWNER) as tx:
            claimed = agenda.claim(tx, {"work": 100}, owner=f"o{n}", lease_ms=1_000)
            for one in claimed:
                if one.lane == lane:
                    agenda.apply(tx, one, agenda.Expire(owner_dead=True))
                else:
                    agenda.apply(tx, one, agenda.Expire(owner_dead=True, planned=True))


def test_of_those_that_processes_were_lost_with_one_runs_at_a_time(store: Store) -> None:
    a, b, c = (enqueue(store, lane=lane) for lane in "abc")
    d = enqueue(store, lane="a")
    lose(store, "a", agenda.SUSPECT_LOSSES)
    lose(store, "c", agenda.SUSPECT_LOSSES)
    assert [i.losses for i in (item(store, a.id), item(store, b.id), item(store, c.id))] == [3, 0, 3]
    assert [i.id for i in claim(store)] == [a.id, b.id]
    assert claim(store, suspects=False) == []
    apply(store, item(store, a.id), Finish("a"))
    assert [i.id for i in claim(store, suspects=False)] == [d.id]
    assert [i.id for i in claim(store)] == [c.id]


def test_what_its_owner_knows_nothing_of_is_given_back_at_once(store: Store) -> None:
    """The answer to a claim can be lost on the way, though it was written."""
    known, unknown, foreign = enqueue(store), enqueue(store), enqueue(store)
    claim(store, owner="a", most=2)
    claim(store, owner="b", most=1)
    with store.write(OWNER) as tx:
        held = {i.id for i in agenda.held_by(tx, "a")}
        back = agenda.expire(tx, orphans=held - {known.id})
    assert [(i.id, i.attempts, i.losses) for i in back] == [(unknown.id, 0, 0)]
    assert item(store, foreign.id).owner == "b"


def test_only_leases_held_by_the_same_claim_are_renewed(store: Store, clock: ManualClock) -> None:
    for _ in range(3):
        enqueue(store, max_attempts=5)
    held = claim(store, owner="a", lease_ms=1_000)
    apply(store, held[1], Finish("a"))
    clock.advance(ms=1_000)
    with store.write(OWNER) as tx:
        agenda.expire(tx)
    clock.advance(minutes=10)
    (again,) = claim(store, owner="a", most=1)
    (other,) = claim(store, owner="b", most=1)
    with store.write(OWNER) as tx:
        assert agenda.renew(tx, held, owner="a", lease_ms=5_000) == []
        renewed = agenda.renew(tx, [again, other], owner="a", lease_ms=90_000)
    assert [(i.id, i.lease_until) for i in renewed] == [(again.id, clock.now() + 90_000)]


def test_a_stale_copy_cannot_be_moved_on(store: Store) -> None:
    made = enqueue(store)
    (held,) = claim(store)
    with pytest.raises(agenda.IllegalTransition):
        apply(store, made, agenda.Cancel())
    apply(store, held, Finish("a"))
    with pytest.raises(agenda.IllegalTransition):
        apply(store, held, Finish("a"))


def test_who_hears_that_its_item_was_ended_by_another_and_ends_it_too_is_told_so(store: Store) -> None:
    enqueue(store)
    (held,) = claim(store)
    job = agenda.Job(held)
    job.became(apply(store, held, agenda.Expire(owner_dead=True)))
    with store.write(OWNER) as tx, pytest.raises(agenda.IllegalTransition):
        job.settle(tx)


def test_a_cancelled_item_runs_no_more(store: Store) -> None:
    made = enqueue(store)
    with store.write(OWNER) as tx:
        gone = agenda.cancel(tx, made.id, reason="no")
    assert (gone.status, gone.error) == (Status.CANCELLED, "no")
    assert claim(store) == []


def test_listing_shows_what_is_due_next_and_can_be_narrowed(store: Store, clock: ManualClock) -> None:
    a = enqueue(store, "a", lane="l", due_at=clock.now() + 2)
    b = enqueue(store, "b", lane="l", due_at=clock.now() + 1)
    c = enqueue(store, "a", due_at=clock.now() + 3)
    assert listed(store) == [b, a, c]
    assert listed(store, kinds=["a"]) == [a, c]
    assert listed(store, lane="l", limit=1) == [b]
    assert listed(store, statuses=[Status.DONE]) == []


def test_two_running_items_in_a_lane_are_impossible_even_by_raw_sql(store: Store) -> None:
    enqueue(store, lane="l")
    enqueue(store, lane="l")
    with pytest.raises(sa.exc.IntegrityError), store.write(OWNER) as tx:
        tx.conn.exec_driver_sql("UPDATE agenda SET status = 'running'")


def test_many_claimers_share_the_work_without_overlap(store: Store) -> None:
    for n in range(60):
        enqueue(store, lane=f"l{n % 6}")

    def work(n: int) -> list[tuple[str, str]]:
        mine: list[tuple[str, str]] = []
        while True:
            taken = claim(store, owner=f"o{n}", most=2)
            if not taken and not listed(store, limit=1):
                return mine
            for one in taken:
                mine.append((one.lane, one.id))
                apply(store, one, Finish(f"o{n}"))

    ran = [pair for each in in_threads(4, work) for pair in each]
    assert len(ran) == len(set(ran)) == 60


def test_claims_and_due_times_are_found_by_their_indexes(sqlite_store: Store) -> None:
    live = [Status.QUEUED, Status.RUNNING]
    with recorded(sqlite_store) as seen, sqlite_store.write(OWNER) as tx:
        agenda.claim(tx, {"a": 1, "b": 1}, owner="o", lease_ms=1)
        agenda.next_due(tx, ["a"], after=5)
        agenda.expire(tx)
        agenda.listing(tx, statuses=[Status.RUNNING], kinds=["a"], lane="l")
        agenda.listing(tx, statuses=live, kinds=["a"], lane="l")
    with sqlite_store.read(OWNER) as tx:
        claim_plan, due_plan, expire_plan, running_plan, live_plan = plans(tx, seen)
    assert "agenda USING INDEX agenda_due" in claim_plan, claim_plan
    assert "other USING INDEX agenda_running" in claim_plan, claim_plan
    assert "other USING INDEX agenda_lane" in claim_plan, claim_plan
    assert "agenda_due" in due_plan, due_plan
    assert "agenda_running" in expire_plan, expire_plan
    assert "agenda_running" in running_plan, running_plan
    assert "agenda_lane" in live_plan, live_plan
    assert "TEMP B-TREE" not in claim_plan + due_plan
    assert_no_scan("\n".join((claim_plan, due_plan, expire_plan, running_plan, live_plan)), "agenda")


class Model(RuleBasedStateMachine):
    """Random work through the store, beside the simplest list that could do the same."""

    store: Store
    clock: ManualClock

    def __init__(self) -> None:
        super().__init__()
        with self.store.write(OWNER) as tx:
            tx.conn.exec_driver_sql("DELETE FROM agenda")
        self.known: dict[str, Item] = {}

    def see(self, one: Item) -> None:
        self.known[one.id] = one

    def queued(self) -> list[Item]:
        return sorted(
            (i for i in self.known.values() if i.status is Status.QUEUED), key=lambda i: (i.due_at, i.id)
        )

    def running(self) -> list[Item]:
        return [i for i in self.known.values() if i.status is Status.RUNNING]

    def expected_claim(self, caps: dict[str, int], most: int) -> list[str]:
        busy, taken, caps = {i.lane for i in self.running()}, [], dict(caps)
        heads: dict[str, Item] = {}
        for one in self.queued():
            heads.setdefault(one.lane, one)
        due = [
            i
            for i in heads.values()
            if i.due_at <= self.clock.now() and i.lane not in busy and caps.get(i.kind, 0) > 0
        ]
        due.sort(key=lambda i: (i.due_at, i.id))
        suspects = [i for i in due if i.is_suspect]
        due = [i for i in due if i not in suspects[1:]]
        for one in sorted(due, key=lambda i: (i.due_at, i.id))[
            : min(most, sum(c for c in caps.values() if c > 0))
        ]:
            if caps[one.kind] > 0:
                caps[one.kind] -= 1
                taken.append(one.id)
        return taken

    @rule(
        lane=st.sampled_from(["l1", "l2", None]),
        kind=st.sampled_from("ab"),
        due=st.integers(-20, 40),
        attempts=st.integers(1, 3),
    )
    def put(self, lane: str | None, kind: str, due: int, attempts: int) -> None:
        self.see(enqueue(self.store, kind, lane=lane, due_at=self.clock.now() + due, max_attempts=attempts))

    @rule(owner=st.sampled_from("xyz"), a=st.integers(0, 2), b=st.integers(0, 2), most=st.integers(1, 4))
    def take(self, owner: str, a: int, b: int, most: int) -> None:
        expected = self.expected_claim({"a": a, "b": b}, most)
        taken = claim(self.store, {"a": a, "b": b}, owner=owner, most=most, lease_ms=30)
        assert [i.id for i in taken] == expected
        for one in taken:
            self.see(one)

    @precondition(lambda self: self.running())
    @rule(
        how=st.sampled_from(["finish", "fail", "fail for good", "postpone"]),
        pick=st.randoms(use_true_random=False),
    )
    def end(self, how: str, pick: random.Random) -> None:
        one = pick.choice(self.running())
        owner = one.owner or ""
        event: agenda.Event = Finish(owner)
        if how.startswith("fail"):
            event = Fail(owner, "x", Retry(base_ms=5), final=how != "fail")
        elif how == "postpone":
            event = Postpone(owner, self.clock.now() + 10)
        with self.store.write(OWNER) as tx:
            self.see(agenda.settle(tx, one, event))

    @rule(dead=st.sampled_from(["x", "y", ""]))
    def take_back(self, dead: str) -> None:
        gone = {i.id for i in self.running() if i.owner == dead or (i.lease_until or 0) <= self.clock.now()}
        with self.store.write(OWNER) as tx:
            back = agenda.expire(tx, dead=lambda owner: owner == dead)
        assert {i.id for i in back} == gone
        for one in back:
            before = self.known[one.id]
            assert one.cancel_requested or (one.due_at, one.attempts) == (before.due_at, before.attempts - 1)
            self.see(one)

    @precondition(lambda self: self.queued() or self.running())
    @rule(pick=st.randoms(use_true_random=False))
    def cancel(self, pick: random.Random) -> None:
        one = pick.choice(self.queued() + self.running())
        with self.store.write(OWNER) as tx:
            self.see(agenda.cancel(tx, one.id))

    @rule(ms=st.integers(1, 40))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms=ms)

    @invariant()
    def the_store_agrees(self) -> None:
        with self.store.read(OWNER) as tx:
            stored = agenda.listing(tx, statuses=list(Status), limit=agenda.store.MAX_PAGE)
        assert {i.id: i for i in stored} == self.known
        lanes = [i.lane for i in stored if i.status is Status.RUNNING]
        assert len(lanes) == len(set(lanes))


def test_the_agenda_does_what_its_simplest_model_does(store: Store, clock: ManualClock) -> None:
    machine = type("Bound", (Model,), {"store": store, "clock": clock})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(15), stateful_step_count=30, suppress_health_check=list(HealthCheck)
        ),
    )
