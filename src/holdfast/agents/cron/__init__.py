"""Standing tasks and webhooks: turns that a schedule or another program starts.

standing = Standing(Parts(store=store, threads=threads, config=config))
toolbox.register_all(standing.tools())
runs = Runs(LoopParts(..., hooks=(standing.hook,)))
standing.register(runner, runs)
standing.schedule()
"""

from holdfast.agents.cron.firing import Parts
from holdfast.agents.cron.room import Standing
from holdfast.agents.cron.tasks import Task, Wish
from holdfast.agents.cron.webhooks import HEADERS as SIGNATURE_HEADERS
from holdfast.agents.cron.webhooks import Received, sign

__all__ = ["SIGNATURE_HEADERS", "Parts", "Received", "Standing", "Task", "Wish", "sign"]
