"""Running what a model asked for: side by side where nothing changes, else one by one, each noted before.

What waits for a person meanwhile is told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TypeAlias

from holdfast.agents.approvals import SIGNAL, Approval, ApprovalStatus, requests
from holdfast.agents.loop.events import Reporter
from holdfast.agents.loop.journal import CUT, NEVER_BEGUN, STEERED, Journal, not_run, over_the_limit
from holdfast.agents.loop.parts import LoopParts, Toolset
from holdfast.agents.models.types import ModelReply
from holdfast.agents.tools.types import Caller, ToolEvent
from holdfast.clock import iso
from holdfast.context import Message, ToolCall, ToolResult
from holdfast.errors import NotFound
from holdfast.log import SYSTEM, Tx, ringing

Write: TypeAlias = Callable[[Tx], list[Message]]


@dataclass(slots=True)
class Rounds:
    """The rounds of one attempt. `ended` is set when a tool asked for the end of the turn.

    Calls of `client_tools` are not run here: they end the turn, and are handed to the client whose they are.
    """

    parts: LoopParts
    journal: Journal
    reporter: Reporter
    most: int
    count: int = 0
    ended: bool = False
    refused: bool = False
    client_tools: frozenset[str] = frozenset()
    _said: bool = False
    _ending: set[str] = field(default_factory=set)

    async def run(self, reply: ModelReply, caller: Caller) -> None:
        """Give every call of the reply its result, in the log."""
        self.count += 1
        refusal = self._refusal(reply)
        if refusal is not None:
            refused = _none_run(reply.calls, refusal)
            await self._write(partial(self.journal.whole_round, reply=reply, results=refused))
            return
        self._said = False
        batches = batched(
            [call for call in reply.calls if call.name not in self.client_tools], self.parts.tools
        )
        if not batches:
            await self._write(partial(self.journal.reply, reply=reply))
        elif len(batches) == 1 and not batches[0].noted:
            results = await self._run(caller, batches[0].calls)
            await self._write(partial(self.journal.whole_round, reply=reply, results=results))
        else:
            await self._one_by_one(reply, caller, batches)
        self.journal.handed = tuple(call for call in reply.calls if call.name in self.client_tools)
        if self._said:
            await self.take_back()
        self.ended = bool(self._ending or self.journal.handed)

    async def take_back(self) -> None:
        """The user spoke before the calls were handed over: the model reads that first."""
        calls, self.journal.handed = self.journal.handed, ()
        if calls:
            await self._write(partial(self.journal.results, results=_none_run(calls, STEERED)))

    def _refusal(self, reply: ModelReply) -> str | None:
        if reply.finish == "length":
            return CUT
        if self.count > self.most:
            self.refused = True
            return over_the_limit(self.most)
        return None

    async def _one_by_one(self, reply: ModelReply, caller: Caller, batches: Sequence[Batch]) -> None:
        """A call that must not be repeated is noted in the transaction before it; the user may cut in."""
        said = await self._write(partial(self.journal.reply, reply=reply, began=batches[0].to_note))
        for number, batch in enumerate(batches):
            why = STEERED if said else (NEVER_BEGUN if self._ending else None)
            if why is not None:
                rest = _none_run([call for later in batches[number:] for call in later.calls], why)
                await self._write(partial(self.journal.results, results=rest))
                return
            results = await self._run(caller, batch.calls)
            following = batches[number + 1].to_note if number + 1 < len(batches) else ()
            said = await self._write(partial(self.journal.results, results=results, began=following))

    async def _run(self, caller: Caller, calls: Sequence[ToolCall]) -> list[ToolResult]:
        news = ApprovalNews(self.parts, caller, self.reporter)
        async with news.told():
            return await self.parts.tools.run_all(caller, calls, self._on_event)

    def _on_event(self, event: ToolEvent) -> None:
        if event.ends_turn:
            self._ending.add(event.call_id)
        self.reporter.tool(event)

    async def _write(self, work: Write) -> list[Message]:
        written: list[list[Message]] = []

        def write() -> list[Message]:
            if not written:
                written.append(self.parts.store.run(SYSTEM, work))
            self.reporter.write_steps()
            return written[0]

        said = await self.parts.threads.patiently(write)
        self._said = self._said or bool(said)
        for message in said:
            self.reporter.lifecycle("steered", text=message.text[:200])
        return said


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls that run together; a noted one stands alone."""

    calls: tuple[ToolCall, ...]
    noted: bool

    @property
    def to_note(self) -> tuple[ToolCall, ...]:
        return self.calls if self.noted else ()


def batched(calls: Sequence[ToolCall], tools: Toolset) -> list[Batch]:
    """Neighbours that change nothing together, every other call by itself, in the order of the reply."""
    made: list[Batch] = []
    for noted, group in groupby(calls, lambda call: needs_note(call.name, tools)):
        found = tuple(group)
        made += [Batch((call,), noted) for call in found] if noted else [Batch(found, noted)]
    return made


def needs_note(name: str, tools: Toolset) -> bool:
    """Whether a call must never be repeated unasked: twice is not once, or nobody knows what it does."""
    try:
        return not tools.get(name).repeatable
    except NotFound:
        return True


def _none_run(calls: Sequence[ToolCall], why: str) -> list[ToolResult]:
    return [not_run(call, why) for call in calls]


class ApprovalNews:
    """Looks only when an approval was asked for or decided anywhere, and tells of those of its own turn."""

    def __init__(self, parts: LoopParts, caller: Caller, reporter: Reporter) -> None:
        self._parts = parts
        self._agent = frozenset((caller.agent_id,))
        self._turn_id = caller.turn_id
        self._reporter = reporter
        self._told: dict[str, ApprovalStatus] = {}
        self._bell = asyncio.Event()
        self._rang = False

    @contextlib.asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Follow approvals for as long as the block lasts; all that was decided by its end is told."""
        unsubscribe = self._parts.store.signals.subscribe(SIGNAL, ringing(self._ring))
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            unsubscribe()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._rang:
            await self._look()

    def _ring(self) -> None:
        self._rang = True
        self._bell.set()

    async def _follow(self) -> None:
        while True:
            await self._bell.wait()
            self._bell.clear()
            await self._look()

    async def _look(self) -> None:
        """Each is told as asked for before it is told as decided, however quick the decision was."""
        for approval in await self._parts.threads(self._own):
            if approval.id not in self._told:
                self._tell(approval, ApprovalStatus.PENDING)
            if self._told[approval.id] is not approval.status:
                self._tell(approval, approval.status)

    def _tell(self, approval: Approval, status: ApprovalStatus) -> None:
        self._told[approval.id] = status
        self._reporter.lifecycle(
            "approval",
            id=approval.id,
            status=status.value,
            tool=approval.tool,
            command=approval.command,
            reason=approval.reason,
            whyNotAlways=approval.why_not_always,
            expiresAt=iso(approval.expires_at),
        )

    def _own(self) -> list[Approval]:
        """Those of the turn among the newest, oldest first, and those that were told before."""
        with self._parts.store.read(SYSTEM) as tx:
            newest = requests.listing(tx, agent_ids=self._agent)
            own = [one for one in reversed(newest) if one.turn_id == self._turn_id]
            seen = {one.id for one in own}
            return [*own, *requests.get_many(tx, [id_ for id_ in self._told if id_ not in seen])]
