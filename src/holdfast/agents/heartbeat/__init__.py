"""Heartbeats: a periodic turn in which an agent looks after its checklist, and which costs nothing when
nothing on it is due.

heartbeats = Heartbeats(Parts(store=store, threads=threads, config=config, workspace=workspace))
runs = Runs(LoopParts(..., hooks=(heartbeats.hook,)))
heartbeats.register(runner)
heartbeats.schedule()
heartbeats.boot()
"""

from holdfast.agents.heartbeat.room import Heartbeats
from holdfast.agents.heartbeat.rules import Hours, zone_of
from holdfast.agents.heartbeat.state import Parts, last_surface

__all__ = ["Heartbeats", "Hours", "Parts", "last_surface", "zone_of"]
