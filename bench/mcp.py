"""MCP: what a `recall` costs over stdio and HTTP, and what our list of tools costs a model.

    python bench/mcp.py [--entries 2000] [--calls 60] [--servers DIR]

Compares, in one run and by turns: `recall` with the official client over both transports, and an echo of the
bare SDK over the same. The CPU is that of the server's process; over stdio with a gateway behind it, that of
both. `--servers` names a folder in which npm has installed public memory servers (such as
@modelcontextprotocol/server-memory and mcp-memory-keeper): the cost of their lists of tools, as JSON at four
letters a token, stands beside ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from common import cpu_seconds, start, table

from holdfast.text import rough_tokens

sys.path.remove(str(Path(__file__).parent))  # or the SDK would be this very file

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

GATEWAY = """
import asyncio, os, sys
from holdfast.cli.client import announced
from holdfast.gateway import listen, serve
from holdfast.log import OWNER, EntryDraft, entries
from holdfast.runtime import open_home
with open_home(sys.argv[1]) as hold:
    count = int(sys.argv[2])
    with hold.store.write(OWNER) as tx:
        for n in range(count):
            text = f"We talked about boat {n % 97}, plank {n} and the colour of its sail"
            entries.append(tx, EntryDraft(content=text, agent_id="user", session_key=f"talk-{n % 50}"))
    sock = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    with announced(hold.home, url):
        print(url, os.getpid(), hold.home.admin_token(), flush=True)
        serve(hold, sock)
"""
ECHO = """
import os, sys
import uvicorn
from mcp.server.mcpserver import MCPServer
server = MCPServer("echo")
@server.tool()
def echo(text: str) -> str:
    return text
if sys.argv[1] == "stdio":
    server.run()
else:
    from holdfast.gateway import listen
    sock = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{sock.getsockname()[1]}", os.getpid(), flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_config=None)).run(sockets=[sock])
"""
Call = Callable[[int], Awaitable[object]]


async def over_http(stack: AsyncExitStack, url: str, token: str = "") -> Client:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
    return await stack.enter_async_context(Client(streamable_http_client(f"{url}/mcp", http_client=http)))


async def over_stdio(stack: AsyncExitStack, command: str, *args: str, **env: str) -> Client:
    program = StdioServerParameters(command=command, args=list(args), env=env)
    return await stack.enter_async_context(Client(program))


def recall(client: Client) -> Call:
    return lambda n: client.call_tool("recall", {"query": f"the colour of the sail of boat {n % 97}"})


def echo(client: Client) -> Call:
    return lambda n: client.call_tool("echo", {"text": f"the colour of the sail of boat {n % 97}"})


async def by_turns(work: dict[str, tuple[Call, list[int]]], calls: int) -> dict[str, tuple[float, float]]:
    """The median milliseconds and the mean CPU milliseconds of each, asked one after another."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    used = dict.fromkeys(work, 0.0)
    for call, _ in work.values():
        await call(0)
    for number in range(calls):
        for name, (call, pids) in work.items():
            before, began = sum(map(cpu_seconds, pids)), time.perf_counter()
            for more in range(5):
                await call(number * 5 + more)
            taken[name].append((time.perf_counter() - began) / 5)
            used[name] += sum(map(cpu_seconds, pids)) - before
    return {name: (1000 * statistics.median(taken[name]), 1000 * used[name] / (5 * calls)) for name in work}


async def cost(client: Client) -> tuple[int, int]:
    listed = [
        tool.model_dump(by_alias=True, exclude_none=True, mode="json")
        for tool in (await client.list_tools()).tools
    ]
    return len(listed), rough_tokens(json.dumps(listed, separators=(",", ":")))


def children() -> set[int]:
    """The processes that this one has started and that still run."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == os.getpid():
            found.add(int(path.parent.name))
    return found


async def public(program: Path, folder: Path) -> tuple[str, str, str, str]:
    """The cost of the tools of somebody else's server, or why there is none."""
    env = {"MEMORY_FILE_PATH": str(folder / f"{program.name}.json"), "HOME": str(folder)}
    try:
        async with AsyncExitStack() as stack:
            count, tokens = await cost(await over_stdio(stack, str(program), **env))
            return program.name, f"{tokens} tokens", f"{count} tools", ""
    except Exception as error:  # noqa: BLE001 - whatever a stranger's program does is no fault of ours
        return program.name, "-", "-", f"it does not run here: {type(error).__name__}"


async def measure(args: argparse.Namespace, folder: Path) -> None:
    gateway, (url, pid, token) = start(GATEWAY, str(folder / "home"), str(args.entries))
    plain, (echo_url, echo_pid) = start(ECHO, "http")
    try:
        async with AsyncExitStack() as stack:
            ours = await over_http(stack, url, token)
            bare = await over_http(stack, echo_url)
            known = children()
            line = ("-m", "holdfast.cli", "mcp", "--home", str(folder / "home"))
            piped = await over_stdio(stack, sys.executable, *line)
            mine = children() - known
            bare_piped = await over_stdio(stack, sys.executable, "-c", ECHO, "stdio")
            theirs = children() - known - mine
            found = await by_turns(
                {
                    "recall, HTTP": (recall(ours), [int(pid)]),
                    "echo of the SDK, HTTP": (echo(bare), [int(echo_pid)]),
                    "recall, stdio and gateway": (recall(piped), [int(pid), *mine]),
                    "echo of the SDK, stdio": (echo(bare_piped), list(theirs)),
                },
                args.calls,
            )
            rows = [(name, f"{ms:.1f} ms", f"{cpu:.1f} CPU", "") for name, (ms, cpu) in found.items()]
            table(f"a call, of {args.entries} entries", rows)
            count, tokens = await cost(ours)
            lists = [("Holdfast", f"{tokens} tokens", f"{count} tools", "below 1,000")]
            programs = sorted((args.servers / "node_modules" / ".bin").glob("*mem*")) if args.servers else []
            for name in [path.name for path in programs]:
                lists.append(await public(args.servers / "node_modules" / ".bin" / name, folder))
            table("the list of tools, in a model's window", lists)
    finally:
        gateway.terminate()
        plain.terminate()
        gateway.wait()
        plain.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--servers", type=Path)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
