"""A context engine: the last messages of a session, and a pinned note that never scrolls away.

The log keeps everything; this only chooses what the model is shown. The note is the owner's: it stands in no
prompt whose reply somebody else sees.
"""

from __future__ import annotations

from holdfast.context import (
    AssembleParams,
    AssembleResult,
    BaseEngine,
    CompactParams,
    CompactResult,
    EngineContext,
    EngineInfo,
    Message,
    UserMessage,
    delegate_compaction_to_runtime,
)
from holdfast.log import FOR_OWNER, OWNER, sessions
from holdfast.plugins import PluginApi


class LastTwenty(BaseEngine):
    info = EngineInfo(id="last-twenty", name="Last twenty", version="0.1.0")

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._most = int(context.config["messages"])
        self._note = str(context.config["note"])

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        shown = fitting(list(params.messages)[-self._most :], params)
        note = self._note if self._note and await self._context.threads(self._is_owners, params) else None
        return AssembleResult(
            messages=shown,
            estimated_tokens=sum(map(params.estimate, shown)),
            system_prompt_addition=note,
            notes={"leftOut": len(params.messages) - len(shown)},
        )

    async def compact(self, params: CompactParams) -> CompactResult:
        return await delegate_compaction_to_runtime(self._context, params)

    def _is_owners(self, params: AssembleParams) -> bool:
        with self._context.store.read(OWNER) as tx:
            return sessions.get(tx, params.session_id).audience == FOR_OWNER


def fitting(messages: list[Message], params: AssembleParams) -> list[Message]:
    """From the first message of a person on that leaves all behind it within the budget."""
    left = params.token_budget
    first = len(messages)
    for place in range(len(messages) - 1, -1, -1):
        left -= params.estimate(messages[place])
        if left < 0:
            break
        if isinstance(messages[place], UserMessage):
            first = place
    return messages[first:]


def register(api: PluginApi) -> None:
    api.register_context_engine("last-twenty", LastTwenty)
