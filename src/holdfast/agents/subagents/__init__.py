"""Subagents: work that an agent delegates, whose results always come back, once.

subagents = Subagents(Parts(store=store, threads=threads, config=config, context=context, models=models))
toolbox.register_all(subagents.tools())
runs = Runs(LoopParts(..., hooks=(subagents.hook,)))
subagents.register(runner, runs)
subagents.recover()
"""

from holdfast.agents.subagents.checks import Refusal, SpawnInput, Standing, Wish, chain_refusal, refusal
from holdfast.agents.subagents.ending import Watcher, stats, stopped_on_purpose
from holdfast.agents.subagents.registry import Announce, Outcome, Run, Status
from holdfast.agents.subagents.room import Subagents
from holdfast.agents.subagents.spawning import Errand, OpenThread, Parts

__all__ = [
    "Announce",
    "Errand",
    "OpenThread",
    "Outcome",
    "Parts",
    "Refusal",
    "Run",
    "SpawnInput",
    "Standing",
    "Status",
    "Subagents",
    "Watcher",
    "Wish",
    "chain_refusal",
    "refusal",
    "stats",
    "stopped_on_purpose",
]
