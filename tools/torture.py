"""`make torture`: what is too long for every day, and what it did, in one table at the end.

    python tools/torture.py [kills] [faults] [properties] [questions] [views] [soak]

HOLDFAST_CRASH_KILLS (250 for each of four tests), HOLDFAST_EXAMPLES (20 times as many examples as usual) and
HOLDFAST_SOAK_SECONDS (3600) say how long.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CHANNEL_KILLS = "tests/channels/services/test_service_kills.py"
QUESTIONS = (
    "tests/audience",
    "tests/agents/test_control_words.py",
    "tests/agents/test_scripted_day.py",
    "tests/gateway/test_contract.py",
    "tests/gateway/test_every_page_browser.py",
    "tests/real_model",
)
"""Of which each day asks a share: see `share` in tests/builders.py."""
ROOT = Path(__file__).parents[1]
TOLD = re.compile(r"^.*?((?:sqlite|postgresql\S*): \d+ kills.*|soak: .*)$", re.M)
COUNTS = re.compile(r"^=+ (.*\d+ (?:passed|failed|error).*?) =+$", re.M)


@dataclass(frozen=True)
class Part:
    """Some of the tests, under an environment that makes them long."""

    name: str
    env: dict[str, str]
    paths: Callable[[], list[str]]


@dataclass(frozen=True)
class Result:
    name: str
    ok: bool
    seconds: float
    did: list[str]


def parts() -> list[Part]:
    return [
        Part("kills", {"HOLDFAST_CRASH_KILLS": "250"}, lambda: ["tests/crash"]),
        Part("channel kills", {"HOLDFAST_CRASH_KILLS": "20"}, lambda: [CHANNEL_KILLS]),
        Part("faults", {}, lambda: ["tests/faults"] if (ROOT / "tests/faults").is_dir() else []),
        Part("properties", {"HOLDFAST_EXAMPLES": "20"}, property_tests),
        Part("questions", {"HOLDFAST_EXAMPLES": "20"}, lambda: list(QUESTIONS)),
        Part("views", {"HOLDFAST_VIEW": "phone-dark", "HOLDFAST_PAGES": "all"}, browser_tests),
        Part("soak", {"HOLDFAST_SOAK_SECONDS": "3600"}, lambda: ["tests/soak"]),
    ]


def browser_tests() -> list[str]:
    """The pages, by day as a wide screen shows them, as a phone does."""
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests/gateway").glob("*_browser.py"))]


def property_tests() -> list[str]:
    """The files that draw examples; those that talk to a gateway have budgets of their own."""
    found = (path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "gateway" not in path.parts)
    return [str(path.relative_to(ROOT)) for path in found if "from hypothesis" in path.read_text()]


def run(part: Part) -> Result:
    paths = part.paths()
    if not paths:
        return Result(part.name, True, 0.0, ["there are no such tests here"])
    env = {**part.env, **os.environ}
    long = "--timeout=14400"
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-rP", long, *paths]
    begun = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    settings = [f"{name}={env[name]}" for name in part.env]
    did = [*settings, *TOLD.findall(done.stdout), *COUNTS.findall(done.stdout)]
    return Result(part.name, done.returncode == 0, time.monotonic() - begun, did)


def main() -> int:
    wanted = sys.argv[1:] or [part.name for part in parts()]
    results = [run(part) for part in parts() if part.name in wanted]
    print("What was done:")
    for result in results:
        print(f"  {'ok  ' if result.ok else 'FAIL'} {result.name:<10} {result.seconds / 60:5.1f} min")
        for line in result.did:
            print(f"         {line}")
    return 0 if results and all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
