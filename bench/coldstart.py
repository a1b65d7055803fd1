"""How long `holdfast --help` takes and how large the base install is, beside peers' figures.

    python bench/coldstart.py

CPU seconds depend on the machine, so the figure to look at is the ratio to a bare interpreter.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution

# As given in the project's reference `wounds.md`, measured there: CPU seconds of `--help`, MB installed,
# and a bare interpreter at 0.02 s.
PEERS = {"nanobot": (2.8, 290), "hermes": (1.1, 137), "llm": (1.75, 46), "letta": (7.2, 814)}
PEERS_BARE = 0.02
TARGET = 8.0


def cpu_seconds(command: list[str], runs: int) -> float:
    """The least CPU time of several runs, user and system."""
    best = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best, spent)
    return best


def base_closure(root: str = "holdfast") -> set[str]:
    """The distributions that the base install brings, without extras."""
    from packaging.requirements import Requirement

    seen: set[str] = set()
    waiting = [root]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        seen.add(name)
        for text in needs:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                waiting.append(need.name)
    return seen


def installed_bytes(name: str) -> int:
    """The size of the files of a distribution, compiled ones left out."""
    found = distribution(name)
    total = 0
    for file in found.files or []:
        path = found.locate_file(file)
        if not str(file).endswith(".pyc") and path.is_file():
            total += path.stat().st_size
    return total


def own_bytes() -> int:
    """The package itself, which an editable install does not list."""
    from pathlib import Path

    import holdfast

    root = Path(holdfast.__file__).parent
    return sum(p.stat().st_size for p in root.rglob("*") if p.is_file() and p.suffix != ".pyc")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=10)
    runs = options.parse_args().runs
    bare = cpu_seconds([sys.executable, "-c", "pass"], runs)
    ours = cpu_seconds([sys.executable, "-m", "holdfast.cli", "--help"], runs)
    sizes = {name: installed_bytes(name) for name in base_closure() - {"holdfast"}}
    sizes["holdfast"] = own_bytes()
    total = sum(sizes.values()) / 1e6
    print(f"bare interpreter {bare:.3f} s CPU; holdfast --help {ours:.3f} s CPU")
    print(f"{'':10} {'x bare':>8} {'MB':>6}")
    print(f"{'holdfast':10} {ours / bare:8.1f} {total:6.0f}   (target: at most {TARGET:.0f} x bare)")
    for name, (seconds, size) in PEERS.items():
        print(f"{name:10} {seconds / PEERS_BARE:8.1f} {size:6.0f}   (as given in wounds.md)")
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:6]
    print("largest: " + ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in largest))


if __name__ == "__main__":
    main()
