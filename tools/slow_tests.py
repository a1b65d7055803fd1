"""Names the tests that `make test-quick` leaves out, by what they took in a run of all of them.

    pytest --junitxml=durations.xml && python tools/slow_tests.py durations.xml > tests/slow_tests.txt

The cheapest stay until the budget is used up; a test is its function, with all its parameters. Each line has
the seconds of one of them, by which a run of all tests begins with the longest.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

BUDGET_SECONDS = 110.0
"""Of work, on one core: two cores do it in about a minute, and a third of that goes into starting up."""
POSTGRES = "postgres"


def durations(paths: list[str]) -> dict[str, list[float]]:
    """Seconds of each test function, one for each parameter; those on PostgreSQL are left out anyway."""
    found: dict[str, list[float]] = defaultdict(list)
    for path in paths:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            name, _, parameters = case.attrib["name"].partition("[")
            if POSTGRES not in parameters:
                found[f"{case.attrib['classname']}.{name}"].append(float(case.attrib["time"]))
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
    found = durations(sys.argv[1:])
    print("\n".join(f"{max(found[name]):.1f} {name}" for name in slow(found, BUDGET_SECONDS)))


if __name__ == "__main__":
    main()
