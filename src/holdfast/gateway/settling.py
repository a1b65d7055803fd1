"""What start-up has loaded, and what one request makes, is not looked through for garbage again and again."""

from __future__ import annotations

import gc
from typing import Final

_MOST: Final = 3
_ALLOCATIONS: Final = 20_000
"""A search makes some ten thousand things that last until it is answered: looked through every 700, as Python
has it by itself, they cost a tenth of it, and none of them is garbage yet."""


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
        self._before = gc.get_threshold()
        gc.set_threshold(_ALLOCATIONS, *self._before[1:])

    def end(self) -> None:
        self._look_no_more()
        gc.set_threshold(*self._before)

    def _look_no_more(self) -> None:
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] < 2:
            return
        gc.freeze()
        self._left -= 1
        if self._left <= 0:
            self._look_no_more()
