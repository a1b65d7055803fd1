"""A gateway with an engine from outside in its slot, which is an installed package, for tests that kill it.

    engine_worker.py HOME PLAN

`PLAN` is JSON: `say` is a list of messages for the main session, each said when all before it has come to
rest; with `heartbeat` and `compact` these come last. With `kill` the process dies the moment after the first
turn's commit, before the engine hears of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from holdfast.agents.loop import Ask
from holdfast.context import ContextRoom
from holdfast.log import OWNER, Session, agenda
from holdfast.runtime import Holdfast, open_home
from holdfast.services import Services

KEY = "agent:main:main"
KINDS = ("turn", "subagent.", "engine.", "heartbeat")


async def rest(hold: Holdfast) -> None:
    """Until nothing is left of what was asked for, but for what is only due much later."""
    async with asyncio.timeout(60):
        while True:
            with hold.store.read(OWNER) as tx:
                live = [item for item in agenda.listing(tx, limit=200) if item.kind.startswith(KINDS)]
                soon = [item for item in live if item.due_at < int(tx.now) + 60_000]
            if not soon:
                return
            await asyncio.sleep(0.01)


def die_before_telling() -> None:
    async def die(self: ContextRoom, session: Session) -> None:
        with self.store.read(OWNER) as tx:
            if tx.conn.exec_driver_sql("SELECT 1 FROM engine_outbox").first() is not None:
                os.kill(os.getpid(), signal.SIGKILL)

    ContextRoom.tell_engine = die  # type: ignore[method-assign]


async def live(home: Path, plan: dict[str, Any]) -> None:
    with open_home(home) as hold:
        async with Services(hold).running():
            await rest(hold)
            for text in plan.get("say", ()):
                await hold.runs.accept(Ask(text=text, session_key=KEY, key=f"said-{text}"))
                await rest(hold)
            if plan.get("compact"):
                await hold.runs.accept(Ask(text="/compact", session_key=KEY, key="compact"))
                await rest(hold)
            if plan.get("heartbeat"):
                await hold.threads(hold.agency.heartbeats.now, "main")
                await rest(hold)


def main() -> None:
    home, plan = Path(sys.argv[1]), json.loads(sys.argv[2])
    if plan.get("kill"):
        die_before_telling()
    asyncio.run(live(home, plan))


if __name__ == "__main__":
    main()
