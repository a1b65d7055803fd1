"""Ctrl-C while a turn runs: the first stops the turn, the second leaves."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Counts while it is entered; the second press raises `KeyboardInterrupt`, as it does without this."""

    def __init__(self) -> None:
        self.count = 0
        self._raises = False
        self._before: Any = None

    @property
    def pressed(self) -> bool:
        return self.count > 0

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Let a press break off what waits for an answer; it counts as the first."""
        self._raises = True
        try:
            yield
        except KeyboardInterrupt:
            if self.count > 1:
                raise
        finally:
            self._raises = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self._raises or self.count > 1:
            raise KeyboardInterrupt
