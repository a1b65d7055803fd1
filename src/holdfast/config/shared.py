"""The two texts of a config: this gateway's own file, and what all gateways of a store share.

With `config.source` `store` the file says where and how this gateway runs, and nothing else; the rest lies in
the store. A copy of that is in the home's `shared/`, so that whatever reads a config needs no database.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast.config.problems import InvalidConfig, Problem
from holdfast.config.root import Config
from holdfast.config.secret import Secret, wrap_secrets
from holdfast.config.shown import secrets_in
from holdfast.config.source import accept, parse_text, read_text

FOLDER: Final = "shared"
SOURCE: Final = "HOLDFAST_CONFIG_SOURCE"
# What a gateway must know before it can reach the store, and where it listens and writes.
OWN: Final = frozenset(("config", "store", "gateway", "logging"))
_IN_STORE: Final = "lies in the store while config.source is store: `holdfast config import` puts it there"
_IN_FILE: Final = "is each gateway's own: expected in its holdfast.json, not in the store"
_IN_CLEAR: Final = "a secret in clear: expected ${NAME}, taken from the environment of each gateway"


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes a config, and through which surface."""

    name: str = "owner"
    surface: str = "local"
    address: str | None = None


class Publisher(Protocol):
    """What keeps the shared text; `runtime` has the one over the store."""

    def change(self, edit: Callable[[str], str], author: Author, what: str) -> None:
        """Make the newest text another one, in one transaction, and bring the copy up to date."""
        ...


@dataclass(frozen=True, slots=True)
class Texts:
    own: str | None
    shared: str | None = None

    @classmethod
    def read(cls, path: Path) -> Texts:
        return cls(read_text(path), read_text(copy_of(path)))

    def data(self, source: str) -> dict[str, Any]:
        """All of the config as plain data; every key stands where it belongs."""
        own = {} if self.own is None else parse_text(self.own, source=source)
        if not is_shared(own):
            return own
        require_own(own, source)
        shared = parse_object(self.shared or "", IN_STORE)
        require_shareable(shared)
        return {**shared, **own, "config": {**own.get("config", {}), "source": "store"}}


IN_STORE: Final = "the config in the store"


def copy_of(path: Path) -> Path:
    """Where the copy of the shared text lies, for a home's own file."""
    return path.parent / FOLDER / path.name


def load_config(path: str | Path) -> Config:
    """The config of a home, or the defaults where it has none; InvalidConfig says what is wrong."""
    return parsed(Texts.read(Path(path)), str(path))


def parsed(texts: Texts, source: str) -> Config:
    return Config() if texts.own is None and not is_shared({}) else accept(texts.data(source), source=source)


def is_shared(own: Any, env: Mapping[str, str] = os.environ) -> bool:
    """Whether what is not this gateway's own lies in the store: as the file says, else the environment."""
    section = own.get("config", {}) if isinstance(own, dict) else {}
    named = section.get("source") if isinstance(section, dict) else None
    return (named or env.get(SOURCE)) == "store"


def split(merge: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A patch as what of it is this gateway's own and what is shared."""
    own = {name: value for name, value in merge.items() if name in OWN}
    return own, {name: value for name, value in merge.items() if name not in OWN}


def require_own(own: dict[str, Any], source: str) -> None:
    if wrong := [Problem(name, _IN_STORE) for name in sorted(own.keys() - OWN)]:
        raise InvalidConfig(source, wrong)


def parse_object(text: str, source: str) -> dict[str, Any]:
    """The object that a text holds; nothing is an empty one."""
    data = parse_text(text, source=source)
    if not isinstance(data, dict):
        raise InvalidConfig(source, [Problem("", "expected an object")])
    return data


def require_shareable(data: dict[str, Any]) -> None:
    """What the store may hold: no section that is a gateway's own."""
    if wrong := [Problem(name, _IN_FILE) for name in sorted(data.keys() & OWN)]:
        raise InvalidConfig(IN_STORE, wrong)


def require_no_secrets(data: dict[str, Any], config: Config) -> None:
    """Versions are kept for good and read by several: a secret is named in them, and never told."""
    secrets = [one for one in (*secrets_in(config), *secrets_in(wrap_secrets(data))) if one.in_clear]
    if wrong := [Problem(path, _IN_CLEAR) for path in _places(data, secrets, "")]:
        raise InvalidConfig(IN_STORE, wrong)


def _places(value: Any, secrets: list[Secret], path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, secrets, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, secrets, f"{path}[{index}]")
    elif isinstance(value, str) and any(one.is_text(value) for one in secrets):
        yield path
