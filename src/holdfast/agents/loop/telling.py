"""What a run tells of itself while it runs: to live listeners, and to the debug outputs that are on."""

from __future__ import annotations

from typing import Any

from holdfast.agents.loop.events import Hub, StreamName
from holdfast.agents.models.types import (
    CallDelta,
    ModelEvent,
    ModelReply,
    Restarted,
    TextDelta,
    ThinkingDelta,
)
from holdfast.agents.tools.events import ToolEvent
from holdfast.context.debug import DebugOutputs
from holdfast.log import agenda


class Teller:
    """One run's voice. `steps` gather for the trajectory and are written by whoever is on a thread anyway."""

    def __init__(self, hub: Hub, run_id: str, session_id: str, debug: DebugOutputs | None) -> None:
        self._hub = hub
        self._run_id = run_id
        self._session_id = session_id
        self._debug = debug
        self._steps: list[dict[str, Any]] = []
        self.saying = ""

    def lifecycle(self, phase: str, **data: Any) -> None:
        self._say("lifecycle", {"phase": phase, **data})

    def model(self, event: ModelEvent) -> None:
        """An event of a model's stream; its whole answer is told by `reply`."""
        match event:
            case TextDelta(text=text):
                self.saying += text
                self._say("assistant", {"kind": "text", "delta": text}, passing=True)
            case ThinkingDelta(text=text):
                self._say("assistant", {"kind": "thinking", "delta": text}, passing=True)
            case CallDelta(id=id_, name=name):
                self._say("tool", {"phase": "announced", "callId": id_, "name": name}, passing=True)
            case Restarted(reason=reason):
                self.saying = ""
                self._say("lifecycle", {"phase": "restarted", "reason": reason})
            case ModelReply():
                return

    def reply(self, reply: ModelReply) -> None:
        """A whole answer: what the deltas came to."""
        self.saying = ""
        calls = [{"id": c.id, "name": c.name} for c in reply.calls]
        data: dict[str, Any] = {"kind": "message", "text": reply.text, "finish": reply.finish}
        self._say("assistant", data | {"model": str(reply.model)} | ({"calls": calls} if calls else {}))
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
