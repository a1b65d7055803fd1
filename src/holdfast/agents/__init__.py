"""Who acts, with what, and what it may do."""

from holdfast.agents.routing import Origin, Route, Step, default_agent, explain, route

__all__ = ["Origin", "Route", "Step", "default_agent", "explain", "route"]
