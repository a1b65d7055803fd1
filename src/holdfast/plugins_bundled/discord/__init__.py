"""Discord, on discord.py. A bot that was away is told nothing: what was said meanwhile is read there."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.channels import (
    Abilities,
    Changed,
    ChannelContext,
    File,
    Inbound,
    Message,
    Said,
    SendFailed,
    Surface,
)
from holdfast.plugins import PluginApi
from holdfast.plugins_bundled.discord.places import Places, listener, pointed_at
from holdfast.plugins_bundled.service import BAD_TOKEN_MS, ServiceChannel, asks_to_wait, bad_token, called

if TYPE_CHECKING:
    import discord

log = logging.getLogger(__name__)
T = TypeVar("T")

MOST_CHARS: Final = 2_000
MOST_FILE_BYTES: Final = 10 * 1024**2
MOST_FILES: Final = 10
MOST_MISSED: Final = 1_000
MOST_LOOKED: Final = 50
_IS_ID: Final = re.compile(r"\d+:\d+")


class Discord(ServiceChannel):
    """One bot."""

    extra = "discord"
    libraries = ("discord",)
    needs = ("botToken",)

    abilities = Abilities(
        most_chars=MOST_CHARS,
        edits=True,
        reacts=True,
        threads=True,
        most_file_bytes=MOST_FILE_BYTES,
        finds=True,
        reads=True,
        types=True,
    )

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._token = self.needed("botToken")
        pointed_at(context.options.get("apiUrl"))
        self._client: discord.Client | None = None
        self._starting = asyncio.Lock()
        self._in_order = asyncio.Lock()  # the library hears several at once
        self._places = Places(context)

    async def check(self) -> str:
        client = await self._started()
        try:
            return str(client.user)
        finally:
            await client.close()

    async def run(self) -> None:
        """Listen; the library takes a connection up again by itself, and gives up with a bad token."""
        client = await self._started()
        try:
            await _called(client.connect())
        finally:
            with contextlib.suppress(Exception):
                await client.close()

    async def send(self, message: Message) -> str | None:
        """One call for words and files, with a nonce: sent again within minutes, it is the same message."""
        import discord

        if not (message.text.strip() or message.files):
            return None
        channel = await self._channel(message.surface)
        options: dict[str, Any] = {}
        if message.reply_to is not None:
            where, number = _parts(message.reply_to)
            quoted = discord.MessageReference(message_id=number, channel_id=where, fail_if_not_exists=False)
            options["reference"] = quoted
        if message.files:
            files = [discord.File(io.BytesIO(one.data), one.name) for one in message.files[:MOST_FILES]]
            options["files"] = files
        if message.buttons:
            options["view"] = _view(message)
        nonce = hashlib.sha256(message.key.encode()).hexdigest()[:24]
        sent = await _called(channel.send(message.text or None, nonce=nonce, **options))
        return _id(sent.channel.id, sent.id)

    async def edit(self, message_id: str, message: Message) -> None:
        view = _view(message) if message.buttons else None
        await _called((await self._message(message_id)).edit(content=message.text, view=view))

    async def react(self, message_id: str, message: Message) -> None:
        await _called((await self._message(message_id)).add_reaction(message.text.strip()))

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        """On the message that is named, else beside them."""
        import discord

        if about is not None:
            made = await _called((await self._message(about)).create_thread(name=name[:100]))
            return str(made.id)
        client = await self._started()
        channel = await _called(client.fetch_channel(_number(surface.peer)))
        if not isinstance(channel, discord.TextChannel):
            raise SendFailed("Discord: threads are opened in text channels", final=True)
        public = discord.ChannelType.public_thread
        made = await _called(channel.create_thread(name=name[:100], type=public))
        return str(made.id)

    async def typing(self, surface: Surface) -> None:
        channel = await self._channel(surface)
        await _called(_awaited(channel.typing()))

    async def find(self, message: Message, known: Sequence[str]) -> str | None:
        """Ours with the same words, behind the last that is known to stand before it."""
        client, channel = await self._started(), await self._channel(message.surface)
        taken = [int(one.partition(":")[2]) for one in known if _IS_ID.fullmatch(one)]
        names = [file.name for file in message.files]
        async for one in _read(channel.history(limit=MOST_LOOKED)):
            if taken[:1] == [one.id]:
                return None
            ours = one.author == client.user and one.id not in taken
            if ours and one.content == message.text and [a.filename for a in one.attachments] == names:
                return _id(channel.id, one.id)
        return None

    async def history(self, surface: Surface, limit: int) -> Sequence[Said]:
        client, channel = await self._started(), await self._channel(surface)
        found = [one async for one in _read(channel.history(limit=min(limit + 1, 200)))]
        said = [
            Said(
                str(one.author.id),
                one.content,
                int(one.created_at.timestamp() * 1000),
                one.author == client.user,
            )
            for one in reversed(found)
        ]
        return said[:-1][-limit:]

    async def heard(self, message: discord.Message) -> None:
        async with self._in_order:
            await self._take(message)

    async def caught_up(self) -> None:
        """A new connection: what was said where we know of before it is read, and taken first."""
        async with self._in_order:
            for owner in filter(str.isdecimal, self._context.settings.owners):
                await self._tried(self._noticed_direct(owner))
            for group in filter(str.isdecimal, self._context.settings.groups):
                await self._tried(self._noticed(int(group)))
            for place, seen in self._places.seen():
                await self._tried(self._missed(place, seen))

    async def _tried(self, work: Awaitable[None]) -> None:
        try:
            await work
        except SendFailed as error:
            log.warning("channel %s: what was said while it was away: %s", self.name, error.message)

    async def _noticed_direct(self, owner: str) -> None:
        """A chat that nothing was heard in yet is followed from now on: a bot cannot list its chats."""
        import discord

        if self._places.direct(owner) is None:
            made = await _called((await self._started()).create_dm(discord.Object(int(owner))))
            self._places.opened(made.id, int(owner))
            await self._noticed(made.id)

    async def _noticed(self, channel: int) -> None:
        if not self._places.is_heard(channel):
            found: Any = await _called((await self._started()).fetch_channel(channel))
            self._places.in_guild(channel, getattr(getattr(found, "guild", None), "id", None))
            self._places.heard(channel, getattr(found, "last_message_id", None) or 0)

    async def _missed(self, place: int, seen: int) -> None:
        import discord

        channel = (await self._started()).get_partial_messageable(place)
        missed = channel.history(after=discord.Object(seen), oldest_first=True, limit=MOST_MISSED)
        async for message in _read(missed):
            await self._take(message)

    async def edited(self, update: discord.RawMessageUpdateEvent) -> None:
        said = update.message
        if said.author == (await self._started()).user or said.edited_at is None:
            return
        where = await self._where(update.channel_id, update.guild_id, said.author.id)
        async with self._in_order:
            await self._context.changed(
                Changed(
                    surface=where,
                    message_id=_id(update.channel_id, update.message_id),
                    sender=str(said.author.id),
                    sender_name=said.author.display_name,
                    text=self._text(said),
                )
            )

    async def deleted(self, channel: int, guild: int | None, ids: Sequence[int]) -> None:
        person = self._places.person(channel)
        if guild is None and person is None:
            return
        where = await self._where(channel, guild, person or 0)
        async with self._in_order:
            for number in ids:
                gone = Changed(surface=where, message_id=_id(channel, number), sender=str(person or ""))
                await self._context.changed(gone)

    async def signed(self, event: discord.RawReactionActionEvent) -> None:
        user = (await self._started()).user
        if user is None or event.user_id == user.id:
            return
        where = await self._where(event.channel_id, event.guild_id, event.user_id)
        async with self._in_order:
            await self._context.changed(
                Changed(
                    surface=where,
                    message_id=_id(event.channel_id, event.message_id),
                    sender=str(event.user_id),
                    sender_name=event.member.display_name if event.member is not None else None,
                    sign=str(event.emoji),
                )
            )

    async def pressed(self, interaction: discord.Interaction) -> None:
        """Discord waits three seconds for a word; the answer itself may take longer."""
        given: Any = interaction.data or {}
        value = str(given.get("custom_id") or "")
        if not value or interaction.channel_id is None:
            return
        try:
            await _called(interaction.response.defer(ephemeral=True, thinking=True))
            where = await self._where(interaction.channel_id, interaction.guild_id, interaction.user.id)
            told = await self._context.chosen(where, str(interaction.user.id), value)
            await _called(interaction.followup.send(told[:MOST_CHARS], ephemeral=True))
        except SendFailed as error:
            log.warning("channel %s: who pressed a button was not told: %s", self.name, error.message)

    async def _started(self) -> discord.Client:
        """The bot, once it knows who it is; a new one after one that ended."""
        async with self._starting:
            if self._client is None or self._client.is_closed():
                client = listener(self)
                try:
                    await client.login(self._token)
                except Exception as error:
                    await client.close()
                    raise _failure(error) from error
                self._client = client
        return self._client

    async def _channel(self, surface: Surface) -> discord.PartialMessageable:
        import discord

        client = await self._started()
        if not surface.direct:
            return client.get_partial_messageable(_number(surface.thread or surface.peer))
        known = self._places.direct(surface.peer)
        if known is None:
            made = await _called(client.create_dm(discord.Object(_number(surface.peer))))
            known = made.id
            self._places.opened(known, _number(surface.peer))
        return client.get_partial_messageable(known)

    async def _message(self, message_id: str) -> discord.PartialMessage:
        where, number = _parts(message_id)
        return (await self._started()).get_partial_messageable(where).get_partial_message(number)

    async def _where(self, channel: int, guild: int | None, person: int) -> Surface:
        """The surface of a channel's id; a thread's is looked up once."""
        if guild is None:
            self._places.opened(channel, person)
            return self._context.surface("dm", str(person))
        parent = self._places.parent(channel)
        if parent is None:
            import discord

            client = await self._started()
            found = client.get_channel(channel) or await _called(client.fetch_channel(channel))
            parent = found.parent_id if isinstance(found, discord.Thread) else channel
            self._places.found(channel, parent)
        within = None if parent == channel else str(channel)
        return self._context.surface("channel", str(parent), within)

    async def _take(self, message: discord.Message) -> None:
        """One message; how far a channel was heard is kept once it is taken in."""
        user = (await self._started()).user
        if message.author != user and message.type.value in (0, 19):
            guild = getattr(message.channel, "guild", None)
            guild_id = guild.id if guild is not None else getattr(message.channel, "guild_id", None)
            if guild_id is None:
                guild_id = self._places.guild(message.channel.id)
            person = message.author.id
            surface = await self._where(message.channel.id, guild_id, person)
            self._places.in_guild(message.channel.id, guild_id)
            inbound = await self._inbound(message, surface, guild_id)
            await self._context.take(inbound)
        self._places.heard(message.channel.id, message.id)

    async def _inbound(self, message: discord.Message, surface: Surface, guild: int | None) -> Inbound:
        user = (await self._started()).user
        above = message.reference.message_id if message.reference is not None else None
        files, left_out = await self._files(message)
        return Inbound(
            surface=surface,
            message_id=_id(message.channel.id, message.id),
            sender=str(message.author.id),
            sender_name=message.author.display_name,
            text=self._text(message),
            mentioned=surface.direct or any(one == user for one in message.mentions),
            reply_to=None if above is None else _id(message.channel.id, above),
            bot=message.author.bot or message.webhook_id is not None,
            guild_id=None if guild is None else str(guild),
            files=files,
            left_out=left_out,
        )

    def _text(self, message: discord.Message) -> str:
        """The words, with people by name, and without the one that calls this bot."""
        text = message.content
        user = None if self._client is None else self._client.user
        for one in message.mentions:
            name = "" if user is not None and one.id == user.id else f"@{one.display_name}"
            for mark in (f"<@{one.id}>", f"<@!{one.id}>"):
                text = text.replace(mark, name)
        return text.strip()

    async def _files(self, message: discord.Message) -> tuple[tuple[File, ...], tuple[str, ...]]:
        files: list[File] = []
        left: list[str] = []
        most = self._context.most_file_bytes
        for one in message.attachments:
            if one.size > most:
                left.append(f"{one.filename}: it has {one.size:,} bytes, and {most:,} are the most")
                continue
            mime = (one.content_type or "application/octet-stream").partition(";")[0]
            files.append(File(one.filename, mime, await _called(one.read())))
        return tuple(files), tuple(left)


def _view(message: Message) -> discord.ui.View:
    import discord

    view = discord.ui.View(timeout=None)
    for one in message.buttons:
        view.add_item(discord.ui.Button(label=one.label, custom_id=one.value))
    return view


def _id(channel: int, number: int) -> str:
    """A message is changed where it stands, so its id names both."""
    return f"{channel}:{number}"


def _parts(message_id: str) -> tuple[int, int]:
    channel, _, number = message_id.partition(":")
    return _number(channel), _number(number)


def _number(id_: str) -> int:
    if not id_.isdecimal():
        raise SendFailed(f"not an id on Discord: {id_[:80]!r}", final=True)
    return int(id_)


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _read(found: AsyncIterator[T]) -> AsyncIterator[T]:
    try:
        async for one in found:
            yield one
    except Exception as error:
        raise _failure(error) from error


async def _called(work: Awaitable[T]) -> T:
    return await called(work, _failure)


def _failure(error: Exception) -> SendFailed:
    import discord

    if isinstance(error, SendFailed):
        return error
    said = f"Discord: {error}"[:300]
    if isinstance(error, discord.RateLimited):
        return asks_to_wait("Discord", error.retry_after)
    if isinstance(error, discord.PrivilegedIntentsRequired):
        return SendFailed("Discord: switch the bot's Message Content intent on", wait_ms=BAD_TOKEN_MS)
    closed = isinstance(error, discord.ConnectionClosed) and error.code == 4004
    status = error.status if isinstance(error, discord.HTTPException) else None
    if closed or status == 401 or isinstance(error, discord.LoginFailure):
        return bad_token(said)
    if status is not None:
        return SendFailed(said, final=status in (400, 403, 404))
    return SendFailed(f"Discord: {type(error).__name__}: {error}"[:300], unsure=True)


def register(api: PluginApi) -> None:
    api.register_channel("discord", Discord)
