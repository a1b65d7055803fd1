"""Telegram, on python-telegram-bot. An update is confirmed once it is taken in: a kill loses none.

Markdown as agents write it in the few tags that Telegram shows. Pure.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
from collections.abc import Awaitable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.channels import Abilities, Changed, ChannelContext, File, Inbound, Message, SendFailed, Surface
from holdfast.plugins import PluginApi
from holdfast.plugins_bundled.service import ServiceChannel, asks_to_wait, bad_token, called

if TYPE_CHECKING:
    import telegram


_FENCE: Final = re.compile(r"^```([^\n`]*)\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_BOLD: Final = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_HEADING: Final = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]\n]+)\]\((https?://[^\s)]+)\)")


def html(text: str) -> str:
    """Code blocks, code, bold, headings and links; all else as it stands. Never longer once it is shown."""
    made: list[str] = []
    end = 0
    for fence in _FENCE.finditer(text):
        made.append(_inline(text[end : fence.start()]))
        language = escape(fence[1].strip().split(" ")[0], quote=True)
        opening = f'<pre><code class="language-{language}">' if language else "<pre><code>"
        made.append(f"{opening}{escape(fence[2].rstrip(chr(10)), quote=False)}</code></pre>")
        end = fence.end()
    made.append(_inline(text[end:]))
    return "".join(made)


def _inline(text: str) -> str:
    made: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        made.append(_words(text[end : code.start()]))
        made.append(f"<code>{escape(code[1], quote=False)}</code>")
        end = code.end()
    made.append(_words(text[end:]))
    return "".join(made)


def _words(text: str) -> str:
    text = escape(text, quote=False)
    text = _HEADING.sub(r"<b>\1</b>", text)
    text = _BOLD.sub(r"<b>\1</b>", text)
    return _LINK.sub(lambda m: f'<a href="{m[2].replace(chr(34), "%22")}">{m[1]}</a>', text)


log = logging.getLogger(__name__)
T = TypeVar("T")

MOST_CHARS: Final = 4_000  # 4096 with some room: Telegram counts UTF-16, and an emoji is two
MOST_SENT_BYTES: Final = 50 * 1024**2
MOST_FETCHED_BYTES: Final = 20 * 1024**2
POLL_SECONDS: Final = 25
CALL_SECONDS: Final = 20.0
PROBES: Final = 12
MOST_PROBES: Final = 40
WANTED: Final = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "message_reaction",
    "callback_query",
)
API: Final = "https://api.telegram.org"
_IS_ID: Final = re.compile(r"[^:]+:\d+")


class Telegram(ServiceChannel):
    """One bot."""

    extra = "telegram"
    libraries = ("telegram", "telegram.request")
    needs = ("botToken",)

    abilities = Abilities(
        most_chars=MOST_CHARS,
        edits=True,
        reacts=True,
        threads=True,
        most_file_bytes=MOST_SENT_BYTES,
        finds=True,
        types=True,
    )

    def __init__(self, context: ChannelContext) -> None:
        os.environ.setdefault("PTB_TIMEDELTA", "true")  # else the library warns of its own next version
        super().__init__(context)
        import telegram
        from telegram.request import HTTPXRequest

        api = self.option("apiUrl", API).rstrip("/")
        times: dict[str, Any] = {"read_timeout": CALL_SECONDS, "write_timeout": CALL_SECONDS}
        self._bot = telegram.Bot(
            self.needed("botToken"),
            base_url=f"{api}/bot",
            base_file_url=f"{api}/file/bot",
            request=HTTPXRequest(connection_pool_size=32, **times),
            get_updates_request=HTTPXRequest(connection_pool_size=1, **times),
        )
        self._starting = asyncio.Lock()

    async def check(self) -> str:
        """Whether the token is good; tells who the bot is."""
        me = await _called(self._bot.get_me())
        return f"@{me.username}"

    async def run(self) -> None:
        """Ask for updates, and confirm each by asking for those after it."""
        await self._started()
        offset: int | None = None
        while True:
            updates = await self._bot.get_updates(
                offset=offset, timeout=POLL_SECONDS, allowed_updates=list(WANTED)
            )
            for update in sorted(updates, key=lambda one: one.update_id):
                await self._take(update)
                offset = update.update_id + 1

    async def send(self, message: Message) -> str | None:
        sent: telegram.Message | None = None
        if message.text.strip():
            sent = await self._said(message)
        for file in message.files:
            sent = await self._sent_file(message, file)
        return None if sent is None else _id(sent.chat_id, sent.message_id)

    async def edit(self, message_id: str, message: Message) -> None:
        try:
            await self._edited(message_id, message.text)
        except SendFailed as error:
            if "not modified" not in error.message:
                raise

    async def react(self, message_id: str, message: Message) -> None:
        chat, number = _parts(message_id)
        bot = await self._started()
        await _called(bot.set_message_reaction(chat, number, reaction=message.text.strip()))

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        bot = await self._started()
        made = await _called(bot.create_forum_topic(_chat(surface), name=name[:128]))
        return str(made.message_thread_id)

    async def typing(self, surface: Surface) -> None:
        bot = await self._started()
        await _called(bot.send_chat_action(_chat(surface), "typing", message_thread_id=_topic(surface)))

    async def find(self, message: Message, known: Sequence[str]) -> str | None:
        """A bot cannot read a chat; but to change one of its messages into what it says already is refused
        with these words. Ids grow, so that a message which was sent is one of those behind the last that is
        known to stand before it."""
        chat = _chat(message.surface)
        ids = [one for one in known if _IS_ID.fullmatch(one)]  # a receipt may be no id: "not sent: …"
        numbers = [number for where, number in map(_parts, ids) if where == chat]
        if not numbers or not message.text.strip():
            return None
        behind = (n for n in range(numbers[0] + 1, max(numbers) + PROBES) if n not in numbers)
        for number in itertools.islice(behind, MOST_PROBES):
            try:
                await self._edited(_id(chat, number), message.text)
                return _id(chat, number)
            except SendFailed as error:
                if "not modified" in error.message:
                    return _id(chat, number)
                if not error.final:
                    raise SendFailed(error.message, wait_ms=error.wait_ms, unsure=True) from error
        return None

    async def _started(self) -> telegram.Bot:
        """The bot, once it knows who it is."""
        async with self._starting:
            try:
                await self._bot.initialize()
            except Exception as error:
                raise _failure(error) from error
        return self._bot

    async def _said(self, message: Message) -> telegram.Message:
        bot = await self._started()
        options = self._options(message)
        try:
            return await _called(
                bot.send_message(_chat(message.surface), html(message.text), parse_mode="HTML", **options)
            )
        except SendFailed as error:
            if "parse entities" not in error.message:
                raise
            return await _called(
                bot.send_message(_chat(message.surface), message.text, parse_mode=None, **options)
            )

    async def _edited(self, message_id: str, text: str) -> None:
        chat, number = _parts(message_id)
        bot = await self._started()
        await _called(bot.edit_message_text(html(text), chat_id=chat, message_id=number, parse_mode="HTML"))

    async def _sent_file(self, message: Message, file: File) -> telegram.Message:
        bot = await self._started()
        send = bot.send_photo if file.mime in ("image/png", "image/jpeg") else bot.send_document
        return await _called(
            send(_chat(message.surface), file.data, filename=file.name, **self._options(message))
        )

    def _options(self, message: Message) -> dict[str, Any]:
        from telegram import InlineKeyboardButton, InlineKeyboardMarkup, ReplyParameters

        options: dict[str, Any] = {"message_thread_id": _topic(message.surface)}
        if message.buttons:
            row = [InlineKeyboardButton(one.label, callback_data=one.value) for one in message.buttons]
            options["reply_markup"] = InlineKeyboardMarkup([row])
        if message.reply_to is not None:
            quoted = ReplyParameters(_parts(message.reply_to)[1], allow_sending_without_reply=True)
            options["reply_parameters"] = quoted
        return options

    async def _take(self, update: telegram.Update) -> None:
        """One update; what cannot be read is told and left, so that it holds up nothing behind it."""
        if update.message_reaction is not None:
            await self._reacted(update.message_reaction)
            return
        if update.callback_query is not None:
            await self._pressed(update.callback_query)
            return
        said = update.message or update.channel_post
        changed = update.edited_message or update.edited_channel_post
        if changed is not None:
            await self._context.changed(self._change(changed))
        elif said is not None:
            inbound = await self._inbound(said)
            if inbound is not None:
                await self._context.take(inbound)

    async def _pressed(self, query: telegram.CallbackQuery) -> None:
        """Telegram shows a press as under way until it is answered, which fails for one that is old."""
        if query.message is None or not query.data:
            return
        where = self._surface(query.message.chat, None)
        told = await self._context.chosen(where, str(query.from_user.id), query.data)
        try:
            await _called(self._bot.answer_callback_query(query.id, text=told[:200]))
        except SendFailed as error:
            log.warning("channel %s: who pressed a button was not told: %s", self.name, error.message)

    async def _reacted(self, reaction: telegram.MessageReactionUpdated) -> None:
        import telegram

        signs = [one.emoji for one in reaction.new_reaction if isinstance(one, telegram.ReactionTypeEmoji)]
        if not signs or reaction.user is None:
            return
        change = Changed(
            surface=self._surface(reaction.chat, None),
            message_id=_id(reaction.chat.id, reaction.message_id),
            sender=str(reaction.user.id),
            sender_name=reaction.user.full_name,
            sign=" ".join(signs),
        )
        await self._context.changed(change)

    def _change(self, said: telegram.Message) -> Changed:
        sender, name = _sender(said)
        return Changed(
            surface=self._surface(said.chat, said),
            message_id=_id(said.chat_id, said.message_id),
            sender=sender,
            sender_name=name,
            text=self._text(said),
        )

    async def _inbound(self, said: telegram.Message) -> Inbound | None:
        text = self._text(said)
        files, left_out = await self._files(said)
        if not (text or files or left_out):
            return None
        sender, name = _sender(said)
        above = said.reply_to_message
        answers = above is not None and above.message_id != said.message_thread_id
        return Inbound(
            surface=self._surface(said.chat, said),
            message_id=_id(said.chat_id, said.message_id),
            sender=sender,
            sender_name=name,
            text=text,
            mentioned=said.chat.type == "private" or self._is_mentioned(said),
            reply_to=_id(said.chat_id, above.message_id) if above is not None and answers else None,
            bot=said.from_user is not None and said.from_user.is_bot,
            files=files,
            left_out=left_out,
        )

    def _surface(self, chat: telegram.Chat, said: telegram.Message | None) -> Surface:
        topic = None
        if said is not None and said.is_topic_message and said.message_thread_id is not None:
            topic = str(said.message_thread_id)
        if chat.type == "private":
            return self._context.surface("dm", str(chat.id), topic)
        return self._context.surface("channel" if chat.type == "channel" else "group", str(chat.id), topic)

    def _text(self, said: telegram.Message) -> str:
        """The words; a command that names this bot is one without that."""
        text = said.text or said.caption or ""
        named = f"@{self._bot.username}"
        head, _, rest = text.partition(" ")
        if text.startswith("/") and head.lower().endswith(named.lower()):
            text = f"{head[: -len(named)]} {rest}".strip()
        if not text and said.sticker is not None:
            return said.sticker.emoji or ""
        return text

    def _is_mentioned(self, said: telegram.Message) -> bool:
        named = f"@{self._bot.username}".lower()
        found = {**said.parse_entities(), **said.parse_caption_entities()}
        for entity, text in found.items():
            if entity.type == "mention" and text.lower() == named:
                return True
            if entity.type == "bot_command" and text.lower().endswith(named):
                return True
            if entity.type == "text_mention" and entity.user is not None and entity.user.id == self._bot.id:
                return True
        return False

    async def _files(self, said: telegram.Message) -> tuple[tuple[File, ...], tuple[str, ...]]:
        found: list[tuple[Any, str, str]] = []
        if said.photo:
            found.append((said.photo[-1], f"photo-{said.message_id}.jpg", "image/jpeg"))
        for one, name, mime in (
            (said.document, "document", "application/octet-stream"),
            (said.audio, "audio.mp3", "audio/mpeg"),
            (said.voice, "voice.ogg", "audio/ogg"),
            (said.video, "video.mp4", "video/mp4"),
        ):
            if one is not None:
                found.append((one, getattr(one, "file_name", None) or name, one.mime_type or mime))
        files, left = [], []
        most = min(MOST_FETCHED_BYTES, self._context.most_file_bytes)
        for one, name, mime in found:
            if (one.file_size or 0) > most:
                left.append(f"{name}: it has {one.file_size:,} bytes, and {most:,} are the most")
                continue
            handle = await _called((await self._started()).get_file(one.file_id))
            files.append(File(name, mime, bytes(await _called(handle.download_as_bytearray()))))
        return tuple(files), tuple(left)


def _sender(said: telegram.Message) -> tuple[str, str | None]:
    """Who writes: a person, or the group or channel in whose name they do."""
    if said.sender_chat is not None:
        return str(said.sender_chat.id), said.sender_chat.title
    if said.from_user is not None:
        return str(said.from_user.id), said.from_user.full_name
    return str(said.chat_id), said.chat.title


def _id(chat: int | str, number: int) -> str:
    """Telegram's ids are those of a chat; ours are those of the channel."""
    return f"{chat}:{number}"


def _parts(message_id: str) -> tuple[int | str, int]:
    chat, _, number = message_id.rpartition(":")
    if not number.isdecimal():
        raise SendFailed(f"not a message's id on Telegram: {message_id[:80]!r}", final=True)
    return _number(chat), int(number)


def _chat(surface: Surface) -> int | str:
    return _number(surface.peer)


def _number(chat: str) -> int | str:
    return int(chat) if chat.lstrip("-").isdecimal() else chat


def _topic(surface: Surface) -> int | None:
    return int(surface.thread) if surface.thread is not None and surface.thread.isdecimal() else None


async def _called(work: Awaitable[T]) -> T:
    return await called(work, _failure)


def _failure(error: Exception) -> SendFailed:
    from telegram import error as kinds

    if isinstance(error, SendFailed):
        return error
    said = f"Telegram: {error}"[:300]
    if isinstance(error, kinds.RetryAfter):
        wait = error.retry_after
        seconds = wait.total_seconds() if not isinstance(wait, int | float) else float(wait)
        return asks_to_wait("Telegram", seconds)
    if isinstance(error, kinds.InvalidToken):
        return bad_token(said)
    if isinstance(error, kinds.BadRequest | kinds.Forbidden | kinds.ChatMigrated):
        return SendFailed(said, final=True)
    return SendFailed(said, unsure=isinstance(error, kinds.NetworkError))


def register(api: PluginApi) -> None:
    api.register_channel("telegram", Telegram)
