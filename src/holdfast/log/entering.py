"""Coming into a session from outside: one that has gone stale is left behind, and its successor begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from holdfast.config.session import SessionConfig
from holdfast.log import sessions
from holdfast.log.reset import ResetPolicy, is_stale, local_zone, policy_for, reset_command, zone
from holdfast.log.sessions import Session
from holdfast.log.store import Tx


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
