"""The webhook channel: messages are posted to an address, signed, each with a key that tells a repeat."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.agents.cron.webhooks import DELIVERIES, OURS, TIME, sign
from holdfast.channels.surface import Surface
from holdfast.channels.transport import Abilities, BaseChannel, Message, SendFailed
from holdfast.clock import Clock
from holdfast.config.channels import ChannelConfig
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS: Final = 20.0
MOST_CHARS: Final = 4_000
LONGEST_WAIT_MS: Final = 15 * 60_000
_LATER: Final = frozenset((408, 409, 425, 429))


class Posting:
    """The one HTTP client of all webhook channels, made when it is first used."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = httpx.AsyncClient(timeout=TIMEOUT_SECONDS), loop
        try:
            return await self._client.post(url, content=body, headers=dict(headers))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SendFailed(f"the receiver cannot be reached: {type(error).__name__}") from error

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()


class WebhookChannel(BaseChannel):
    """One webhook channel as it is configured now."""

    def __init__(
        self, name: str, config: ChannelConfig, posting: Posting, env: Mapping[str, str] = os.environ
    ) -> None:
        self.name = name
        self._config = config
        self._posting = posting
        self._env = env

    @property
    def abilities(self) -> Abilities:
        config = self._config
        return Abilities(MOST_CHARS, config.takes_edits, config.takes_edits, config.opens_threads)

    async def send(self, message: Message) -> str | None:
        return _text(await self._call("message", message.key, _body(message)), "id")

    async def edit(self, message_id: str, message: Message) -> None:
        await self._call("message.edit", message.key, {**_body(message), "messageId": message_id})

    async def react(self, message_id: str, message: Message) -> None:
        await self._call("message.react", message.key, {**_body(message), "messageId": message_id})

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        body: dict[str, Any] = {"to": _to(surface), "name": name}
        told = await self._call("thread.open", key, body | ({} if about is None else {"messageId": about}))
        thread = _text(told, "threadId")
        if thread is None:
            raise SendFailed("the receiver opened no thread: its answer has no threadId", final=True)
        return thread

    async def _call(self, kind: str, key: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        sent = {"type": kind, "channel": self.name, "idempotencyKey": key, **body}
        data = json.dumps(sent, ensure_ascii=False, separators=(",", ":")).encode()
        answer = await self._posting.post(self._url(), data, self._headers(key, data))
        if answer.status_code < 300:
            return _parsed(answer)
        raise _failure(answer.status_code, answer.headers.get("retry-after"), self._posting.clock.now())

    def _url(self) -> str:
        url = self._config.url
        if url is None:
            raise SendFailed(f"channel {self.name} has no url", final=True)
        try:
            return url.reveal(self._env)
        except ConfigError as error:
            raise SendFailed(error.message) from error

    def _headers(self, key: str, body: bytes) -> dict[str, str]:
        named = {"content-type": "application/json", "idempotency-key": key, DELIVERIES[0]: key}
        secret = secret_of(self._config, self._env)
        if not secret:
            return named
        at = self._posting.clock.now() // 1000
        return {**named, TIME: str(at), OURS: sign(secret, body, at)}


def secret_of(config: ChannelConfig, env: Mapping[str, str]) -> bytes:
    """What a channel's calls are signed with; empty where there is none."""
    if config.signing_secret is None:
        return b""
    try:
        return config.signing_secret.reveal(env).encode()
    except ConfigError:
        return b""


def _body(message: Message) -> dict[str, Any]:
    body = {"to": _to(message.surface), "text": message.text, "replyTo": message.reply_to, **message.meta}
    return {name: value for name, value in body.items() if value is not None}


def _to(surface: Surface) -> dict[str, str]:
    told = {"kind": surface.kind, "id": surface.peer, "account": surface.account, "threadId": surface.thread}
    return {name: value for name, value in told.items() if value is not None}


def _parsed(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        told = answer.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _text(told: Mapping[str, Any], name: str) -> str | None:
    value = told.get(name)
    return str(value)[:256] if isinstance(value, str | int) and str(value) else None


def _failure(status: int, retry_after: str | None, now: int) -> SendFailed:
    later = status in _LATER or status >= 500
    wait = _wait_ms(retry_after, now) if later else None
    return SendFailed(f"the receiver answered {status}", final=not later, wait_ms=wait)


def _wait_ms(text: str | None, now: int) -> int | None:
    """`Retry-After` in its two forms, within reason."""
    if not text:
        return None
    try:
        wait = float(text) * 1000 if text.strip().isdecimal() else _until(text) - now
    except (ValueError, OverflowError):
        return None
    return int(min(max(wait, 0), LONGEST_WAIT_MS))


def _until(text: str) -> float:
    return parsedate_to_datetime(text).timestamp() * 1000
