"""`/api/chains` and `/api/halt`: chains are seen as trees, by those who may, and stopped for good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chain_stage import KEY, ask, chain_of, counting_boats, delegating, hanging_child, when_ended
from serving import Running, assert_problem, make_token, running, streaming, wait_for

from holdfast.gateway.tokens import Scope
from holdfast.runtime import open_home
from holdfast.testing import Call, Say, Stall


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    """A gateway with a chain in it that went through three sessions and ended; the chain's id."""
    with delegating(tmp_path_factory.mktemp("counted"), counting_boats) as (gateway, _):
        with gateway.client(gateway.admin) as api:
            id_ = ask(api, "count the boats")
            wait_for(lambda: "Ten boats in all." in str(chain_of(api, id_)))
            when_ended(api, id_)
        yield gateway, id_


def below(chain: dict[str, Any], id_: str | None) -> list[dict[str, Any]]:
    return [node for node in chain["nodes"] if node["parentId"] == id_]


def test_a_chain_is_listed_with_who_asked_what_it_took_and_what_it_may_take(
    counted: tuple[Running, str],
) -> None:
    gateway, id_ = counted
    with gateway.client(gateway.admin) as api:
        [told] = api.get("/api/chains").json()
        assert api.get("/api/chains", params={"live": True}).json() == []
    assert (told["id"], told["state"], told["nextDueAt"]) == (id_, "ended", None)
    assert (told["origin"]["sessionKey"], told["origin"]["text"]) == (KEY, "count the boats")
    assert (told["steps"], told["maxSteps"], told["sent"], told["maxSent"]) == (1, 10, 1, 100)
    assert told["live"] == {"turn": 0, "subagent": 0, "return": 0, "election": 0}
    assert told["maxTokens"] == 500_000


def test_the_tree_says_what_came_of_what_and_its_turns_add_up_to_the_chain(
    counted: tuple[Running, str],
) -> None:
    gateway, id_ = counted
    with gateway.client(gateway.admin) as api:
        chain = chain_of(api, id_)
        [root] = below(chain, None)
        assert (root["id"], root["depth"], root["reply"]) == (id_, 0, "They are on their way.")
        delegate, spawned = below(chain, id_)
        assert (delegate["kind"], delegate["mode"], delegate["text"]) == (
            "delegate",
            "silent-wake",
            "Look into berth one",
        )
        assert (spawned["kind"], spawned["agentId"], spawned["state"]) == ("subagent", "other", "success")
        sent_off = next(node for node in below(chain, delegate["id"]) if node["kind"] == "subagent")
        assert [node["reply"] for node in below(chain, sent_off["id"])] == ["seven boats"]
        assert "three boats" in [node["reply"] for node in below(chain, spawned["id"])]
        turns = [node for node in chain["nodes"] if node["kind"] == "turn"]
        assert sum(node["tokens"] for node in turns) == chain["tokens"] > 0
        assert sum(node["cost"] for node in turns) == pytest.approx(chain["cost"])
        assert chain["cut"] is False
        other = next(node["id"] for node in turns if node["id"] != id_)
        assert chain_of(api, other)["id"] == id_


def test_who_may_not_read_where_a_chain_began_does_not_learn_of_it(counted: tuple[Running, str]) -> None:
    gateway, id_ = counted
    limits: tuple[dict[str, Any], ...] = ({"agents": ["other"]}, {"spaces": ["space-default"]})
    for number, limit in enumerate(limits):
        token = make_token(gateway.hold.store, f"outside {number}", Scope.ADMIN, **limit)
        with gateway.client(token) as api:
            assert api.get("/api/chains").json() == []
            assert_problem(api.get(f"/api/chains/{id_}"), 404, "unknown_chain")
            assert_problem(api.post(f"/api/chains/{id_}/stop"), 404, "unknown_chain")
            told = api.get("/api/changes", params={"sinceSeq": 0, "limit": 500}).json()
            assert not [change for change in told if change["type"].startswith("chain.")]


def test_of_sessions_that_a_reader_may_not_read_only_that_something_was_there_is_told(
    counted: tuple[Running, str],
) -> None:
    gateway, id_ = counted
    with gateway.client(make_token(gateway.hold.store, "of main", agents=["main"])) as api:
        [listed] = api.get("/api/chains").json()
        assert listed["origin"]["text"] is None, "a person said it, and only agents' words are for this token"
        chain = chain_of(api, id_)
        hidden = [node for node in chain["nodes"] if node["hidden"]]
        assert {node["kind"] for node in hidden} == {"subagent", "turn"}
        for node in hidden:
            assert (node["sessionKey"], node["text"], node["reply"], node["agentId"]) == (None,) * 4
        assert any(node["reply"] == "seven boats" for node in chain["nodes"])
        told = api.get("/api/changes", params={"sinceSeq": 0, "limit": 500}).json()
        types = [change["type"] for change in told if change["entityId"] == id_]
        assert {"chain.started", "chain.stepped", "chain.ended"} <= set(types)


def test_a_stop_ends_a_child_whose_model_hangs_and_nothing_comes_of_the_chain_any_more(
    tmp_path: Path,
) -> None:
    with (
        delegating(tmp_path / "home", hanging_child) as (gateway, model),
        gateway.client(gateway.admin) as api,
        gateway.client(gateway.admin) as reader,
    ):
        id_ = ask(api, "send it off")
        wait_for(lambda: any("You are a subagent" in str(one.body) for one in model.requests))
        wait_for(lambda: api.get(f"/api/agent/{id_}").json()["status"] == "committed")
        [alive] = api.get("/api/chains", params={"live": True}).json()
        assert (alive["id"], alive["live"]) == (id_, {"turn": 1, "subagent": 1, "return": 0, "election": 0})
        with streaming(reader) as seen:
            done = api.post(f"/api/chains/{id_}/stop", json={"reason": "enough"}).json()
            stopped = next(event for event in seen if event["type"] == "chain.stopped")
        assert (done["ended"]["turn"], done["chains"], done["stillRunning"]) == (1, [id_], [])
        assert done["text"].startswith("Stopped ")
        assert (stopped["entityId"], stopped["data"]["stopReason"]) == (id_, "enough")
        after = chain_of(api, id_)
        assert (after["state"], after["stopReason"]) == ("stopped", "enough")
        assert after["live"] == {"turn": 0, "subagent": 0, "return": 0, "election": 0}
        assert "cancelled" in {node["state"] for node in after["nodes"] if node["kind"] == "turn"}
        asked = len(model.requests)
        wait_for(lambda: api.get(f"/api/agent/{ask(api, 'hello')}/wait").json()["reply"] == "Hello.")
        assert len(model.requests) == asked + 1
        assert api.post(f"/api/chains/{id_}/stop").json()["ended"] == {}


def test_a_token_stops_only_what_it_may_also_ask(tmp_path: Path) -> None:
    with (
        delegating(tmp_path / "home", hanging_child) as (gateway, model),
        gateway.client(gateway.admin) as api,
    ):
        id_ = ask(api, "send it off")
        wait_for(lambda: any("You are a subagent" in str(one.body) for one in model.requests))
        reads = make_token(gateway.hold.store, "reads", Scope.READ, agents=["main"])
        with gateway.client(reads) as reader:
            assert_problem(reader.post(f"/api/chains/{id_}/stop"), 403, "forbidden")
        with gateway.client(make_token(gateway.hold.store, "main's", agents=["main"])) as own:
            assert_problem(own.post("/api/chains/stop", json={"all": True}), 403, "forbidden")
            assert_problem(own.post("/api/chains/stop", json={}), 422, "invalid_input")
            for method in ("GET", "POST", "DELETE"):
                assert_problem(own.request(method, "/api/halt"), 403, "forbidden")
            done = own.post("/api/chains/stop", json={"sessionKey": KEY}).json()
        assert done["chains"] == [id_]
        assert api.get("/api/chains", params={"live": True}).json() == []


def test_what_is_said_while_all_is_halted_is_kept_over_a_restart_and_answered_once_released(
    tmp_path: Path,
) -> None:
    with delegating(tmp_path / "home", [Say("Here I am.")]) as (gateway, model):
        with gateway.client(gateway.admin) as api:
            halted = api.post("/api/halt", json={"reason": "it ran wild"}).json()
            assert (halted["halted"], halted["reason"]) == (True, "it ran wild")
            told = api.post("/api/agent", json={"message": "are you there?", "sessionKey": KEY}).json()
            assert "it ran wild" in told["told"]
            run = told["runId"]
            assert "it ran wild" in api.post("/api/agent", json={"message": "/status"}).json()["reply"]
            others_are_done(api, "first")
            assert api.get(f"/api/agent/{run}").json()["status"] == "accepted"
        gateway.server.should_exit = True
        wait_for(lambda: not gateway.loop.is_running())
        with open_home(tmp_path / "home") as hold, running(hold) as again, again.client(again.admin) as api:
            assert api.get("/api/halt").json() == {
                name: halted[name] for name in ("halted", "since", "reason")
            }
            others_are_done(api, "second")
            assert api.get(f"/api/agent/{run}").json()["status"] == "accepted"
            assert model.requests == []
            released = api.delete("/api/halt").json()
            assert (released["halted"], released["released"]) == (False, True)
            assert api.get(f"/api/agent/{run}/wait").json()["reply"] == "Here I am."
            assert api.delete("/api/halt").json()["released"] is False


def test_cancelling_an_election_whose_turn_runs_stops_that_turn_and_says_so(tmp_path: Path) -> None:
    script = [Call("continue_work", {"reason": "again", "delaySeconds": 0}), Say("Later."), Stall("Well, ")]
    with delegating(tmp_path / "home", script) as (gateway, model), gateway.client(gateway.admin) as api:
        id_ = ask(api, "watch it")
        wait_for(lambda: len(model.requests) == 3)
        [elected] = api.get("/api/continuation").json()
        assert (elected["status"], elected["chainId"]) == ("running", id_)
        done = api.delete(f"/api/continuation/{elected['id']}").json()
        assert done["status"] == "cancelled"
        after = when_ended(api, id_)
        states = {node["kind"]: node["state"] for node in after["nodes"]}
        assert states == {"turn": "cancelled", "work": "cancelled"}


def others_are_done(api: Any, word: str) -> None:
    """Have the runner look for work and do some that is no agent's."""
    api.post("/api/ingest", json={"content": word})
    wait_for(lambda: word in [entry["content"] for entry in api.get("/api/log").json()])
