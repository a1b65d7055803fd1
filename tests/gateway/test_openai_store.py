"""What is left of a call: of one that is not stored, its cost; of one without a session, nothing afoot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from agent_stage import agents_serving
from openai import OpenAI
from serving import Running, wait_for

from builders import rows
from holdfast.clock import ManualClock
from holdfast.log import OWNER, agenda, turns
from holdfast.testing import Asked, Call, Fail, Say, ScriptedOpenAI, Turn

SECRET = "the heronry lies behind the quillwort"
TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def answer(asked: Asked) -> Turn:
    if asked.messages[-1]["role"] == "tool":
        return Say(f"I looked: {SECRET}.")
    if "look" in asked.last_text:
        return Call("memory_search", {"query": SECRET}, text=f"Of {SECRET}:")
    if "fail" in asked.last_text:
        return Fail(400, SECRET, trouble="bad_request")
    return Say("Hello." if asked.last_text == "hello" else f"So {SECRET}.")


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[tuple[Running, ScriptedOpenAI]]:
    with agents_serving(tmp_path_factory.mktemp("store") / "home", sqlite_template, answer) as found:
        yield found


@pytest.fixture
def client(stage: tuple[Running, ScriptedOpenAI]) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{stage[0].url}/v1", api_key=stage[0].admin, max_retries=0) as found:
        yield found


def kept(gateway: Running) -> list[str]:
    """The tables of the home in which the words stand somewhere."""
    store = gateway.hold.store
    found = [name for (name,) in rows(store, TABLES)]
    return [name for name in found if "quillwort" in str(rows(store, f'SELECT * FROM "{name}"'))]


def ask(client: OpenAI, text: str, form: str, **more: Any) -> str:
    """The answer, in one of the two forms, whole or streamed."""
    stream: Any = "stream" in form
    if "chat" in form:
        messages: Any = [
            {"role": "system", "content": f"Know that {SECRET}."},
            {"role": "user", "content": f"Once I said {SECRET}."},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": text},
        ]
        made: Any = client.chat.completions.create(model="holdfast", messages=messages, stream=stream, **more)
        if stream:
            return "".join(c.choices[0].delta.content or "" for c in made)
        return str(made.choices[0].message.content)
    got: Any = client.responses.create(
        model="holdfast", instructions=SECRET, input=text, metadata={"of": SECRET}, stream=stream, **more
    )
    return (
        "".join(e.delta for e in got if e.type == "response.output_text.delta") if stream else got.output_text
    )


@pytest.mark.parametrize("form", ["chat", "chat stream", "responses", "responses stream"])
@pytest.mark.parametrize("text", [SECRET, f"look for {SECRET}"])
def test_a_call_that_is_not_stored_leaves_no_word_and_its_usage_stays(
    client: OpenAI, stage: tuple[Running, ScriptedOpenAI], form: str, text: str
) -> None:
    gateway, model = stage
    said = ask(client, text, form, store=False, user="ann")
    assert SECRET in said, "whoever asks is answered as ever"
    assert SECRET in str(model.requests[-1].messages)
    assert kept(gateway) == []
    with gateway.client(gateway.admin) as api:
        assert api.get("/api/memory/search", params={"q": "heronry quillwort"}).json()["results"] == []
        assert (
            "quillwort"
            not in api.get("/api/search", params={"q": "quillwort"}).text.replace('"q":', "", 1)[40:]
        )
        assert "quillwort" not in api.get("/api/log", params={"includeRaw": True}).text
    with gateway.hold.store.read(OWNER) as tx:
        (last,) = rows(gateway.hold.store, "SELECT id FROM turns ORDER BY accepted_at DESC, id DESC LIMIT 1")
        turn = turns.get(tx, last[0])
    assert (turn.status, turn.model) == ("committed", "scripted/scripted")
    assert turn.usage


def test_it_has_only_tools_that_change_nothing(client: OpenAI, stage: tuple[Running, ScriptedOpenAI]) -> None:
    client.chat.completions.create(model="holdfast", messages=[{"role": "user", "content": "hello"}])
    stored = set(stage[1].requests[-1].tools)
    ask(client, "hello", "chat", store=False)
    offered = set(stage[1].requests[-1].tools)
    assert {"memory_write", "file_write", "exec"} <= stored
    assert "memory_search" in offered
    assert not offered & {
        "memory_write",
        "file_write",
        "file_edit",
        "exec",
        "clawboard_create_note",
        "cron_create",
    }


def test_a_failure_tells_nothing_of_it_either(client: OpenAI, stage: tuple[Running, ScriptedOpenAI]) -> None:
    with pytest.raises(openai.InternalServerError):
        ask(client, f"fail at {SECRET}", "chat", store=False)
    assert kept(stage[0]) == []


def test_what_is_not_stored_cannot_go_on_from_what_is(client: OpenAI) -> None:
    named: Any = {"extra_headers": {"X-Session-Key": "agent:main:main"}}
    with pytest.raises(openai.BadRequestError, match="X-Session-Key"):
        ask(client, "x", "chat", store=False, **named)
    first = client.responses.create(model="holdfast", input="hello")
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        ask(client, "x", "responses", store=False, previous_response_id=first.id)


def test_it_can_neither_be_looked_up_nor_repeated(client: OpenAI) -> None:
    made = client.responses.create(model="holdfast", input="hello", store=False)
    assert made.store is False  # type: ignore[attr-defined]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="holdfast", input="and now?", previous_response_id=made.id)
    named = {"Idempotency-Key": "only-once"}
    ask(client, "hello", "chat", store=False, extra_headers=named)
    with pytest.raises(openai.ConflictError, match="not stored"):
        ask(client, "hello", "chat", store=False, extra_headers=named)


def test_one_that_nobody_put_away_is_forgotten_by_the_agenda(
    client: OpenAI, stage: tuple[Running, ScriptedOpenAI], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash: the gateway erases with the answer, and the agenda has it written down as well."""
    gateway = stage[0]

    async def crashed(session_id: str) -> bool:
        return False

    monkeypatch.setattr(gateway.hold.runs, "forget", crashed)
    ask(client, f"unput {SECRET}", "chat", store=False)
    words = "SELECT content FROM entries WHERE content LIKE 'unput%'"
    assert rows(gateway.hold.store, words)
    clock = gateway.hold.clock
    assert isinstance(clock, ManualClock)
    clock.advance(minutes=11)
    monkeypatch.undo()
    ask(client, "anything wakes the agenda", "chat", store=False)
    wait_for(lambda: not rows(gateway.hold.store, words))
    assert kept(gateway) == []


SENDING = {"continue_work", "continue_delegate", "request_compaction", "sessions_spawn"}


@pytest.mark.parametrize("named", [True, False])
def test_only_a_session_that_stays_may_elect_turns_and_send_off_children(
    tmp_path: Path, sqlite_template: Path, named: bool
) -> None:
    offered: list[set[str]] = []

    def model(asked: Asked) -> Say:
        offered.append(set(asked.tools))
        return Say("I go on. CONTINUE_WORK:60")

    defaults = {"model": "scripted/scripted", "continuation": {"enabled": True}}
    agents = {"defaults": defaults, "list": [{"id": "main", "default": True}]}
    with (
        agents_serving(tmp_path / "home", sqlite_template, model, agents=agents) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        body: dict[str, Any] = {"model": "main", "messages": [{"role": "user", "content": "go"}]}
        answer = api.post("/v1/chat/completions", json=body | ({"user": "ann"} if named else {})).json()
        said = answer["choices"][0]["message"]["content"]
        assert said == ("I go on." if named else "I go on. CONTINUE_WORK:60")
        assert (SENDING & offered[0]) == (SENDING if named else set())
        with gateway.hold.store.read(OWNER) as tx:
            waiting = [item.kind for item in agenda.listing(tx) if item.kind.startswith("continuation.")]
            assert bool(waiting) is named
            (turn,) = turns.get_many(tx, [answer["id"].removeprefix("chatcmpl-")])
            assert turn.status == "committed"
