"""Plugins: packages of others that register parts. See docs/plugins.md.

host = PluginHost(home, config)
for plugin in host.load(): ...
"""

from holdfast.agents.plugin_hooks import (
    AfterCompaction,
    AfterModelCall,
    AfterToolCall,
    BeforeCompaction,
    BeforeModelCall,
    BeforePromptBuild,
    BeforeToolCall,
    GatewayStart,
    GatewayStop,
    HookEvent,
    MessageChange,
    MessageReceived,
    MessageSending,
    MessageSent,
    ModelCallChange,
    PromptAddition,
    SessionEnd,
    SessionStart,
    SpawnChange,
    SubagentEnded,
    SubagentSpawned,
    SubagentSpawning,
    ToolCallChange,
)
from holdfast.agents.tools.types import Caller, Tool, ToolOutput, always, never
from holdfast.effects import Effect
from holdfast.plugins.api import CommandCall, PluginApi, PluginRequest, PluginResponse, Refused, Service
from holdfast.plugins.hooks import PluginHooks
from holdfast.plugins.host import Phase, Plugin, PluginHost
from holdfast.plugins.manifest import (
    Found,
    InvalidManifest,
    Manifest,
    Origin,
    bundled_plugins,
    discover,
    read_manifest,
)
from holdfast.plugins.running import Part, PluginFailed, PluginLoop

__all__ = [
    "AfterCompaction",
    "AfterModelCall",
    "AfterToolCall",
    "BeforeCompaction",
    "BeforeModelCall",
    "BeforePromptBuild",
    "BeforeToolCall",
    "Caller",
    "CommandCall",
    "Effect",
    "Found",
    "GatewayStart",
    "GatewayStop",
    "HookEvent",
    "InvalidManifest",
    "Manifest",
    "MessageChange",
    "MessageReceived",
    "MessageSending",
    "MessageSent",
    "ModelCallChange",
    "Origin",
    "Part",
    "Phase",
    "Plugin",
    "PluginApi",
    "PluginFailed",
    "PluginHooks",
    "PluginHost",
    "PluginLoop",
    "PluginRequest",
    "PluginResponse",
    "PromptAddition",
    "Refused",
    "Service",
    "SessionEnd",
    "SessionStart",
    "SpawnChange",
    "SubagentEnded",
    "SubagentSpawned",
    "SubagentSpawning",
    "Tool",
    "ToolCallChange",
    "ToolOutput",
    "always",
    "bundled_plugins",
    "discover",
    "never",
    "read_manifest",
]
