"""Running a plugin's code beside ours: within a time limit, on threads of its own, its failures counted.

Coroutines run on a loop of the plugin's own, plain functions each on a thread of theirs, so that code that
blocks, never returns or ends the interpreter holds up nobody but its plugin. A thread that never returns
cannot be ended; after a few of them the part that makes them is not called any more.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from holdfast.errors import HoldfastError, Unavailable
from holdfast.text import clip

log = logging.getLogger(__name__)
_MOST_TOLD: Final = 300
CLOSING_SECONDS: Final = 5.0
# What ends a task or the process; a plugin that raises one of these ends neither of ours.
_ENDING: Final = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)


T = TypeVar("T")
R = TypeVar("R")


def _as_it_is(found: Any) -> Any:
    return found


class PluginFailed(Unavailable):
    """A plugin's code failed, took too long or gave what cannot be used; names the plugin and the part."""

    code = "plugin_failed"


class PluginLoop:
    """The threads of one plugin. Daemons: none of them keeps the process from ending."""

    def __init__(self, plugin_id: str) -> None:
        self._id = plugin_id
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def begin(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have the work done; the future is cancelled to have a coroutine end."""
        if _is_async(work):
            return asyncio.run_coroutine_threadsafe(_to_the_end(work, args), self._own_loop())
        done: Future[Any] = Future()
        threading.Thread(
            target=self._run, args=(done, work, args), name=f"plugin-{self._id}", daemon=True
        ).start()
        return done

    async def call(self, work: Callable[..., Any], *args: Any, seconds: float) -> Any:
        """What the work gives; `TimeoutError` if that takes longer."""
        return await asyncio.wait_for(asyncio.wrap_future(self.begin(work, *args)), seconds)

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _run(self, done: Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            found = work(*args)
            if inspect.isawaitable(found):
                found = asyncio.run_coroutine_threadsafe(_awaited(found), self._own_loop()).result()
            done.set_result(found)
        except BaseException as error:  # noqa: BLE001 - the boundary: also what would end the interpreter
            done.set_exception(_harmless(error))

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve, args=(self._loop,), name=f"plugin-{self._id}-loop", daemon=True
                ).start()
            return self._loop


def _is_async(work: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(type(work).__call__)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            if not task.cancelling():  # told twice, one that closes its connection would leave it open
                task.cancel()
        if left:  # a connection that is kept is closed before its loop is
            loop.run_until_complete(asyncio.wait(left, timeout=CLOSING_SECONDS))
        loop.close()


async def _to_the_end(work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return await work(*args)
    except _ENDING as error:
        if _was_told_to_end():
            raise
        raise _harmless(error) from None


async def _awaited(found: Any) -> Any:
    try:
        return await found
    except _ENDING as error:
        if _was_told_to_end():
            raise
        raise _harmless(error) from None


def _was_told_to_end() -> bool:
    """Whether we cancelled the task, because nobody waits for it any more."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # it is put away after its loop has ended
        return True
    return task is not None and task.cancelling() > 0


def _harmless(error: BaseException) -> Exception:
    """What may be raised in our own tasks: nothing that ends them, or the process."""
    return error if isinstance(error, Exception) else RuntimeError(f"it raised {type(error).__name__}")


@dataclass
class Part:
    """One thing that a plugin registered, and how it fares. After `most` failures in a row it is left out.

    `tells`: an error of our own kind is the plugin's word to whoever called, and no failure.
    """

    plugin_id: str
    name: str
    loop: PluginLoop = field(repr=False)
    most: Callable[[], int] = field(repr=False)
    tells: bool = True
    calls: int = 0
    failures: int = 0
    in_a_row: int = 0
    last_error: str = ""

    @property
    def is_out(self) -> bool:
        return self.in_a_row >= self.most()

    async def call(
        self, work: Callable[..., T], *args: Any, seconds: float, check: Callable[[Any], R] = _as_it_is
    ) -> R:
        """What the plugin's code gives, as `check` has it; a failure is a `PluginFailed` with its name in it,
        but for our own errors, which a plugin raises to say what a caller did wrong."""
        self._require()
        try:
            return self._good(check, await self.loop.call(work, *args, seconds=seconds))
        except Exception as error:  # the boundary: any failure of theirs is told as one of ours
            raise self._explained(error, seconds) from error

    def call_here(
        self, work: Callable[..., T], *args: Any, seconds: float, check: Callable[[Any], R] = _as_it_is
    ) -> R:
        """The same for callers on a thread, who wait."""
        self._require()
        return self.wait_here(self.loop.begin(work, *args), seconds, check)

    def wait_here(self, begun: Future[Any], seconds: float, check: Callable[[Any], R] = _as_it_is) -> R:
        """The same for work that was begun before."""
        try:
            return self._good(check, begun.result(seconds))
        except Exception as error:  # the same boundary
            begun.cancel()
            raise self._explained(error, seconds) from error

    def _good(self, check: Callable[[Any], R], found: Any) -> R:
        try:
            checked = check(found)
        except (TypeError, ValueError) as error:
            raise self.failed(f"gave what cannot be used: {error}") from error
        self.worked()
        return checked

    def _explained(self, error: Exception, seconds: float) -> HoldfastError:
        if isinstance(error, PluginFailed):
            return error
        if isinstance(error, HoldfastError) and self.tells:
            self.worked()
            return error
        late = isinstance(error, TimeoutError)
        return self.failed(f"took longer than {seconds:g} s" if late else f"raised {_told(error)}")

    def worked(self) -> None:
        self.calls += 1
        self.in_a_row = 0

    def failed(self, why: str) -> PluginFailed:
        """Count a failure; gives the error that tells of it."""
        self.calls += 1
        self.failures += 1
        self.in_a_row += 1
        self.last_error = clip(why, _MOST_TOLD)
        out = f"; that was {self.in_a_row} times in a row, so it is left out from now on" * self.is_out
        log.warning("plugin %s: %s %s%s", self.plugin_id, self.name, self.last_error, out)
        return self._error(self.last_error)

    def _require(self) -> None:
        if self.is_out:
            raise self._error(f"is left out after {self.in_a_row} failures in a row: {self.last_error}")

    def _error(self, why: str) -> PluginFailed:
        return PluginFailed(
            f"plugin {self.plugin_id}: {self.name} {why}", hint="See `holdfast plugins doctor`."
        )


def _told(error: BaseException) -> str:
    name = type(error).__name__
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - its words are the plugin's code too
        return name
    return f"{name}: {said}" if said else name
