"""Which channels there are, and what stands behind each: an adapter, with the rules that hold for it now."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.channels.inbound import Changed, Inbound, Pressed
from holdfast.channels.records import Received
from holdfast.channels.surface import Surface
from holdfast.channels.transport import Channel, SendFailed
from holdfast.channels.webhook import Posting, WebhookChannel
from holdfast.clock import Clock
from holdfast.config import Config
from holdfast.config.channels import WEB, WEB_CHAT, ChannelConfig
from holdfast.config.session import PeerKind
from holdfast.errors import Busy, HoldfastError, NotFound, Unavailable

Adapter = Callable[[str, ChannelConfig, str | None], Channel]
WEBHOOK: Final = "webhook"
AGAIN_SECONDS: Final = 1.0
log = logging.getLogger(__name__)


async def _nobody_decides(press: Pressed) -> str:
    raise Unavailable("no gateway serves", code="not_serving")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelContext:
    """What a plugin makes a channel's adapter from: one for each account, if there are several.

    `receive` hands in what people wrote; a message that was here before, by its id, is not seen to again.
    `changed` tells that somebody changed, deleted or reacted to one; `pressed` that they chose a button, and
    gives what to tell them. `options` are the channel's own, with
    secrets in the clear. `folder` is where the adapter keeps how far it has come, and what it needs later.
    """

    name: str
    settings: ChannelConfig
    receive: Callable[[Inbound], Awaitable[Received]]
    changed: Callable[[Changed], Awaitable[bool]]
    pressed: Callable[[Pressed], Awaitable[str]] = _nobody_decides
    account: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)
    most_file_bytes: int = 10 * 1024**2
    most_files: int = 8

    async def take(self, message: Inbound) -> Received | None:
        """Hand in a message and stay with it until it is taken, so that none behind it goes before; None for
        one that can never be."""
        while True:
            try:
                return await self.receive(message)
            except (Busy, Unavailable) as error:
                log.warning("channel %s: a message waits to be taken in: %s", self.name, error.message)
                await asyncio.sleep(AGAIN_SECONDS)
            except HoldfastError as error:
                log.warning("channel %s: a message is left out: %s", self.name, error.message)
                return None

    async def chosen(self, surface: Surface, sender: str, value: str) -> str:
        """Hand in a press of a button; gives what to tell who pressed it, also where they may not."""
        try:
            return await self.pressed(Pressed(surface=surface, sender=sender, value=value))
        except HoldfastError as error:
            return error.message

    def surface(self, kind: PeerKind, peer: str, thread: str | None = None) -> Surface:
        """A place on this channel, as this account sees it."""
        return Surface(self.name, kind, peer, thread, self.account)


@dataclass(frozen=True, slots=True)
class Connected:
    """A channel, or an account of one, ready to be spoken through."""

    name: str
    config: ChannelConfig
    channel: Channel

    @property
    def most_chars(self) -> int:
        """How long one message may be: as configured, but never more than the service takes."""
        theirs = self.channel.abilities.most_chars
        return min(self.config.text_chunk_limit or theirs, theirs)

    @property
    def previews(self) -> bool:
        """Whether a reply is one message that is edited while it is written."""
        return self.config.streaming in ("partial", "progress") and self.channel.abilities.edits

    @property
    def streams(self) -> bool:
        """Whether anything of a reply is sent before it is whole."""
        return self.config.streaming != "off" and (self.previews or self.channel.abilities.blocks)


class Connections:
    """Adapters by name; a channel with an address to post to is a webhook channel, whatever its name."""

    def __init__(
        self, config: Callable[[], Config], clock: Clock, env: Mapping[str, str] = os.environ
    ) -> None:
        self._config = config
        self._posting = Posting(clock)
        self._env = env
        self._adapters: dict[str, Adapter] = {}

    def register(self, name: str, adapter: Adapter) -> None:
        """Have an adapter serve the channels whose `adapter` is this name, and the one that has it itself."""
        self._adapters[name] = adapter

    def settings(self, channel: str, account: str | None = None) -> ChannelConfig:
        """How a channel is configured; `NotFound` for one that is not."""
        found = self._config().channels.get(channel, WEB_CHAT if channel == WEB else None)
        if found is None or (account is not None and found.accounts and account not in found.accounts):
            raise NotFound(
                f"no channel {channel[:64]!r}" + (f" with account {account[:64]!r}" if account else ""),
                code="unknown_channel",
                hint="See `holdfast channels list`.",
            )
        return found.of_account(account)

    def adapter(self, name: str) -> str | None:
        """What serves a channel; None: nothing does."""
        if name == WEB:
            return WEB
        found = self._config().channels.get(name)
        wanted = name if found is None or found.adapter is None else found.adapter
        if wanted in self._adapters:
            return wanted
        return None if found is None or found.url is None else WEBHOOK

    def of(self, surface: Surface) -> Connected:
        """What carries words to a surface; `SendFailed` where nothing does at present."""
        name = surface.channel
        try:
            config = self.settings(name, surface.account)
        except NotFound as error:
            raise SendFailed(error.message) from error
        if not config.enabled:
            raise SendFailed(f"channel {name} is switched off")
        adapter = self._adapters.get(config.adapter or name)
        if adapter is not None:
            return Connected(name, config, adapter(name, config, surface.account))
        if config.url is None:
            raise SendFailed(f"nothing connects channel {name}")
        return Connected(name, config, WebhookChannel(name, config, self._posting, self._env))

    async def aclose(self) -> None:
        await self._posting.aclose()
