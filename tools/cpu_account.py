"""What each test costs in CPU, with all processes that it starts, however busy the machine is.

    PYTHONPATH=. pytest -n 3 -p tools.cpu_account --cpu-account=build/cpu
    python tools/cpu_account.py build/cpu

A worker's descendants are counted, and those that left it (PostgreSQL's do) by the worker's name in their
environment. What is begun for several tests is on the account of the first.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TICK = os.sysconf("SC_CLK_TCK")
WORKER = "PYTEST_XDIST_WORKER"


class Account:
    """The CPU seconds that this process and all that came of it have used."""

    def __init__(self) -> None:
        self._mine = f"{WORKER}={os.environ.get(WORKER, '')}\0".encode()
        self._run = f"PYTEST_XDIST_TESTRUNUID={os.environ.get('PYTEST_XDIST_TESTRUNUID', '')}\0".encode()
        self._adopted: dict[tuple[int, str], bool] = {}

    def own(self) -> float:
        return time.process_time()

    def others(self) -> float:
        parents: dict[int, list[int]] = defaultdict(list)
        used: dict[int, float] = {}
        left: list[int] = []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    said = file.read().rpartition(b") ")[2].split()
            except OSError:
                continue
            pid, parent = int(name), int(said[1])
            parents[parent].append(pid)
            used[pid] = sum(map(int, said[11:15])) / TICK
            if parent == 1 and self._is_mine(pid, said[19].decode()):
                left.append(pid)
        waited = os.times()
        total = waited.children_user + waited.children_system
        seen: set[int] = set()
        stack = [*parents[os.getpid()], *left]
        while stack:
            pid = stack.pop()
            if pid not in seen:
                seen.add(pid)
                total += used[pid]
                stack += parents[pid]
        return total

    def _is_mine(self, pid: int, begun: str) -> bool:
        known = self._adopted.get((pid, begun))
        if known is None:
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
            except OSError:
                environment = b""
            known = self._mine in environment and self._run in environment
            self._adopted[pid, begun] = known
        return known


class Plugin:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{os.environ.get(WORKER, 'main')}.tsv").open("w")
        self._account = Account()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = (self._account.others(), self._account.own(), time.monotonic())
        yield
        own, wall = self._account.own() - before[1], time.monotonic() - before[2]
        # What nobody waited for takes its CPU along when it ends; it was on the account of those before.
        others = max(0.0, self._account.others() - before[0])
        self._file.write(f"{own:.3f}\t{others:.3f}\t{wall:.3f}\t{item.nodeid}\n")
        self._file.flush()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-account", metavar="FOLDER", help="Write there what each test costs.")


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--cpu-account")
    if folder:
        os.environ.pop("FORKS_NEST", None)  # what a worker begins is known by whose child it is
    if folder and (os.environ.get(WORKER) or not getattr(config.option, "numprocesses", None)):
        config.pluginmanager.register(Plugin(Path(folder)))


def main() -> None:
    lines = [
        line.rstrip("\n").split("\t", 3)
        for path in Path(sys.argv[1]).glob("*.tsv")
        for line in path.read_text().splitlines()
    ]
    tests = [(float(own) + float(others), float(wall), float(own), name) for own, others, wall, name in lines]
    every, in_pytest = sum(one[0] for one in tests), sum(one[2] for one in tests)
    print(f"{every:.0f} CPU s, {in_pytest:.0f} of them in pytest itself")
    for title, key in (("test", _whole), ("function", _function), ("file", _file), ("room", _room)):
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for cpu, wall, _, name in tests:
            held = sums[key(name)]
            held[0], held[1], held[2] = held[0] + cpu, held[1] + wall, held[2] + 1
        print(f"\nby {title}: CPU s, wall s, tests")
        for name, (cpu, wall, count) in sorted(sums.items(), key=lambda one: -one[1][0])[:60]:
            print(f"{cpu:8.1f} {wall:8.1f} {count:5.0f}  {name}")


def _whole(name: str) -> str:
    return name


def _function(name: str) -> str:
    return name.partition("[")[0]


def _file(name: str) -> str:
    return name.partition("::")[0]


def _room(name: str) -> str:
    return "/".join(name.split("/")[:2])


if __name__ == "__main__":
    main()
