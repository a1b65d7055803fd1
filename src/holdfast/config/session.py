"""Sessions: when one starts afresh, what shares one, and which agent a message goes to."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from holdfast.config.section import Section, key, part, table
from holdfast.config.values import Count, Days, Flag, Id, Int, Minutes, Names, OutsideId, Zone

PeerKind = Literal["dm", "group", "channel"]
IDLE_MINUTES = 60


class ResetPolicy(Section):
    """When a session starts afresh."""

    mode: Literal["daily", "idle", "none"] = key(
        "daily", "`daily` at a fixed hour, `idle` after silence, `none` only by command."
    )
    at_hour: Int = key(4, "Hour of the day for `daily`, 0 to 23.", ge=0, le=23)
    idle_minutes: Minutes | None = key(
        None, "Minutes of silence; 60 when the mode is `idle`, else no limit.", ge=1
    )
    timezone: Zone = key("user", "Zone of `atHour`: `user`, `local` or an IANA name.")

    @model_validator(mode="before")
    @classmethod
    def _idle_has_a_length(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("mode") == "idle":
            return {"idleMinutes": data.get("idle_minutes", IDLE_MINUTES)} | {
                name: value for name, value in data.items() if name != "idle_minutes"
            }
        return data


class ResetByType(Section):
    """Policies for kinds of chat, over `session.reset`."""

    dm: ResetPolicy | None = key(None, "Direct chats (`direct` is read too).")
    group: ResetPolicy | None = key(None, "Group chats.")
    channel: ResetPolicy | None = key(None, "Channels and rooms.")
    thread: ResetPolicy | None = key(None, "Threads.")

    @model_validator(mode="before")
    @classmethod
    def _direct_is_dm(cls, data: Any) -> Any:
        if isinstance(data, dict) and "direct" in data and "dm" not in data:
            return {("dm" if name == "direct" else name): value for name, value in data.items()}
        return data


class SessionRetention(Section):
    """What becomes of sessions that nobody uses."""

    archive_after_days: Days | None = key(None, "Archive a session unused for so long; unset: never.")
    max_sessions: Count = key(0, "Archive the oldest above this number per agent; 0: no limit.")


class SessionConfig(Section):
    """Sessions."""

    reset: ResetPolicy = part("When a session starts afresh.")
    reset_by_type: ResetByType = part("Other policies by kind of chat.")
    reset_by_channel: dict[str, ResetPolicy] = table({}, "Other policies by channel; these win.")
    reset_triggers: Names = key(
        ("/new", "/reset"), "Messages that start a session afresh; `/new` and `/reset` always do."
    )
    dm_scope: Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"] = key(
        "per-channel-peer", "What shares a session among direct chats."
    )
    group_scope: Literal["per-group", "main"] = key("per-group", "Whether each group has its own session.")
    identity_links: dict[str, Names] = table(
        {}, "One person's ids over several channels, as `name: [channel:peerId]`."
    )
    retention: SessionRetention = part("What becomes of unused sessions.")


class PeerMatch(Section):
    """A conversation partner, by kind, by id or by both."""

    kind: PeerKind | None = key(None, "`dm`, `group` or `channel` (`direct` is read as `dm`).")
    id: OutsideId | None = key(None, "The partner's id; without it every partner of the kind.")

    @model_validator(mode="before")
    @classmethod
    def _needs_something(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data:
            raise ValueError("expected `kind`, `id` or both")
        if isinstance(data, dict) and data.get("kind") == "direct":
            return {**data, "kind": "dm"}
        return data


class BindingMatch(Section):
    """What a message must be for the binding to hold; every field given must match."""

    channel: str = key(..., 'Name of the channel, or "*" for any.', min_length=1)
    account_id: OutsideId | None = key(None, 'Account of a multi-account channel; "*" for any.')
    peer: PeerMatch | None = key(None, "The conversation partner.")
    guild_id: OutsideId | None = key(None, "Discord server.")
    team_id: OutsideId | None = key(None, "Slack workspace.")


class Binding(Section):
    """Sends matching messages to an agent."""

    agent_id: Id = key(..., "The agent that answers.")
    match: BindingMatch = key(..., "Which messages.")
    enabled: Flag = key(True, "Whether the binding holds.")
    comment: str | None = key(None, "A note to yourself.")
