"""Heartbeats: a periodic turn in which an agent looks after its checklist, and which costs nothing when
nothing on it is due.

heartbeats = Heartbeats(Parts(store=store, threads=threads, config=config, workspace=workspace))
runs = Runs(LoopParts(..., hooks=(heartbeats.hook,)))
heartbeats.register(runner)
heartbeats.schedule()
heartbeats.boot()
"""

from holdfast.agents.heartbeat.hours import Hours
from holdfast.agents.heartbeat.parts import Parts
from holdfast.agents.heartbeat.room import Heartbeats
from holdfast.agents.heartbeat.surfaces import place
from holdfast.agents.heartbeat.zones import zone_of

__all__ = ["Heartbeats", "Hours", "Parts", "place", "zone_of"]
