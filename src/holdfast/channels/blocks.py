"""A reply in blocks: finished paragraphs go to the outbox as they appear.

Each block and the mark of how far that brings the reply are one transaction, and it is written only while the
turn runs: what the commit then delivers is the rest.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.agents.loop import RunEvent
from holdfast.channels import marks
from holdfast.channels.chunking import Limits
from holdfast.channels.connecting import Connected
from holdfast.channels.following import Attempt, Following
from holdfast.channels.marks import Streamed
from holdfast.channels.speech import Speech, Step
from holdfast.log import SYSTEM, EntryFilter, Store, Threads, Tx, entries, outbox
from holdfast.text import clean_text


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
            stream = marks.get(tx, self._attempt.turn_id)
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
        stream = marks.get(tx, self._attempt.turn_id)
        for step in steps:
            if step.text:
                stream = replace(stream, blocks=stream.blocks + 1)
                body = {"text": step.text, "block": stream.blocks}
                outbox.post(tx, self._parcel(f"block:{stream.turn_id}:{stream.blocks}", body))
            stream = replace(stream, mark=step.mark)
        marks.save(tx, stream)
        return True
