"""MCP: what a `recall` costs over stdio and HTTP, and what our list of tools costs a model.

    python bench/mcp.py [--entries 300] [--calls 30] [--server 'COMMAND ARGUMENTS' ...]

Compares, in one run and by turns: `recall` with the official client over both transports, and an echo of the
bare SDK over the same. The CPU is that of the server's process; over stdio with a gateway behind it, that of
both. `--server` starts somebody else's memory server (npm's @modelcontextprotocol/server-memory and
mcp-memory-keeper, PyPI's mem0-mcp-server): the cost of its list of tools, as JSON at four letters a token,
stands beside ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
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
import logging, os, sys
logging.disable(logging.INFO)
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
server = MCPServer("echo", log_level="ERROR")
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


async def public(line: str, folder: Path) -> tuple[str, str, str, str]:
    """The cost of the tools of somebody else's server, or why there is none."""
    command, *args = shlex.split(line)
    name = Path(command).name
    own = folder / name
    own.mkdir()
    # Where each keeps what it is told; a key that some want before they list anything.
    env = {"HOME": str(own), "MEMORY_FILE_PATH": str(own / "memory.json"), "MEM0_API_KEY": "none"}
    try:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            count, tokens = await cost(
                await over_stdio(stack, command, *args, PATH=os.environ["PATH"], **env)
            )
            return name, f"{tokens} tokens", f"{count} tools", ""
    except Exception as error:  # noqa: BLE001 - whatever a stranger's program does is no fault of ours
        return name, "-", "-", f"it does not run here: {type(error).__name__}"


async def settled(pid: int) -> None:
    """Wait until what was written is sorted and indexed: that is not what a call costs."""
    quiet, before = 0, cpu_seconds(pid)
    async with asyncio.timeout(300):
        while quiet < 3:
            await asyncio.sleep(1)
            now = cpu_seconds(pid)
            quiet, before = quiet + 1 if now - before <= 0.03 else 0, now


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
            await settled(int(pid))
            found = await by_turns(
                {
                    "recall, HTTP": (recall(ours), [int(pid)]),
                    "echo of the SDK, HTTP": (echo(bare), [int(echo_pid)]),
                    "recall, stdio and gateway": (recall(piped), [int(pid), *mine]),
                    "echo of the SDK, stdio": (echo(bare_piped), list(theirs)),
                },
                args.calls,
            )
            pairs = zip(list(found.items())[::2], list(found.items())[1::2], strict=True)
            rows = [
                (name, f"{ms:.1f} ms", f"{cpu:.1f} CPU", note)
                for (ours_name, own), (echo_name, bare_) in pairs
                for name, (ms, cpu), note in (
                    (ours_name, own, f"{own[0] / bare_[0]:.1f} x, {own[1] / bare_[1]:.1f} x CPU of the echo"),
                    (echo_name, bare_, ""),
                )
            ]
            table(f"a call, of {args.entries} entries", rows)
            count, tokens = await cost(ours)
            lists = [("Holdfast", f"{tokens} tokens", f"{count} tools", "below 1,000")]
            lists += [await public(line, folder) for line in args.server]
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
    parser.add_argument("--entries", type=int, default=300)
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--server", action="append", default=[], metavar="COMMAND")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
