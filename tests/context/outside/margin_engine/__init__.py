"""An engine from outside, written from the docs alone: it keeps what it is told in a file of its own,
once for each key, and shows the last twenty messages. Every call that it gets is a line in `calls.jsonl`."""

from __future__ import annotations

import json
from typing import Any

from holdfast import AssembleResult, CompactResult
from holdfast.context import (
    AfterTurnParams,
    AssembleParams,
    BaseEngine,
    BootstrapParams,
    CommitParams,
    CommitResult,
    CompactParams,
    EngineContext,
    EngineInfo,
    IngestBatchParams,
    IngestParams,
    IngestResult,
    Message,
    Rollback,
    SpawnParams,
    SubagentEndedParams,
    delegate_compaction_to_runtime,
)
from holdfast.plugins import PluginApi


class MarginEngine(BaseEngine):
    """`ways` says which of the methods that take messages in it has."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._file = context.agent_dir / "calls.jsonl"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._info = EngineInfo(id="margin", name="Margin", version=str(context.config.get("version", "1")))

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def bootstrap(self, params: BootstrapParams) -> None:
        self._note("bootstrap", params, messages=_words(params.messages))

    async def ingest(self, params: IngestParams) -> IngestResult:
        self._note("ingest", params, key=params.key, messages=_words([params.message]))
        return IngestResult(1)

    async def ingest_batch(self, params: IngestBatchParams) -> IngestResult:
        self._note("ingest_batch", params, key=params.key, messages=_words(params.messages))
        return IngestResult(len(params.messages))

    async def commit_turn(self, params: CommitParams) -> CommitResult:
        known = params.advancement_key in self._keys()
        self._note(
            "commit_turn",
            params,
            key=params.advancement_key,
            messages=_words(params.messages),
            heartbeat=params.is_heartbeat,
        )
        return CommitResult("duplicate" if known else "committed")

    async def after_turn(self, params: AfterTurnParams) -> None:
        self._note(
            "after_turn",
            params,
            key=params.turn_id,
            messages=_words(params.messages),
            heartbeat=params.is_heartbeat,
            tokens=params.prompt_tokens,
        )

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        self._note("assemble", params, heartbeat=params.is_heartbeat)
        shown = params.messages[-20:]
        return AssembleResult(
            messages=shown,
            estimated_tokens=sum(map(params.estimate, shown)),
            system_prompt_addition="Margin: the last twenty messages are shown.",
        )

    async def compact(self, params: CompactParams) -> CompactResult:
        self._note("compact", params, reason=params.reason)
        return await delegate_compaction_to_runtime(self._context, params)

    async def prepare_subagent_spawn(self, params: SpawnParams) -> Rollback | None:
        self._write(
            {"call": "prepare_subagent_spawn", "session": params.child_session_key, "ttl": params.ttl_ms}
        )
        return None

    async def on_subagent_ended(self, params: SubagentEndedParams) -> None:
        self._write(
            {"call": "on_subagent_ended", "session": params.child_session_key, "reason": params.reason}
        )

    async def dispose(self) -> None:
        self._write({"call": "dispose", "session": ""})

    def _keys(self) -> set[str]:
        return {line.get("key", "") for line in calls(self._file)}

    def _note(self, call: str, params: Any, **more: Any) -> None:
        self._write({"call": call, "session": params.session_key, **more})

    def _write(self, line: dict[str, Any]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")


class BatchEngine(MarginEngine):
    """One that has no `commit_turn`: turns come as batches."""

    commit_turn = BaseEngine.commit_turn


class SingleEngine(BatchEngine):
    """One that takes messages one by one."""

    ingest_batch = BaseEngine.ingest_batch


def register(api: PluginApi) -> None:
    api.register_context_engine("margin", MarginEngine)


def calls(file: Any) -> list[dict[str, Any]]:
    """The calls so far, as they came."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _words(messages: Any) -> list[str]:
    return [_word(message) for message in messages]


def _word(message: Message) -> str:
    return f"{message.kind}: {message.text}"
