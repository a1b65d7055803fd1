"""Channels: where people see messages."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from holdfast.config.section import Section, key, overlay, part, table
from holdfast.config.values import Count, Flag, FreeMap, Id, Int, Minutes, Ms, Positive, Seconds, Secret

SMALLEST_CHUNK = 100
ANYONE = "*"


class ThreadOptions(Section):
    """Threads of a channel."""

    initial_history_limit: Count = key(
        100, "Earlier messages that a new thread session starts with.", le=1000
    )
    inherit_parent: Flag = key(False, "Whether a thread starts with the channel's transcript.")


class BlockChunks(Section):
    """Where a reply is cut while it is written."""

    min_chars: Count = key(200, "Characters that a block has at least, unless the reply ends or pauses.")
    max_chars: Positive = key(1200, "Characters that a block has at most.", ge=SMALLEST_CHUNK)
    break_preference: Literal["paragraph", "newline", "sentence", "whitespace"] = key(
        "paragraph", "The best place for a cut; where there is none, the next kind is tried."
    )
    idle_ms: Ms = key(1500, "A reply that pauses for so long is sent as far as it is.", ge=50)
    edit_ms: Ms = key(1000, "Shortest time between two edits of a preview.", ge=50)


class Guests(Section):
    """What those who are not the owner get of an agent there, besides talk."""

    identity: Flag = key(False, "Whether it speaks as itself: with SOUL.md, IDENTITY.md and TOOLS.md.")
    skills: Flag = key(False, "Whether it may use its skills for them.")
    folder: Flag = key(
        False, "Whether they get a folder for files and commands, of that chat alone and in a sandbox."
    )


class Group(Section):
    """A group or channel that is answered."""

    require_mention: Flag | None = key(None, "Whether a message there must name the agent; unset: as else.")


class ChannelSettings(Section):
    """One channel, or one account of it."""

    enabled: Flag = key(True, "Whether it is connected.")
    adapter: Id | None = key(
        None, "What connects it: the name that a plugin registered; unset: `url`, as a webhook channel."
    )
    options: FreeMap = table({}, "What its adapter needs: tokens, hosts, names; see docs/channels.md.")
    url: Secret | None = key(None, "Where a webhook channel's messages are posted to; masked like a token.")
    signing_secret: Secret | None = key(
        None, "Secret that signs what the channel sends; `${NAME}` is taken from the environment."
    )
    streaming: Literal["off", "partial", "block", "progress"] = key(
        "block", "How a reply appears while it is written; true is `partial`, false `off`."
    )
    block_streaming_chunk: BlockChunks = part("Blocks.")
    reply_to_mode: Literal["off", "first", "all", "batched"] = key(
        "off", "Which replies quote the message or open a thread."
    )
    thread: ThreadOptions = part("Threads.")
    auto_thread: Flag = key(False, "Whether each message opens a thread.")
    history_limit: Count = key(50, "Earlier messages given with a group message.", le=1000)
    text_chunk_limit: Positive | None = key(
        None, "Characters per message; unset: the channel's.", ge=SMALLEST_CHUNK
    )
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = key("pairing", "Who may write directly.")
    group_policy: Literal["allowlist", "open", "disabled"] = key("allowlist", "Which groups are answered.")
    allow_from: tuple[str, ...] = key((), 'Ids that may write; "*" for all.')
    owners: tuple[str, ...] = key((), "Ids of the owner, who may do what is for the owner alone.")
    private: tuple[str, ...] = key(
        (),
        'Groups and channels that only the owner reads, by id; "*" for all.',
    )
    guests: Guests = part("What those who are not the owner get of an agent, besides talk.")
    guests_in: dict[str, Guests] = table({}, "The same for single chats, by the id of the person or group.")
    groups: dict[str, Group] = table({}, 'Groups and channels that are answered, by id; "*" for all.')
    group_allow_from: tuple[str, ...] = key((), "Ids that may write in groups; empty: everyone there.")
    require_mention: Flag = key(True, "Whether a group message must name the agent.")
    pairing_minutes: Minutes = key(60, "How long a pairing code holds.", ge=1, le=10_080)
    takes_edits: Flag = key(False, "Whether a webhook channel's receiver takes edits.")
    opens_threads: Flag = key(False, "Whether a webhook channel's receiver opens threads.")
    inbound_per_minute: Int = key(120, "Messages taken in within a minute.", ge=1)
    outbound_per_minute: Int = key(120, "Messages sent within a minute.", ge=1)
    tolerance_seconds: Seconds = key(300, "How old a signed call may be.", ge=1, le=86_400)

    @field_validator("streaming", mode="before")
    @classmethod
    def _flag_or_mode(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return "partial" if value else "off"
        return value.get("mode", "block") if isinstance(value, dict) else value

    @field_validator("groups", mode="before")
    @classmethod
    def _names_alone(cls, value: Any) -> Any:
        return {str(name): {} for name in value} if isinstance(value, list | tuple) else value

    def is_private(self, id_: str) -> bool:
        """Whether the owner declared this group or channel to be read by nobody else."""
        return id_ in self.private or ANYONE in self.private

    @field_validator("allow_from", "owners", "group_allow_from", "private", mode="before")
    @classmethod
    def _numbers_are_ids(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in value]


# The pages' own chat, which is there without being configured.
WEB = "web"
FOR_WEB = frozenset(("enabled", "text_chunk_limit", "outbound_per_minute"))
# What counts for messages that come through the API too, whoever brings them.
WITHOUT_ADAPTER = frozenset(("enabled", "private", "guests", "guests_in"))


class ChannelConfig(ChannelSettings):
    """One channel."""

    accounts: dict[str, ChannelSettings] = table({}, "Accounts by name, with the same keys.")

    def of_account(self, name: str | None) -> ChannelConfig:
        """The channel as one of its accounts has it: the account's own keys over the channel's."""
        own = None if name is None else self.accounts.get(name)
        return self if own is None else overlay(self, own)

    @property
    def unconnected(self) -> tuple[str, ...]:
        """The keys that do nothing here, since there is no address to post to."""
        if any(one.adapter or one.url or one.options for one in (self, *self.accounts.values())):
            return ()
        return tuple(sorted(self.model_fields_set - WITHOUT_ADAPTER))


WEB_CHAT = ChannelConfig(dm_policy="allowlist", streaming="off")
