"""What a model was sent and what it answered, written where a person can look: the switches of the seeds.

| switch | what | where |
|---|---|---|
| `HOLDFAST_PAYLOAD_LOG=1` | each request and response in full | `logs/payload.jsonl` |
| `HOLDFAST_RAW_STREAM=1` (`…_PATH`) | the raw events of a run | `logs/raw-stream.jsonl` |
| `HOLDFAST_CACHE_TRACE=1` (`…_SYSTEM`, `…_PROMPT`) | what repeats | `logs/cache-trace.jsonl` |
| `HOLDFAST_DEBUG_MODEL_PAYLOAD=tools\\|summary\\|full-redacted` | each call in short | stderr |
| `HOLDFAST_TRAJECTORY=0`, `…_DIR` | each session's run, on by default | `logs/trajectory/` |
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from holdfast.clock import Clock, iso
from holdfast.config.runtime import LoggingConfig
from holdfast.config.values import is_secret_name
from holdfast.context.messages import Message, SystemMessage, digest, text_digest, wire
from holdfast.context.request import Built, tools_text
from holdfast.context.tokens import message_tokens, raw_tokens
from holdfast.logs import MASK, Limits, append_rotated, limits_of, parts_of, redactor

log = logging.getLogger(__name__)

_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"0", "false", "no", "off"})
_mask: Final = redactor()


@dataclass(frozen=True, slots=True)
class Switches:
    """Which outputs are on, read from the environment once."""

    payload: bool = False
    raw_stream: Path | None = None
    cache_trace: bool = False
    cache_system: bool = False
    cache_prompt: bool = False
    summary: str | None = None
    trajectory: Path | None = None

    @classmethod
    def read(cls, env: Mapping[str, str], logs: Path) -> Switches:
        def on(name: str) -> bool:
            return env.get(f"HOLDFAST_{name}", "").strip().lower() in _ON

        stream = Path(env.get("HOLDFAST_RAW_STREAM_PATH") or logs / "raw-stream.jsonl").expanduser()
        folder = Path(env.get("HOLDFAST_TRAJECTORY_DIR") or logs / "trajectory").expanduser()
        silent = env.get("HOLDFAST_TRAJECTORY", "").strip().lower() in _OFF
        return cls(
            payload=on("PAYLOAD_LOG"),
            raw_stream=stream if on("RAW_STREAM") else None,
            cache_trace=on("CACHE_TRACE"),
            cache_system=on("CACHE_TRACE_SYSTEM"),
            cache_prompt=on("CACHE_TRACE_PROMPT"),
            summary=env.get("HOLDFAST_DEBUG_MODEL_PAYLOAD") or None,
            trajectory=None if silent else folder,
        )


class DebugOutputs:
    """Appends to the files that are switched on. A full disk costs the output, never the turn."""

    def __init__(
        self,
        logs: Path,
        clock: Clock,
        env: Mapping[str, str] = os.environ,
        stderr: IO[str] | None = None,
        *,
        limits: Callable[[], Limits] = lambda: limits_of(LoggingConfig()),
    ) -> None:
        self.switches = Switches.read(env, logs)
        self._limits = limits
        self._logs = logs
        self._clock = clock
        self._stderr = stderr
        self._lock = threading.Lock()
        self._previous: dict[str, list[str]] = {}

    @property
    def takes_requests(self) -> bool:
        """Whether `request` would write anything."""
        return self.switches.payload or self.switches.cache_trace or self.switches.summary is not None

    def request(self, built: Built) -> None:
        """A model is about to be called with this."""
        account = built.manifest
        head = {"turnId": account.turn_id, "call": account.call, "sessionKey": account.session_key}
        if self.switches.payload:
            messages = [wire(m) for m in built.messages]
            tools = [{"name": t.name, "parameters": t.parameters} for t in built.tools]
            body = {"model": account.model, "messages": messages, "tools": tools}
            body |= {"sentAs": list(account.sent_as)} if account.sent_as else {}
            self._append(self._logs / "payload.jsonl", {"event": "request", **head, **body})
        if self.switches.cache_trace:
            self._append(self._logs / "cache-trace.jsonl", {**head, **self._traced(built)})
        if self.switches.summary is not None:
            self._say(summary_of(built, self.switches.summary))

    def response(self, built: Built, body: Mapping[str, Any]) -> None:
        """A model has answered."""
        if self.switches.payload:
            account = built.manifest
            head = {"event": "response", "turnId": account.turn_id, "call": account.call}
            self._append(self._logs / "payload.jsonl", {**head, **body})

    def raw(self, event: Mapping[str, Any]) -> None:
        """One event of a run, as it came."""
        if self.switches.raw_stream is not None:
            self._append(self.switches.raw_stream, event)

    def trajectory(self, session_id: str, *steps: Mapping[str, Any]) -> None:
        """Steps of a session: what was said, which tool ran, what it cost. On unasked, so without secrets."""
        if self.switches.trajectory is not None and steps:
            path = self.switches.trajectory / f"{_file_name(session_id)}.jsonl"
            self._append(path, *(redact(step) for step in steps))

    def export_trajectory(self, session_id: str) -> Iterator[str]:
        """The steps of a session, line by line, older ones first."""
        folder = self.switches.trajectory or self._logs / "trajectory"
        for path in parts_of(folder / f"{_file_name(session_id)}.jsonl"):
            with path.open(encoding="utf-8") as file:
                yield from (line.rstrip("\n") for line in file)

    def _traced(self, built: Built) -> dict[str, Any]:
        """How much of the prompt repeats the session's previous one, and where it stops doing so."""
        session = built.manifest.session_id
        tools = tools_text((), built.tools) or ""
        # Tools stand before all messages: where they change, nothing behind them is found in a cache.
        digests = [text_digest(tools), *(digest(m) for m in built.messages)]
        before = self._previous.get(session, [])
        if len(self._previous) > 1000:
            self._previous.clear()
        self._previous[session] = digests
        same = next(
            (i for i, (a, b) in enumerate(zip(before, digests, strict=False)) if a != b),
            min(len(before), len(digests)),
        )
        tokens = [raw_tokens(tools), *(message_tokens(m) for m in built.messages)]
        body: dict[str, Any] = {
            "tools": len(built.tools),
            "toolsTokens": tokens[0],
            "toolsDigest": digests[0][:12],
            "sharedTools": same > 0,
            "messages": len(built.messages),
            "sharedMessages": max(0, same - 1),
            "sharedTokens": sum(tokens[:same]),
            "tokens": sum(tokens),
            "digests": [d[:12] for d in digests[1:5]] + [d[:12] for d in digests[-4:]],
        }
        if self.switches.cache_system:
            body["system"] = [m.text for m in built.messages if isinstance(m, SystemMessage)]
        if self.switches.cache_prompt:
            body["prompt"] = [wire(m) for m in built.messages[max(0, same - 1) :]]
        return body

    def _append(self, path: Path, *events: Mapping[str, Any]) -> None:
        at = iso(self._clock.now())
        lines = [json.dumps({"at": at, **event}, ensure_ascii=False, default=str) for event in events]
        data = "".join(f"{line}\n" for line in lines).encode(errors="replace")
        try:
            with self._lock:
                append_rotated(path, data, self._limits(), self._clock.now())
        except OSError as error:
            log.warning("cannot write %s: %s", path, error)

    def _say(self, text: str) -> None:
        print(text, file=self._stderr or sys.stderr)


def summary_of(built: Built, detail: str) -> str:
    """One call for the eye: sizes; with `tools` their names, with `full-redacted` all but secrets."""
    account = built.manifest
    head = f"model call {account.turn_id}/{account.call} {account.model}: "
    head += f"{account.used:,}/{account.window:,} tokens"
    if detail == "tools":
        return f"{head}; tools: {', '.join(t.name for t in built.tools) or 'none'}"
    if detail == "full-redacted":
        return "\n".join([head, *(json.dumps(m, ensure_ascii=False) for m in redacted(built.messages))])
    parts = ", ".join(f"{s.name} {s.tokens:,}" for s in account.sections)
    return f"{head}; {parts}"


def redacted(messages: Sequence[Message]) -> list[Any]:
    return [redact(wire(m)) for m in messages]


def redact(value: Any, name: str = "") -> Any:
    """The value without secrets: by the names of keys, and by what keys and tokens look like."""
    if isinstance(value, Mapping):
        return {key: redact(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item, name) for item in value]
    if isinstance(value, str):
        return MASK if name and is_secret_name(name) and value else _mask(value)
    return value


def _file_name(session_id: str) -> str:
    return re.sub(r"[^\w.-]", "_", session_id)[:120]
