"""Gateways to be killed: each is a process that takes up what the one before it left, comes to rest, hears
messages, and dies at a named step of what follows from them.

    agents_worker.py HOME STORE-URL

Each line that it reads is one gateway: `{"first": [...], "say": [[SESSION-KEY, TEXT], ...], "kill": STEP,
"nth": N}`. A step is named as this tells it, with `before` or `after` its commit; without one nothing is
killed. `nth` kills after so many steps of taking up what was left. What is to be said `first` is said before
that has come to rest. `!halt` and `!release` are what the owner does to the whole home. Before one of these
and before `/stop` only what can go on by itself does: no time passes. Every gateway is a fork of this
process, which has loaded all modules. One line for each tells how it ended; if nothing killed it, with the
steps that each session's messages took.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import re
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from holdfast.agents.loop import Ask
from holdfast.clock import ManualClock
from holdfast.log import OWNER, Reader, Store, agenda
from holdfast.log.store import Tx
from holdfast.runtime import Holdfast, open_home
from holdfast.services import Services

PATIENCE: Final = 60.0
PID: Final = "gateway.pid"
START: Final = 1_767_225_600_000
WATCHED: Final = ("agents.", "continuation.", "log.agenda.")
KINDS: Final = re.compile(r"turn(\.subagent)?|continuation\..*|subagent\.(wake|launch|stop)")
_LOCAL: Final = re.compile(r"\.<locals>\.(<lambda>|\w+)$")
_WITHIN: Final = ("contextlib.py", "store.py", Path(__file__).name)

PRELOADED: Final = (
    "alembic.command",
    "genai_prices.data",
    "holdfast.memory",
    "holdfast.plugins.backends",
    "holdfast.board.recall",
    "holdfast.runtime.agency",
    "holdfast.runtime.rooms",
    "numpy",
    "openai.resources.chat.completions",
    "openai.types.chat",
    "psycopg",
    "pydantic_ai.models.openai",
    "sqlalchemy.dialects.postgresql.psycopg",
    "watchfiles",
)

Write = Callable[..., Any]


class Seam:
    """Steps as they are taken, and death at one of them; known by its name and how often it came."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._kill: str | None = None
        self._nth: int | None = None
        self._armed = False
        self.asking = 0

    def arm(self, kill: str | None = None, *, nth: int | None = None) -> None:
        """Count from here; `nth` means whichever step comes then."""
        with self._lock:
            self.steps, self._counts = [], Counter()
            self._kill, self._nth, self._armed = kill, nth, True

    def before(self, name: str) -> str | None:
        """A step is about to be taken; its full name, None if it is none of ours."""
        if not self._armed or not name:
            return None
        with self._lock:
            self._counts[name] += 1
            step = f"{name}#{self._counts[name]}"
            self.steps.append(step)
            if len(self.steps) == self._nth:
                self._kill = f"{step} after"
        self._die(f"{step} before")
        return step

    def after(self, step: str | None) -> None:
        if step is not None:
            self._die(f"{step} after")

    def _die(self, where: str) -> None:
        if where == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)


SEAM: Final = Seam()
_naming = threading.local()


def watch_store() -> None:
    """Every write of the rooms in question becomes a step: before its commit, and the moment after."""
    write, run = Store.write, Store.run

    @contextmanager
    def watched(self: Store, reader: Reader, **options: bool) -> Iterator[Tx]:
        by_frame = caller() if getattr(_naming, "name", None) is None else ""
        with write(self, reader, **options) as tx:
            yield tx
            by_work = getattr(_naming, "name", None)
            step = SEAM.before(by_frame if by_work is None else by_work)
            tx.callbacks.insert(0, functools.partial(SEAM.after, step))

    def named(self: Store, reader: Reader, work: Write, **options: bool) -> Any:
        _naming.name = ours(*name_of(work))

        def noted(tx: Tx) -> Any:
            made = work(tx)
            if _naming.name.endswith("Runner._claim"):
                _naming.name = claim_name(made[0])
            return made

        try:
            return run(self, reader, noted, **options)
        finally:
            _naming.name = None

    Store.write, Store.run = watched, named  # type: ignore[method-assign, assignment]


def name_of(work: Write) -> tuple[str, str]:
    while isinstance(work, functools.partial):
        work = work.func
    return work.__module__, work.__qualname__


def caller() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None and Path(frame.f_code.co_filename).name in _WITHIN:
        frame = frame.f_back
    return ours(frame.f_globals["__name__"], frame.f_code.co_qualname)


def ours(module: str, qualified: str) -> str:
    """A name for people; empty for a step that has no part in what is tested."""
    module = module.removeprefix("holdfast.")
    while _LOCAL.search(qualified):
        qualified = _LOCAL.sub("", qualified)
    return f"{module}:{qualified}" if module.startswith(WATCHED) and "_take_in" not in qualified else ""


def claim_name(items: list[agenda.Item]) -> str:
    kinds = sorted({item.kind for item in items if KINDS.fullmatch(item.kind)})
    return f"claim:{'+'.join(kinds)}" if kinds else ""


def watch_calls(hold: Holdfast) -> None:
    """What is done outside any transaction: asking a model, readying a child's context."""

    def stepping(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def stepped(*args: Any, **kwargs: Any) -> Any:
            step = SEAM.before(name)
            SEAM.asking += name == "model"
            try:
                made = await call(*args, **kwargs)
            finally:
                SEAM.asking -= name == "model"
            SEAM.after(step)
            return made

        return stepped

    models, context = hold.agency.models, hold.context
    models.answer = stepping("model", models.answer)  # type: ignore[method-assign]
    context.prepare_subagent_spawn = stepping(  # type: ignore[method-assign]
        "prepare", context.prepare_subagent_spawn
    )


class Hours:
    """The home's own time: it goes on from one process to the next, and jumps where nothing else is due."""

    def __init__(self, home: Path) -> None:
        self._file = home / "hours"
        kept = int(self._file.read_text()) if self._file.exists() else START
        self.clock = ManualClock(kept + 1_000)

    def jump(self, to: int) -> None:
        """The process may be killed at any line: what the file says is whole all the same."""
        draft = self._file.with_suffix(".new")
        draft.write_text(str(to))
        draft.replace(self._file)
        self.clock.set(to)


async def rest(hold: Holdfast, hours: Hours) -> None:
    """Until nothing is left of what was asked for; what is only due later is due now."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with hold.store.read(OWNER) as tx:
                live = [item for item in agenda.listing(tx, limit=200) if KINDS.fullmatch(item.kind)]
            if not live:
                return
            soonest = min(item.due_at for item in live)
            if soonest > hours.clock.now() and all(i.status is agenda.Status.QUEUED for i in live):
                hours.jump(soonest)
                hold.store.signals.notify_all()
            await asyncio.sleep(0.003)


async def come_to_wait(hold: Holdfast) -> None:
    """Until all that is left waits for its time, but for a child whose model says nothing more."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with hold.store.read(OWNER) as tx:
                live = [item for item in agenda.listing(tx, limit=200) if KINDS.fullmatch(item.kind)]
                now = tx.now
            running = [item.kind for item in live if item.status is agenda.Status.RUNNING]
            waits = all(item.due_at > now for item in live if item.status is agenda.Status.QUEUED)
            if waits and set(running) <= {"turn.subagent"} and len(running) == SEAM.asking:
                return
            await asyncio.sleep(0.003)


async def hear(hold: Holdfast, key: str, text: str) -> None:
    match text:
        case "!halt":
            await hold.runs.halt()
        case "!release":
            await hold.runs.release()
        case _:
            await hold.runs.accept(Ask(text=text, session_key=key, key=f"said-{key}-{text}"))


async def live(home: Path, url: str, plan: dict[str, Any]) -> list[list[str]]:
    """Take up what was left, then hear each session's messages and come to rest; the steps that they took."""
    hours, steps = Hours(home), []
    if plan["nth"] is not None:
        SEAM.arm(nth=plan["nth"])
    with open_home(home, store_url=url, clock=hours.clock) as hold:
        watch_calls(hold)
        async with Services(hold).running():
            for key, text in plan["first"]:
                await hear(hold, key, text)
            await rest(hold, hours)
            for key, said in groupby(plan["say"], lambda one: one[0]):
                SEAM.arm(plan["kill"])
                for number, (_, text) in enumerate(said):
                    if number:
                        await come_to_wait(hold)
                    await hear(hold, key, text)
                await rest(hold, hours)
                steps.append(SEAM.steps)
    return steps


def gateway(home: Path, url: str, plan: dict[str, Any]) -> None:
    """One process, from its start to its end; its id is written down for who wants to end it sooner."""
    (home / PID).write_text(str(os.getpid()))
    try:
        tell({"steps": asyncio.run(live(home, url, plan))})
    except BaseException:  # noqa: BLE001 - the test is told, whatever it was
        tell({"error": traceback.format_exc()})
    os._exit(0)


def tell(told: dict[str, Any]) -> None:
    os.write(1, json.dumps(told).encode() + b"\n")


def preload() -> None:
    """Import now what every gateway would import for itself; no thread may come of it."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1


def main() -> None:
    home, url = Path(sys.argv[1]), sys.argv[2]
    preload()
    watch_store()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            gateway(home, url, json.loads(line))
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            tell({"killed": os.WTERMSIG(status)})


if __name__ == "__main__":
    main()
