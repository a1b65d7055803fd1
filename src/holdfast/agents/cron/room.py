"""The room of standing tasks and webhooks: all that others start, ready to be wired."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from holdfast.agents.cron import archiving, asking, tasks, views
from holdfast.agents.cron.archiving import Archiver
from holdfast.agents.cron.asking import Wish
from holdfast.agents.cron.firing import Firer, Parts
from holdfast.agents.cron.hook import StandingHook
from holdfast.agents.cron.tasks import Task
from holdfast.agents.cron.tool import CronTool
from holdfast.agents.cron.webhook_tool import WebhookTool
from holdfast.agents.cron.webhooks import Received, Webhooks
from holdfast.agents.loop.asks import Accepted, Ask
from holdfast.agents.tools.types import Tool
from holdfast.clock import DAY_MS
from holdfast.errors import Unavailable
from holdfast.log import SYSTEM, Tx
from holdfast.log.agenda import Item, Runner

FINISHED_MS: Final = 7 * DAY_MS


class Turns(Protocol):
    """What this room asks of the turn loop."""

    def accept_in(self, tx: Tx, ask: Ask) -> Accepted: ...


class Standing:
    """Built before the loop, whose tool and hook it gives; `register` hands its work to the runner."""

    def __init__(self, parts: Parts, env: Mapping[str, str] = os.environ) -> None:
        self._parts = parts
        self._env = env
        self._webhooks: Webhooks | None = None
        self.hook = StandingHook(parts.config)

    def tools(self) -> tuple[Tool[Any], ...]:
        return (CronTool(self._parts).tool(), WebhookTool(self._parts).tool())

    def register(self, runner: Runner, turns: Turns) -> None:
        runner.register(tasks.KIND, Firer(self._parts, turns.accept_in).kind())
        runner.register(archiving.KIND, Archiver(self._parts).kind())
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

    def add(self, wish: Wish, created_by: Mapping[str, Any]) -> dict[str, Any]:
        def write(tx: Tx) -> dict[str, Any]:
            return views.task_json(tx, asking.make(tx, self._parts.config(), wish, created_by))

        return self._parts.store.run(SYSTEM, write)

    def change(self, id_: str, sent: Mapping[str, Any], revision: int | None = None) -> dict[str, Any]:
        def write(tx: Tx) -> dict[str, Any]:
            task = tasks.get(tx, id_, lock=True)
            return views.task_json(tx, asking.change(tx, self._parts.config(), task, sent, revision))

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

    def get(self, id_: str) -> dict[str, Any]:
        with self._parts.store.read(SYSTEM) as tx:
            return views.task_json(tx, tasks.get(tx, id_))

    def listing(
        self, *, agent_ids: frozenset[str] | None = None, limit: int = 100, offset: int = 0
    ) -> list[dict[str, Any]]:
        with self._parts.store.read(SYSTEM) as tx:
            found = tasks.listing(tx, agent_ids=agent_ids, limit=limit, offset=offset)
            return views.tasks_json(tx, found)

    def look(self, tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        return views.look(tx, ids)

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
