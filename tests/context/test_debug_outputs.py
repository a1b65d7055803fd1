from __future__ import annotations

import asyncio
import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from context_builders import Stage
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import ManualClock
from holdfast.context import AssistantMessage
from holdfast.context.debug import DebugOutputs, redact
from holdfast.log import Store, Threads
from holdfast.logs import MASK

KEY = "sk-abcdefghijklmnop1234567890"


@pytest.fixture
def stage(sqlite_store: Store, threads: Threads, tmp_path: Path) -> Stage:
    return Stage(sqlite_store, threads, tmp_path / "home")


def _outputs(tmp_path: Path, clock: ManualClock, **env: str) -> tuple[DebugOutputs, io.StringIO]:
    err = io.StringIO()
    named = {f"HOLDFAST_{name}": value for name, value in env.items()}
    return DebugOutputs(tmp_path / "logs", clock, named, err), err


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_only_trajectories_are_on_by_default(stage: Stage, tmp_path: Path, clock: ManualClock) -> None:
    outputs, err = _outputs(tmp_path, clock)
    built = asyncio.run(stage.build())
    outputs.request(built)
    outputs.response(built, {"text": "hi"})
    outputs.raw({"type": "delta"})
    outputs.trajectory(stage.session.id, {"type": "turn", "number": 1})
    asked = {"command": f"curl -H 'Authorization: Bearer {KEY}'", "password": "short"}
    outputs.trajectory(stage.session.id, {"type": "turn", "number": 2, "calls": [{"arguments": asked}]})
    written = [p.relative_to(tmp_path / "logs") for p in (tmp_path / "logs").rglob("*") if p.is_file()]
    assert written == [Path(f"trajectory/{stage.session.id}.jsonl")]
    assert err.getvalue() == ""
    lines = list(outputs.export_trajectory(stage.session.id))
    assert [json.loads(line)["number"] for line in lines] == [1, 2]
    assert json.loads(lines[1])["calls"] == [
        {"arguments": {"command": f"curl -H 'Authorization: Bearer {MASK}'", "password": MASK}}
    ]


def test_trajectories_can_be_turned_off_and_moved(stage: Stage, tmp_path: Path, clock: ManualClock) -> None:
    off, _ = _outputs(tmp_path, clock, TRAJECTORY="0")
    off.trajectory("s", {"a": 1})
    assert not (tmp_path / "logs").exists()
    moved, _ = _outputs(tmp_path, clock, TRAJECTORY_DIR=str(tmp_path / "elsewhere"))
    moved.trajectory("s/../../x", {"a": 1})
    [found] = (tmp_path / "elsewhere").iterdir()
    assert stat.S_IMODE(found.stat().st_mode) == 0o600


def test_the_payload_log_has_every_request_and_response(
    stage: Stage, tmp_path: Path, clock: ManualClock
) -> None:
    outputs, _ = _outputs(tmp_path, clock, PAYLOAD_LOG="1", RAW_STREAM="1")
    built = asyncio.run(stage.build(stage.accept("what is sent")))
    outputs.request(built)
    outputs.response(built, {"content": "what came back"})
    outputs.raw({"type": "delta", "text": "w"})
    request, response = _lines(tmp_path / "logs" / "payload.jsonl")
    assert request["messages"][-1]["content"] == "what is sent"
    assert request["tools"][0]["name"] == "exec"
    assert response["content"] == "what came back"
    assert _lines(tmp_path / "logs" / "raw-stream.jsonl")[0]["text"] == "w"


def test_the_cache_trace_says_where_two_prompts_part(
    stage: Stage, tmp_path: Path, clock: ManualClock
) -> None:
    outputs, _ = _outputs(tmp_path, clock, CACHE_TRACE="1", CACHE_TRACE_PROMPT="1")
    turn = stage.accept("one")
    outputs.request(asyncio.run(stage.build(turn)))
    stage.commit(turn, AssistantMessage(text="answer"))
    outputs.request(asyncio.run(stage.build(stage.accept("two"))))
    first, second = _lines(tmp_path / "logs" / "cache-trace.jsonl")
    assert first["sharedMessages"] == 0
    assert second["sharedMessages"] == 1
    assert second["prompt"][0]["content"] == "one"


def test_the_summary_on_stderr_hides_secrets(stage: Stage, tmp_path: Path, clock: ManualClock) -> None:
    built = asyncio.run(stage.build(stage.accept(f"my key is {KEY}")))
    for detail, expected in (("tools", "exec"), ("summary", "AGENTS.md"), ("full-redacted", MASK)):
        outputs, err = _outputs(tmp_path, clock, DEBUG_MODEL_PAYLOAD=detail)
        outputs.request(built)
        assert expected in err.getvalue()
        assert KEY not in err.getvalue()


def test_a_disk_that_cannot_be_written_costs_only_the_output(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "logs").write_text("in the way")
    outputs, _ = _outputs(tmp_path, clock)
    outputs.trajectory("s", {"a": 1})


@given(st.text(max_size=40), st.text(max_size=40))
def test_secrets_are_redacted_wherever_they_stand(before: str, after: str) -> None:
    text = json.dumps(redact({"a": [f"{before} {KEY} {after}"], "apiKey": "short", "b": {"token": "t"}}))
    assert KEY not in text
    assert '"short"' not in text
    assert redact({"maxTokens": 5, "n": None}) == {"maxTokens": 5, "n": None}
