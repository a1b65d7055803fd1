"""Signals between processes that share a store: LISTEN on PostgreSQL, the data version on SQLite."""

from __future__ import annotations

import select
import socket
import threading
from typing import Any, Final

from holdfast.errors import Transient
from holdfast.log.pulse import Pulse
from holdfast.log.store import Store

_RECONNECT_SECONDS: Final = 2.0
_POOLED_SECONDS: Final = 1.0
_BEAT_SECONDS: Final = 1.0


class Bridge:
    """Rings this process's bells when another process has committed something; a store rings its own.

    On PostgreSQL it listens. Through a pooler nobody can: it then listens at `listen_url`, or rings every
    second where there is none.
    """

    def __init__(self, store: Store, *, poll_seconds: float = 0.5) -> None:
        self._store = store
        self._poll = poll_seconds
        self._stop = threading.Event()
        self._stopped, self._tell_stopped = socket.socketpair()
        self.pulse = Pulse("bridge")
        self._thread = self._made()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin, or begin anew after its thread has ended."""
        if self._thread.ident is not None:
            self._thread = self._made()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._tell_stopped.close()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)
        self._stopped.close()

    def _made(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="holdfast-bridge", daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                (self._listen if self._store.postgres else self._watch)()
            except Exception as error:  # noqa: BLE001 - others' commits would be seen late: told, and connected again
                self.pulse.failed(error)
                self._stop.wait(_RECONNECT_SECONDS)
                self._store.signals.notify_all()

    def _watch(self) -> None:
        """SQLite tells each connection, for next to nothing, whether others have written."""
        with self._store.raw() as connection:
            seen = _data_version(connection)
            while not self._stop.wait(self._poll):
                version = _data_version(connection)
                self.pulse.passed()
                if version != seen:
                    seen = version
                    self._store.signals.notify_all()

    def _listen(self) -> None:
        import psycopg

        try:
            self._listen_or_poll()
        except psycopg.Error as error:
            lost = (str(error).splitlines() or [""])[0]
            raise Transient(f"the notification channel is lost: {lost}") from error

    def _listen_or_poll(self) -> None:
        import psycopg

        direct = self._store.listen_url
        if direct is not None:
            address = direct.set(drivername="postgresql").render_as_string(hide_password=False)
            with psycopg.connect(address) as connection:
                self._follow(connection)
            return
        with self._store.raw() as connection:
            if not self._store.pooled:
                self._follow(connection)
                return
        while not self._stop.wait(_POOLED_SECONDS):
            self.pulse.passed()
            self._store.signals.notify_all()

    def _follow(self, connection: Any) -> None:
        connection.autocommit = True
        connection.execute("LISTEN holdfast")
        self._store.signals.notify_all()
        while not self._stop.is_set():
            self.pulse.passed()
            for notice in connection.notifies(timeout=0):
                sender, _, names = notice.payload.rpartition("|")
                if sender != self._store.sender:
                    for name in names.split(","):
                        self._store.signals.notify(name)
            select.select([connection, self._stopped], [], [], _BEAT_SECONDS)


def _data_version(connection: Any) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])
