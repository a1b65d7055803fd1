"""A context engine in forty lines: it tells the model how long each pause in the conversation was.

Select it with `plugins: { slots: { contextEngine: "clock" } }` after importing this module.
"""

from dataclasses import replace

from holdfast.context import (
    AssembleParams,
    AssembleResult,
    BaseEngine,
    CompactParams,
    CompactResult,
    EngineContext,
    EngineInfo,
    UserMessage,
    delegate_compaction_to_runtime,
    register_context_engine,
)
from holdfast.log import OWNER, entries


class ClockEngine(BaseEngine):
    info = EngineInfo(id="clock", name="Clock")

    def __init__(self, context: EngineContext) -> None:
        self.context = context

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        ids = [m.mark.entry_id for m in params.messages if m.mark]
        with self.context.store.read(OWNER) as tx:
            said_at = {entry.id: entry.created_at for entry in entries.get_many(tx, ids)}
        messages, before = [], None
        for message in params.messages:
            at = said_at.get(message.mark.entry_id) if message.mark else None
            if isinstance(message, UserMessage) and at and before and at - before >= 3_600_000:
                hours = (at - before) // 3_600_000
                message = replace(message, text=f"[{hours} h later] {message.text}")
            messages.append(message)
            before = at or before
        tokens = sum(map(params.estimate, messages))
        return AssembleResult(messages=messages, estimated_tokens=tokens)

    async def compact(self, params: CompactParams) -> CompactResult:
        return await delegate_compaction_to_runtime(self.context, params)


def register() -> None:
    register_context_engine("clock", ClockEngine)
