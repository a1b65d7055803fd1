"""Signals between processes that share a store: LISTEN on PostgreSQL, the data version on SQLite."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from holdfast.errors import Unavailable
from holdfast.log.store import Store

log = logging.getLogger(__name__)

_RECONNECT_SECONDS: Final = 2.0


class Bridge:
    """Rings this process's bells when another process has committed something; a store rings its own."""

    def __init__(self, store: Store, *, poll_seconds: float = 0.5) -> None:
        self._store = store
        self._poll = poll_seconds
        self._stop = threading.Event()
        target = self._listen if store.postgres else self._watch
        self._thread = threading.Thread(target=target, name="holdfast-bridge", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        """SQLite tells each connection, for next to nothing, whether others have written."""
        with self._store.raw() as connection:
            seen = _data_version(connection)
            while not self._stop.wait(self._poll):
                version = _data_version(connection)
                if version != seen:
                    seen = version
                    self._store.signals.notify_all()

    def _listen(self) -> None:
        import psycopg

        while not self._stop.is_set():
            try:
                with self._store.raw() as connection:
                    self._follow(connection)
            except (psycopg.Error, Unavailable) as error:
                log.warning("lost the notification channel (%s); connecting again", error)
                self._stop.wait(_RECONNECT_SECONDS)
                self._store.signals.notify_all()

    def _follow(self, connection: Any) -> None:
        connection.autocommit = True
        connection.execute("LISTEN holdfast")
        self._store.signals.notify_all()
        while not self._stop.is_set():
            for notice in connection.notifies(timeout=1.0):
                sender, _, names = notice.payload.rpartition("|")
                if sender != self._store.sender:
                    for name in names.split(","):
                        self._store.signals.notify(name)


def _data_version(connection: Any) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
