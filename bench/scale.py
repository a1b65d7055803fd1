"""How searches and context blocks scale with readers and cores, and what they do to a writer beside them.

    python bench/scale.py                                   # SQLite, 20,000 entries, 1 and 2 cores
    python bench/scale.py --engines sqlite postgres --readers 1 2 4 8 16 --seconds 5

A real gateway, held to so many cores, is asked over HTTP by 1 to 16 clients at once, each as soon as it has
its answer; no two questions are alike. It is measured as one process (`gateway.readers: 0`) and as it is by
default, with readers in processes of their own. `rate` is answers a second and its ratio to one client of the
same gateway, `CPU` milliseconds of all its processes an answer. The writer logs an entry every 50 ms: how
long each takes, beside so many clients, as a ratio to alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from common import cpu_seconds, request

from context import OURS, asked, connected, fill, postgres, rest, serving

PACE = 0.05


class Run(NamedTuple):
    rate: float
    p50: float
    cpu: float
    written: list[float]


def family(pid: int) -> list[int]:
    """A process and all that it began."""
    found = [pid]
    for at in found:
        tasks = Path(f"/proc/{at}/task")
        for task in tasks.iterdir() if tasks.exists() else ():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_of(pids: list[int]) -> float:
    total = 0.0
    for pid in pids:
        try:
            total += cpu_seconds(pid)
        except FileNotFoundError:
            continue
    return total


def ask_on(
    port: int, make: Callable[[int], bytes], first: int, stop: threading.Event, into: list[float]
) -> None:
    client = connected(port)
    n = first
    while not stop.is_set():
        began = time.perf_counter()
        status, answer = client.send(make(n))
        into.append(time.perf_counter() - began)
        if status not in (200, 429):
            raise SystemExit(f"{status}: {answer[:200]!r}")
        n += 64
    client.close()


def write_on(port: int, token: str, stop: threading.Event, into: list[float]) -> None:
    client = connected(port)
    n = 0
    while not stop.wait(PACE):
        body = json.dumps(
            {"content": f"entry {n} {time.time()}", "source": {"sessionKey": "bench:w"}}
        ).encode()
        began = time.perf_counter()
        status, answer = client.send(request("POST", "/api/log", token, body))
        into.append(time.perf_counter() - began)
        assert status == 201, answer
        n += 1
    client.close()


def run(
    pid: int,
    port: int,
    token: str,
    make: Callable[[int], bytes],
    clients: int,
    seconds: float,
    *,
    writer: bool,
) -> Run:
    stop, times, written = threading.Event(), [], []  # type: tuple[threading.Event, list[float], list[float]]
    threads = [
        threading.Thread(target=ask_on, args=(port, make, n * 1_000_003, stop, times)) for n in range(clients)
    ]
    if writer:
        threads.append(threading.Thread(target=write_on, args=(port, token, stop, written)))
    before, began = cpu_of(family(pid)), time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    took, used = time.perf_counter() - began, cpu_of(family(pid)) - before
    stop.set()
    for thread in threads:
        thread.join()
    count = max(1, len(times))
    return Run(len(times) / took, 1000 * statistics.median(times or [0.0]), 1000 * used / count, written)


@contextmanager
def gateway(home: Path, url: str, cores: int, readers: int | None) -> Iterator[tuple[int, int, str]]:
    config = json.loads((home / "holdfast.json").read_text())
    config["gateway"] = {} if readers is None else {"readers": readers}
    config.setdefault("board", {})["search"] = {"concurrency": 64, "waitMs": 60_000}
    (home / "holdfast.json").write_text(json.dumps(config))
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:cores])
    try:
        started = serving(OURS, str(home), url)
        with started as (pid, told):
            os.sched_setaffinity(0, all_cores)
            connected(int(told[0])).close()
            rest(pid)
            yield pid, int(told[0]), told[1]
    finally:
        os.sched_setaffinity(0, all_cores)


def told(written: list[float], alone: float) -> str:
    if not written:
        return "-"
    at = statistics.median(written) * 1000
    return f"{at:6.1f} ms ({at / alone:.1f}x)"


def measured(home: Path, url: str, options: argparse.Namespace, cores: int, readers: int | None) -> None:
    name = "one process" if readers == 0 else "with readers"
    with gateway(home, url, cores, readers) as (pid, port, token):
        for what in options.what:  # what is loaded at its first use belongs to none of the figures
            run(pid, port, token, asked(token, options.size)[what], 1, options.seconds, writer=True)
        alone = (
            statistics.median(run(pid, port, token, bytes, 0, options.seconds, writer=True).written) * 1000
        )
        for what in options.what:
            make = asked(token, options.size)[what]
            if readers is None:  # they are begun when questions meet
                run(pid, port, token, make, 4, 8, writer=False)
            base: Run | None = None
            print(f"\n{name}, {cores} core{'s' if cores > 1 else ''}: {what}; writer alone {alone:.1f} ms")
            print("  clients   rate (ratio)     p50 ms   CPU ms (ratio)   beside a writer: rate   writer p50")
            for clients in options.readers:
                quiet = run(pid, port, token, make, clients, options.seconds, writer=False)
                beside = run(pid, port, token, make, clients, options.seconds, writer=True)
                base = base or quiet
                print(
                    f"  {clients:>7} {quiet.rate:>6.0f} ({quiet.rate / base.rate:.2f}x) {quiet.p50:>10.1f}"
                    f" {quiet.cpu:>8.1f} ({quiet.cpu / base.cpu:.2f}x) {beside.rate:>18.0f}"
                    f"   {told(beside.written, alone)}"
                )


@contextmanager
def database(engine: str, folder: Path) -> Iterator[str]:
    """The address of a fresh store; empty for the home's own."""
    if engine == "sqlite":
        yield ""
        return
    with postgres(folder / "pg") as made:
        yield made("scale")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--engines", nargs="+", default=["sqlite"], choices=["sqlite", "postgres"])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--what", nargs="+", default=["search, 10 entries", "context full"])
    options = parser.parse_args()
    for engine in options.engines:
        with tempfile.TemporaryDirectory() as folder, database(engine, Path(folder)) as url:
            home = Path(folder) / "home"
            fill(home, url or None, options.size)
            print(f"\n== {engine}, {options.size:,} entries")
            for cores in options.cores:
                for readers in (0, None):
                    measured(home, url, options, cores, readers)


if __name__ == "__main__":
    main()
