"""A disk that is full: ready says so, the log stays readable, and all goes on once there is room."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fault_stage import Gateway, echoing, gateway, wait_until

from builders import PATIENCE
from holdfast.testing import Asked, Say, ScriptedOpenAI


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], capture_output=True
    )
    if made.returncode:
        pytest.skip("needs root and the right to mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def grow(here: Gateway) -> int:
    return here.api.post("/api/log", json={"content": "y" * 50_000}).status_code


def test_a_full_disk_is_told_by_ready_and_in_a_few_lines(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as disk, echoing() as model, gateway(disk, model) as here:
        run = here.ask("before")
        wait_until(lambda: here.end_of(run) == "committed", "the turn is committed")
        fill(disk / "ballast")
        wait_until(lambda: grow(here) == 503, "a write is refused")
        wait_until(lambda: here.ready() is not None, "ready tells of it")
        problem = here.ready()
        assert problem is not None
        assert problem["code"] == "store_full"
        assert problem["parts"][0] == {"name": "store", "state": "store_full"}
        assert "holdfast_store_usable 0.0" in here.api.get("/metrics").text
        for _ in range(40):
            grow(here)
        said = here.said()
        assert said.count("Traceback") <= 3
        assert len(said) < 40_000
        (disk / "ballast").unlink()
        wait_until(lambda: here.ready() is None, "ready again")
        assert here.append("after") == 201
        run = here.ask("once more")
        wait_until(lambda: here.end_of(run) == "committed", "the next turn is committed")
        assert here.stop() == 0


def test_an_answer_that_comes_while_the_disk_is_full_is_kept_until_there_is_room(tmp_path: Path) -> None:
    """It is paid for: the model is not asked again for what it has said."""
    go, answered = threading.Event(), threading.Event()

    def answer(_: Asked) -> Say:
        go.wait(4 * PATIENCE)
        answered.set()
        return Say("Here I am. " * 20_000)

    with (
        small_disk(tmp_path / "disk", "16m") as disk,
        ScriptedOpenAI(answer) as model,
        gateway(disk, model) as here,
    ):
        run = here.ask("Are you there?")
        wait_until(lambda: len(model.requests) == 1, "the model is asked")
        fill(disk / "ballast")
        wait_until(lambda: grow(here) == 503, "a write is refused")
        go.set()
        wait_until(answered.is_set, "the model answers")
        for _ in range(100):
            grow(here)
        (disk / "ballast").unlink()
        wait_until(lambda: here.end_of(run) == "committed", "the turn is committed")
        assert len(model.requests) == 1
