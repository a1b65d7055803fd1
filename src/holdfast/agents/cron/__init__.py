"""Standing tasks and webhooks: turns that a schedule or another program starts.

standing = Standing(Parts(store=store, threads=threads, config=config))
toolbox.register_all(standing.tools())
runs = Runs(LoopParts(..., hooks=(standing.hook,)))
standing.register(runner, runs)
standing.schedule()
"""

from holdfast.agents.cron.asking import Wish
from holdfast.agents.cron.firing import Parts
from holdfast.agents.cron.room import Standing
from holdfast.agents.cron.signing import HEADERS as SIGNATURE_HEADERS
from holdfast.agents.cron.signing import sign
from holdfast.agents.cron.tasks import Task
from holdfast.agents.cron.webhooks import Received

__all__ = ["SIGNATURE_HEADERS", "Parts", "Received", "Standing", "Task", "Wish", "sign"]
