"""Searches and context blocks: worked out here, and under load in processes of their own over the same home.

One interpreter computes on one core. A question that nobody else waits beside is answered in this process.
When several come at once they go to readers, which open the same store and follow the same index: they take
other cores, and leave this one to whoever writes, approves or cancels.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.config.source import be_lenient, is_lenient
from holdfast.errors import Unavailable
from holdfast.log import OWNER, SYSTEM, Threads

if TYPE_CHECKING:
    from holdfast.board.context import ContextAsk
    from holdfast.board.search import SearchAsk
    from holdfast.memory import Ask
    from holdfast.runtime import Holdfast

log = logging.getLogger(__name__)

A = TypeVar("A")
Work = Callable[["Holdfast", A], bytes]
"""A function of a module: it is named to another process, not sent."""

MOST_BY_ITSELF: Final = 4
_LANE_THREADS: Final = 2
_IDLE_SECONDS: Final = 600.0
_AGAIN_SECONDS: Final = 30.0
_PARENT_SECONDS: Final = 2.0


def search(hold: Holdfast, ask: SearchAsk) -> bytes:
    """What `GET /api/search` answers."""
    from holdfast.board.search_forms import found_json

    found = hold.board.search.run(ask)
    told = _dumps({"ok": True, "q": ask.q[:2000], "mode": found.mode, "took": found.took_ms})
    return f"{told[:-1]},{found_json(found)}}}".encode()


def context(hold: Holdfast, ask: ContextAsk) -> bytes:
    """What `GET /api/context` answers."""
    return _dumps(hold.board.continuity.build(ask).json()).encode()


def memory_search(hold: Holdfast, asked: tuple[Ask, bool]) -> bytes:
    """What `GET /api/memory/search` answers; with the parts of each score where they are asked for."""
    ask, explain = asked
    return _dumps(hold.memory.search(ask).json(explain=explain)).encode()


_dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Readers:
    """Answers questions, each in the place that keeps others from waiting.

    The processes are begun when questions first meet, and ended when none came for a while. One that dies
    costs nothing but time: its question is answered here.
    """

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold
        self._lane = Threads(_LANE_THREADS)
        self._inside = 0
        self._pool: ProcessPoolExecutor | None = None
        self._warm: Future[None] | None = None
        self._used = 0.0
        self._not_before = 0.0
        self.answered = 0
        """How many questions readers have answered."""

    async def answer(self, work: Work[A], asking: Callable[[], A]) -> bytes:
        """The bytes of an answer, made here or by a reader; what to ask for is read in the same step."""
        self._inside += 1
        try:
            pool = self._reader() if self._inside > 1 else None
            if pool is not None:
                made = await self._elsewhere(pool, work, await self._lane(asking))
                if made is not None:
                    return made
            return await self._lane(lambda: work(self._hold, asking()))
        finally:
            self._inside -= 1

    @property
    def ready(self) -> bool:
        """Whether there are readers that can be asked."""
        warm = self._warm
        return warm is not None and warm.done() and not warm.cancelled() and warm.exception() is None

    @property
    def processes(self) -> list[int]:
        """The readers that there are now, by their process ids."""
        return [] if self._pool is None else list(self._pool._processes or ())

    def close(self) -> None:
        self._end()
        self._lane.close()

    async def _elsewhere(self, pool: ProcessPoolExecutor, work: Work[A], asked: A) -> bytes | None:
        """None if no reader could: they are begun again in a while."""
        await self._lane(self._hold.board.search.bring_up_to_date, SYSTEM)
        self._used = time.monotonic()
        try:
            stamp = int(self._hold.config.loaded_at)
            made = await asyncio.get_running_loop().run_in_executor(pool, _answered, work, asked, stamp)
            self.answered += 1
            return made
        except Unavailable as error:
            log.warning("a reader could not answer (%s); it is answered here", error.message)
            return None
        except (BrokenExecutor, RuntimeError) as error:
            if pool is self._pool:
                self._give_up(error)
            return None

    def _reader(self) -> ProcessPoolExecutor | None:
        """The readers, if they are ready; else they are begun."""
        wanted = self._wanted()
        alone = self._hold.settings.board.audit.enabled  # several processes would write one audit file
        if not wanted or alone or self._hold.memory.health.damaged:
            return None
        if self._pool is None:
            self._begin(wanted)
            return None
        if self._warm is not None and self._warm.done() and not self.ready:
            self._give_up(self._warm.exception() if not self._warm.cancelled() else None)
        return self._pool if self.ready else None

    def _wanted(self) -> int:
        given = self._hold.settings.gateway.readers
        if given is not None:
            return given
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(MOST_BY_ITSELF, cores) if cores > 1 else 0  # on one they would only cost

    def _begin(self, wanted: int) -> None:
        if time.monotonic() < self._not_before:
            return
        self._pool = ProcessPoolExecutor(
            wanted,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_open,
            initargs=(
                self._hold.home.path,
                self._hold.store.url.render_as_string(hide_password=False),
                os.getpid(),
                is_lenient(),
            ),
        )
        self._warm = self._pool.submit(_warmed)
        self._used = time.monotonic()
        asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._end_if_idle, self._pool)

    def _end_if_idle(self, pool: ProcessPoolExecutor) -> None:
        left = self._used + _IDLE_SECONDS - time.monotonic()
        if pool is not self._pool:
            return
        if left <= 0:
            self._end()
        else:
            asyncio.get_running_loop().call_later(left, self._end_if_idle, pool)

    def _give_up(self, why: BaseException | None) -> None:
        """Go on without them for a while."""
        log.warning("the readers ended (%s); searches go on here", why)
        self._not_before = time.monotonic() + _AGAIN_SECONDS
        self._end()

    def _end(self) -> None:
        pool, self._pool, self._warm = self._pool, None, None
        if pool is not None:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()


# What follows runs in the readers' processes.
_here: Holdfast | None = None
_config_seen = 0


def _open(home: Path, store_url: str, gateway: int, lenient: bool) -> None:
    """Open the home to read it. What stops the gateway stops its readers, and they outlive it in no case."""
    from holdfast.runtime import open_home

    global _here
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(gateway,), daemon=True).start()
    if lenient:
        be_lenient()
    _here = open_home(home, store_url=store_url, reads_only=True)


def _end_with(gateway: int) -> None:
    while os.getppid() == gateway:
        time.sleep(_PARENT_SECONDS)
    os._exit(0)


def _warmed() -> None:
    """Load what the first question would wait for: index and embedder."""
    from holdfast.board.search import SearchAsk
    from holdfast.board.visibility import Sight

    assert _here is not None
    search(_here, SearchAsk(q="warm up", sight=Sight(reader=OWNER), logs=1))


def _answered(work: Work[Any], asked: Any, config_stamp: int) -> bytes:
    global _config_seen
    assert _here is not None
    if config_stamp != _config_seen:
        _here.config.reload()
        _config_seen = config_stamp
    return work(_here, asked)
