"""The heartbeat room: a pulse for each agent, ready to be wired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.agents.heartbeat import booting, due, status
from holdfast.agents.heartbeat.beating import Beater
from holdfast.agents.heartbeat.hook import HeartbeatHook
from holdfast.agents.heartbeat.parts import Parts
from holdfast.agents.tools.types import Tool
from holdfast.log import SYSTEM, Tx
from holdfast.log.agenda import Item, Runner


class Heartbeats:
    """Built before the loop, which is given its hook; `register` hands its work to the agenda's runner."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.hook = HeartbeatHook(parts)

    def tools(self) -> tuple[Tool[Any], ...]:
        """None: what an agent looks after is in its HEARTBEAT.md, which it may edit."""
        return ()

    def register(self, runner: Runner) -> None:
        runner.register(due.KIND, Beater(self._parts).kind())

    def schedule(self) -> int:
        """At start-up and after each change of the config: how many heartbeats wait."""
        return self._parts.store.run(SYSTEM, lambda tx: due.reconcile(tx, self._parts.config()))

    def boot(self) -> list[str]:
        """At start-up, once: the turns on BOOT.md."""
        return self._parts.store.run(SYSTEM, lambda tx: booting.boot(tx, self._parts))

    def now(self, agent_id: str) -> Item:
        """A heartbeat at once, whatever the hour and the budget; `NotFound` for an unknown agent."""
        settings = self._parts.config().agent(agent_id).heartbeat
        return self._parts.store.run(SYSTEM, lambda tx: due.at_once(tx, agent_id, settings))

    def statuses(self, agent_ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """How the heartbeats of these agents stand; of all, unless some are named."""
        ids = [agent.id for agent in self._parts.config().agent_list] if agent_ids is None else agent_ids
        with self._parts.store.read(SYSTEM) as tx:
            return status.statuses(tx, self._parts, ids)

    def look(self, tx: Tx, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        return status.look(tx, ids)
