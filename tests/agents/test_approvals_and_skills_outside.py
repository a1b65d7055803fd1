"""Approvals and skills from outside: the command line, HTTP, and the live stream."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fastapi.testclient import TestClient

from holdfast.agents.approvals import ExecCall, admit, requests
from holdfast.cli.chat.plain import approval_lines
from holdfast.cli.root import cli
from holdfast.config.tools import Exec
from holdfast.gateway import tokens
from holdfast.gateway.app import create_app
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER, Store, sqlite_url
from holdfast.runtime import Holdfast, open_home


@pytest.fixture
def hold(tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    for name in ("HOLDFAST_HOME", "HOLDFAST_STORE", "HOLDFAST_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    with open_home(home, store_url=sqlite_url(shutil.copy(sqlite_template, home))) as opened:
        yield opened


@pytest.fixture
def api(hold: Holdfast) -> Iterator[TestClient]:
    app = create_app(hold)
    with TestClient(app, headers={"Authorization": f"Bearer {hold.home.admin_token()}"}) as client:
        yield client


def ask(store: Store, command: str = "make all", agent_id: str = "main") -> str:
    with store.write(OWNER) as tx:
        asked = ExecCall(agent_id=agent_id, command=command, workspace=Path("/nowhere"))
        approval = admit(tx, asked, Exec()).approval
        assert approval is not None
        return approval.id


def token(store: Store, scope: Scope, **limits: Any) -> dict[str, str]:
    with store.write(OWNER) as tx:
        return {"Authorization": f"Bearer {tokens.add(tx, f't{scope}{limits}', scope=scope, **limits)[1]}"}


def run(hold: Holdfast, *args: object, **options: Any) -> Result:
    return CliRunner().invoke(cli, ["--home", str(hold.home.path), *map(str, args)], **options)


def test_an_approval_is_decided_over_http(hold: Holdfast, api: TestClient) -> None:
    first, second = ask(hold.store), ask(hold.store, "git diff HEAD")
    listed = api.get("/api/approvals").json()
    assert [row["id"] for row in listed] == [second, first]
    assert (listed[1]["command"], listed[1]["status"], listed[1]["agentId"]) == (
        "make all",
        "pending",
        "main",
    )
    done = api.post(f"/api/approvals/{first}", json={"decision": "deny"}).json()
    assert (done["status"], done["decidedBy"]) == ("denied", "token:home")
    allowed = api.post(f"/api/approvals/{second}", json={"decision": "allow", "pattern": "git diff *"})
    assert allowed.json()["status"] == "approved"
    assert api.get("/api/approvals").json() == []
    assert len(api.get("/api/approvals", params={"status": "all"}).json()) == 2
    page = api.get("/api/approvals", params={"status": "all", "limit": 1})
    rest = api.get("/api/approvals", params={"status": "all", "cursor": page.headers["X-Next-Cursor"]})
    assert [row["id"] for row in page.json() + rest.json()] == [second, first]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"decision": "maybe"}, 422, "invalid_input"),
        ({}, 422, "invalid_input"),
        ({"decision": "allow", "pattern": "*"}, 422, "invalid_input"),
        ({"decision": "allow", "pattern": "npm *"}, 422, "pattern_misses"),
    ],
)
def test_a_wrong_answer_is_a_problem(
    hold: Holdfast, api: TestClient, body: dict[str, str], status: int, code: str
) -> None:
    id_ = ask(hold.store)
    answer = api.post(f"/api/approvals/{id_}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert api.post("/api/approvals/none", json={"decision": "deny"}).json()["code"] == "unknown_approval"
    assert api.post(f"/api/approvals/{id_}", json={"decision": "approve"}).status_code == 200
    again = api.post(f"/api/approvals/{id_}", json={"decision": "deny"})
    assert (again.status_code, again.json()["code"]) == (409, "approval_decided")


def test_only_an_administrator_decides_and_only_for_its_agents(hold: Holdfast, api: TestClient) -> None:
    mine, other = ask(hold.store, agent_id="mine"), ask(hold.store, agent_id="other")
    writer = token(hold.store, Scope.WRITE)
    assert api.post(f"/api/approvals/{mine}", json={"decision": "approve"}, headers=writer).status_code == 403
    limited = token(hold.store, Scope.ADMIN, agents=["mine"])
    assert [row["id"] for row in api.get("/api/approvals", headers=limited).json()] == [mine]
    assert api.post(f"/api/approvals/{other}", json={"decision": "deny"}, headers=limited).status_code == 404
    assert api.post(f"/api/approvals/{mine}", json={"decision": "deny"}, headers=limited).status_code == 200
    spaced = token(hold.store, Scope.ADMIN, spaces=["s"])
    assert api.get("/api/approvals", headers=spaced).json() == []
    assert api.get("/api/skills", headers=spaced).status_code == 404


def test_requests_and_decisions_are_on_the_change_feed(hold: Holdfast, api: TestClient) -> None:
    id_ = ask(hold.store)
    api.post(f"/api/approvals/{id_}", json={"decision": "approve"})
    rows = [row for row in api.get("/api/changes").json() if row["type"].startswith("approval.")]
    assert [row["type"] for row in rows] == ["approval.requested", "approval.decided"]
    assert {row["data"]["status"] for row in rows} == {"approved"}
    assert rows[0]["entityId"] == id_


def test_approvals_are_decided_on_the_command_line(hold: Holdfast) -> None:
    first, second = ask(hold.store), ask(hold.store, "git diff HEAD")
    listed = json.loads(run(hold, "approvals", "list", "--json").stdout)
    assert {row["command"] for row in listed} == {"make all", "git diff HEAD"}
    assert "make all" in run(hold, "approvals", "list").stdout
    assert run(hold, "approvals", "approve", first).stdout.startswith("approved")
    assert run(hold, "approvals", "deny", first).exit_code == 2
    assert run(hold, "approvals", "allow", second, "--pattern", "git diff *").exit_code == 0
    with hold.store.read(OWNER) as tx:
        assert (requests.get(tx, first).decided_by or "").startswith("cli")
    assert "Nothing waits" in run(hold, "approvals", "list").stdout
    (pattern,) = json.loads(run(hold, "approvals", "list", "--allowed", "--json").stdout)
    assert (pattern["agentId"], pattern["pattern"]) == ("main", "git diff *")
    assert run(hold, "approvals", "allow", "npm test").exit_code == 0
    assert run(hold, "approvals", "allow", "*").exit_code == 2
    assert run(hold, "approvals", "allow", "npm test", "--agent", "nobody").exit_code == 2
    assert run(hold, "approvals", "allow", "npm test", "--remove").exit_code == 0
    assert "npm test" not in run(hold, "approvals", "list", "--allowed").stdout


def test_why_a_call_can_be_approved_only_once_is_told_wherever_it_is_decided(
    hold: Holdfast, api: TestClient, tmp_path: Path
) -> None:
    (tmp_path / "x.sh").write_text("echo hi\n")
    asked = ExecCall(agent_id="main", command="cat x.sh | sh", workspace=tmp_path).looked_at()
    with hold.store.write(OWNER) as tx:
        approval = admit(tx, asked, Exec()).approval
    assert approval is not None
    why = "what sh runs is written to it by something else"
    (listed,) = api.get("/api/approvals").json()
    (shown,) = json.loads(run(hold, "approvals", "list", "--json").stdout)
    for told in (listed, shown):
        assert told["whyNotAlways"] == why
        assert "x.sh" in told["files"]
        assert f"  (only once: {why})" in approval_lines(told)
    refused = api.post(f"/api/approvals/{approval.id}", json={"decision": "allow", "pattern": "sh *"})
    assert (refused.status_code, refused.json()["code"]) == (422, "not_always")
    said = run(hold, "approvals", "allow", approval.id)
    assert said.exit_code == 2
    assert why in said.output
    assert run(hold, "approvals", "approve", approval.id).exit_code == 0


def test_the_account_of_decisions_is_read_on_the_command_line(hold: Holdfast) -> None:
    assert "No call" in run(hold, "approvals", "audit").stdout
    asked = ask(hold.store, "curl -H 'Authorization: Bearer abcdef123456'")
    run(hold, "approvals", "approve", asked)
    newest, oldest = json.loads(run(hold, "approvals", "audit", "--json").stdout)
    assert (newest["event"], newest["rule"], newest["approvalId"]) == ("approved", "person", asked)
    assert newest["actor"].startswith("cli")
    assert oldest["event"] == "requested"
    assert "abcdef123456" not in str(newest)
    older = run(hold, "approvals", "audit", "--before", newest["seq"], "--agent", "main").stdout
    assert "requested" in older
    assert "approved" not in older


def test_a_pattern_that_was_taken_out_of_the_config_is_not_listed_as_allowed(hold: Holdfast) -> None:
    call = ExecCall(agent_id="main", command="make all", workspace=hold.workspace("main"))
    config = hold.home.config
    config.write_text('{"tools": {"exec": {"allowlist": ["make *"]}}}')
    with hold.store.write(OWNER) as tx:
        assert admit(tx, call, Exec(allowlist=("make *",))).decision.verdict == "run"
    assert "make *" in run(hold, "approvals", "list", "--allowed").stdout
    config.write_text("{}")
    assert "make *" not in run(hold, "approvals", "list", "--allowed").stdout


def test_on_the_command_line_a_command_hides_nothing_of_itself(hold: Holdfast) -> None:
    asked = ask(hold.store, "echo fine\nrm -r x\x1b[2K\u202e")
    written = "echo fine\\nrm -r x\\e[2K\\u{202e}"
    assert written in run(hold, "approvals", "list").stdout
    assert run(hold, "approvals", "deny", asked).stdout == f"denied: {written}\n"


def test_skills_are_listed_over_http_with_reasons(hold: Holdfast, api: TestClient) -> None:
    write_skill(hold, "needy", 'metadata: {"holdfast": {"requires": {"bins": ["no-such-program"]}}}')
    rows = {row["name"]: row for row in api.get("/api/skills").json()}
    assert rows["notes"]["eligible"]
    assert (rows["notes"]["tier"], rows["notes"]["command"]) == ("bundled", "/notes")
    assert rows["needy"]["reasons"] == [{"kind": "bins", "text": "no-such-program is not installed"}]
    assert (rows["needy"]["tier"], rows["needy"]["command"]) == ("workspace", None)
    assert api.get("/api/skills", params={"agentId": "nobody"}).status_code == 404


def test_a_skill_with_the_name_of_a_command_is_listed_under_the_one_that_calls_it(
    hold: Holdfast, api: TestClient
) -> None:
    write_skill(hold, "status")
    listed = {row["name"]: row["command"] for row in api.get("/api/skills").json()}
    assert listed["status"] == "/status_2"
    assert "/status_2" in api.post("/api/agent", json={"message": "/help"}).json()["reply"]


def test_skills_are_listed_checked_and_shown_on_the_command_line(hold: Holdfast) -> None:
    write_skill(hold, "needy", 'metadata: {"holdfast": {"requires": {"env": ["NO_SUCH_KEY"]}}}')
    write_skill(hold, "notes")
    broken = hold.workspace("main") / "skills" / "broken"
    broken.mkdir()
    (broken / "SKILL.md").write_text("no head")
    rows = {row["name"]: row for row in json.loads(run(hold, "skills", "list", "--json").stdout)}
    assert rows["notes"]["tier"] == "workspace"
    ready = json.loads(run(hold, "skills", "list", "--eligible", "--json").stdout)
    assert "needy" not in {row["name"] for row in ready}
    told = json.loads(run(hold, "skills", "check", "--json").stdout)
    assert [row["name"] for row in told["hidden"]] == ["notes"]
    assert [(row["line"], row["reason"]) for row in told["broken"]] == [(1, "line 1: no frontmatter")]
    checked = run(hold, "skills", "check")
    assert (checked.exit_code, run(hold, "skills", "check", "--json").exit_code) == (1, 1)
    assert [str(broken / "SKILL.md") in line for line in checked.stdout.splitlines()].count(True) == 1
    assert f"{broken / 'SKILL.md'}: line 1: no frontmatter" in run(hold, "skills", "list").stderr
    assert "NO_SUCH_KEY is not set" in run(hold, "skills", "check").stdout
    assert "NO_SUCH_KEY is not set" in run(hold, "skills", "info", "needy").stdout
    assert run(hold, "skills", "info", "nothing").exit_code == 2
    assert run(hold, "skills", "search", "x").exit_code == 2
    (broken / "SKILL.md").unlink()
    assert run(hold, "skills", "check").exit_code == 0


def write_skill(hold: Holdfast, name: str, head: str = "") -> None:
    folder = hold.workspace("main") / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: A test.\n{head}\n---\nDo it.\n")
