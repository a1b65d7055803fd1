"""What a command has written so far: its beginning and its end, within a bound, with secrets masked."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from holdfast.logs import MASK

_LEAST: Final = 2_000


@dataclass(frozen=True, slots=True)
class Heard:
    """A part of it: from where one left off to `end`; `missing` bytes before the last piece were not kept."""

    first: bytes
    last: bytes
    missing: int
    end: int

    def text(self) -> str:
        gap = f"\n[… {self.missing} bytes were not kept …]\n" if self.missing else ""
        return f"{self.first.decode('utf-8', 'replace')}{gap}{self.last.decode('utf-8', 'replace')}"


class Said:
    """Filled by the command's own thread, read by any. A secret that comes in two pieces is masked too."""

    def __init__(self, most: int = 200_000, secrets: tuple[str, ...] = ()) -> None:
        self._half = max(most, _LEAST) // 2
        self._secrets = sorted((s.encode() for s in secrets if s), key=len, reverse=True)
        self._held = b""
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0
        self._lock = threading.Lock()

    @property
    def seen(self) -> int:
        return self._seen

    def take(self, data: bytes) -> None:
        """More output; what could be the beginning of a secret is held back until it is none."""
        with self._lock:
            whole = self._masked(self._held + data)
            keep = self._beginning(whole)
            self._held = whole[len(whole) - keep :]
            self._add(whole[: len(whole) - keep])

    def close(self) -> None:
        """There is no more to come."""
        with self._lock:
            held, self._held = self._held, b""
            self._add(held)

    def since(self, start: int = 0) -> Heard:
        """What came from a place on; of what was not kept, how much it was."""
        with self._lock:
            first = bytes(self._head[start:])
            begins = self._seen - len(self._tail)
            last = bytes(self._tail[max(0, start - begins) :])
            missing = max(0, begins - max(start, len(self._head)))
            return Heard(first, last, missing, self._seen)

    def _add(self, data: bytes) -> None:
        self._seen += len(data)
        room = self._half - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(0, room) :]
        del self._tail[: max(0, len(self._tail) - self._half)]

    def _masked(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, MASK.encode())
        return data

    def _beginning(self, data: bytes) -> int:
        """How long the end of the data is that may be the beginning of a secret."""
        most = max((len(secret) for secret in self._secrets), default=1) - 1
        for size in range(min(most, len(data)), 0, -1):
            if any(secret.startswith(data[-size:]) for secret in self._secrets if len(secret) > size):
                return size
        return 0
