"""A channel: IRC. One connection for each channel of the config whose `adapter` is `irc`.

A nick is not a proof of who somebody is, so nobody is the owner here by nick alone: leave `owners` empty on a
network where nicks can be taken, and let people in by pairing.
"""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.channels import Abilities, ChannelContext, Inbound, Message, SendFailed, Surface
from holdfast.plugins import PluginApi

MOST_BYTES = 400
SILENCE_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Line:
    """One line as the protocol has it: `:prefix COMMAND params :trailing`."""

    command: str
    params: tuple[str, ...]
    nick: str = ""

    @classmethod
    def read(cls, text: str) -> Line:
        prefix = ""
        if text.startswith(":"):
            prefix, _, text = text[1:].partition(" ")
        head, mark, trailing = text.partition(" :")
        command, *params = head.split()
        return cls(command.upper(), (*params, *((trailing,) if mark else ())), prefix.partition("!")[0])


class Irc:
    """The adapter. `run` keeps the connection; Holdfast begins it again, after a pause, when it breaks."""

    abilities = Abilities(most_chars=4_000)

    def __init__(self, context: ChannelContext, config: Mapping[str, Any]) -> None:
        self.name = context.name
        self._receive = context.receive
        self._config = config
        self._nick = str(config["nick"])
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        secure = ssl.create_default_context() if self._config["tls"] else None
        reader, writer = await asyncio.open_connection(
            self._config["host"], self._config["port"], ssl=secure, limit=64 * 1024
        )
        try:
            if self._config.get("password"):
                await self._write(writer, f"PASS {self._config['password']}")
            await self._write(writer, f"NICK {self._nick}")
            await self._write(writer, "USER holdfast 0 * :Holdfast")
            while line := await asyncio.wait_for(reader.readline(), SILENCE_SECONDS):
                await self._heard(writer, line.decode("utf-8", "replace").rstrip("\r\n"))
        finally:
            self._writer = None
            writer.close()
        raise ConnectionError("the server closed the connection")

    async def send(self, message: Message) -> None:
        writer = self._writer
        if writer is None:
            raise SendFailed("not connected to the server", wait_ms=2_000)
        for line in pieces(message.text):
            await self._write(writer, f"PRIVMSG {message.surface.peer} :{line}")

    async def _heard(self, writer: asyncio.StreamWriter, text: str) -> None:
        if not text.strip():
            return
        line = Line.read(text)
        if line.command == "PING":
            await self._write(writer, f"PONG :{line.params[-1] if line.params else ''}")
        elif line.command == "001":
            self._nick = line.params[0]
            self._writer = writer
            for room in self._config["join"]:
                await self._write(writer, f"JOIN {room}")
        elif line.command == "433":
            self._nick += "_"
            await self._write(writer, f"NICK {self._nick}")
        elif line.command == "PRIVMSG" and len(line.params) == 2:
            await self._said(line)

    async def _said(self, line: Line) -> None:
        """IRC gives messages no ids, so that each is a new one."""
        to, text = line.params
        if text.startswith("\x01") or not line.nick:
            return
        in_room = to[:1] in "#&"
        surface = Surface(self.name, "channel" if in_room else "dm", to if in_room else line.nick)
        named = self._nick.lower() in text.lower()
        await self._receive(
            Inbound(
                surface=surface,
                message_id=uuid.uuid4().hex,
                sender=line.nick,
                text=text,
                sender_name=line.nick,
                mentioned=not in_room or named,
            )
        )

    async def _write(self, writer: asyncio.StreamWriter, text: str) -> None:
        writer.write(text.replace("\r", " ").replace("\n", " ").encode() + b"\r\n")
        await writer.drain()


def pieces(text: str) -> Iterator[str]:
    """Lines of a text, none longer than the protocol carries, and no letter cut in two."""
    for line in text.splitlines():
        held = ""
        for word in line.split(" "):
            for part in _cut(word):
                joined = f"{held} {part}" if held else part
                if len(joined.encode()) > MOST_BYTES:
                    yield held
                    joined = part
                held = joined
        if held.strip():
            yield held


def _cut(word: str) -> Iterator[str]:
    """A word in parts of at most so many bytes."""
    while len(word.encode()) > MOST_BYTES:
        head = word.encode()[:MOST_BYTES].decode("utf-8", "ignore")
        yield head
        word = word[len(head) :]
    yield word


def register(api: PluginApi) -> None:
    api.register_channel("irc", lambda context: Irc(context, api.config))
