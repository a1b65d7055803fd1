"""Channels: where people see messages. Keys unknown to us belong to the channel and are kept."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, field_validator, model_validator

from holdfast.config.secret import FreeMap, FreeValue, Secret, wrap_secrets
from holdfast.config.section import Section, key, part, table
from holdfast.config.values import Count, Flag, Positive


class ThreadOptions(Section):
    """Threads of a channel."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FreeValue]

    initial_history_limit: Count = key(
        100, "Earlier messages that a new thread session starts with.", le=1000
    )
    inherit_parent: Flag = key(False, "Whether a thread starts with the channel's transcript.")


class ChannelConfig(Section):
    """One channel."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FreeValue]

    enabled: Flag = key(True, "Whether it is connected.")
    token: Secret | None = key(None, "Token; `${NAME}` is taken from the environment.")
    bot_token: Secret | None = key(None, "The bot's token.")
    app_token: Secret | None = key(None, "The app's token (Slack).")
    signing_secret: Secret | None = key(None, "Secret that signs what the channel sends.")
    streaming: Literal["off", "partial", "block", "progress"] = key(
        "block", "How a reply appears while it is written; true is `partial`, false `off`."
    )
    reply_to_mode: Literal["off", "first", "all", "batched"] = key(
        "off", "Which replies quote the message or open a thread."
    )
    thread: ThreadOptions = part("Threads.")
    auto_thread: Flag = key(False, "Whether each message opens a thread.")
    history_limit: Count = key(50, "Earlier messages given with a group message.", le=1000)
    text_chunk_limit: Positive | None = key(None, "Characters per message; unset: the channel's.")
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = key("pairing", "Who may write directly.")
    group_policy: Literal["allowlist", "open", "disabled"] = key("allowlist", "Which groups are answered.")
    allow_from: tuple[str, ...] = key((), 'Ids that may write; "*" for all.')
    require_mention: Flag = key(True, "Whether a group message must name the agent.")
    accounts: dict[str, FreeMap] = table({}, "Accounts by name, with the same keys.")

    @model_validator(mode="before")
    @classmethod
    def _hide_secrets(cls, data: Any) -> Any:
        return wrap_secrets(data)

    @field_validator("streaming", mode="before")
    @classmethod
    def _flag_or_mode(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return "partial" if value else "off"
        return value.get("mode", "block") if isinstance(value, dict) else value

    @field_validator("allow_from", mode="before")
    @classmethod
    def _numbers_are_ids(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in value]
