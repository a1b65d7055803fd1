"""Names the tests that `make test-quick` leaves out, by the CPU that each took in a run of all of them.

    PYTHONPATH=. pytest -p tools.cpu_account --cpu-account=build/cpu
    python tools/slow_tests.py build/cpu > tests/slow_tests.txt

The cheapest stay until the budget is used up; a test is its function, with all its parameters. Each line has
the CPU seconds of one of them, by which a run of all tests begins with the longest. How busy the machine was
makes no difference.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

BUDGET_SECONDS = 95.0
"""Of CPU, with all processes that are started; two workers take some 25 more to load and collect."""
POSTGRES = "postgres"


def durations(folder: Path) -> dict[str, list[float]]:
    """Seconds of each test function, one for each parameter; those on PostgreSQL are left out anyway."""
    found: dict[str, list[float]] = defaultdict(list)
    for path in sorted(folder.glob("*.tsv")):
        for line in path.read_text().splitlines():
            own, others, _, test = line.split("\t", 3)
            name, _, parameters = test.partition("[")
            if POSTGRES not in parameters:
                place, *inner = name.split("::")
                dotted = ".".join([place.removesuffix(".py").replace("/", "."), *inner])
                found[dotted].append(max(0.0, float(own) + float(others)))
    return found


def slow(found: dict[str, list[float]], budget: float) -> list[str]:
    """The functions that do not fit, when the ones that are cheapest for each test come first."""
    left = budget
    names = []
    for name, seconds in sorted(found.items(), key=lambda one: sum(one[1]) / len(one[1])):
        left -= sum(seconds)
        if left < 0:
            names.append(name)
    return sorted(names)


def main() -> None:
    print("# Left out by `make test-quick`; written by `make slow-tests`. A test that is not here is run.")
    found = durations(Path(sys.argv[1]))
    print("\n".join(f"{max(found[name]):.1f} {name}" for name in slow(found, BUDGET_SECONDS)))


if __name__ == "__main__":
    main()
