"""What is worked out once for each object, for values that live long and cannot be hashed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST: Final = 1_000


class Kept(Generic[T, R]):
    """`make` for a run of objects, remembered by which objects they are; they must never change."""

    def __init__(self, make: Callable[[Sequence[T]], R], *, most: int = MOST) -> None:
        self._make = make
        self._most = most
        self._known: dict[tuple[int, ...], tuple[tuple[T, ...], R]] = {}

    def __call__(self, objects: Sequence[T]) -> R:
        """The objects are held with what was made of them, so that no other can have their identity."""
        key = tuple(map(id, objects))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._most:
                self._known.clear()
            found = self._known[key] = (tuple(objects), self._make(objects))
        return found[1]
