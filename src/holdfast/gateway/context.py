"""What every route needs, in one place: the open home, its services, and who is calling.

The dependencies are asynchronous although they wait for nothing: FastAPI runs plain functions in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

from fastapi import Depends, Request

from holdfast.board import sharing
from holdfast.errors import InvalidInput
from holdfast.gateway.metrics import Metrics
from holdfast.gateway.page_sessions import LoginCodes
from holdfast.gateway.scope import Views
from holdfast.gateway.stream import Stream
from holdfast.gateway.tokens import Principal, Scope, TokenBook
from holdfast.keys import board_key_of, canonical_key
from holdfast.log import FOR_ANYONE, Reader, Session, Tx, heard_by, sessions, surfaces
from holdfast.runtime import Holdfast
from holdfast.runtime.readers import Readers
from holdfast.services import Services

if TYPE_CHECKING:
    from holdfast.gateway.routes.providers import UnderWay

T = TypeVar("T")


@dataclass
class Gateway:
    """The state of one gateway; `services` is there while it serves."""

    hold: Holdfast
    book: TokenBook
    codes: LoginCodes
    readers: Readers
    views: Views = field(default_factory=Views)
    metrics: Metrics = field(default_factory=Metrics)
    services: Services | None = None
    on_fatal: Callable[[str], None] | None = None
    stream: Stream | None = None
    examining: asyncio.Lock = field(default_factory=asyncio.Lock)
    adding_channel: asyncio.Lock = field(default_factory=asyncio.Lock)
    logins: dict[str, UnderWay] = field(default_factory=dict)
    sockets: set[asyncio.Task[None]] = field(default_factory=set)

    @contextmanager
    def read_as(self, caller: Principal, session_key: str | None = None) -> Iterator[Tx]:
        """A look at what the caller may read; with a session's key, no more than all who hear that session.

        Routes look into the store by this, `write_as` and `run_as` alone: what a route reads is then what its
        caller may read, whatever it asks for.
        """
        with self.hold.store.read(caller.reader) as tx:
            tx.reader = self._reader(tx, caller, session_key)
            yield tx

    @contextmanager
    def write_as(self, caller: Principal, *, ordered: bool = True) -> Iterator[Tx]:
        """One transaction of the caller's: what it reads, the caller may read."""
        with self.hold.store.write(caller.reader, ordered=ordered) as tx:
            tx.origin = caller.origin
            yield tx

    def run_as(self, caller: Principal, work: Callable[[Tx], T]) -> T:
        """The same, repeated when the database broke it off."""

        def run(tx: Tx) -> T:
            tx.origin = caller.origin
            return work(tx)

        return self.hold.store.run(caller.reader, run)

    def reader_for(self, caller: Principal, session_key: str | None) -> Reader:
        """Who reads where a request asks for a session: that is where the answer will stand."""
        if session_key is None:
            return caller.reader
        with self.hold.store.read(caller.reader) as tx:
            return self._reader(tx, caller, session_key)

    def find_session(self, tx: Tx, caller: Principal, key: str) -> Session:
        """A session that the caller may read, in a transaction of the runtime's own."""
        with tx.reading_as(caller.reader):
            return sessions.find(tx, key)

    def _reader(self, tx: Tx, caller: Principal, session_key: str | None) -> Reader:
        """As all who hear the session, and the chat of a shared topic as those whom it is shared with.

        A key that cannot be read names a surface that nobody knows: it gets what anyone may read.
        """
        if not session_key:
            return caller.reader
        try:
            key = canonical_key(session_key.strip())
        except InvalidInput:
            return caller.reader.within(heard_by(FOR_ANYONE))
        declared = self.hold.settings.is_private
        if board_key_of(key) is None:
            return caller.reader.within(surfaces.reader_under(tx, key, declared))
        space = sessions.given_space(tx, key)
        given = frozenset(() if space is None else (space,))
        return caller.reader.within(heard_by(sharing.heard_under_key(tx, key, declared), given))


async def _gateway(request: Request) -> Gateway:
    return cast("Gateway", request.app.state.gateway)


async def _principal(request: Request) -> Principal:
    return cast("Principal", request.state.principal)


async def _admin(request: Request) -> Principal:
    principal = await _principal(request)
    principal.require(Scope.ADMIN)
    principal.require_unlimited()
    return principal


async def _unlimited(request: Request) -> Principal:
    principal = await _principal(request)
    principal.require_unlimited()
    return principal


Here = Annotated[Gateway, Depends(_gateway)]
Caller = Annotated[Principal, Depends(_principal)]
Admin = Annotated[Principal, Depends(_admin)]
Unlimited = Annotated[Principal, Depends(_unlimited)]
