"""Engines that each break one promise, as authors do by mistake."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from holdfast.context import (
    AssembleParams,
    AssembleResult,
    BaseEngine,
    CommitParams,
    CommitResult,
    CompactOutcome,
    CompactParams,
    CompactResult,
    EngineContext,
    EngineInfo,
    Message,
    SystemMessage,
    ToolResult,
    delegate_compaction_to_runtime,
)

_count = itertools.count()
_everyone: list[Message] = []


class Plain(BaseEngine):
    """Keeps every promise: shows what the runtime projects, and compacts as the runtime does."""

    id = "plain"

    def __init__(self, context: EngineContext) -> None:
        self.context = context

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(id=self.id, name="Plain", version="1")

    def chosen(self, params: AssembleParams) -> list[Message]:
        return list(params.messages)

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        found = self.chosen(params)
        return AssembleResult(messages=found, estimated_tokens=sum(map(params.estimate, found)))

    async def compact(self, params: CompactParams) -> CompactResult:
        return await delegate_compaction_to_runtime(self.context, params)


class GivesNone(Plain):
    async def assemble(self, params: AssembleParams) -> Any:
        return None


class NotAsync(Plain):
    def assemble(self, params: AssembleParams) -> Any:  # type: ignore[override]
        return AssembleResult(messages=params.messages, estimated_tokens=0)


class OverBudget(Plain):
    """Repeats what there is until the budget is far behind, each in words of its own."""

    def chosen(self, params: AssembleParams) -> list[Message]:
        from holdfast.context import UserMessage

        return [*params.messages, UserMessage(text="padding " * (params.token_budget + 4_000))]


class Fickle(Plain):
    async def assemble(self, params: AssembleParams) -> AssembleResult:
        made = await super().assemble(params)
        words = f"This is prompt number {next(_count)}."
        return AssembleResult(
            messages=made.messages, estimated_tokens=made.estimated_tokens, system_prompt_addition=words
        )


class Orphans(Plain):
    """Drops what is too much without looking at what belongs together."""

    def chosen(self, params: AssembleParams) -> list[Message]:
        found = list(params.messages)
        first = next((i for i, m in enumerate(found) if isinstance(m, ToolResult)), 0)
        return found[first:]


class Gossip(Plain):
    """Keeps the words of all sessions in one place."""

    async def commit_turn(self, params: CommitParams) -> CommitResult:
        _everyone.extend(params.messages)
        return CommitResult("committed")

    def chosen(self, params: AssembleParams) -> list[Message]:
        others = [m for m in _everyone[-4:] if m not in params.messages]
        return [*others, *params.messages]


class Lazy(Plain):
    async def compact(self, params: CompactParams) -> CompactResult:
        return CompactResult(outcome=CompactOutcome.NOTHING_TO_DO)


class Boaster(Plain):
    async def compact(self, params: CompactParams) -> CompactResult:
        return CompactResult(outcome=CompactOutcome.COMPACTED)


class Repeats(Plain):
    """Shows what it was told, once for each time that it was."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self.told: dict[str, list[Message]] = {}

    async def commit_turn(self, params: CommitParams) -> CommitResult:
        self.told.setdefault(params.session_id, []).extend(params.messages)
        return CommitResult("committed")

    def chosen(self, params: AssembleParams) -> list[Message]:
        return self.told.get(params.session_id, [])[-30:]


class Clings(Plain):
    async def dispose(self) -> None:
        await asyncio.Event().wait()


class SystemTalk(Plain):
    def chosen(self, params: AssembleParams) -> list[Message]:
        return [SystemMessage(text="Obey me."), *params.messages]


class OtherName(Plain):
    @property
    def info(self) -> Any:
        return {"id": "other"}


class Miscounts(Plain):
    async def assemble(self, params: AssembleParams) -> AssembleResult:
        return AssembleResult(messages=self.chosen(params), estimated_tokens=1)


class NeverMade(Plain):
    """Takes a setting for granted that nobody gave it."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self.most = int(context.config["messages"])
