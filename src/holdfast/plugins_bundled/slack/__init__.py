"""Slack, on slack_sdk in socket mode. An event is acknowledged once it is taken in, else it comes again.

Words as Slack writes them, both ways. Pure.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Sequence
from html import unescape
from typing import TYPE_CHECKING, Any, Final

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
from holdfast.plugins_bundled.service import ServiceChannel, asks_to_wait, bad_token

if TYPE_CHECKING:
    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest
    from slack_sdk.web.async_client import AsyncWebClient


MOST_SECTION: Final = 2_900

_BOLD: Final = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")
_HEADING: Final = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]\n]+)\]\((https?://[^\s)]+)\)")
_CODE: Final = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_REFERENCE: Final = re.compile(r"<([@#!]?)([^>|]+)(?:\|([^>]*))?>")
_SIGNS: Final = {
    "👍": "thumbsup",
    "👎": "thumbsdown",
    "🎉": "tada",
    "👀": "eyes",
    "✅": "white_check_mark",
    "❤️": "heart",
}
_NAMES: Final = {name: sign for sign, name in _SIGNS.items()} | {"+1": "👍", "-1": "👎"}


def slack_text(text: str) -> str:
    """Markdown in Slack's own marks; code stays as it is."""
    parts = _CODE.split(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return "".join(part if number % 2 else _marked(part) for number, part in enumerate(parts))


def asking(message: Message) -> list[dict[str, Any]] | None:
    """The blocks of a message that has buttons: its words, and the buttons in a row."""
    if not message.buttons:
        return None
    text = slack_text(message.text)
    parts = [text[at : at + MOST_SECTION] for at in range(0, len(text), MOST_SECTION)]
    words = [{"type": "section", "text": {"type": "mrkdwn", "text": part}} for part in parts]
    row = [
        {
            "type": "button",
            "action_id": one.value,
            "value": one.value,
            "text": {"type": "plain_text", "text": one.label},
        }
        for one in message.buttons
    ]
    return [*words, {"type": "actions", "elements": row}]


def plain(text: str) -> str:
    """What a person wrote, with links and names as words."""
    return unescape(_REFERENCE.sub(lambda m: m[3] or (f"{m[1]}{m[2]}" if m[1] else m[2]), text))


def sign_name(text: str) -> str:
    sign = text.strip()
    return _SIGNS.get(sign, sign.strip(":"))


def signed(name: str) -> str:
    return _NAMES.get(name, f":{name}:")


def _marked(text: str) -> str:
    text = _HEADING.sub(r"*\1*", text)
    text = _BOLD.sub(r"*\1*", text)
    return _LINK.sub(r"<\2|\1>", text)


log = logging.getLogger(__name__)

MOST_CHARS: Final = 3_900
MOST_FILE_BYTES: Final = 100 * 1024**2
CALL_SECONDS: Final = 25
API: Final = "https://slack.com/api/"
EVENT: Final = "holdfast_message"
_FINAL: Final = frozenset(
    (
        "already_reacted",
        "cant_update_message",
        "channel_not_found",
        "invalid_name",
        "is_archived",
        "message_not_found",
        "msg_too_long",
        "no_text",
        "not_in_channel",
        "user_not_found",
    )
)
_TOKENS: Final = frozenset(
    ("account_inactive", "invalid_auth", "not_authed", "token_expired", "token_revoked")
)


class Slack(ServiceChannel):
    """One app in one workspace."""

    extra = "slack"
    libraries = ("slack_sdk.socket_mode.aiohttp",)
    needs = ("botToken",)

    abilities = Abilities(
        most_chars=MOST_CHARS,
        edits=True,
        reacts=True,
        threads=True,
        most_file_bytes=MOST_FILE_BYTES,
        finds=True,
        reads=True,
    )

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._token = self.needed("botToken")
        self._api = self.option("apiUrl", API)
        self._client: AsyncWebClient | None = None
        self._me = ""
        self._direct: dict[str, str] = {}
        self._in_order = asyncio.Lock()  # the library hears several at once

    def _web(self) -> AsyncWebClient:
        """The client, made on the loop that it is used on. Trying again is left to the outbox."""
        if self._client is None:
            from slack_sdk.web.async_client import AsyncWebClient

            self._client = AsyncWebClient(
                self._token, base_url=self._api, timeout=CALL_SECONDS, retry_handlers=[]
            )
        return self._client

    async def check(self) -> str:
        told = await self._called(self._web().auth_test())
        return f"{told['user']} in {told['team']}"

    async def run(self) -> None:
        """Listen until the connection cannot be kept; the library takes it up again by itself."""
        from slack_sdk.socket_mode.aiohttp import SocketModeClient

        app_token = self.needed("appToken")
        told = await self._called(self._web().auth_test())
        self._me = str(told["user_id"])
        client = SocketModeClient(app_token=app_token, web_client=self._web(), ping_interval=5)
        client.socket_mode_request_listeners.append(self._heard)  # type: ignore[arg-type]
        try:
            await client.connect()  # type: ignore[no-untyped-call]
            await asyncio.Event().wait()
        finally:
            with contextlib.suppress(Exception):
                await client.close()  # type: ignore[no-untyped-call]

    async def send(self, message: Message) -> str | None:
        channel = await self._channel(message.surface)
        sent: str | None = None
        if message.text.strip():
            told = await self._called(
                self._web().chat_postMessage(
                    channel=channel,
                    text=slack_text(message.text),
                    thread_ts=message.surface.thread or _ts(message.reply_to),
                    metadata={"event_type": EVENT, "event_payload": {"key": message.key}},
                    unfurl_links=False,
                    blocks=asking(message),
                )
            )
            sent = f"{told['channel']}:{told['ts']}"
        for file in message.files:
            await self._called(
                self._web().files_upload_v2(
                    channel=channel, content=file.data, filename=file.name, thread_ts=message.surface.thread
                )
            )
        return sent

    async def edit(self, message_id: str, message: Message) -> None:
        channel, _, ts = message_id.partition(":")
        text, blocks = slack_text(message.text), asking(message) or []
        await self._called(self._web().chat_update(channel=channel, ts=ts, text=text, blocks=blocks))

    async def react(self, message_id: str, message: Message) -> None:
        channel, _, ts = message_id.partition(":")
        name = sign_name(message.text)
        await self._called(self._web().reactions_add(channel=channel, timestamp=ts, name=name))

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        """A thread hangs on a message: on the one that is named, else on one with the thread's name."""
        if about is not None:
            return _ts(about) or about
        sent = await self.send(Message(key=key, surface=surface, text=name))
        return str(_ts(sent))

    async def find(self, message: Message, known: Sequence[str]) -> str | None:
        """Each of our messages carries its key."""
        channel = await self._channel(message.surface)
        for one in await self._last(channel, message.surface.thread, 100):
            meta = one.get("metadata") or {}
            if (meta.get("event_payload") or {}).get("key") == message.key:
                return f"{channel}:{one['ts']}"
        return None

    async def history(self, surface: Surface, limit: int) -> Sequence[Said]:
        channel = await self._channel(surface)
        found = await self._last(channel, surface.thread, min(limit + 1, 200))
        said = [
            Said(
                str(one.get("user") or ""),
                plain(str(one.get("text") or "")),
                int(float(one["ts"]) * 1000),
                one.get("user") == self._me,
            )
            for one in sorted(found, key=lambda one: float(one["ts"]))
        ]
        return said[:-1][-limit:]

    async def _last(self, channel: str, thread: str | None, limit: int) -> list[dict[str, Any]]:
        web = self._web()
        asked: dict[str, Any] = {"channel": channel, "limit": limit, "include_all_metadata": True}
        told = await self._called(
            web.conversations_history(**asked)
            if thread is None
            else web.conversations_replies(**asked, ts=thread)
        )
        found: list[dict[str, Any]] = told["messages"]
        return found

    async def _channel(self, surface: Surface) -> str:
        """Slack's id of a surface; a direct chat is opened with its person."""
        if not surface.direct:
            return surface.peer
        if surface.peer not in self._direct:
            told = await self._called(self._web().conversations_open(users=surface.peer))
            self._direct[surface.peer] = str(told["channel"]["id"])
        return self._direct[surface.peer]

    async def _heard(self, client: SocketModeClient, request: SocketModeRequest) -> None:
        from slack_sdk.socket_mode.response import SocketModeResponse

        if request.type == "events_api":
            async with self._in_order:
                await self._take(request.payload)
        await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
        if request.type == "interactive" and request.payload.get("type") == "block_actions":
            await self._pressed(request.payload)

    async def _pressed(self, payload: dict[str, Any]) -> None:
        """A button; who pressed it is told in words that only they see."""
        user, channel = str(payload["user"]["id"]), str((payload.get("channel") or {}).get("id") or "")
        kind = "im" if channel.startswith("D") else "channel"
        where = self._surface({"channel": channel, "channel_type": kind, "user": user})
        for action in payload.get("actions") or ():
            told = await self._context.chosen(where, user, str(action.get("value") or ""))
            try:
                await self._called(self._web().chat_postEphemeral(channel=channel, user=user, text=told))
            except SendFailed as error:
                log.warning("channel %s: who pressed a button was not told: %s", self.name, error.message)

    async def _take(self, payload: dict[str, Any]) -> None:
        event = payload.get("event") or {}
        if event.get("type") == "reaction_added":
            await self._reacted(event)
        if event.get("type") != "message":
            return
        match event.get("subtype"):
            case "message_changed":
                new = event.get("message") or {}
                if new.get("text") != (event.get("previous_message") or {}).get("text"):
                    await self._changed(event, new, plain(str(new.get("text") or "")))
            case "message_deleted":
                await self._changed(event, event.get("previous_message") or {}, None)
            case None | "file_share" | "thread_broadcast" | "bot_message":
                if event.get("user") != self._me:
                    await self._context.take(await self._inbound(payload, event))

    async def _changed(self, event: dict[str, Any], said: dict[str, Any], text: str | None) -> None:
        if said.get("user") == self._me:
            return
        where = {**said, "channel": event["channel"], "channel_type": event.get("channel_type")}
        change = Changed(
            surface=self._surface(where),
            message_id=f"{event['channel']}:{said.get('ts') or event.get('deleted_ts')}",
            sender=str(said.get("user") or ""),
            text=text,
        )
        await self._context.changed(change)

    async def _reacted(self, event: dict[str, Any]) -> None:
        item = event.get("item") or {}
        if event.get("user") == self._me or item.get("type") != "message":
            return
        kind = "im" if str(item.get("channel")).startswith("D") else "channel"
        where = {"channel": item["channel"], "channel_type": kind, "user": event.get("user")}
        change = Changed(
            surface=self._surface(where),
            message_id=f"{item['channel']}:{item['ts']}",
            sender=str(event.get("user") or ""),
            sign=signed(str(event.get("reaction") or "")),
        )
        await self._context.changed(change)

    def _surface(self, event: dict[str, Any]) -> Surface:
        channel, user = str(event["channel"]), str(event.get("user") or "")
        thread = event.get("thread_ts")
        within = str(thread) if thread and thread != event.get("ts") else None
        if event.get("channel_type") == "im" and user:
            self._direct[user] = channel
            return self._context.surface("dm", user, within)
        kind: Any = "group" if event.get("channel_type") == "mpim" else "channel"
        return self._context.surface(kind, channel, within)

    async def _inbound(self, payload: dict[str, Any], event: dict[str, Any]) -> Inbound:
        text = str(event.get("text") or "")
        files, left_out = await self._files(event)
        return Inbound(
            surface=self._surface(event),
            message_id=f"{event['channel']}:{event['ts']}",
            sender=str(event.get("user") or event.get("bot_id") or ""),
            text=plain(text.replace(f"<@{self._me}>", "").strip()),
            mentioned=event.get("channel_type") == "im" or f"<@{self._me}>" in text,
            bot=bool(event.get("bot_id")),
            team_id=str(payload.get("team_id") or "") or None,
            files=files,
            left_out=left_out,
        )

    async def _files(self, event: dict[str, Any]) -> tuple[tuple[File, ...], tuple[str, ...]]:
        import aiohttp

        files: list[File] = []
        left: list[str] = []
        most = self._context.most_file_bytes
        for one in event.get("files") or ():
            name = str(one.get("name") or "file")
            url = one.get("url_private_download")
            if not url or int(one.get("size") or 0) > most:
                left.append(f"{name}: it cannot be fetched, or has more than {most:,} bytes")
                continue
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(CALL_SECONDS)) as session:
                headers = {"Authorization": f"Bearer {self._token}"}
                async with session.get(str(url), headers=headers) as answer:
                    data = await answer.content.read(most + 1)
            files.append(File(name, str(one.get("mimetype") or "application/octet-stream"), data))
        return tuple(files), tuple(left)

    async def _called(self, work: Awaitable[Any]) -> Any:
        from slack_sdk.errors import SlackApiError

        try:
            return await work
        except SlackApiError as error:
            raise _failure(error) from error
        except Exception as error:
            raise SendFailed(f"Slack: {type(error).__name__}: {error}"[:300], unsure=True) from error


def _ts(message_id: str | None) -> str | None:
    return None if message_id is None else message_id.rpartition(":")[2]


def _failure(error: Any) -> SendFailed:
    response = error.response
    said = str(response.get("error") or "")
    if response.status_code == 429 or said == "ratelimited":
        wait = response.headers.get("Retry-After") or response.headers.get("retry-after") or "1"
        return asks_to_wait("Slack", float(wait))
    if said in _TOKENS:
        return bad_token(f"Slack: {said}")
    return SendFailed(f"Slack: {said or error}"[:300], final=said in _FINAL)


def register(api: PluginApi) -> None:
    api.register_channel("slack", Slack)
