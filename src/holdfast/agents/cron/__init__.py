"""Standing tasks and webhooks: turns that a schedule or another program starts.

standing = CronService(CronParts(store=store, threads=threads, config=config))
toolbox.register_all(standing.tools())
runs = Runs(LoopParts(..., hooks=(standing.hook,)))
standing.register(runner, runs)
standing.schedule()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from holdfast.agents.cron import firing, tasks, webhooks
from holdfast.agents.cron.firing import Archiver, CronParts, Firer
from holdfast.agents.cron.tasks import Status, Task, Wish
from holdfast.agents.cron.tools import CronTool, WebhookTool
from holdfast.agents.cron.webhooks import HEADERS as SIGNATURE_HEADERS
from holdfast.agents.cron.webhooks import Received, Webhooks, sign
from holdfast.agents.loop.asks import Accepted, Ask, Terms
from holdfast.agents.loop.parts import TurnEnd, TurnHook
from holdfast.agents.tools.types import Tool
from holdfast.clock import DAY_MS
from holdfast.config import Config
from holdfast.context import Text, is_silent
from holdfast.errors import Unavailable
from holdfast.log import SYSTEM, Session, Turn, Tx
from holdfast.log.agenda import Item, Runner

__all__ = ["SIGNATURE_HEADERS", "CronParts", "CronService", "Received", "Task", "Wish", "sign"]


class StandingHook(TurnHook):
    name = "standing"

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config

    def shown(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> Sequence[Text]:
        """What the operator wants done with a webhook's call; its own words stand apart, as data."""
        if turn.trigger != webhooks.TRIGGER:
            return ()
        return webhooks.instructions(turn.key, self._config().hooks)

    def committed(self, tx: Tx, end: TurnEnd) -> None:
        self._ended(tx, end, "silent" if is_silent(end.said) else "ok")

    def failed(self, tx: Tx, end: TurnEnd) -> None:
        self._ended(tx, end, "failed")

    def _ended(self, tx: Tx, end: TurnEnd, status: Status) -> None:
        if end.turn.trigger != firing.TRIGGER:
            return
        task = tasks.of_turn(tx, end.turn.id)
        if task is not None:
            failures = task.failures + 1 if status == "failed" else 0
            error = end.turn.error if status == "failed" else None
            tasks.save(
                tx, tasks.get(tx, task.id, lock=True), last_status=status, last_error=error, failures=failures
            )
            retention = self._config().cron.session_retention
            if task.session == "isolated" and retention is not None:
                firing.plan_archiving(tx, end.session, int(retention))


FINISHED_MS: Final = 7 * DAY_MS


class Turns(Protocol):
    """What this room asks of the turn loop."""

    def accept_in(self, tx: Tx, ask: Ask) -> Accepted: ...


class CronService:
    """Built before the loop, whose tool and hook it gives; `register` hands its work to the runner."""

    def __init__(self, parts: CronParts, env: Mapping[str, str] = os.environ) -> None:
        self._parts = parts
        self._env = env
        self._webhooks: Webhooks | None = None
        self.hook = StandingHook(parts.config)

    def tools(self) -> tuple[Tool[Any], ...]:
        return (CronTool(self._parts).tool(), WebhookTool(self._parts).tool())

    def register(self, runner: Runner, turns: Turns) -> None:
        runner.register(tasks.KIND, Firer(self._parts, turns.accept_in).kind())
        runner.register(firing.ARCHIVE, Archiver(self._parts).kind())
        self.bind(turns)

    def bind(self, turns: Turns) -> None:
        """Let webhooks be taken in by a process that runs no turns itself."""
        self._webhooks = Webhooks(self._parts, turns.accept_in, self._env)

    def schedule(self) -> int:
        """At start-up and after each change of the config: how many tasks have a next run."""
        return self._parts.store.run(SYSTEM, self._planned)

    async def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> Received:
        """A webhook's call; see `Webhooks.receive`."""
        if self._webhooks is None:
            raise Unavailable("webhooks are not served here", code="no_webhooks")
        return await self._webhooks.receive(name, headers, body)

    def add(self, wish: Wish, created_by: Mapping[str, Any]) -> tasks.StandingTaskOut:
        def write(tx: Tx) -> tasks.StandingTaskOut:
            return tasks.task_json(tx, tasks.make_task(tx, self._parts.config(), wish, created_by))

        return self._parts.store.run(SYSTEM, write)

    def change(self, id_: str, sent: Mapping[str, Any], revision: int | None = None) -> tasks.StandingTaskOut:
        def write(tx: Tx) -> tasks.StandingTaskOut:
            task = tasks.get(tx, id_, lock=True)
            return tasks.task_json(tx, tasks.change_task(tx, self._parts.config(), task, sent, revision))

        return self._parts.store.run(SYSTEM, write)

    def remove(self, id_: str) -> Task:
        def write(tx: Tx) -> Task:
            task = tasks.get(tx, id_, lock=True)
            tasks.remove(tx, task)
            return task

        return self._parts.store.run(SYSTEM, write)

    def run_now(self, id_: str) -> Item:
        """A run at once; `NotFound` for a task that is not there."""
        return self._parts.store.run(SYSTEM, lambda tx: tasks.run_now(tx, tasks.get(tx, id_, lock=True)))

    def get(self, id_: str) -> tasks.StandingTaskOut:
        with self._parts.store.read(SYSTEM) as tx:
            return tasks.task_json(tx, tasks.get(tx, id_))

    def listing(
        self, *, agent_ids: frozenset[str] | None = None, limit: int = 100, offset: int = 0
    ) -> list[tasks.StandingTaskOut]:
        with self._parts.store.read(SYSTEM) as tx:
            found = tasks.listing(tx, agent_ids=agent_ids, limit=limit, offset=offset)
            return tasks.tasks_json(tx, found)

    def look(self, tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        return tasks.tasks_by_id(tx, ids)

    def _planned(self, tx: Tx) -> int:
        """Every task's next run on the agenda; what was to run once and has is forgotten after a week."""
        count = 0
        for task in tasks.listing(tx, limit=self._parts.config().cron.max_jobs + tasks.MAX_PAGE):
            if tasks.is_finished(task) and task.updated_at < tx.now - FINISHED_MS:
                tasks.remove(tx, task)
            elif task.enabled:
                tasks.plan(tx, task)
                count += 1
        return count
