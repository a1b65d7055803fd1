"""What is known of Discord's channels: whose chat one is, a thread's parent, how far each was heard.

The library's client, which hands what it hears to the channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from holdfast.channels import ChannelContext
from holdfast.plugins_bundled.service import read_state, write_state

if TYPE_CHECKING:
    import discord

    from holdfast.plugins_bundled.discord import Discord


FILE: Final = "places.json"


class Places:
    """Kept in a file, for Discord tells none of it to a bot that starts again."""

    def __init__(self, context: ChannelContext) -> None:
        self._file = context.folder / FILE
        self._known: dict[str, dict[str, Any]] = read_state(self._file) or {}

    def seen(self) -> list[tuple[int, int]]:
        """Channels, each with the last message that was taken in there."""
        return [(int(id_), one["seen"]) for id_, one in self._known.items() if "seen" in one]

    def is_heard(self, channel: int) -> bool:
        return "seen" in self._of(channel)

    def heard(self, channel: int, message: int) -> None:
        self._put(channel, seen=max(message, int(self._of(channel).get("seen") or 0)))

    def opened(self, channel: int, person: int) -> None:
        self._put(channel, person=person)

    def person(self, channel: int) -> int | None:
        return self._of(channel).get("person")

    def direct(self, person: str) -> int | None:
        found = (int(id_) for id_, one in self._known.items() if str(one.get("person")) == person)
        return next(found, None)

    def found(self, channel: int, parent: int) -> None:
        self._put(channel, parent=parent)

    def parent(self, channel: int) -> int | None:
        return self._of(channel).get("parent")

    def in_guild(self, channel: int, guild: int | None) -> None:
        if guild is not None:
            self._put(channel, guild=guild)

    def guild(self, channel: int) -> int | None:
        return self._of(channel).get("guild")

    def _of(self, channel: int) -> dict[str, Any]:
        return self._known.get(str(channel), {})

    def _put(self, channel: int, **facts: int) -> None:
        before = self._of(channel)
        after = {**before, **facts}
        if after == before:
            return
        self._known[str(channel)] = after
        write_state(self._file, self._known)


MOST_WAIT_SECONDS: Final = 30.0  # the least that the library takes; longer waits are the outbox's


def pointed_at(api: Any) -> None:
    """Have the library speak to another server than Discord's; it knows one for the whole process."""
    if not api:
        return
    import yarl
    from discord.gateway import DiscordWebSocket
    from discord.http import Route

    Route.BASE = str(api).rstrip("/")
    host = urlsplit(Route.BASE)
    scheme = "wss" if host.scheme == "https" else "ws"
    DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(f"{scheme}://{host.netloc}/gateway")


def listener(channel: Discord) -> discord.Client:
    """A client that keeps no messages and members, and mentions nobody by what a model wrote."""
    import discord

    class Listener(discord.Client):
        async def on_connect(self) -> None:
            await channel.caught_up()

        async def on_message(self, message: discord.Message) -> None:
            await channel.heard(message)

        async def on_raw_message_edit(self, update: discord.RawMessageUpdateEvent) -> None:
            await channel.edited(update)

        async def on_raw_message_delete(self, gone: discord.RawMessageDeleteEvent) -> None:
            await channel.deleted(gone.channel_id, gone.guild_id, [gone.message_id])

        async def on_raw_bulk_message_delete(self, gone: discord.RawBulkMessageDeleteEvent) -> None:
            await channel.deleted(gone.channel_id, gone.guild_id, sorted(gone.message_ids))

        async def on_raw_reaction_add(self, event: discord.RawReactionActionEvent) -> None:
            await channel.signed(event)

        async def on_interaction(self, interaction: discord.Interaction) -> None:
            await channel.pressed(interaction)

    discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody speaks here
    intents = discord.Intents(
        guilds=True, guild_messages=True, dm_messages=True, message_content=True, reactions=True
    )
    return Listener(
        intents=intents,
        max_messages=None,
        member_cache_flags=discord.MemberCacheFlags.none(),
        chunk_guilds_at_startup=False,
        allowed_mentions=discord.AllowedMentions.none(),
        max_ratelimit_timeout=MOST_WAIT_SECONDS,
    )
