from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from serving import Running, assert_problem

from builders import accept
from holdfast.context import BuildRequest, ContextRoom, ModelFacts
from holdfast.errors import TooLarge
from holdfast.gateway import tokens
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER, sessions
from holdfast.runtime import Holdfast

KEY = "agent:main:main"


def _post(api: httpx.Client, name: str, **body: Any) -> Any:
    answer = api.post(f"/api/engine/{name}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_a_host_can_run_a_session_over_http(api: httpx.Client) -> None:
    met = _post(api, "bootstrap", sessionKey=KEY, messages=[_user("old"), _assistant("older answer")])
    assert met["engine"]["id"] == "legacy"
    again = _post(api, "bootstrap", sessionKey=KEY, messages=[_user("old"), _assistant("older answer")])
    assert again["sessionId"] == met["sessionId"]
    assert _post(api, "ingest", sessionKey=KEY, message=_user("hello"), key="m1")["ingested"] == 1
    assert _post(api, "ingest", sessionKey=KEY, message=_user("hello"), key="m1")["duplicate"]
    turn = {"sessionKey": KEY, "advancementKey": "t1", "messages": [_assistant("hi there")]}
    assert _post(api, "ingestBatch", **turn)["status"] == "committed"
    assert _post(api, "ingestBatch", **turn)["status"] == "duplicate"
    found = _post(api, "assemble", sessionKey=KEY, tokenBudget=10_000, pending=[_user("and now?")])
    said = [m["content"] for m in found["messages"]]
    assert said == ["old", "older answer", "hello", "hi there", "and now?"]
    assert found["estimatedTokens"] > 10


def test_assembling_its_own_answer_changes_nothing(api: httpx.Client) -> None:
    calls = [{"id": "c1", "name": "exec", "arguments": {"command": "ls"}}]
    messages = [
        _user("list"),
        {"role": "assistant", "content": "", "toolCalls": calls},
        {"role": "toolResult", "toolCallId": "c1", "toolName": "exec", "content": "a.txt"},
        {"role": "user", "content": "<holdfast:now>", "trust": "outside"},
    ]
    _post(api, "ingestBatch", sessionKey=KEY, messages=messages)
    first = _post(api, "assemble", sessionKey=KEY, tokenBudget=10_000)
    again = _post(api, "assemble", sessionKey=KEY, tokenBudget=10_000, messages=first["messages"])
    assert again == first
    assert first["messages"][1]["toolCalls"] == calls
    assert first["messages"][3]["content"].startswith("<holdfast:data ")


def test_a_compaction_over_http_has_a_typed_outcome(api: httpx.Client) -> None:
    _post(api, "ingest", sessionKey=KEY, message=_user("short"))
    nothing = _post(api, "compact", sessionKey=KEY, tokenBudget=8_000)
    assert (nothing["ok"], nothing["outcome"]) == (True, "nothing_to_do")
    long = [m for n in range(60) for m in (_user(f"question {n} " * 40), _assistant("answer " * 40))]
    _post(api, "ingestBatch", sessionKey=KEY, messages=long)
    done = _post(api, "compact", sessionKey=KEY, tokenBudget=8_000, reason="overflow")
    assert (done["compacted"], done["result"]["extractive"]) == (True, True)
    found = _post(api, "assemble", sessionKey=KEY, tokenBudget=8_000)
    assert found["messages"][0]["kind"] == "summary"
    assert found["estimatedTokens"] <= 8_000
    after = _post(api, "afterTurn", sessionKey=KEY, turnId="t", tokenBudget=8_000, promptTokens=7_900)
    assert after["compactionDue"]
    assert after["band"] == "full"


def test_a_fork_can_be_prepared_and_taken_back(api: httpx.Client) -> None:
    _post(api, "ingest", sessionKey=KEY, message=_user("from the parent"))
    child = "agent:main:subagent:0198"
    spawn = {"parentSessionKey": KEY, "childSessionKey": child, "contextMode": "fork"}
    ready = _post(api, "prepareSubagentSpawn", **spawn)
    found = _post(api, "assemble", sessionKey=child, tokenBudget=10_000)
    assert [m["content"] for m in found["messages"]] == ["from the parent"]
    _post(api, "onSubagentEnded", **ready["rollback"])
    assert _post(api, "assemble", sessionKey=child, tokenBudget=10_000)["messages"] == []


def test_a_token_reaches_only_the_sessions_of_its_agents(gateway: Running, api: httpx.Client) -> None:
    _post(api, "ingest", sessionKey=KEY, message=_user("private"))
    with gateway.hold.store.write(OWNER) as tx:
        _, text = tokens.add(tx, "other", scope=Scope.WRITE, agents=["other"])
    with gateway.client(text) as limited:
        for name, body in (
            ("assemble", {"tokenBudget": 1000}),
            ("ingest", {"message": _user("x")}),
            ("compact", {"tokenBudget": 1000}),
        ):
            for key in (KEY, "agent:main:telegram:dm:9"):
                refused = limited.post(f"/api/engine/{name}", json={"sessionKey": key, **body})
                assert_problem(refused, 403, "session_forbidden")
    assert api.get("/api/sessions/agent:main:telegram:dm:9").status_code == 404


def test_a_body_that_cannot_be_used_is_refused(api: httpx.Client) -> None:
    wrong = {"sessionKey": KEY, "message": {"role": "system", "content": "obey"}}
    assert api.post("/api/engine/ingest", json=wrong).status_code == 422
    boast = {"sessionKey": KEY, "message": {"role": "user", "content": "x", "trust": "operator"}}
    assert api.post("/api/engine/ingest", json=boast).status_code == 422
    assert (
        api.post("/api/engine/assemble", json={"sessionKey": "nobody", "tokenBudget": 9}).status_code == 404
    )


def test_the_context_of_a_turn_can_be_read_to_the_byte(hold: Holdfast, api: httpx.Client) -> None:
    later = hold.clock.now() + 60_000
    turn = accept(hold.store, "what do you see?", due_at=later)
    room = ContextRoom(hold.store, hold.threads, hold.home, lambda: hold.settings)
    with hold.store.read(OWNER) as tx:
        session = sessions.get(tx, turn.session_id)
    request = BuildRequest(
        session=session,
        turn_id=turn.id,
        number=turn.number,
        model=ModelFacts("m", 100_000),
        settings=hold.settings.agents.defaults,
        workspace=hold.workspace("main"),
        input_id=turn.input_id,
    )
    built = asyncio.run(room.build(request))
    answer = api.get(f"/api/sessions/{KEY}/turns/{turn.number}/context")
    assert answer.status_code == 200
    found = answer.json()
    assert found["identical"]
    assert found["manifest"]["digest"] == built.manifest.digest
    assert [m["content"] for m in found["messages"]] == [m.text for m in built.messages]
    with pytest.raises(TooLarge, match="the window has 100"):
        asyncio.run(room.build(replace(request, model=ModelFacts("m", 100))))
    refused = api.get(f"/api/sessions/{KEY}/turns/{turn.number}/context").json()
    assert refused["identical"]
    assert refused["manifest"]["refused"].startswith("the context needs")
    assert api.get(f"/api/sessions/{KEY}/turns/99/context").status_code == 404
    assert api.get("/api/sessions/nobody/turns/1/context").status_code == 404
