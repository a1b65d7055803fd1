"""The engine slot: which engine builds contexts. One that cannot be had is an error, never replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from holdfast.context.engine import ContextEngine, EngineContext, EngineFactory
from holdfast.errors import Conflict, HoldfastError, NotFound, Unavailable

DEFAULT_ENGINE = "legacy"

_HINT = 'Fix or install its plugin, or set plugins.slots.contextEngine to "legacy".'


class EngineFailed(Unavailable):
    code = "engine_failed"


class Registry:
    """Factories by engine id. One of a home, for what its plugins bring, stands on the one of the process."""

    def __init__(self, below: Registry | None = None) -> None:
        self._below = below
        self._factories: dict[str, EngineFactory] = {}
        self._lock = threading.Lock()

    def register(self, id_: str, factory: EngineFactory, *, replace: bool = False) -> None:
        with self._lock:
            if id_ in self and not replace:
                raise Conflict(f"there is an engine {id_!r} already", code="engine_taken")
            self._factories[id_] = factory

    def unregister(self, id_: str) -> None:
        with self._lock:
            self._factories.pop(id_, None)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._factories, *(self._below or ())}))

    def make(self, id_: str, context: EngineContext) -> ContextEngine:
        """What the factory of this id makes, or an error that says what to do; nothing stands in for it.
        Whether it is an engine is the host's to look at."""
        if id_ not in self._factories and self._below is not None and id_ in self._below:
            return self._below.make(id_, context)
        factory = self._factories.get(id_)
        if factory is None:
            known = ", ".join(self)
            raise NotFound(
                f"no context engine {id_!r} is registered (there are: {known})",
                code="unknown_engine",
                hint=_HINT,
            )
        try:
            engine = factory(context)
        except HoldfastError:
            raise
        except Exception as error:
            raise engine_failed(id_, "start", error) from error
        return engine


def engine_failed(id_: str, doing: str, error: BaseException) -> EngineFailed:
    """The error of an engine's own code, named as such."""
    said = str(error) or type(error).__name__
    shown = said.encode("utf-8", "backslashreplace").decode()
    return EngineFailed(f"context engine {id_!r} failed in {doing}: {shown}"[:500], hint=_HINT)


engines = Registry()


def register_context_engine(id_: str, factory: EngineFactory, *, replace: bool = False) -> None:
    """Offer an engine under an id; `plugins.slots.contextEngine` selects it."""
    engines.register(id_, factory, replace=replace)
