"""Shared builders: a test says what it is about and takes the rest from here."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import quote

from holdfast.log import OWNER, EntryDraft, Outcome, Session, Store, agenda, entries, sessions, turns
from holdfast.log.entry_model import Entry
from holdfast.log.turns import Turn

T = TypeVar("T")

KEY = "agent:main:main"
PATIENCE = 30.0
"""Half a lease: what goes on only because a lease ended (60 s) comes too late."""
LONG = int(os.environ.get("HOLDFAST_EXAMPLES", "1"))


def examples(count: int) -> int:
    """How many examples a property test tries: `count`, and many times that in `make torture`."""
    return count * LONG


def share(alike: Iterable[T], turn: int, of: int) -> list[T]:
    """Which of many questions of a kind are asked in one turn of several: the first in each, and all of them
    in `make torture`."""
    return [one for number, one in enumerate(alike) if LONG > 1 or number == 0 or (number + turn) % of == 0]


def measured_name(nodeid: str) -> str:
    """A test as the run that measures names it: the file, the class and the function, with dots."""
    path, *inner = nodeid.partition("[")[0].split("::")
    return ".".join([path.removesuffix(".py").replace("/", "."), *inner])


def draft(content: str = "hello", **fields: Any) -> EntryDraft:
    return EntryDraft(content=content, **fields)


def append(store: Store, content: str = "hello", **fields: Any) -> Entry:
    with store.write(OWNER) as tx:
        return entries.append(tx, draft(content, **fields)).entry


def session(store: Store, key: str = KEY, **known: Any) -> Session:
    with store.write(OWNER) as tx:
        return sessions.ensure(tx, key, **known)


def accept(store: Store, content: str = "hello", *, key: str = "k1", to: str = KEY, **options: Any) -> Turn:
    """A message that waits for its turn, in a session made on the way."""
    with store.write(OWNER) as tx:
        return turns.accept(tx, sessions.ensure(tx, to), draft(content, role="user"), key=key, **options).turn


def outcome(reply: str = "hi", **fields: Any) -> Outcome:
    return Outcome(entries=[draft(reply, role="assistant")], **fields)


def enqueue(store: Store, kind: str = "work", **options: Any) -> agenda.Item:
    payload = options.pop("payload", {})
    with store.write(OWNER) as tx:
        return agenda.enqueue(tx, kind, payload, **options)


def claim(
    store: Store, kinds: dict[str, int] | None = None, *, owner: str = "a", **options: Any
) -> list[Any]:
    options.setdefault("lease_ms", 60_000)
    with store.write(OWNER, ordered=False) as tx:
        return agenda.claim(tx, kinds or {"work": 100, "turn": 100, "deliver": 100}, owner=owner, **options)


def item(store: Store, id_: str) -> agenda.Item:
    with store.read(OWNER) as tx:
        return agenda.get(tx, id_)


def in_threads(count: int, work: Callable[[int], T]) -> list[T]:
    """`work(0)` … `work(count - 1)` at once, begun together; the results in order, or the first error."""
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    gate = threading.Barrier(count)

    def one(number: int) -> None:
        try:
            gate.wait()
            results[number] = work(number)
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            errors.append(error)

    pool = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    if errors:
        raise errors[0]
    return [results[n] for n in range(count)]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a state to come about; a test that waits in vain fails instead of hanging."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.002)


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE):
        return await awaitable


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    """What raw SQL finds, for facts that no public surface tells."""
    with store.read(OWNER) as tx:
        return [tuple(row) for row in tx.conn.exec_driver_sql(sql)]


def execute(store: Store, statements: Iterable[str]) -> None:
    """Raw SQL, to make damage."""
    with store.write(OWNER) as tx:
        for statement in statements:
            tx.conn.exec_driver_sql(statement)


def new_database(server: Any, name: str) -> str:
    server.psql(f"CREATE DATABASE {name}")
    return f"postgresql+psycopg://postgres:@/{name}?host={quote(str(server.pgdata))}"
