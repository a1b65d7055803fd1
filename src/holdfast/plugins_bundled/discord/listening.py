"""The library's client, which hands what it hears to the channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import discord

    from holdfast.plugins_bundled.discord import Discord

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
