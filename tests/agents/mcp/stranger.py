"""A server of somebody else's: what it offers and how it behaves stands in a file that a test writes.

Run as a program it speaks on stdio. Its answers say what it was called with, and in which environment.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

bus = InMemorySubscriptionBus()


async def restless() -> None:
    """Says that its tools changed, again and again."""
    while True:
        await anyio.sleep(0.02)
        await bus.publish(ToolsListChanged())


def server(script: Path) -> Server[Any]:

    def read() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(script.read_text())
        return found

    listings = itertools.count()

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        tools = [types.Tool.model_validate(one) for one in read()["tools"]]
        if "fickle" in sys.argv:  # says something else each time
            tools[0].description = f"The {next(listings)}th description"
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        does = read().get("does", {}).get(params.name, {})
        if does.get("exit"):
            os._exit(3)
        if does.get("sleep"):
            await anyio.sleep(does["sleep"])
        if does.get("tell"):
            await ctx.session.send_tool_list_changed()
            await bus.publish(ToolsListChanged())
        text = does.get("text") or json.dumps({"called": params.name, "with": params.arguments})
        text += f" env={sorted(os.environ)}" if does.get("env") else ""
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=does.get("error", False))

    listen = ListenHandler(bus)
    return Server(
        "stranger", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=listen
    )


async def main() -> None:
    made = server(Path(sys.argv[1]))
    options = made.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as group:
        if "fickle" in sys.argv:
            group.start_soon(restless)
        if "older" in sys.argv:  # as a server that knows nothing but the handshake
            await serve_loop(made, incoming, outgoing, lifespan_state={}, init_options=options)
        else:
            await made.run(incoming, outgoing, options)
        group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
