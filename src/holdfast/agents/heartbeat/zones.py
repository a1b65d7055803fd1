"""Which time zone a setting means for an agent."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from holdfast.config import AgentSettings
from holdfast.log.reset import local_zone, zone


def zone_of(name: str, agent: AgentSettings) -> ZoneInfo:
    """`user` is the agent's user, `local` this machine, else the zone of that name."""
    if name == "user":
        name = agent.user_timezone
    return local_zone() if name == "local" else zone(name)


def day_of(at: int, where: ZoneInfo) -> str:
    """The date that a wall clock there shows."""
    return datetime.fromtimestamp(at // 1000, UTC).astimezone(where).date().isoformat()
