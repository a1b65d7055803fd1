"""A stage for heartbeats and standing tasks: the turn loop's stage, with both rooms wired in."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "loop"))

from loop_stage import Stage, ask

from builders import KEY, PATIENCE
from holdfast.agents.cron import CronParts, CronService
from holdfast.agents.heartbeat import HeartbeatParts, Heartbeats
from holdfast.agents.heartbeat import state as states
from holdfast.agents.heartbeat.state import HeardAt, State, nobody_knows
from holdfast.agents.loop import Deliver
from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.log import OWNER, Store, Threads, agenda, outbox
from holdfast.testing import Script

HOME = Deliver(kind="chat", target="chat:42", payload={"room": "42", "replyTo": "m1"})

__all__ = ["HOME", "KEY", "HeartStage", "ask"]


class HeartStage(Stage):
    """Time is turned by hand; `beat` lets the clock pass and waits until what fell due is over."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        home: Path,
        script: Script = (),
        *,
        heartbeat: dict[str, Any] | None = None,
        heard_at: HeardAt = nobody_knows,
        **config: Any,
    ) -> None:
        defaults = {"heartbeat": heartbeat or {}, **config.pop("defaults", {})}
        super().__init__(store, threads, home, script, config={"defaults": defaults, **config})
        assert isinstance(store.clock, ManualClock)
        self.clock = store.clock
        parts = {"store": store, "threads": threads, "config": lambda: self.settings}
        self.heartbeats = Heartbeats(
            HeartbeatParts(**parts, workspace=lambda _: self.workspace, heard_at=heard_at)
        )
        self.standing = CronService(CronParts(**parts), env={"HOOK_SECRET": "a long shared secret"})
        self.hooks += [self.heartbeats.hook, self.standing.hook]
        self.toolbox.register_all(self.standing.tools())
        self.heartbeats.register(self.runner)
        self.standing.register(self.runner, self.runs)
        self.runner._idle = 0.01

    def checklist(self, text: str, name: str = "HEARTBEAT.md") -> None:
        (self.workspace / name).write_text(text)

    def configure(self, **changed: Any) -> None:
        """A reload: the config becomes another one and the rooms are told, as in a gateway."""
        merged = self.settings.agents.model_dump(by_alias=True)
        merged["defaults"]["heartbeat"] |= changed
        whole = {name: getattr(self.settings, name) for name in Config.model_fields if name != "agents"}
        self.settings = Config.model_validate({**whole, "agents": merged})
        self.heartbeats.schedule()

    async def beat(self, **passes: float) -> State:
        """Time passes until a heartbeat has been looked at and its turn, if it took one, is over."""
        self.clock.advance(**passes)
        await self.until(self._quiet)
        return self.state()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                await asyncio.sleep(0.005)

    def state(self) -> State:
        with self.store.read(OWNER) as tx:
            return states.get(tx, "main")

    def due(self, kind: str = "heartbeat") -> list[agenda.Item]:
        with self.store.read(OWNER) as tx:
            return agenda.listing(tx, kinds=[kind])

    def posted(self) -> list[tuple[str, dict[str, Any]]]:
        """What was sent, oldest first."""
        with self.store.read(OWNER) as tx:
            found = outbox.listing(tx)
        return [(d.target, dict(d.payload)) for d in sorted(found, key=lambda d: d.id)]

    def _quiet(self) -> bool:
        with self.store.read(OWNER) as tx:
            found = agenda.listing(tx, kinds=["heartbeat", "turn", "cron", "cron.archive"])
            return not any(item.status is agenda.Status.RUNNING or item.due_at <= tx.now for item in found)
