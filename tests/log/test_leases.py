from __future__ import annotations

import os
import subprocess
import sys

import forks
from builders import in_threads
from holdfast.clock import ManualClock
from holdfast.log import OWNER, Store, leases, this_process
from holdfast.log.leases import Lease, is_dead


def acquire(store: Store, owner: str, name: str = "digest") -> Lease | None:
    with store.write(OWNER, ordered=False) as tx:
        return leases.acquire(tx, name, owner=owner, for_ms=1_000)


def test_a_lease_is_held_by_one_until_it_runs_out(store: Store, clock: ManualClock) -> None:
    first = acquire(store, "a")
    assert first == Lease("digest", "a", clock.now() + 1_000, 1)
    assert acquire(store, "b") is None
    assert acquire(store, "b", "other") is not None
    clock.advance(ms=1_000)
    taken = acquire(store, "b")
    assert taken == Lease("digest", "b", clock.now() + 1_000, 2)
    with store.write(OWNER) as tx:
        assert leases.current(tx, "digest") == taken
        assert first is not None
        assert not leases.release(tx, first)


def test_the_holder_renews_and_gives_back(store: Store, clock: ManualClock) -> None:
    acquire(store, "a")
    clock.advance(ms=900)
    renewed = acquire(store, "a")
    assert renewed == Lease("digest", "a", clock.now() + 1_000, 2)
    with store.write(OWNER) as tx:
        assert renewed is not None
        assert leases.release(tx, renewed)
        assert leases.current(tx, "digest") is None
    assert acquire(store, "b") is not None


def test_of_many_who_ask_at_once_one_gets_it(store: Store) -> None:
    won = [lease for lease in in_threads(8, lambda n: acquire(store, f"o{n}")) if lease is not None]
    assert len(won) == 1


def test_the_lease_of_a_dead_process_is_free_at_once(store: Store) -> None:
    code = "from holdfast.log import this_process; print(this_process())"
    dead = forks.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert acquire(store, dead) is not None
    assert acquire(store, "b") is not None


def test_only_a_process_that_certainly_ended_is_dead() -> None:
    host, pid, started = this_process().split("/")
    assert not is_dead(this_process())
    assert not is_dead(f"elsewhere/{pid}/1")
    assert not is_dead("someone")
    assert is_dead(f"{host}/{pid}/{int(started) + 1}")
    name, _, machine = host.partition("@")
    id_, _, boot = machine.partition(".")
    assert not is_dead(f"{name}@another.{boot}/{pid}/1"), "a machine of the same name is not this one"
    assert is_dead(f"{name}@{id_}.before/{pid}/{started}") == bool(id_), "started anew, all that ran is over"
    assert is_dead(f"{name}/{pid}/{int(started) + 1}"), "as older versions named themselves"
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(f"{host}/{child.pid}/1"), "a corpse that nobody has buried yet is dead too"
    child.wait()
    assert is_dead(f"{host}/{child.pid}/1")
