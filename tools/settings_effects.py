"""Which test shows what a setting does: found by taking the setting away and seeing the test fail.

    pytest -p tools.settings_effects --settings-find --quick
    pytest -p tools.settings_effects --settings-prove

The first looks for each setting for a test that passes, and that fails once whoever reads the setting is
given another value; found are written to `tests/config/settings_shown.txt`. The second tries all of these
again: a setting that nothing obeys any more is told. `tests/config/test_config_is_used.py` keeps the list
whole.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import signal
import sys
import time
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from holdfast.config import Config
from holdfast.config.section import Section, is_section, plain
from holdfast.config.values import Secret

SHOWN: Final = Path(__file__).parents[1] / "tests" / "config" / "settings_shown.txt"
_CONFIG: Final = str(Path(__file__).parents[1] / "src" / "holdfast" / "config")
_TRIES: Final = 40
_SECONDS: Final = 10
_LEAF_SECONDS: Final = 25

Leaf = tuple[type[Section], str]


@functools.cache
def leaves() -> dict[str, Leaf]:
    """Every setting that is no section, by its name: the model that declares it, and the key."""
    found: dict[str, Leaf] = {}
    for section in _sections(Config, set()):
        for name, field in section.model_fields.items():
            if not any(map(is_section, _kinds(field.annotation))):
                owner = owner_of(section, name)
                found[f"{owner.__name__}.{name}"] = owner, name
    return found


@functools.cache
def owner_of(section: type[Section], name: str) -> type[Section]:
    """The model that declares a key, which others may inherit."""
    above = [base for base in section.__mro__ if is_section(base) and name in base.model_fields]
    return above[-1]


def _sections(section: type[Section], seen: set[type[Section]]) -> Iterator[type[Section]]:
    if section in seen:
        return
    seen.add(section)
    yield section
    for field in section.model_fields.values():
        for kind in filter(is_section, _kinds(field.annotation)):
            yield from _sections(kind, seen)


def _kinds(annotation: Any) -> Iterator[Any]:
    """What a key holds, within its lists, maps and alternatives."""
    kind = plain(annotation)
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        yield from _kinds(inner[0])
    elif typing.get_origin(kind) is dict:
        yield from _kinds(inner[1])
    elif typing.get_origin(kind) in (typing.Union, types.UnionType):
        for one in inner:
            yield from _kinds(one)
    else:
        yield kind


@functools.cache
def default_of(owner: type[Section], name: str) -> Any:
    """As a config without the key has it; a key that must be there has none."""
    field = owner.model_fields[name]
    if field.is_required():
        return ...
    with contextlib.suppress(Exception):  # a section with required keys cannot stand empty
        return owner.model_validate({}).__dict__[name]
    return field.get_default(call_default_factory=True, validated_data={})


def other_than(value: Any, owner: type[Section], name: str) -> Any:
    """The default where the value is another, else a value that is not the default."""
    default = default_of(owner, name)
    if default is not ... and value != default:
        return default
    kind = plain(owner.model_fields[name].annotation)
    if typing.get_origin(kind) is typing.Literal:
        return next(one for one in typing.get_args(kind) if one != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return type(value)(1 if value > 1 else value + 2)
    if isinstance(value, Secret):
        return Secret("another")
    if isinstance(value, str):
        return "another"
    if isinstance(value, tuple | dict) and value:
        return type(value)()
    return value


@contextlib.contextmanager
def taken_away(leaf: Leaf) -> Iterator[None]:
    """While it lasts, whoever reads the setting sees another value."""
    owner, name = leaf

    def read(self: Section, attribute: str) -> Any:
        value = object.__getattribute__(self, attribute)
        return other_than(value, owner, name) if attribute == name else value

    owner.__getattribute__ = read  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del owner.__getattribute__


def shown() -> dict[str, str]:
    """For each setting the test that fails without it, as the list has it."""
    text = SHOWN.read_text("utf-8") if SHOWN.exists() else ""
    return dict(line.split(" ", 1) for line in text.splitlines() if line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--settings-find", action="store_true", help="Find a test for each setting that has none."
    )
    parser.addoption("--settings-prove", action="store_true", help="Try every test of the list.")
    parser.addoption("--settings-only", metavar="REGEX", default="", help="Of these settings alone.")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    if not options.settings_find and not options.settings_prove:
        return None
    found = shown()
    names = [name for name in sorted(leaves()) if re.search(options.settings_only, name)]
    if options.settings_prove:
        items = {item.nodeid: item for item in session.items}
        lost = [name for name in names if name in found and not _proves(items.get(found[name]), name)]
        session.testsfailed += len(lost)
        return True
    readers = _Readers(session.items)
    for name in names:
        if name not in shown():
            tests = readers.of(leaves()[name])[:_TRIES]
            proof = _first_proof(tests, name)
            print(f"{name}: {proof.nodeid if proof else f'nothing found among {len(tests)}'}", flush=True)
            if proof is not None:
                _keep(name, proof.nodeid)
    return True


def _first_proof(tests: list[pytest.Item], name: str) -> pytest.Item | None:
    until = time.monotonic() + _LEAF_SECONDS
    for test in tests:
        if fails_without(test, leaves()[name]):
            return test
        if time.monotonic() > until:
            break
    return None


def _proves(item: pytest.Item | None, name: str) -> bool:
    good = item is not None and fails_without(item, leaves()[name])
    if not good:
        print(f"{name}: {'its test is not there' if item is None else f'{item.nodeid} passes without it'}")
    return good


def _keep(name: str, test: str) -> None:
    rows = {**shown(), name: test}
    SHOWN.write_text("".join(f"{one} {rows[one]}\n" for one in sorted(rows)), "utf-8")


class _Readers:
    """For each setting the tests that read it: found by running all of them once. Those that name it come
    first, then the quickest."""

    def __init__(self, items: list[pytest.Item]) -> None:
        self._tests: dict[Leaf, dict[pytest.Item, None]] = {leaf: {} for leaf in leaves().values()}
        self._seconds: dict[pytest.Item, float] = {}
        for item in items:
            if SHOWN.parent not in item.path.parents or "effects" in item.path.stem:
                self._watch(item)

    def of(self, leaf: Leaf) -> list[pytest.Item]:
        owner, name = leaf
        named = re.compile(rf"\b({name}|{owner.model_fields[name].alias})\b")

        def rank(item: pytest.Item) -> tuple[bool, float]:
            text = inspect.getsource(item.function) if isinstance(item, pytest.Function) else ""
            return named.search(text) is None, self._seconds[item]

        return sorted(self._tests[leaf], key=rank)

    def _watch(self, item: pytest.Item) -> None:
        read: set[Leaf] = set()
        began = time.monotonic()
        with _noted(read):
            outcome = _outcome(item)
        self._seconds[item] = time.monotonic() - began
        for leaf in read & self._tests.keys() if outcome == "passed" else ():
            self._tests[leaf][item] = None


@contextlib.contextmanager
def _noted(read: set[Leaf]) -> Iterator[None]:
    """While it lasts, the settings that are read are written down; a check of the value is no read."""

    def note(self: Section, attribute: str) -> Any:
        value = object.__getattribute__(self, attribute)
        if attribute in _names() and attribute in type(self).model_fields:
            code = sys._getframe(1).f_code
            if not (code.co_filename.startswith(_CONFIG) and code.co_name.startswith(("_", "overlay"))):
                read.add((owner_of(type(self), attribute), attribute))
        return value

    Section.__getattribute__ = note  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del Section.__getattribute__


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(name for _, name in leaves().values())


def fails_without(item: pytest.Item, leaf: Leaf) -> bool:
    """Whether a test shows the setting: while it is not obeyed it fails, or waits in vain; else it passes.

    It has to pass first, at the second try if need be: what is loaded only once is not what takes too long.
    """
    if "passed" not in (_outcome(item) for _ in range(2)):
        return False
    with taken_away(leaf):
        return _outcome(item) in ("failed", "too long")


def _outcome(item: pytest.Item) -> str:
    """Runs a test once more, however often it ran before, for as long as it may take."""
    item._initrequest()  # type: ignore[attr-defined]
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(_SECONDS)
    try:
        reports = runtestprotocol(item, log=False, nextitem=None)
    except _TooLong:  # between the steps of the test
        return "too long"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if any("_TooLong" in report.longreprtext for report in reports):
        return "too long"
    outcomes = {report.outcome for report in reports}
    return "failed" if "failed" in outcomes else "skipped" if "skipped" in outcomes else "passed"


class _TooLong(BaseException):
    """Not an `Exception`, which a test may catch."""


def _give_up(*_: Any) -> None:
    raise _TooLong
