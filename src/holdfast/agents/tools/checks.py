"""What a call has to pass before it runs: its arguments, no going in circles, a person's approval."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, Literal, TypeVar

from pydantic import ValidationError

from holdfast.agents.approvals import Approval, ApprovalStatus, decision
from holdfast.agents.tools.types import AskedApproval, Caller, Input, Tool
from holdfast.config.tools import LoopDetection
from holdfast.errors import Conflict, Forbidden, InvalidInput
from holdfast.log import Store, Threads
from holdfast.text import clean_json, clip

MALFORMED: Final = "__invalid__"
_MOST_FAULTS: Final = 5
_QUOTED: Final = 400


def checked(tool: Tool[Input], arguments: Mapping[str, Any]) -> Input:
    """The arguments as the tool takes them; `InvalidInput` names each path and what was expected there."""
    if MALFORMED in arguments:
        sent = clip(str(arguments[MALFORMED]), _QUOTED)
        raise InvalidInput(
            f"the arguments of {tool.name} were not valid JSON: {sent}",
            code="malformed_arguments",
            hint="Send one JSON object, strings quoted and escaped.",
        )
    try:
        return tool.input.model_validate(dict(arguments))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=True)
        told = "; ".join(_told(fault) for fault in faults[:_MOST_FAULTS])
        raise InvalidInput(
            f"{tool.name}: {told}", code="invalid_arguments", hint=_expected(tool.input.model_json_schema())
        ) from error


def _told(fault: Mapping[str, Any]) -> str:
    where = ".".join(map(str, fault["loc"])) or "the arguments"
    given = fault.get("input")
    shown = (
        f", not {clip(json.dumps(given, default=str), 60)}" if isinstance(given, str | int | float) else ""
    )
    return f"{where}: {fault['msg']}{shown}"


def _expected(schema: Mapping[str, Any]) -> str:
    """The tool's arguments in a line; a star marks those that must be there."""
    needed = set(schema.get("required", ()))
    names = [f"{name}{'*' if name in needed else ''}" for name in schema.get("properties", {})]
    return f"It takes: {', '.join(names)} (* required)."


AFTER_COMPACTION: Final = 3
MOST_REMEMBERED: Final = 500


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call that was made, with digests of what went in and what came out."""

    name: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`warn`: the call may run and the agent is told; `stop`: it does not run."""

    kind: Literal["go", "warn", "stop"]
    repeats: int = 0
    reason: str = ""


@dataclass(slots=True)
class CallHistory:
    """The calls of one turn, oldest first; `compacted` is how many of them a compaction hid."""

    made: list[MadeCall] = field(default_factory=list)
    compacted: int = 0

    def add(self, call: MadeCall) -> None:
        self.made.append(call)
        surplus = len(self.made) - MOST_REMEMBERED
        if surplus > 0:
            del self.made[:surplus]
            self.compacted = max(0, self.compacted - surplus)

    def compact(self) -> None:
        self.compacted = len(self.made)


def call_digest(value: object) -> str:
    """A short name for a text or for arguments, equal exactly when they are."""
    text = value if isinstance(value, str) else json.dumps(clean_json(value), sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def count_repeats(made: Sequence[MadeCall], name: str, arguments: str) -> int:
    """How often this call, at its last, gave one and the same result; other calls between do not count."""
    results = [m.result for m in reversed(made) if (m.name, m.arguments) == (name, arguments)]
    return sum(1 for _ in takewhile(lambda result: result == results[0], results))


def judge_loop(
    history: CallHistory, name: str, arguments: Mapping[str, Any], settings: LoopDetection
) -> Verdict:
    """Whether a call may be made once more.

    An agent that lost its place in a compaction and repeats what it did before is stopped early.
    """
    if not settings.enabled:
        return Verdict("go")
    own = call_digest(arguments)
    count = count_repeats(history.made, name, own)
    since = count_repeats(history.made[history.compacted :], name, own)
    if count > since >= min(AFTER_COMPACTION, settings.stop_after):
        why = f"this call gave the same result before the compaction and {since} times since"
        return Verdict("stop", count, why)
    if count >= settings.stop_after:
        return Verdict("stop", count, f"this very call gave the same result {count} times")
    if count + 1 >= settings.warn_after:
        return Verdict("warn", count)
    return Verdict("go", count)


def loop_warning(repeated: int, settings: LoopDetection) -> str:
    left = max(0, settings.stop_after - repeated)
    return (
        f"[Holdfast: this very call has now given this result {repeated} times. Do something else; "
        f"after {left} more it is refused.]"
    )


T = TypeVar("T")
_LOOK_SECONDS: Final = 0.1


async def approved(store: Store, threads: Threads, caller: Caller, asked: Approval, what: str) -> Approval:
    """The approval once it was given; `Forbidden` where it was not. It is still to be spent."""
    not_always = f" (only once: {asked.why_not_always})" if asked.why_not_always else ""
    caller.progress(f"waiting for approval {asked.id}: {asked.reason}{not_always}", asked_approval(asked))
    approval = await unless_cancelled(caller, decision(store, threads, asked.id))
    assert approval is not None
    if approval.status is not ApprovalStatus.APPROVED:
        caller.progress(f"not approved: {approval.status}", asked_approval(approval))
        how = "nobody answered in time" if approval.status is ApprovalStatus.EXPIRED else "it was denied"
        raise Forbidden(
            f"{what} was not approved: {how} ({asked.id})",
            code="not_approved",
            hint="Do not try the same again; say what you wanted it for.",
        )
    return approval


def asked_approval(approval: Approval) -> AskedApproval:
    return AskedApproval(
        id=approval.id,
        tool=approval.tool,
        command=approval.command,
        reason=approval.reason,
        why_not_always=approval.why_not_always,
        status=approval.status.value,
        expires_at=approval.expires_at,
    )


async def unless_cancelled(
    caller: Caller, awaitable: Coroutine[Any, Any, T], *, seconds: float | None = None
) -> T | None:
    """What is awaited, given up once the turn is cancelled by its flag; None if `seconds` pass before."""
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    task = loop.create_task(awaitable)
    try:
        while until is None or loop.time() < until:
            pause = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - loop.time())
            done, _ = await asyncio.wait({task}, timeout=pause)
            if done:
                return task.result()
            if caller.cancelled():
                raise Conflict("the turn was cancelled", code="cancelled")
        return None
    finally:
        task.cancel()
