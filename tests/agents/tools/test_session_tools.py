"""The session tools: own sessions, family, other agents only where the config opens them."""

from __future__ import annotations

import json
from typing import Any

from tool_world import World

from builders import KEY, append
from holdfast.context import Trust
from holdfast.log import EntryType, for_group

DM = "agent:main:discord:dm:7"
GROUP = "agent:main:discord:group:9"
OTHER = "agent:work:main"
CHILD = "agent:main:subagent:0192"


def agents(here: World, **tools: Any) -> None:
    listed = [{"id": "main", "default": True}, {"id": "work"}]
    here.configure(agents={"list": listed}, tools=tools)


def say(here: World, key: str, text: str, **fields: Any) -> None:
    session = here.session(key)
    append(here.hold.store, text, session_key=key, session_id=session.id, **{"role": "user", **fields})


def keys(here: World, caller: Any = None) -> set[str]:
    return {row["key"] for row in json.loads(here.ok("sessions_list", {}, caller))["sessions"]}


def test_an_agent_sees_its_own_sessions_and_other_agents_only_where_both_are_allowed(here: World) -> None:
    agents(here)
    say(here, OTHER, "their plan")
    here.session(DM)
    assert keys(here) == {KEY, DM}
    for tool in ("sessions_history", "session_status"):
        said = here.refused(tool, {"sessionKey": OTHER})
        assert "agents may not look at each other's" in said
        assert "their plan" not in said
    agents(here, agentToAgent={"enabled": True, "allow": ["work"]})
    assert OTHER not in keys(here)
    agents(here, agentToAgent={"enabled": True, "allow": ["main", "work"]})
    assert keys(here) == {KEY, DM, OTHER}
    assert "their plan" in here.ok("sessions_history", {"sessionKey": OTHER})
    agents(here, agentToAgent={"enabled": True, "allow": ["*"]})
    assert OTHER in keys(here)


def test_where_others_read_along_only_the_family_is_seen(here: World) -> None:
    say(here, DM, "a private word")
    here.session(CHILD, parent_key=GROUP, audience=for_group("discord", None, "9"))
    for caller in (here.caller(GROUP), here.caller(DM, owner=False)):
        assert KEY not in keys(here, caller)
        assert "no session" in here.refused("sessions_history", {"sessionKey": KEY}, caller)
        assert "no session" in here.refused("sessions_send", {"sessionKey": KEY, "message": "x"}, caller)
    assert keys(here, here.caller(GROUP)) == {GROUP, CHILD}
    assert "a private word" not in here.refused("sessions_history", {"sessionKey": DM}, here.caller(GROUP))
    child = here.caller(CHILD, subagent=True)
    assert GROUP in here.ok("session_status", {"sessionKey": GROUP}, child)
    assert "no session" in here.refused("session_status", {"sessionKey": DM}, child)


def test_history_comes_in_pages_newest_first_as_another_sessions_words(here: World) -> None:
    for n in range(5):
        say(here, DM, f"word {n}", role="user" if n % 2 == 0 else "assistant")
    say(here, DM, "tool trace", role="toolResult", type=EntryType.ACTION)
    result = here.call("sessions_history", {"sessionKey": DM, "limit": 3})
    page = json.loads(result.text)
    assert result.trust is Trust.OTHER_SESSION
    assert [m["text"] for m in page["messages"]] == ["word 2", "word 3", "word 4"]
    rest = json.loads(here.ok("sessions_history", {"sessionKey": DM, "cursor": page["next"]}))
    assert [(m["role"], m["text"]) for m in rest["messages"]] == [("user", "word 0"), ("assistant", "word 1")]
    assert rest["next"] is None
    assert "tool trace" in here.ok("sessions_history", {"sessionKey": DM, "includeTools": True})


def test_a_message_goes_to_another_session_by_the_courier(here: World) -> None:
    agents(here)
    here.session(DM)
    here.session(OTHER)
    sent = json.loads(here.ok("sessions_send", {"sessionKey": DM, "message": "hello"}))
    assert sent == {"ok": True, "runId": "run-1", "sessionKey": DM}
    assert "own session" in here.refused("sessions_send", {"sessionKey": KEY, "message": "x"})
    assert "no session" in here.refused("sessions_send", {"sessionKey": "agent:main:nowhere", "message": "x"})
    assert "each other's" in here.refused("sessions_send", {"sessionKey": OTHER, "message": "x"})
    assert here.post.sent == [(KEY, DM, "hello")]


def test_a_session_knows_how_it_stands(here: World) -> None:
    status = json.loads(
        here.ok("session_status", {}, here.caller(provider="openai", model="gpt", window=1000))
    )
    assert (status["key"], status["model"], status["window"], status["usedPercent"]) == (
        KEY,
        "openai/gpt",
        1000,
        0,
    )
    assert "window" not in json.loads(here.ok("session_status", {"sessionKey": here.session(DM).key}))
