"""What a run says while it runs, to whoever listens in this process, and to the debug outputs that are on.
The log has what lasts.

A listener that is too slow loses deltas and progress, is told how many, and never loses the end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.agents.models.types import (
    CallDelta,
    ModelEvent,
    ModelReply,
    Restarted,
    TextDelta,
    ThinkingDelta,
)
from holdfast.agents.tools.types import ToolEvent
from holdfast.clock import Clock, Millis
from holdfast.context.debug import DebugOutputs
from holdfast.log import agenda

StreamName = Literal["lifecycle", "assistant", "tool"]
MOST_WAITING: Final = 256
MOST_KEPT: Final = 512
MOST_RUNS: Final = 256


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event. `passing` ones (deltas, progress) may be left out where there is no room for them."""

    run_id: str
    seq: int
    stream: StreamName
    data: Mapping[str, Any]
    ts: Millis
    passing: bool = False

    @property
    def final(self) -> bool:
        return self.stream == "lifecycle" and self.data.get("phase") in ("end", "error")

    def json(self) -> dict[str, Any]:
        return {
            "runId": self.run_id,
            "seq": self.seq,
            "stream": self.stream,
            "data": dict(self.data),
            "ts": self.ts,
        }


class Listener:
    """One reader's place in a stream."""

    def __init__(self, said: list[RunEvent], most: int) -> None:
        self._waiting: deque[RunEvent] = deque(said)
        self._most = max(most, len(said))
        self._lost = 0
        self._bell = asyncio.Event()
        self._bell.set()

    def put(self, event: RunEvent) -> None:
        if len(self._waiting) >= self._most:
            self._make_room()
        self._waiting.append(event)
        self._bell.set()

    def _make_room(self) -> None:
        """Drop what is passing, the oldest first; only a stream without any loses other events."""
        victim = next((e for e in self._waiting if e.passing), self._waiting[0])
        self._waiting.remove(victim)
        self._lost += 1

    def take(self) -> list[RunEvent]:
        """All that waits; what was lost is told first."""
        self._bell.clear()
        found = list(self._waiting)
        self._waiting.clear()
        if self._lost and found:
            first = found[0]
            told = {"phase": "lagged", "lost": self._lost}
            found.insert(0, RunEvent(first.run_id, first.seq, "lifecycle", told, first.ts, passing=True))
            self._lost = 0
        return found

    async def wait(self) -> None:
        await self._bell.wait()


@dataclass(slots=True)
class _Stream:
    said: list[RunEvent] = field(default_factory=list)
    listeners: set[Listener] = field(default_factory=set)
    seq: int = 0
    ended: bool = False


class Hub:
    """The live streams of this process: those of running turns, and the last ones that ended."""

    def __init__(self, clock: Clock, *, most_waiting: int = MOST_WAITING) -> None:
        self._clock = clock
        self._most = most_waiting
        self._streams: OrderedDict[str, _Stream] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def open(self, run_id: str) -> None:
        """Begin a stream, or an ended one anew for the next attempt; what it said before stays readable."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        stream = self._streams.setdefault(run_id, _Stream())
        stream.ended = False
        self._streams.move_to_end(run_id)
        self._forget()

    def knows(self, run_id: str) -> bool:
        return run_id in self._streams

    def emit(
        self, run_id: str, stream: StreamName, data: Mapping[str, Any], *, passing: bool = False
    ) -> RunEvent | None:
        """Say something, from any thread; None if that thread is not the loop's, or nobody began the run."""
        if threading.get_ident() != self._thread:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(lambda: self.emit(run_id, stream, data, passing=passing))
            return None
        known = self._streams.get(run_id)
        if known is None or known.ended:
            return None
        known.seq += 1
        event = RunEvent(run_id, known.seq, stream, data, self._clock.now(), passing)
        _keep(known.said, event)
        known.ended = event.final
        for listener in tuple(known.listeners):
            listener.put(event)
        return event

    async def follow(self, run_id: str) -> AsyncGenerator[RunEvent]:
        """What the run has said so far, then what it says, until its end."""
        stream = self._streams.setdefault(run_id, _Stream())
        listener = Listener(list(stream.said), self._most)
        stream.listeners.add(listener)
        try:
            while True:
                for event in listener.take():
                    yield event
                    if event.final:
                        return
                await listener.wait()
        finally:
            stream.listeners.discard(listener)

    def _forget(self) -> None:
        """Keep the newest; one that runs or is listened to stays in any case."""
        surplus = len(self._streams) - MOST_RUNS
        for run_id in list(self._streams):
            if surplus <= 0:
                return
            stream = self._streams[run_id]
            if not stream.listeners and (stream.ended or not stream.said):
                del self._streams[run_id]
                surplus -= 1


def _keep(said: list[RunEvent], event: RunEvent) -> None:
    """Remember an event for those who come later; deltas of one kind that follow each other become one."""
    last = said[-1] if said else None
    if last is not None and last.passing and event.passing and _same(last, event):
        joined = {**event.data, "delta": f"{last.data['delta']}{event.data['delta']}"}
        said[-1] = RunEvent(event.run_id, event.seq, event.stream, joined, event.ts, passing=True)
        return
    said.append(event)
    if len(said) > MOST_KEPT:
        del said[next((i for i, e in enumerate(said) if e.passing), 1)]


def _same(a: RunEvent, b: RunEvent) -> bool:
    return (
        a.stream == b.stream == "assistant"
        and "delta" in a.data
        and "delta" in b.data
        and a.data.get("kind") == b.data.get("kind")
    )


class Reporter:
    """One run's voice. `steps` gather for the trajectory and are written by whoever is on a thread anyway.

    What an answer may mean for the runtime alone is held back: `tellable` says how much of its words is not
    that, whatever follows. `saying` is what listeners have been told of the answer under way.
    """

    def __init__(
        self,
        hub: Hub,
        run_id: str,
        session_id: str,
        debug: DebugOutputs | None,
        tellable: Callable[[str], int] = len,
    ) -> None:
        self._hub = hub
        self._run_id = run_id
        self._session_id = session_id
        self._debug = debug
        self._tellable = tellable
        self._steps: list[dict[str, Any]] = []
        self._words = ""
        self.saying = ""

    def lifecycle(self, phase: str, **data: Any) -> None:
        self._say("lifecycle", {"phase": phase, **data})

    def model(self, event: ModelEvent) -> None:
        """An event of a model's stream; its whole answer is told by `message`."""
        match event:
            case TextDelta(text=text):
                self._words += text
                self._tell_words(self._words[: self._tellable(self._words)])
            case ThinkingDelta(text=text):
                self._say("assistant", {"kind": "thinking", "delta": text}, passing=True)
            case CallDelta(id=id_, name=name):
                self._say("tool", {"phase": "announced", "callId": id_, "name": name}, passing=True)
            case Restarted(reason=reason):
                self._words = self.saying = ""
                self._say("lifecycle", {"phase": "restarted", "reason": reason})
            case ModelReply():
                return

    def begin_answer(self, reason: str = "bad_request") -> None:
        """Another answer begins: what was told of one that came to nothing does not count."""
        if self._words:
            self._words = self.saying = ""
            self._say("lifecycle", {"phase": "restarted", "reason": reason})

    def message(self, reply: ModelReply, kept: str | None = None) -> None:
        """A whole answer: what the deltas came to, after what was held back of it.

        `kept` is what the log keeps of a turn's last words.
        """
        text = reply.text if kept is None else kept
        if self._words and text.startswith(self.saying):
            self._tell_words(text)
        self._words = self.saying = ""
        calls = [{"id": c.id, "name": c.name} for c in reply.calls]
        data: dict[str, Any] = {"kind": "message", "text": text, "finish": reply.finish}
        self._say("assistant", data | {"model": str(reply.model)} | ({"calls": calls} if calls else {}))

    def _tell_words(self, words: str) -> None:
        if rest := words[len(self.saying) :]:
            self.saying = words
            self._say("assistant", {"kind": "text", "delta": rest}, passing=True)

    def answered(self, reply: ModelReply) -> None:
        """The step of a whole answer, just as the model gave it."""
        self.step(
            "model",
            model=str(reply.model),
            text=reply.text,
            thinking=reply.thinking or None,
            calls=[{"id": c.id, "name": c.name, "arguments": c.arguments} for c in reply.calls],
            finish=reply.finish,
            usage=reply.usage.json(),
        )

    def tool(self, event: ToolEvent) -> None:
        data: dict[str, Any] = {"phase": event.kind, "callId": event.call_id, "name": event.name}
        data |= {"text": event.text} if event.text else {}
        data |= {} if event.approval is None else {"approval": event.approval.json()}
        if event.kind == "end":
            data |= {"isError": event.is_error, "details": dict(event.details)}
            self.step("tool", **data)
        self._say("tool", data, passing=event.kind == "progress" and event.approval is None)

    def step(self, type_: str, **data: Any) -> None:
        if self._debug is not None and self._debug.switches.trajectory is not None:
            kept = {name: value for name, value in data.items() if value is not None}
            self._steps.append({"type": type_, "turnId": self._run_id, **kept})

    @property
    def has_steps(self) -> bool:
        return bool(self._steps)

    def write_steps(self) -> None:
        """Blocks."""
        steps, self._steps = self._steps, []
        if self._debug is not None:
            self._debug.trajectory(self._session_id, *steps)

    def _say(self, stream: StreamName, data: dict[str, Any], *, passing: bool = False) -> None:
        agenda.alive()
        event = self._hub.emit(self._run_id, stream, data, passing=passing)
        if event is not None and self._debug is not None and self._debug.switches.raw_stream is not None:
            self._debug.raw(event.json())
