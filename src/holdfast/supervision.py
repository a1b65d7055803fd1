"""Who looks after what runs while a gateway serves: what ends is begun again, what fails is told.

A part is a coroutine that runs for as long as the gateway does. One that ends is begun again after a growing
pause; one that is stuck in a pass, fails pass after pass or is down makes the gateway not ready; a vital one
that stays so for too long ends the process, so that whoever supervises it begins anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal

from holdfast.config.runtime import HealthOptions
from holdfast.errors import HoldfastError, Transient, Unavailable
from holdfast.log import Pulse, Store
from holdfast.log.threads import described

log = logging.getLogger(__name__)

State = Literal["ok", "failing", "stuck", "down", "done"]
FAILING_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 1.0
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_GOOD_SECONDS: Final = 60.0

Run = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class PartHealth:
    """How one part fares. `error` is the last one that it met, whether it got over it or not."""

    name: str
    state: State
    vital: bool
    restarts: int = 0
    errors: int = 0
    error: str | None = None
    seconds: float = 0.0
    optional: bool = False

    @property
    def ready(self) -> bool:
        """Parts that only keep something fresh may fail and go on; none may be stuck or down, but for those
        of plugins, without which the gateway does all that it promises."""
        if self.optional:
            return True
        return self.state in ("ok", "done") or (self.state == "failing" and not self.vital)


class Part:
    """One thing that runs for as long as the gateway, and is begun again whenever it ends."""

    def __init__(
        self, pulse: Pulse, run: Run | None, *, vital: bool, once: bool, slow: bool, optional: bool = False
    ) -> None:
        self.pulse = pulse
        self.run = run
        self.vital = vital
        self.once = once
        self.slow = slow
        self.optional = optional
        self.restarts = 0
        self.down = False
        self.done = False

    def health(self, stuck_seconds: float) -> PartHealth:
        pulse, busy, failing = self.pulse, self.pulse.busy_for(), self.pulse.failing_for()
        state: State = "done" if self.done else "ok"
        if self.down:
            state = "down"
        elif busy > stuck_seconds and not self.slow:
            state = "stuck"
        elif failing > FAILING_SECONDS:
            state = "failing"
        return PartHealth(
            name=pulse.name,
            state=state,
            vital=self.vital,
            restarts=self.restarts,
            errors=pulse.errors,
            error=pulse.last_error,
            seconds=round(max(busy if state == "stuck" else 0.0, failing), 1),
            optional=self.optional,
        )

    async def keep(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Run until cancelled, or once to the end if that is all it is for."""
        assert self.run is not None
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await self.run()
                if self.once:
                    self.done = True
                    return
                raise Unavailable("it ended, which it never should", code="part_ended")
            except Exception as error:  # noqa: BLE001 - the boundary of every part: told, and begun again
                self.pulse.failed(error)
            self.down = True
            pause = _FIRST_PAUSE if time.monotonic() - began > _GOOD_SECONDS else pause
            await sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            self.restarts += 1
            self.down = False


class StoreWatch:
    """Whether the store can be used, asked on a thread of its own: the others may all be waiting for it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="holdfast-health")
        self._asked: asyncio.Future[HoldfastError | None] | None = None
        self.problem: HoldfastError | None = None

    async def look(self) -> HoldfastError | None:
        """What is wrong with it now; whoever asks meanwhile shares the answer."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.get_running_loop().run_in_executor(self._executor, self._probe)
        asked = self._asked
        await asyncio.wait({asked}, timeout=ANSWER_SECONDS)
        if asked.done():
            self.problem = asked.result()
        else:
            self.problem = Transient(
                f"the store did not answer within {ANSWER_SECONDS:g} seconds",
                code="store_slow",
                hint="See what the database is busy with, and who holds its locks.",
            )
        return self.problem

    @property
    def doubtful(self) -> bool:
        """Whether there is reason to ask again without being asked."""
        return self.problem is not None or self._store.write_error is not None

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _probe(self) -> HoldfastError | None:
        try:
            self._store.probe()
        except HoldfastError as error:
            return error
        except Exception as error:  # noqa: BLE001 - whatever it is, the store cannot be used
            return Unavailable(f"the store cannot be used: {described(error)}", code="store_unusable")
        return None


class Supervisor:
    """Keeps the parts of one gateway running, and says how they fare."""

    def __init__(
        self,
        store: Store,
        options: Callable[[], HealthOptions],
        *,
        on_fatal: Callable[[str], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store_watch = StoreWatch(store)
        self.on_fatal = on_fatal
        self._options = options
        self._now = now
        self._parts: dict[str, Part] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._bad_since: dict[str, float] = {}
        self._bad_told: dict[str, State] = {}
        self.looked = now()

    def add(
        self,
        pulse: Pulse | str,
        run: Run | None = None,
        *,
        vital: bool = False,
        once: bool = False,
        slow: bool = False,
        optional: bool = False,
    ) -> None:
        """Look after a part from `start` on; without `run` after a loop that another part keeps.

        `slow` is for one whose passes may take any time, `optional` for one that the gateway can do without.
        """
        pulse = Pulse(pulse) if isinstance(pulse, str) else pulse
        part = self._parts[pulse.name] = Part(
            pulse, run, vital=vital, once=once, slow=slow, optional=optional
        )
        if self._tasks:
            self._begin(part)

    def start(self) -> None:
        self._tasks.append(asyncio.create_task(self._look_on(), name="supervisor"))
        for part in self._parts.values():
            self._begin(part)

    async def stop(self) -> None:
        """End them all. A part that misses its cancellation, as `wait_for` can, is told again."""
        left = {task for task in self._tasks if not task.done()}
        while left:
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=1)
        self._tasks.clear()
        self.store_watch.close()

    def parts(self) -> list[PartHealth]:
        return [part.health(self._options().stuck_seconds) for part in self._parts.values()]

    def _begin(self, part: Part) -> None:
        if part.run is not None:
            self._tasks.append(asyncio.create_task(part.keep(), name=part.pulse.name))

    async def _look_on(self) -> None:
        while True:
            self.looked = self._now()
            try:
                if self.store_watch.doubtful:
                    await self.store_watch.look()
                self._judge()
            except Exception:  # who looks after all others must go on
                log.exception("the supervisor met a fault")
            await asyncio.sleep(_LOOK_SECONDS)

    def _judge(self) -> None:
        """Tell what became bad or good, and end the process for a vital part that stays bad."""
        bad = {part.name: part for part in self.parts() if not part.ready}
        for name, part in bad.items():
            if self._bad_told.get(name) != part.state:
                log.error("%s is %s%s", name, part.state, f": {part.error}" if part.error else "")
        for name in self._bad_told.keys() - bad.keys():
            log.warning("%s is well again", name)
        self._bad_told = {name: part.state for name, part in bad.items()}
        self._end_for({part.name: part.state for part in bad.values() if part.vital})

    def _end_for(self, bad: dict[str, State]) -> None:
        """While the store cannot be used the parts are not to blame: a new process would have no other store.

        A store that was not flushed is the exception: opened anew, it can be relied on again.
        """
        problem = self.store_watch.problem
        named: dict[str, str] = {**bad} if problem is None else {}
        if problem is not None and problem.code == "store_unflushed":
            named["store"] = "not flushed"
        now, limit = self._now(), self._options().exit_after_seconds
        self._bad_since = {name: self._bad_since.get(name, now) for name in named}
        lasting = [name for name, since in self._bad_since.items() if limit and now - since > limit]
        if lasting and self.on_fatal is not None:
            fatal, self.on_fatal = self.on_fatal, None
            fatal(f"{', '.join(lasting)}: {named[lasting[0]]} for more than {limit} seconds")
