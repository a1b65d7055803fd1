"""Servers of others, over the Model Context Protocol: their tools, held back until a person has seen them.

The SDK is in the extra `holdfast[mcp]`, and is loaded when a server is configured.
"""

from holdfast.agents.mcp.servers import McpServers, ServerState

__all__ = ["McpServers", "ServerState"]
