"""One JSON5 file, checked as a whole, reloaded live; defaults live in these models and nowhere else."""

from holdfast.config.adopt import adopt_openclaw
from holdfast.config.agents import (
    ActiveHours,
    AgentEntry,
    AgentSettings,
    Compaction,
    ContextPruning,
    Continuation,
    Heartbeat,
    MemoryFlush,
    ModelChoice,
    Subagents,
)
from holdfast.config.board import BoardConfig
from holdfast.config.channels import ChannelConfig
from holdfast.config.editing import default_config_text, merge_text
from holdfast.config.memory import MemoryConfig
from holdfast.config.root import Config, config_schema, public_dump
from holdfast.config.section import merge_patch
from holdfast.config.session import Binding, BindingMatch, PeerKind, PeerMatch, ResetPolicy
from holdfast.config.source import Author, InvalidConfig, Problem, load_config, parse_config
from holdfast.config.store import ConfigStore
from holdfast.config.tools import ToolPolicy, ToolsConfig
from holdfast.config.values import Duration, Secret, SecretUrl, parse_duration, parse_size, reveal_all

__all__ = [
    "ActiveHours",
    "AgentEntry",
    "AgentSettings",
    "Author",
    "Binding",
    "BindingMatch",
    "BoardConfig",
    "ChannelConfig",
    "Compaction",
    "Config",
    "ConfigStore",
    "ContextPruning",
    "Continuation",
    "Duration",
    "Heartbeat",
    "InvalidConfig",
    "MemoryConfig",
    "MemoryFlush",
    "ModelChoice",
    "PeerKind",
    "PeerMatch",
    "Problem",
    "ResetPolicy",
    "Secret",
    "SecretUrl",
    "Subagents",
    "ToolPolicy",
    "ToolsConfig",
    "adopt_openclaw",
    "config_schema",
    "default_config_text",
    "load_config",
    "merge_patch",
    "merge_text",
    "parse_config",
    "parse_duration",
    "parse_size",
    "public_dump",
    "reveal_all",
]
