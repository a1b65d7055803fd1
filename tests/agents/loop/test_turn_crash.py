"""A process is killed in the middle of a turn: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from loop_stage import Stage, ask, staged
from turn_worker import tools

import forks
from builders import soon, until
from holdfast.log import Store, Threads, check
from holdfast.testing import Call, Calls, Say, ScriptedOpenAI, Stall

WORKER = Path(__file__).with_name("turn_worker.py")


@contextmanager
def worker(url: str, home: Path, server: ScriptedOpenAI) -> Iterator[subprocess.Popen[bytes]]:
    path = os.pathsep.join([str(WORKER.parent), str(WORKER.parents[2]), *sys.path])
    process = forks.Popen(
        [sys.executable, str(WORKER), url, str(home), server.url], env={**os.environ, "PYTHONPATH": path}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def accepted(store: Store, threads: Threads, home: Path, **fields: str) -> str:
    """Accept a message in a process that runs no turns itself."""
    stage = Stage(store, threads, home)
    run_id = (await stage.runs.accept(ask("go", **fields))).run_id
    stage.server.start()
    stage.server.close()
    return run_id


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_call_that_was_under_way_is_not_repeated_unasked_and_can_be_resumed(
    store_url: str, threads: Threads, tmp_path: Path
) -> None:
    struck = tmp_path / "struck"
    script = [
        Calls(
            Call("look", {"word": "a"}, id="c1"),
            Call("strike", {"word": "x"}, id="c2"),
            Call("mark", id="c3"),
        )
    ]

    async def main() -> None:
        store = Store(store_url)
        run_id = await accepted(store, threads, tmp_path)
        with ScriptedOpenAI(script) as server, worker(store_url, tmp_path, server) as process:
            await until(lambda: struck.exists() and struck.read_text() == "x\n")
            process.kill()
            process.wait()
        assert check(store) == []
        async with staged(store, threads, tmp_path, [Say("I looked: it was done.")]) as stage:
            stage.toolbox.register_all(tools(tmp_path))
            status = await soon(stage.runs.wait(run_id))
            assert (status.status, status.resumable) == ("interrupted", True)
            assert stage.server.requests == []
            notes = [e.content for e in stage.log() if e.type == "system"]
            assert any("strike" in note and "/resume" in note for note in notes)
            told = await stage.runs.accept(ask("/resume"))
            assert told.reply == "Turn 1 goes on."
            done = await soon(stage.runs.wait(run_id))
            assert done.reply == "I looked: it was done."
            results = [m["content"] for m in stage.server.requests[0].messages if m["role"] == "tool"]
            assert results[0] == "seen a"
            assert "not known" in results[1]
            assert "cut off before" in results[2]
        assert struck.read_text() == "x\n"
        assert not (tmp_path / "marked").exists()
        assert check(store) == []
        store.close()

    asyncio.run(main())


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_a_turn_cut_off_before_its_commit_goes_on_with_what_it_has_done(
    store_url: str, threads: Threads, tmp_path: Path
) -> None:
    marked = tmp_path / "marked"
    script = [Call("mark", {"word": "x"}, id="c1", text="Marking."), Stall("The mark is")]

    async def main() -> None:
        store = Store(store_url)
        run_id = await accepted(store, threads, tmp_path)
        with ScriptedOpenAI(script) as server, worker(store_url, tmp_path, server) as process:
            await until(lambda: len(server.requests) == 2)
            process.kill()
            process.wait()
        async with staged(store, threads, tmp_path, [Say("The mark is made.")]) as stage:
            stage.toolbox.register_all(tools(tmp_path))
            status = await soon(stage.runs.wait(run_id))
            assert status.reply == "The mark is made."
            assert marked.read_text() == "x\n"
            assert status.usage["inputTokens"] == 20
            sent = stage.server.requests[0].messages
            assert [m["role"] for m in sent][-2:] == ["assistant", "tool"]
            assert sent[-1]["content"] == "marked x"
            spoken = [text for _, text in stage.spoken()]
            assert Counter(spoken) == Counter(["go", "Marking.", "marked x", "The mark is made."])
        assert check(store) == []
        store.close()

    asyncio.run(main())
