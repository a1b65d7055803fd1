"""What start-up has loaded is not looked through for garbage again and again."""

from __future__ import annotations

import gc
from typing import Final

_MOST: Final = 3


class Settling:
    """After each of the first few full collections, all that survived it is taken as there to stay.

    Clients and rooms load at their first use, so that start-up has no sharp end. A full look at them all
    takes some quarter of a second, comes every few dozen turns, and finds nothing. What is taken as staying
    is still freed when nobody holds it; only a circle of such things would be kept for good.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._left = most

    def begin(self) -> None:
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] < 2:
            return
        gc.freeze()
        self._left -= 1
        if self._left <= 0:
            self.end()
