"""A line for code that is not asynchronous: the line lives in a thread of its own, with its event loop.

So the main thread is free to read the keyboard, and only it sees Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from holdfast.cli.chat.line import About, Decision, Line, Target, Told
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.root import App

T = TypeVar("T")
_SOON_SECONDS: Final = 1.0
Opening = Callable[[], AbstractAsyncContextManager[Line]]


class Feed:
    """One run's events as they come. `fileno` becomes readable with each, so that one can `select` on it."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Told | HoldfastError] = queue.SimpleQueue()
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._mouth, False)

    def fileno(self) -> int:
        return self._ear

    def put(self, event: Told | HoldfastError) -> None:
        self._waiting.put(event)
        self.ring()

    def ring(self) -> None:
        """Wake who waits; a pipe that is full has woken them already, a closed one has nobody."""
        with contextlib.suppress(OSError):
            os.write(self._mouth, b".")

    def next(self, timeout: float | None = 0.0) -> Told | None:
        """The next event; None if none comes in that time. What broke the stream is raised."""
        try:
            event = self._waiting.get(timeout != 0.0, timeout or None)
        except queue.Empty:
            return None
        if isinstance(event, HoldfastError):
            raise event
        return event

    def hush(self) -> None:
        """Take back the wakings so far."""
        with contextlib.suppress(OSError):
            os.read(self._ear, 4096)

    def close(self) -> None:
        os.close(self._ear)
        os.close(self._mouth)


class Talk:
    """The line, for the main thread. Made by `connect`. `lasting` says that turns go on without it."""

    def __init__(self, opening: Opening, target: Target, *, lasting: bool) -> None:
        self.target = target
        self.lasting = lasting
        self._opening = opening
        self._ready: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-line", daemon=True)

    def about(self) -> About:
        return self._call(lambda line: line.about(self.target))

    def say(self, text: str, *, steer: bool = False) -> Told:
        """Hand over a message. A model chosen with `/model` takes the place of the one given at the start."""
        if text.lstrip().startswith("/model "):
            self.target = replace(self.target, model=None)
        return self._call(lambda line: line.say(text, self.target, steer=steer))

    def status(self, run_id: str) -> Told:
        return self._call(lambda line: line.status(run_id))

    def resumed(self, text: str, told: Told) -> list[str]:
        """The runs that a `/resume` set going again, which its answer does not name."""
        if not text.lstrip().lower().startswith("/resume"):
            return []
        return self._call(lambda line: line.live(str(told["sessionKey"])))

    def cancel(self, run_id: str) -> None:
        self._call(lambda line: line.cancel(run_id))

    def approval(self, id_: str) -> Told:
        return self._call(lambda line: line.approval(id_))

    def decide(self, id_: str, decision: Decision) -> Told:
        return self._call(lambda line: line.decide(id_, decision))

    @contextlib.contextmanager
    def follow(self, run_id: str) -> Iterator[Feed]:
        feed = Feed()
        reading = self._begin(_fill(self._line.events(run_id), feed))
        try:
            yield feed
        finally:
            self._loop.call_soon_threadsafe(reading.cancel)
            self._call(lambda _: _gone(reading))
            feed.close()

    def open(self) -> None:
        self._thread.start()
        error = self._ready.get()
        if error is not None:
            raise error

    def close(self) -> None:
        """Let what runs here finish or be marked; whoever waits for long is told why."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_SOON_SECONDS)
        if self._thread.is_alive():
            click.secho("finishing what runs …", dim=True, err=True)
            self._thread.join()
        if not self._ready.empty() and (error := self._ready.get()) is not None:
            raise error

    def _call(self, ask: Callable[[Line], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await ask(self._line)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def begin(_: Line) -> asyncio.Task[None]:
            return asyncio.create_task(work)

        return self._call(begin)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the line
            self._ready.put(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        async with self._opening() as line:
            self._line = line
            self._ready.put(None)
            await self._closing.wait()


@contextlib.contextmanager
def connect(app: App, target: Target, *, lasting: bool) -> Iterator[Talk]:
    """A talk through the gateway of this home if one runs, else in this process.

    `lasting` is for a conversation: then all that a gateway does besides turns is done here too.
    """
    from holdfast.cli.client import find_gateway
    from holdfast.config import load_config

    if app.home.path.is_dir():
        config = load_config(app.home.config)
        seen = find_gateway(app.home, config)
        if seen.state == "ours":
            from holdfast.cli.chat.line import reached

            with _opened(Talk(lambda: reached(seen.url, app.home, config), target, lasting=True)) as talk:
                yield talk
            return
    from holdfast.cli.chat.line import serving, turns_only

    with app.open() as hold, _logged_to_file(app, hold.settings.logging):
        opening = serving if lasting else turns_only
        with _opened(Talk(lambda: opening(hold), target, lasting=False)) as talk:
            yield talk


@contextlib.contextmanager
def _opened(talk: Talk) -> Iterator[Talk]:
    talk.open()
    try:
        yield talk
    finally:
        talk.close()


@contextlib.contextmanager
def _logged_to_file(app: App, options: Any) -> Iterator[None]:
    """The program's own log goes to its file alone: the terminal is for the conversation."""
    from holdfast import logs

    with open(os.devnull, "w") as nowhere:
        logs.configure(options, app.home, stream=nowhere)
        try:
            yield
        finally:
            logs.close()


async def _fill(events: AsyncGenerator[Told], feed: Feed) -> None:
    try:
        async with contextlib.aclosing(events) as said:
            async for event in said:
                feed.put(event)
    except HoldfastError as error:
        feed.put(error)


async def _gone(task: asyncio.Task[None]) -> None:
    await asyncio.gather(task, return_exceptions=True)
