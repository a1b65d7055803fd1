"""The `legacy` engine: history as it is, one summary of what is older. The default."""

from __future__ import annotations

from holdfast.context import states
from holdfast.context.engine import (
    AssembleParams,
    AssembleResult,
    BaseEngine,
    CompactParams,
    CompactResult,
    EngineContext,
    EngineInfo,
    Rollback,
    SpawnParams,
    SubagentEndedParams,
    delegate_compaction_to_runtime,
)
from holdfast.context.history import require_unsummarised, settled_until
from holdfast.log import SYSTEM, sessions


class LegacyEngine(BaseEngine):
    """Ingest does nothing (the log has it), assemble passes through, compact is the runtime's own."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._info = EngineInfo(id="legacy", name="Legacy", version="1")

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        tokens = sum(map(params.estimate, params.messages))
        return AssembleResult(messages=params.messages, estimated_tokens=tokens)

    async def compact(self, params: CompactParams) -> CompactResult:
        return await delegate_compaction_to_runtime(self._context, params)

    async def prepare_subagent_spawn(self, params: SpawnParams) -> Rollback | None:
        """A fork sees its parent's context up to this moment; it is taken back if the spawn fails."""
        if params.context_mode != "fork":
            return None
        await self._context.threads(self._fork, params)

        async def rollback() -> None:
            await self._context.threads(self._drop, params.child_session_id)

        return rollback

    async def on_subagent_ended(self, params: SubagentEndedParams) -> None:
        if params.reason == "deleted":
            await self._context.threads(self._drop, params.child_session_id)

    def _fork(self, params: SpawnParams) -> None:
        with self._context.store.write(SYSTEM) as tx:
            parent = states.of(tx, sessions.get(tx, params.parent_session_id), self._info.id)
            child = states.of(tx, sessions.get(tx, params.child_session_id), self._info.id)
            until = settled_until(tx, params.parent_session_id)
            if params.before is not None:
                require_unsummarised(parent.cut, params.before)
                until = min(until, params.before - 1)
            forked = states.save(
                tx,
                child,
                floor=parent.floor,
                cut=parent.cut,
                summary_id=parent.summary_id,
                fork_session_id=params.parent_session_id,
                fork_until=until,
                first_session=False,
            )
            states.copy_forms(tx, parent, forked)

    def _drop(self, session_id: str) -> None:
        with self._context.store.write(SYSTEM, ordered=False) as tx:
            states.drop(tx, session_id)
