"""Replies that are shown while they are written: followed, previewed, and sent block by block.

Each block and the mark of how far that brings the reply are one transaction, and it is written only while the
turn runs: what the commit then delivers is the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from holdfast.agents.loop import Deliver, Hub, RunEvent
from holdfast.channels import progress, speech
from holdfast.channels.chunking import Limits, chunks
from holdfast.channels.connecting import Connected
from holdfast.channels.delivering import PREVIEW, reply_key
from holdfast.channels.progress import Streamed
from holdfast.channels.speech import Speech, Step
from holdfast.channels.surface import Surface
from holdfast.errors import HoldfastError
from holdfast.log import SYSTEM, EntryFilter, Store, Threads, TurnStatus, Tx, entries, outbox, rung, turns
from holdfast.log.outbox import DeliveryStatus, Parcel
from holdfast.log.tables import outbox as table
from holdfast.text import clean_text


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt of a turn whose words are followed, and where they go."""

    turn_id: str
    number: int
    session_key: str
    to: Deliver


class Following(ABC):
    """Reads a run's events as they come, so that none is lost while something is written."""

    def __init__(self, store: Store, threads: Threads, attempt: Attempt, connected: Connected) -> None:
        self._store = store
        self._threads = threads
        self._attempt = attempt
        self._connected = connected
        self._events: list[RunEvent] = []
        self._bell = asyncio.Event()
        self._heard = False

    @property
    @abstractmethod
    def pause(self) -> float:
        """Seconds of silence after which `paused` is called."""

    async def begin(self) -> None:  # noqa: B027 - most have nothing to do before
        """Before the first event."""

    @abstractmethod
    async def take(self, event: RunEvent) -> None:
        """One event of the attempt."""

    @abstractmethod
    async def paused(self) -> None:
        """Nothing was said for a while."""

    async def run(self, hub: Hub) -> None:
        reading = asyncio.create_task(self._read(hub))
        try:
            await self.begin()
            over = False
            while not over:
                over = await self._round()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, hub: Hub) -> None:
        async with contextlib.aclosing(hub.follow(self._attempt.turn_id)) as events:
            async for event in events:
                self._events.append(event)
                self._bell.set()

    async def _round(self) -> bool:
        """All that has come, or a pause; True at the end of the run."""
        if not await rung(self._bell, self.pause):
            await self.paused()
            return False
        self._bell.clear()
        events, self._events = self._events, []
        for event in events:
            if not self._is_ours(event):
                continue
            await self.take(event)
            if event.final or event.data.get("phase") == "interrupted":
                return True
        return False

    def _is_ours(self, event: RunEvent) -> bool:
        """What earlier attempts said comes first; ours begins where its start is told."""
        if event.stream == "lifecycle" and event.data.get("phase") == "start":
            self._heard = event.data.get("attempt") == self._attempt.number
            return False
        return self._heard

    def _runs(self, tx: Tx) -> bool:
        """Whether there is something to follow; once the turn's delivery is posted, that is what is sent."""
        turn = turns.get(tx, self._attempt.turn_id)
        if turn.attempt != self._attempt.number:
            return False
        if turn.status is TurnStatus.COMMITTED:
            known = sa.select(table.c.id).where(table.c.key == reply_key(turn.id))
            return tx.conn.execute(known).first() is None
        return turn.status is TurnStatus.RUNNING

    def _parcel(self, key: str, body: dict[str, Any]) -> Parcel:
        attempt, to = self._attempt, self._attempt.to
        named = {"turnId": attempt.turn_id, "sessionKey": attempt.session_key}
        return Parcel(key=key, kind=to.kind, target=to.target, payload={**to.payload, **body, **named})


class Silent(Following):
    """A reply that is sent when it is whole: it is only waited for."""

    @property
    def pause(self) -> float:
        return 60.0

    async def take(self, event: RunEvent) -> None:
        """Nothing is sent before the end."""

    async def paused(self) -> None:
        """Nor then."""


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
        elif (
            event.final and self._count and not speech.spoken_part(str(event.data.get("text") or "")).strip()
        ):
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
        if speech.begins_silent(self._text) != "speaks":
            return ""
        visible = self._text[: speech.shown_end(self._text)].strip()
        first = next(chunks(visible, Limits(self._connected.most_chars)), None)
        return "" if first is None else first.text

    async def _show(self, text: str, *, always: bool = False) -> None:
        if await self._threads(self._store.run, SYSTEM, lambda tx: self._posted(tx, text, always)):
            self._shown, self._shown_at = text, self._now()

    def _posted(self, tx: Tx, text: str, always: bool) -> bool:
        """Post a preview, unless the one before it is still on its way: then a later one will do."""
        stream = progress.get(tx, self._attempt.turn_id)
        if not always and not (self._runs(tx) and _arrived(tx, stream)):
            return False
        stream = replace(stream, blocks=stream.blocks + 1)
        outbox.post(tx, self._parcel(_preview_key(stream), {"op": PREVIEW, "text": text}))
        progress.save(tx, stream)
        self._count += 1
        return True


def _preview_key(stream: Streamed) -> str:
    return f"{PREVIEW}:{stream.turn_id}:{stream.blocks}"


def _arrived(tx: Tx, stream: Streamed) -> bool:
    if not stream.blocks:
        return True
    query = sa.select(table.c.status).where(table.c.key == _preview_key(stream))
    return tx.conn.execute(query).scalar() != DeliveryStatus.PENDING


class Blocks(Following):
    """Finished paragraphs as messages of their own."""

    def __init__(self, store: Store, threads: Threads, attempt: Attempt, connected: Connected) -> None:
        super().__init__(store, threads, attempt, connected)
        rules = connected.config.block_streaming_chunk
        most = min(rules.max_chars, connected.most_chars)
        self._speech = Speech(Limits(most, min(rules.min_chars, most), rules.break_preference))
        self._finished = False
        self._unsure = False
        self._stopped = False

    @property
    def pause(self) -> float:
        return self._connected.config.block_streaming_chunk.idle_ms / 1000

    async def begin(self) -> None:
        """Take up what an earlier attempt sent; a message that stands in the log is sent to its end."""
        stream, logged = await self._threads(self._left)
        self._speech.mark = stream.mark
        if logged is None:
            self._speech.mark = replace(stream.mark, closed=False)
        elif not stream.mark.closed:
            self._speech.text = logged
            await self._post(self._speech.close())
        self._speech.begin()

    async def take(self, event: RunEvent) -> None:
        phase, kind = event.data.get("phase"), event.data.get("kind")
        if event.stream == "assistant" and kind == "text":
            await self._more(str(event.data["delta"]))
        elif event.stream == "assistant" and kind == "message":
            await self._whole(str(event.data["text"]), calls=bool(event.data.get("calls")))
        elif phase == "restarted":
            self._speech.text = ""
        elif phase == "lagged":
            self._unsure = True

    async def paused(self) -> None:
        if not (self._finished or self._unsure):
            await self._post(self._speech.ready(idle=True))

    async def _more(self, delta: str) -> None:
        if self._finished:
            await self._next()
        self._speech.text += clean_text(delta)
        if not self._unsure:
            await self._post(self._speech.ready())

    async def _whole(self, text: str, *, calls: bool) -> None:
        """A message that asks for tools is not the last; one that does not is left to the commit."""
        if self._finished:
            await self._next()
        self._speech.text, self._unsure, self._finished = clean_text(text), False, True
        if calls:
            await self._next()

    async def _next(self) -> None:
        """The turn goes on after this message: all of it is sent, and another follows."""
        await self._post(self._speech.close())
        self._speech.begin()
        self._finished = False

    def _left(self) -> tuple[Streamed, str | None]:
        """What was sent of this turn before, and the logged message that it is the beginning of, if any."""
        with self._store.read(SYSTEM) as tx:
            stream = progress.get(tx, self._attempt.turn_id)
            said = stream.mark.said.strip()
            if not said:
                return stream, None
            own = entries.listing(tx, EntryFilter(turn_id=self._attempt.turn_id), limit=200).entries
            spoken = (e.content for e in own if e.is_answer)
            return stream, next((text for text in spoken if text.strip().startswith(said)), None)

    async def _post(self, steps: list[Step]) -> None:
        if steps and not self._stopped:
            self._stopped = not await self._threads(
                self._store.run, SYSTEM, lambda tx: self._posted(tx, steps)
            )

    def _posted(self, tx: Tx, steps: list[Step]) -> bool:
        if not self._runs(tx):
            return False
        stream = progress.get(tx, self._attempt.turn_id)
        for step in steps:
            if step.text:
                stream = replace(stream, blocks=stream.blocks + 1)
                body = {"text": step.text, "block": stream.blocks}
                outbox.post(tx, self._parcel(f"block:{stream.turn_id}:{stream.blocks}", body))
            stream = replace(stream, mark=step.mark)
        progress.save(tx, stream)
        return True


log = logging.getLogger(__name__)
TYPING_SECONDS: Final = 4.0


class Streams:
    """The replies that are being sent while they are written, in this process."""

    def __init__(self, store: Store, threads: Threads, hub: Callable[[], Hub]) -> None:
        self._store = store
        self._threads = threads
        self._hub = hub
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self) -> None:
        """From now on follow what runs; called on the loop that turns run on."""
        self._loop = asyncio.get_running_loop()

    def follow(self, attempt: Attempt, connected: Connected) -> None:
        """Begin, from any thread. Where no loop serves, the whole reply is delivered with its commit."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody follows any more
                self._loop.call_soon_threadsafe(self._start, attempt, connected)

    async def aclose(self) -> None:
        tasks, self._loop = tuple(self._tasks), None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, attempt: Attempt, connected: Connected) -> None:
        task = asyncio.create_task(self._run(attempt, connected), name=f"stream {attempt.turn_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, attempt: Attempt, connected: Connected) -> None:
        kind = Silent if not connected.streams else Previews if connected.previews else Blocks
        stream = kind(self._store, self._threads, attempt, connected)
        typing = asyncio.create_task(_typing(connected, Surface.parse(attempt.to.target)))
        try:
            await stream.run(self._hub())
        except HoldfastError as error:
            log.warning("the stream of turn %s ended early: %s", attempt.turn_id, error.message)
        finally:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)


async def _typing(connected: Connected, surface: Surface) -> None:
    """Show that an answer is being written for as long as one is. Nobody waits for that to work."""
    while connected.channel.abilities.types:
        with contextlib.suppress(HoldfastError):
            await connected.channel.typing(surface)
        await asyncio.sleep(TYPING_SECONDS)
