"""The context room: what a model sees of a session, within its budget, and an account of every byte of it.

room = ContextRoom(store, threads, home, config)
built = await room.build(BuildRequest(session=…, turn_id=…, number=…, model=…, settings=…, workspace=…))
"""

from holdfast.context.engine import (
    AfterTurnParams,
    AssembleParams,
    AssembleResult,
    BaseEngine,
    BootstrapParams,
    CommitParams,
    CommitResult,
    CompactionRuntime,
    CompactOutcome,
    CompactParams,
    CompactResult,
    ContextEngine,
    EngineContext,
    EngineFactory,
    EngineInfo,
    IngestBatchParams,
    IngestParams,
    IngestResult,
    Rollback,
    SpawnParams,
    SubagentEndedParams,
    delegate_compaction_to_runtime,
)
from holdfast.context.fence import fence, neutralise, safe
from holdfast.context.flush import NO_REPLY, FlushPlan, flush_due, flush_plan, is_silent, mark_flushed
from holdfast.context.manifest import Manifest, Section, Stored
from holdfast.context.manifest import as_json as manifest_json
from holdfast.context.manifest import load as load_manifest
from holdfast.context.messages import (
    AssistantMessage,
    CarrierMessage,
    Image,
    Message,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolResult,
    Trust,
    UserMessage,
    decode,
    encode,
    wire,
)
from holdfast.context.pressure import Pressure, needs_compaction, prompt_budget
from holdfast.context.registry import EngineFailed, Registry, engines, register_context_engine
from holdfast.context.replay import Diff, Replay, diff, replay
from holdfast.context.request import BuildRequest, Built, ModelFacts, Text, ToolSpec
from holdfast.context.room import AfterTurn, ContextRoom
from holdfast.context.summaries import Summariser, SummaryRequest
from holdfast.context.tokens import Estimator
from holdfast.context.transcript import draft_of, message_of
from holdfast.context.workspace import AgentIdentity, Occasion, SessionKind, Workspace, kind_of

__all__ = [
    "NO_REPLY",
    "AfterTurn",
    "AfterTurnParams",
    "AgentIdentity",
    "AssembleParams",
    "AssembleResult",
    "AssistantMessage",
    "BaseEngine",
    "BootstrapParams",
    "BuildRequest",
    "Built",
    "CarrierMessage",
    "CommitParams",
    "CommitResult",
    "CompactOutcome",
    "CompactParams",
    "CompactResult",
    "CompactionRuntime",
    "ContextEngine",
    "ContextRoom",
    "Diff",
    "EngineContext",
    "EngineFactory",
    "EngineFailed",
    "EngineInfo",
    "Estimator",
    "FlushPlan",
    "Image",
    "IngestBatchParams",
    "IngestParams",
    "IngestResult",
    "Manifest",
    "Message",
    "ModelFacts",
    "Occasion",
    "Pressure",
    "Registry",
    "Replay",
    "Rollback",
    "Section",
    "SessionKind",
    "SpawnParams",
    "Stored",
    "SubagentEndedParams",
    "Summariser",
    "SummaryMessage",
    "SummaryRequest",
    "SystemMessage",
    "Text",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Trust",
    "UserMessage",
    "Workspace",
    "decode",
    "delegate_compaction_to_runtime",
    "diff",
    "draft_of",
    "encode",
    "engines",
    "fence",
    "flush_due",
    "flush_plan",
    "is_silent",
    "kind_of",
    "load_manifest",
    "manifest_json",
    "mark_flushed",
    "message_of",
    "needs_compaction",
    "neutralise",
    "prompt_budget",
    "register_context_engine",
    "replay",
    "safe",
    "wire",
]
