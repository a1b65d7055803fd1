"""Which config was in force when: a file that somebody changed stands in the audit trail like any act."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.config import Config, ConfigStore
from holdfast.log import SYSTEM, Origin, Store, Tx, audit

_FILE: Final = Origin("file")
_MOST_KEYS: Final = 50
# What is opened, connected or begun once; all else is read where it is used. A channel that is called by HTTP
# needs no connection.
_AT_START: Final = re.compile(
    r"store\.|gateway\.(host|port|stream)\b|agenda\.(maxConcurrent|leaseSeconds)"
    r"|channels\.[^.]+(\.(adapter|accounts|options|enabled)\b|$)|plugins\.(entries|load|slots|allow)\b"
    r"|memory\.search\.(engine|embedding|dictionaries)\b"
)


class ConfigTrail:
    """Follows the config of a running gateway. What it writes down are the names of keys, never values."""

    def __init__(self, config: ConfigStore, store: Store) -> None:
        self._config = config
        self._store = store
        self._known = self._begun = config.current

    def begin(self) -> None:
        """At the start: whether the file is another than the trail last told of. Blocks."""
        with self._store.write(SYSTEM, ordered=False) as tx:
            last = audit.listing(tx, audit.ActFilter(act="config"), limit=1)
            if not last or last[0].details.get("sha256") != self._config.digest:
                self._note(tx, "config.found", {})

    def changed(self, config: Config) -> None:
        """The file was changed while the gateway ran; what the API changed it has told itself. Blocks."""
        before, self._known = self._known, config
        if not self._config.patched:
            with self._store.write(SYSTEM, ordered=False) as tx:
                self._note(tx, "config.changed", {"keys": ", ".join(changed_keys(before, config))})

    def waiting_for_restart(self) -> list[str]:
        """Keys that were changed since this gateway began, and count when it is started next."""
        now = self._config.current
        called = {f"channels.{name}" for name, one in now.channels.items() if one.url is not None}
        return [
            path for path in changed_keys(self._begun, now) if _AT_START.match(path) and path not in called
        ]

    def _note(self, tx: Tx, act: str, told: Mapping[str, str]) -> None:
        tx.origin = _FILE
        path = str(self._config.path.name)
        audit.note(tx, act, path, by="whoever may write the file", sha256=self._config.digest, **told)


def changed_keys(before: Config, after: Config) -> list[str]:
    """The paths of keys that are other than they were, the first of them."""
    was, now = before.model_dump(by_alias=True), after.model_dump(by_alias=True)
    return sorted(set(_differences(was, now, "")))[:_MOST_KEYS]


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() | after.keys():
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}".lstrip("."))
    elif before != after:
        yield path
