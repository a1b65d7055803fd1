"""A reply as one message that is edited while it is written, where the service can."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from holdfast.agents.loop import RunEvent
from holdfast.channels import holding, marks
from holdfast.channels.chunking import Limits, chunks
from holdfast.channels.connecting import Connected
from holdfast.channels.delivering import PREVIEW
from holdfast.channels.following import Attempt, Following
from holdfast.channels.marks import Streamed
from holdfast.log import SYSTEM, Store, Threads, Tx, outbox
from holdfast.log.outbox import DeliveryStatus
from holdfast.log.tables import outbox as table
from holdfast.text import clean_text

WORKING: Final = "…"
DONE: Final = "(done)"


class Previews(Following):
    """One message that is edited while the reply grows, or says what is being done; the reply ends it."""

    def __init__(self, store: Store, threads: Threads, attempt: Attempt, connected: Connected) -> None:
        super().__init__(store, threads, attempt, connected)
        self._text = ""
        self._shown = ""
        self._status = WORKING
        self._count = 0
        self._now = asyncio.get_running_loop().time
        self._shown_at = 0.0

    @property
    def pause(self) -> float:
        return self._connected.config.block_streaming_chunk.edit_ms / 1000

    async def take(self, event: RunEvent) -> None:
        phase, kind = event.data.get("phase"), event.data.get("kind")
        if event.stream == "tool" and phase == "start":
            self._status = f"{WORKING} {event.data.get('name')}"
        elif event.stream == "assistant" and kind == "text":
            self._text += clean_text(str(event.data["delta"]))
        elif phase == "restarted" or kind == "message":
            self._text = ""
        elif event.final and self._count and not holding.spoken(str(event.data.get("text") or "")).strip():
            await self._show(DONE, always=True)
        if not self._count or self._now() - self._shown_at >= self.pause:
            await self.paused()

    async def paused(self) -> None:
        wanted = self._wanted()
        if wanted and wanted != self._shown:
            await self._show(wanted)

    def _wanted(self) -> str:
        if self._connected.config.streaming == "progress":
            return self._status
        if holding.begins(self._text) != "speaks":
            return ""
        visible = self._text[: holding.shown_end(self._text)].strip()
        first = next(chunks(visible, Limits(self._connected.most_chars)), None)
        return "" if first is None else first.text

    async def _show(self, text: str, *, always: bool = False) -> None:
        if await self._threads(self._store.run, SYSTEM, lambda tx: self._posted(tx, text, always)):
            self._shown, self._shown_at = text, self._now()

    def _posted(self, tx: Tx, text: str, always: bool) -> bool:
        """Post a preview, unless the one before it is still on its way: then a later one will do."""
        stream = marks.get(tx, self._attempt.turn_id)
        if not always and not (self._runs(tx) and _arrived(tx, stream)):
            return False
        stream = replace(stream, blocks=stream.blocks + 1)
        outbox.post(tx, self._parcel(_preview_key(stream), {"op": PREVIEW, "text": text}))
        marks.save(tx, stream)
        self._count += 1
        return True


def _preview_key(stream: Streamed) -> str:
    return f"{PREVIEW}:{stream.turn_id}:{stream.blocks}"


def _arrived(tx: Tx, stream: Streamed) -> bool:
    if not stream.blocks:
        return True
    query = sa.select(table.c.status).where(table.c.key == _preview_key(stream))
    return tx.conn.execute(query).scalar() != DeliveryStatus.PENDING
