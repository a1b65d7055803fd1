"""Holdfast as an MCP server: six tools, resources and prompts over its own HTTP interface.

The SDK is in the extra `holdfast[mcp]`; `tools` and `api` need none of it.
"""
