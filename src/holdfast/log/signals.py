"""Wake-ups by name, from any thread to any thread: how a commit reaches those who wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Signals:
    """A bell for each name. Callbacks run on the thread that rings and must only hand over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[str, list[Callable[[], None]]] = {}

    def subscribe(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on every ring of `name`; returns the function that ends it."""
        with self._lock:
            self._callbacks.setdefault(name, []).append(callback)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._callbacks.get(name, ()):
                    self._callbacks[name].remove(callback)

        return unsubscribe

    def notify_all(self) -> None:
        """Ring every bell: something happened, and it is not known what."""
        for name in tuple(self._callbacks):
            self.notify(name)

    def notify(self, name: str) -> None:
        with self._lock:
            callbacks = tuple(self._callbacks.get(name, ()))
        for callback in callbacks:
            callback()
