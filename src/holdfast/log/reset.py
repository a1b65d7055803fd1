"""When a session is begun anew, and the session that a message enters."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.clock import Millis
from holdfast.config.session import SessionConfig
from holdfast.errors import InvalidInput
from holdfast.log import sessions
from holdfast.log.sessions import Session
from holdfast.log.store import Tx

ResetMode = Literal["daily", "idle", "none"]
StaleReason = Literal["daily", "idle"]

_COMMAND = re.compile(r"/(new|reset)(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)
_TYPE_NAMES: Mapping[str, tuple[str, ...]] = {
    "direct": ("direct", "dm"),
    "dm": ("dm", "direct"),
    "room": ("room", "channel", "group"),
    "channel": ("channel", "room", "group"),
}


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """`daily` may carry idle minutes too: then the session ends at whichever comes first."""

    mode: ResetMode = "daily"
    at_hour: int = 4
    idle_minutes: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.at_hour <= 23:
            raise InvalidInput(f"no such hour: {self.at_hour}", hint="Set atHour from 0 to 23.")
        if self.idle_minutes is not None and self.idle_minutes < 1:
            raise InvalidInput(
                f"idle minutes must be positive: {self.idle_minutes}",
                hint='Set idleMinutes to 1 or more, or mode to "none" for no reset.',
            )
        if self.mode == "idle" and self.idle_minutes is None:
            raise InvalidInput(
                "an idle reset needs its minutes", hint='Set idleMinutes beside "mode": "idle".'
            )


@dataclass(frozen=True, slots=True)
class Expiry:
    """The moment from which a session is stale, and why."""

    at: Millis
    reason: StaleReason


@dataclass(frozen=True, slots=True)
class ResetCommand:
    """`/new` or `/reset`; what stood behind it is the first message of the fresh session."""

    name: Literal["new", "reset"]
    message: str


def zone(name: str) -> ZoneInfo:
    """The IANA zone of that name, or InvalidInput."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            f"no such time zone: {name[:64]!r}", hint="Use an IANA name such as Europe/Berlin."
        ) from error


def local_zone() -> ZoneInfo:
    """The zone of this machine, as far as it tells one by name; else UTC."""
    named = os.environ.get("TZ", "").lstrip(":") or _linked_zone()
    try:
        return ZoneInfo(named) if named else ZoneInfo("UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _linked_zone() -> str:
    """Asked for every message: the link itself tells, without walking the whole way to where it leads."""
    try:
        return os.readlink("/etc/localtime").partition("zoneinfo/")[2]
    except OSError:
        return ""


def expiry(last_activity_ms: int, policy: ResetPolicy, tz: ZoneInfo) -> Expiry | None:
    """When a session last used at that time goes stale; None if it never does."""
    ends: list[Expiry] = []
    if policy.mode == "daily":
        ends.append(Expiry(_next_daily(last_activity_ms, policy.at_hour, tz), "daily"))
    if policy.mode != "none" and policy.idle_minutes is not None:
        ends.append(Expiry(Millis(last_activity_ms + policy.idle_minutes * 60_000), "idle"))
    return min(ends, key=lambda end: end.at, default=None)


def is_stale(last_activity_ms: int, now_ms: int, policy: ResetPolicy, tz: ZoneInfo) -> StaleReason | None:
    """Why the session is stale now, or None while it is fresh.

    `last_activity_ms` is the session's `last_external_at`: the last message that came from outside.
    System events (heartbeats, cron, wakes) never extend freshness: the caller leaves them out.
    """
    end = expiry(last_activity_ms, policy, tz)
    return end.reason if end is not None and now_ms >= end.at else None


def policy_for(
    chat_type: str | None,
    channel: str | None,
    *,
    reset: ResetPolicy,
    by_type: Mapping[str, ResetPolicy],
    by_channel: Mapping[str, ResetPolicy],
) -> ResetPolicy:
    """The policy of a session: its channel's beats its chat type's, which beats the default.

    `dm` and `direct` mean the same, as do `room` and `channel`, which fall back on `group`.
    """
    if channel is not None and channel in by_channel:
        return by_channel[channel]
    names = () if chat_type is None else _TYPE_NAMES.get(chat_type, (chat_type,))
    return next((by_type[name] for name in names if name in by_type), reset)


def reset_command(text: str) -> ResetCommand | None:
    """The manual reset that a message asks for, if that is what it begins with."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    name: Literal["new", "reset"] = "new" if match[1].lower() == "new" else "reset"
    return ResetCommand(name, match[2] or "")


def with_trigger(text: str, triggers: Sequence[str]) -> str:
    """The message with a configured trigger at its head turned into `/reset`; any other as it is."""
    said = text.strip()
    for trigger in triggers:
        head, rest = said[: len(trigger)], said[len(trigger) :]
        if trigger and head.casefold() == trigger.casefold() and (not rest or rest[0].isspace()):
            return text if reset_command(text) is not None else f"/reset {rest.strip()}".rstrip()
    return text


def _next_daily(after_ms: int, hour: int, tz: ZoneInfo) -> Millis:
    """The first moment after `after_ms` at which a wall clock in `tz` strikes the hour.

    An hour that the clocks skip strikes when they jump; one that comes twice, the first time.
    """
    day = datetime.fromtimestamp(after_ms // 1000, UTC).astimezone(tz).date()
    for offset in range(-1, 4):
        date = day + timedelta(days=offset)
        strike = datetime(date.year, date.month, date.day, hour, tzinfo=tz)
        at = Millis(int(strike.timestamp()) * 1000)
        if at > after_ms:
            return at
    raise AssertionError("a day longer than three days")


@dataclass(frozen=True, slots=True)
class Entered:
    """The session that a message belongs to, why it is a new one, and what is left of the message."""

    session: Session
    text: str
    reset: str | None = None


def enter(tx: Tx, session: Session, text: str, config: SessionConfig, *, user_zone: str = "UTC") -> Entered:
    """The session for a message from outside: `/new` and `/reset` begin a new one, so does staleness.

    The message makes the session fresh; system events never come this way and never do.
    """
    command = reset_command(text)
    cause: str | None = None if command is None else command.name
    if cause is None and session.turn_count > 0:
        policy, tz = _policy(session, config, user_zone)
        cause = is_stale(session.last_external_at, tx.now, policy, tz)
    if cause is not None and session.turn_count > 0:
        session = sessions.reset(tx, session, cause=cause)
    rest = text if command is None else command.message
    return Entered(sessions.touch(tx, session, external=True), rest, cause)


def _policy(session: Session, config: SessionConfig, user_zone: str) -> tuple[ResetPolicy, ZoneInfo]:
    written = {"": config.reset}
    written |= {f"type:{name}": p for name, p in config.reset_by_type if p is not None}
    written |= {f"channel:{name}": p for name, p in config.reset_by_channel.items()}
    plain = {name: ResetPolicy(p.mode, p.at_hour, p.idle_minutes) for name, p in written.items()}
    chosen = policy_for(
        session.chat_type,
        session.channel,
        reset=plain[""],
        by_type=_named(plain, "type:"),
        by_channel=_named(plain, "channel:"),
    )
    name = next(p.timezone for key, p in written.items() if plain[key] is chosen)
    return chosen, local_zone() if name == "local" else zone(user_zone if name == "user" else name)


def _named(policies: Mapping[str, ResetPolicy], prefix: str) -> dict[str, ResetPolicy]:
    return {key.removeprefix(prefix): p for key, p in policies.items() if key.startswith(prefix)}
