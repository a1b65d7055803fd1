"""Elections at the end of a reply, as live listeners of a gateway see them: not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_stage import agents_serving
from openai import OpenAI
from serving import Running, events

from holdfast.testing import Asked, Call, Say, Stall, Turn

LOOK_ALIKE = "Say CONTINUE_WORK:300 or [[CONTINUE_DELEGATE: x]] to go on. [1] CONTINUED"
DELEGATE = "Sent off.\n\n[[CONTINUE_DELEGATE: count the boats +900s | silent]]"


def answer(asked: Asked) -> Turn:
    said = asked.last_text
    if asked.messages[-1]["role"] == "tool":
        return Say("There it is.\nCONTINUE_WORK:300", chunks=9)
    if "use a tool" in said:
        return Call("sessions_list", {}, text="One moment. CONTINUE_WORK")
    if "stop me" in said:
        return Stall("So far. CONTINUE_WOR")
    if "in code" in said:
        return Say("Like this: `CONTINUE_WORK", chunks=11)
    if "alike" in said:
        return Say(LOOK_ALIKE, chunks=30)
    if "delegate" in said:
        return Say(DELEGATE, chunks=50)
    return Say("All is well. CONTINUE_WORK:300\n", chunks=31)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("elections") / "home"
    agents = {
        "defaults": {"model": "scripted/scripted", "continuation": {"enabled": True}},
        "list": [{"id": "main", "default": True}, {"id": "plain", "continuation": {"enabled": False}}],
    }
    with agents_serving(home, sqlite_template, answer, agents=agents) as (found, _):
        yield found


def streamed(gateway: Running, text: str, agent: str = "main") -> tuple[str, int]:
    """What `/v1` streams, and in how many pieces."""
    with OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.admin) as client:
        chunks = client.chat.completions.create(
            model=f"holdfast/{agent}",
            user="ann",
            messages=[{"role": "user", "content": text}],
            stream=True,
        )
        said = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    return "".join(said), sum(bool(piece) for piece in said)


def run_events(gateway: Running, text: str) -> tuple[list[dict[str, Any]], str]:
    """A run's own events, and its reply as the log has it."""
    with gateway.client(gateway.admin) as api:
        run = api.post("/api/agent", json={"message": text}).json()["runId"]
        with api.stream("GET", f"/api/agent/{run}/events") as response:
            seen = list(events(response))
        return seen, api.get(f"/api/agent/{run}").json()["reply"]


def words(seen: list[dict[str, Any]]) -> str:
    return "".join(e["data"]["delta"] for e in seen if e["data"].get("kind") == "text")


@pytest.mark.parametrize(
    ("ask", "kept"),
    [
        ("hello", "All is well."),
        ("delegate it", "Sent off."),
        ("look alike", LOOK_ALIKE),
        ("in code", "Like this: `CONTINUE_WORK"),
    ],
)
def test_a_stream_of_openais_form_and_a_run_s_events_tell_what_is_kept(
    gateway: Running, ask: str, kept: str
) -> None:
    said, pieces = streamed(gateway, ask)
    assert said == kept
    assert pieces > 1
    seen, reply = run_events(gateway, ask)
    messages = [e["data"]["text"] for e in seen if e["data"].get("kind") == "message"]
    assert (reply, words(seen), messages) == (kept, kept, [kept])


def test_where_nobody_may_elect_a_token_is_text(gateway: Running) -> None:
    said, _ = streamed(gateway, "hello", "plain")
    assert said.rstrip() == "All is well. CONTINUE_WORK:300"


def test_words_before_a_tool_call_elect_nothing_and_are_told(gateway: Running) -> None:
    seen, reply = run_events(gateway, "use a tool")
    messages = [e["data"]["text"] for e in seen if e["data"].get("kind") == "message"]
    assert (reply, messages) == ("There it is.", ["One moment. CONTINUE_WORK", "There it is."])
    assert words(seen) == "".join(messages)


def test_of_a_run_that_is_stopped_only_what_was_told_stays(gateway: Running) -> None:
    with gateway.client(gateway.admin) as api:
        sent = {"message": "stop me", "sessionKey": "agent:main:stopped"}
        run = api.post("/api/agent", json=sent).json()["runId"]
        with api.stream("GET", f"/api/agent/{run}/events") as response:
            live = events(response)
            assert next(e for e in live if e["data"].get("kind") == "text")["data"]["delta"] == "So far."
            api.post(f"/api/agent/{run}/cancel")
            assert list(live)[-1]["data"]["text"] == "So far."
