"""A process that writes is killed at any moment, again and again: what it acknowledged is there, once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import forks
from builders import rows
from holdfast.log import Store, check

WORKER = Path(__file__).with_name("worker.py")
KILLS = int(os.environ.get("HOLDFAST_CRASH_KILLS", "4"))


def run_and_kill(url: str, run: int, after: float) -> list[tuple[str, str]]:
    """Kill a worker `after` seconds from its first acknowledgement; all that it acknowledged."""
    process = forks.Popen([sys.executable, str(WORKER), url, str(run)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = [process.stdout.readline()]
    threading.Timer(after, process.kill).start()
    said += process.stdout.readlines()
    process.wait()
    assert process.returncode == -9
    return [(line[0], line[2:-1]) for line in said if line.endswith("\n")]


@pytest.mark.timeout(180 + 6 * KILLS)
def test_what_was_acknowledged_survives_every_kill(store_url: str) -> None:
    chance = random.Random(KILLS)
    acknowledged: list[tuple[str, str]] = []
    for run in range(KILLS):
        acknowledged += run_and_kill(store_url, run, chance.uniform(0, 0.8))
    print(f"{store_url.partition(':')[0].partition('+')[0]}: {KILLS} kills, {len(acknowledged)} acknowledged")
    store = Store(store_url)
    assert check(store) == []
    visible = {status for (status,) in rows(store, "SELECT DISTINCT status FROM turns")}
    forks.run([sys.executable, str(WORKER), store_url, "drain"], check=True)
    assert check(store) == []

    contents = Counter(
        content for (content,) in rows(store, "SELECT content FROM entries WHERE role IS NULL")
    )
    keys = {key for kind, key in acknowledged if kind == "e"}
    assert len(keys) >= KILLS
    assert keys <= contents.keys()
    assert set(contents.values()) == {1}

    turns = dict(rows(store, "SELECT key, status FROM turns"))
    assert {key for kind, key in acknowledged if kind == "t"} <= turns.keys()
    assert visible <= {"accepted", "running", "committed", "interrupted"}
    assert set(turns.values()) <= {"committed"}
    answers = Counter(c for (c,) in rows(store, "SELECT content FROM entries WHERE role = 'assistant'"))
    assert answers == Counter(f"re {key}" for key in turns)
    store.close()
