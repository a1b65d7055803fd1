"""What makes thousands of tests in one process cheaper, and changes nothing that they show."""

from __future__ import annotations

import asyncio
import gc
import socketserver
from typing import Any

import uvicorn.server
from sqlalchemy.engine import Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

_STATEMENTS = 5_000
_LOOK_SECONDS = 0.005
_OBJECTS_BEFORE_GARBAGE_IS_LOOKED_FOR = 50_000


def collect_garbage_seldom() -> None:
    """The tests' modules are most of what is alive, and every search for garbage looks through all of it."""
    gc.set_threshold(_OBJECTS_BEFORE_GARBAGE_IS_LOOKED_FOR, 20, 100)


def spare_what_was_collected() -> None:
    """What is there when the first test begins stays to the end."""
    gc.collect()
    gc.freeze()


def compile_statements_once() -> None:
    """SQLAlchemy keeps compiled statements with each engine, and each test has engines of its own."""
    shared: Any = LRUCache(_STATEMENTS)
    begin = Engine.__init__

    def with_shared(self: Engine, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self._compiled_cache = shared

    Engine.__init__ = with_shared  # type: ignore[method-assign]
    DefaultDialect.__eq__ = _same_dialect  # type: ignore[assignment]
    DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]


def stop_servers_at_once() -> None:
    """A server looks now and then whether it is to end, the library's own twice a second, uvicorn ten times;
    and who stops it waits. There are hundreds in a run, and all of them together waited for minutes."""
    socketserver.BaseServer.serve_forever.__defaults__ = (_LOOK_SECONDS,)

    class Hasty:
        def __getattr__(self, name: str) -> Any:
            return getattr(asyncio, name)

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(min(seconds, _LOOK_SECONDS))

    uvicorn.server.asyncio = Hasty()  # type: ignore[attr-defined]


def _same_dialect(one: DefaultDialect, other: object) -> bool:
    return one is other or (isinstance(other, DefaultDialect) and _writes(one) == _writes(other))


def _writes(dialect: DefaultDialect) -> tuple[object, ...]:
    """All that decides what it makes of a statement and its values."""
    names = ("dbapi", "paramstyle", "server_version_info", "_json_serializer", "_json_deserializer")
    return (type(dialect), *(getattr(dialect, name, None) for name in names))
