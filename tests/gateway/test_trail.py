"""What people do stands in the audit trail, whichever way they did it, and none of their words do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_stage import agents_serving
from serving import Running, assert_problem, make_token, wait_for

from holdfast.clock import ManualClock
from holdfast.config import ConfigStore
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER, Store, audit, outbox
from holdfast.runtime.config_trail import ConfigTrail
from holdfast.testing import Say


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("trail") / "home"
    with agents_serving(home, sqlite_template, lambda asked: Say("Noted.")) as (running, _):
        yield running


@pytest.fixture
def owner(gateway: Running) -> Iterator[httpx.Client]:
    with gateway.client(Authorization=f"Bearer {gateway.admin}") as client:
        yield client


def acts(client: httpx.Client, **which: Any) -> list[dict[str, Any]]:
    answer = client.get("/api/audit/trail", params=which)
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def test_each_deletion_is_an_act_of_whoever_did_it(gateway: Running, owner: httpx.Client) -> None:
    topic = owner.post("/api/topics", json={"name": "Zeppelins"}).json()["id"]
    task = owner.post("/api/tasks", json={"title": "Fill one", "topicId": topic}).json()["id"]
    entry = owner.post("/api/log", json={"content": "Zeppelin words", "agentId": "user"}).json()["id"]
    file = owner.post("/api/attachments", files=[("files", ("z.txt", b"zeppelin", "text/plain"))]).json()
    for path in (f"tasks/{task}", f"log/{entry}", f"attachments/{file[0]['id']}", f"topics/{topic}"):
        assert owner.delete(f"/api/{path}").status_code == 200
    found = acts(owner, act="deleted")
    assert [(one["act"], one["target"]) for one in reversed(found)] == [
        ("deleted.task", task),
        ("deleted.entry", entry),
        ("deleted.attachment", file[0]["id"]),
        ("deleted.topic", topic),
    ]
    assert {(one["actor"], one["surface"], one["address"]) for one in found} == {
        ("token:home", "api", "127.0.0.1")
    }
    assert "eppelin" not in json.dumps(found)


def test_a_config_that_was_changed_is_an_act_by_the_api_and_by_the_file(
    gateway: Running, owner: httpx.Client
) -> None:
    assert owner.patch("/api/config", json={"teams": {"auditDays": 400}}).status_code == 200
    by_api = acts(owner, act="config")[0]
    assert (by_api["act"], by_api["actor"], by_api["details"]["keys"]) == (
        "config.changed",
        "token:home",
        "teams",
    )
    path = gateway.hold.home.config
    changed = json.loads(path.read_text()) | {"session": {"dmScope": "per-peer"}}
    path.write_text(json.dumps(changed))
    gateway.hold.config.reload()
    wait_for(lambda: acts(owner, act="config")[0]["seq"] != by_api["seq"])
    by_file = acts(owner, act="config")[0]
    assert (by_file["surface"], by_file["details"]["keys"]) == ("file", "session.dmScope")
    assert by_file["details"]["sha256"] != by_api["details"]["sha256"]


def test_a_file_that_was_changed_while_no_gateway_ran_is_told_at_the_next_start(
    tmp_path: Path, sqlite_store: Store
) -> None:
    path, found = tmp_path / "holdfast.json", []
    for text in ("{}", "{}", '{"cron": {"maxConcurrentRuns": 3}}'):
        path.write_text(text)
        ConfigTrail(ConfigStore(path), sqlite_store).begin()
        with sqlite_store.read(OWNER) as tx:
            found.append([one.act for one in audit.listing(tx)])
    assert found == [["config.found"], ["config.found"], ["config.found"] * 2]


def test_what_is_sent_somewhere_is_an_act_and_an_answer_is_none(
    gateway: Running, owner: httpx.Client
) -> None:
    to = {"kind": "pier", "target": "pier:dm:gil", "payload": {}}
    run = owner.post("/api/agent", json={"message": "Tell Gil.", "deliver": to}).json()["runId"]
    owner.get(f"/api/agent/{run}/wait", params={"timeoutMs": 60_000})
    told = acts(owner, act="delivery", onBehalfOf="token:home")
    assert [(one["target"], one["actor"]) for one in told] == [("pier:dm:gil", "agent:main")]
    with gateway.hold.store.write(OWNER) as tx:
        by_hand = outbox.Parcel(key="hand:1", kind="pier", target="pier:dm:ann", payload={"text": "Hi."})
        outbox.post(tx, by_hand)
        answer = {"text": "Hi.", "turnId": "t"}
        outbox.post(tx, outbox.Parcel(key="reply:t", kind="pier", target="pier:dm:bob", payload=answer))
    assert [one["actor"] for one in acts(owner, act="delivery", target="pier:dm:ann")] == ["owner"]
    assert acts(owner, act="delivery", target="pier:dm:bob") == []


def test_shares_tokens_and_decisions_are_found_by_when_and_through_what(
    gateway: Running, owner: httpx.Client
) -> None:
    clock = gateway.hold.clock
    assert isinstance(clock, ManualClock)
    clock.advance(seconds=60)
    before = clock.now()
    entry = owner.post("/api/log", json={"content": "to share", "agentId": "user"}).json()["id"]
    assert owner.post("/api/share", json={"entryId": entry, "audience": "anyone"}).status_code == 200
    pattern = {"agentId": "main", "pattern": "echo zeppelin"}
    assert owner.post("/api/allowlist", json=pattern).status_code == 201
    reads = make_token(gateway.hold.store, "reader", Scope.READ)
    clock.advance(seconds=60)
    after = clock.now()
    found = acts(owner, since=before, until=after)
    assert {one["act"] for one in found} >= {"shared", "approval.pattern", "token.added"}
    assert "zeppelin" not in json.dumps(found)
    assert acts(owner, since=after) == []
    assert {one["surface"] for one in acts(owner, surface="api")} == {"api"}
    with gateway.client(Authorization=f"Bearer {reads}") as other:
        assert_problem(other.get("/api/audit/trail.jsonl"), 403, "role_forbidden")


def test_the_export_is_the_whole_trail_and_each_line_can_be_checked(
    gateway: Running, owner: httpx.Client
) -> None:
    answer = owner.get("/api/audit/trail.jsonl")
    assert answer.headers["content-type"].startswith("application/jsonl")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["seq"] for one in lines] == list(range(1, len(lines) + 1))
    assert all(audit._digest(one) == one["digest"] for one in lines)
    assert [one["before"] for one in lines[1:]] == [one["digest"] for one in lines[:-1]]
