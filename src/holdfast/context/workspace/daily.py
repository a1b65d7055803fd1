"""The daily notes, `memory/YYYY-MM-DD.md`, by the user's own calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from holdfast.clock import Millis


def zone_of(name: str) -> tzinfo:
    """The user's zone: `local` is this machine's."""
    if name == "local":
        return datetime.now(UTC).astimezone().tzinfo or UTC
    return ZoneInfo(name)


def local_time(now: Millis, zone: str) -> datetime:
    return datetime.fromtimestamp(now / 1000, zone_of(zone))


def daily_path(now: Millis, zone: str) -> str:
    """Today's file, as a path within the workspace."""
    return f"memory/{local_time(now, zone):%Y-%m-%d}.md"


def startup_paths(now: Millis, zone: str, days: int = 2) -> list[str]:
    """The files of the last days, today's last: the order in which they are read."""
    today = local_time(now, zone)
    return [f"memory/{today - timedelta(days=ago):%Y-%m-%d}.md" for ago in reversed(range(days))]
