"""People who log in: their own session and memory, their team's, and nothing of anybody else's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_stage import agents_serving
from serving import Running, assert_problem, make_token

from holdfast.clock import ManualClock
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER, audit
from holdfast.people import Right, Role, roles
from holdfast.testing import Asked, Call, Say, ScriptedOpenAI
from holdfast.testing.script import text_of

PASSWORD = "correct horse battery"


def script(asked: Asked) -> Say | Call:
    """`do NAME {…}` is a call of that tool, and what came of it is said; all else is noted."""
    last = asked.messages[-1]
    said = text_of(last.get("content"))
    if last.get("role") == "tool":
        return Say(f"done: {said}")
    found = re.search(r"do (\w+) (\{.*\})", said)
    return Call(found[1], json.loads(found[2])) if found else Say("Noted.")


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[tuple[Running, ScriptedOpenAI]]:
    home = tmp_path_factory.mktemp("people") / "home"
    with agents_serving(home, sqlite_template, script) as found:
        gateway, _ = found
        with gateway.client(Authorization=f"Bearer {gateway.admin}") as owner:
            made(owner, "/api/teams", id="research", agents=["main"])
            made(owner, "/api/teams", id="kitchen", agents=["other"])
            for login, role, team in (
                ("ada", "member", "research"),
                ("ann", "member", "research"),
                ("bob", "member", "kitchen"),
                ("vic", "viewer", "research"),
                ("adm", "admin", "kitchen"),
            ):
                made(owner, "/api/users", login=login, role=role, password=PASSWORD)
                assert owner.put(f"/api/teams/{team}/members/{login}").status_code == 200
        yield found


@pytest.fixture
def gateway(stage: tuple[Running, ScriptedOpenAI]) -> Running:
    return stage[0]


@pytest.fixture
def owner(gateway: Running) -> Iterator[httpx.Client]:
    with gateway.client(Authorization=f"Bearer {gateway.admin}") as client:
        yield client


def made(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


@contextmanager
def page_of(gateway: Running, login: str) -> Iterator[httpx.Client]:
    """A page on which somebody is logged in."""
    with gateway.client(Origin=gateway.url) as page:
        answer = page.post("/api/login", json={"login": login, "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        yield page


def say(client: httpx.Client, text: str, **fields: Any) -> dict[str, Any]:
    """Ask, and wait for the answer."""
    answer = client.post("/api/agent", json={"message": text, **fields})
    assert answer.status_code == 202, answer.text
    run = answer.json()
    ended = client.get(f"/api/agent/{run['runId']}/wait", params={"timeoutMs": 60_000}).json()
    assert ended["status"] == "committed", ended
    return dict(run)


def test_a_person_has_a_session_of_their_own_that_nobody_else_but_the_owner_reads(
    stage: tuple[Running, ScriptedOpenAI], owner: httpx.Client
) -> None:
    gateway, model = stage
    with page_of(gateway, "ada") as ada, page_of(gateway, "bob") as bob, page_of(gateway, "ann") as ann:
        who = ada.get("/api/whoami").json()
        assert (who["role"], who["teams"], who["scope"]) == ("member", ["research"], "write")
        run = say(ada, "The vault code is quokka-4711.")
        key = run["sessionKey"]
        assert key == f"agent:main:dm:{who['userId']}"
        assert owner.get(f"/api/sessions/{key}").json()["audience"] == f"member:{who['userId']}"
        assert "quokka-4711" in ada.get(f"/api/sessions/{key}/transcript").text
        say(bob, "What is the vault code?")
        assert "quokka-4711" not in str(model.requests[-1].body)
        with page_of(gateway, "adm") as admin:
            assert "quokka-4711" not in admin.get("/api/log").text + admin.get("/api/audit/trail").text
        for other in (bob, ann):
            assert_problem(other.get(f"/api/sessions/{key}"), 404, "unknown_session")
            assert_problem(other.get(f"/api/agent/{run['runId']}"), 404, "unknown_run")
            assert "quokka-4711" not in other.get("/api/log").text + other.get("/api/sessions").text
            assert_problem(
                other.post("/api/agent", json={"message": "x", "sessionKey": key}),
                403,
                "session_forbidden" if other is ann else "agent_forbidden",
            )


def test_a_team_s_files_are_its_members_and_its_agents_in_its_session_and_nobody_else_s(
    gateway: Running, owner: httpx.Client
) -> None:
    shared = "agent:main:team:research"
    with page_of(gateway, "ada") as ada, page_of(gateway, "vic") as vic:
        plan = {"path": "plans/may.md", "text": "Plant kelp.", "before": None}
        assert ada.put("/api/teams/research/file", json=plan).status_code == 200
        say(ada, 'do file_read {"path": "plans/may.md"}', sessionKey=shared)
        say(ada, 'do file_write {"path": "plans/june.md", "content": "Count it."}', sessionKey=shared)
        assert "done: " in (told := ada.get(f"/api/sessions/{shared}/transcript").text)
        assert "Plant kelp." in told
        listed = [one["path"] for one in vic.get("/api/teams/research/files").json()]
        assert listed == ["plans/june.md", "plans/may.md"]
        read = vic.get("/api/teams/research/file", params={"path": "plans/june.md"}).json()
        assert read["text"] == "Count it."
        assert_problem(ada.put("/api/teams/research/file", json=plan), 409, "file_changed")
        again = plan | {"text": "No kelp.", "before": read["digest"], "path": "plans/june.md"}
        assert_problem(vic.put("/api/teams/research/file", json=again), 403, "forbidden")
        assert ada.put("/api/teams/research/file", json=again).status_code == 200
        for path in ("../../credentials/token", "/etc/passwd", ".hidden", "a//b", "plans/../x"):
            found = ada.get("/api/teams/research/file", params={"path": path})
            assert_problem(found, 422, "path_refused")
        say(ada, 'do file_read {"path": "../../../holdfast.json"}', sessionKey=shared)
        say(ada, 'do file_read {"path": "plans/may.md"}')
        own = ada.get(
            f"/api/sessions/agent:main:dm:{ada.get('/api/whoami').json()['userId']}/transcript"
        ).text
        assert "Plant kelp." not in own
        assert "outside" in ada.get(f"/api/sessions/{shared}/transcript").text
    for login in ("bob", "adm"):
        with page_of(gateway, login) as other:
            for found in (
                other.get("/api/teams/research/files"),
                other.get("/api/teams/research/file", params={"path": "plans/may.md"}),
                other.put("/api/teams/research/file", json=again | {"text": "mine"}),
            ):
                assert_problem(found, 404, "unknown_team")
    assert (
        owner.get("/api/teams/research/file", params={"path": "plans/june.md"}).json()["text"] == "No kelp."
    )
    assert_problem(owner.get("/api/teams/nowhere/files"), 404, "unknown_team")
    limited = make_token(gateway.hold.store, "s", spaces=["team-research"])
    with gateway.client(limited) as token:
        assert_problem(token.get("/api/teams/research/files"), 404, "unknown_team")


def test_a_team_shares_a_session_and_its_space(gateway: Running, owner: httpx.Client) -> None:
    key = "agent:main:team:research"
    with page_of(gateway, "ada") as ada, page_of(gateway, "vic") as vic, page_of(gateway, "bob") as bob:
        say(ada, "We meet on Tuesday at nine.", sessionKey=key)
        assert owner.get(f"/api/sessions/{key}").json()["audience"] == "space:team-research"
        assert "Tuesday" in vic.get(f"/api/sessions/{key}/transcript").text
        assert_problem(bob.get(f"/api/sessions/{key}"), 404, "unknown_session")
        topic = ada.post("/api/topics", json={"name": "Colloquium", "spaceId": "team-research"})
        assert topic.status_code in (200, 201), topic.text
        assert "Colloquium" in vic.get("/api/topics").text
        assert "Colloquium" not in bob.get("/api/topics").text
        assert_problem(
            bob.post("/api/topics", json={"name": "x", "spaceId": "team-research"}), 403, "space_forbidden"
        )


def test_the_owners_words_are_nobody_elses(gateway: Running, owner: httpx.Client) -> None:
    say(owner, "My salary is 90210.")
    for login in ("ada", "bob", "vic", "adm"):
        with page_of(gateway, login) as page:
            found = page.get("/api/log").text + page.get("/api/sessions").text + page.get("/api/topics").text
            assert "90210" not in found
            assert_problem(page.get("/api/sessions/agent:main:main"), 404, "unknown_session")
            assert_problem(page.get("/api/config"), 403, "forbidden")


RIGHT_OF = {
    Right.TALK: lambda page: page.post("/api/agent", json={"message": "hello"}),
    Right.PEOPLE: lambda page: page.get("/api/users"),
    Right.AUDIT: lambda page: page.get("/api/audit/trail"),
    Right.HOME: lambda page: page.get("/api/config"),
    Right.TOKENS: lambda page: page.post("/api/me/tokens", json={"name": "t", "scope": "read"}),
}


@pytest.mark.parametrize("login", ["ada", "vic", "adm"])
def test_what_a_role_may_do_is_the_one_table(gateway: Running, login: str) -> None:
    with page_of(gateway, login) as page:
        role = Role(page.get("/api/whoami").json()["role"])
        for right, attempt in RIGHT_OF.items():
            answer = attempt(page)
            assert (answer.status_code != 403) == roles.may(role, right), (role, right, answer.text)


def test_nobody_hands_out_more_than_they_have(gateway: Running) -> None:
    with page_of(gateway, "adm") as admin:
        assert_problem(
            admin.post("/api/users", json={"login": "eve", "role": "owner"}), 403, "role_forbidden"
        )
        own = admin.patch("/api/users/adm", json={"role": "owner"})
        assert_problem(own, 403, "role_forbidden")
        assert_problem(
            admin.post("/api/teams", json={"id": "mine", "agents": ["main"]}), 403, "agent_forbidden"
        )


def test_an_invitation_makes_one_person(gateway: Running, owner: httpx.Client) -> None:
    made_one = made(owner, "/api/invitations", role="viewer", teamId="research")
    body = {"code": made_one["code"], "login": "Nia", "password": PASSWORD}
    with gateway.client(Origin=gateway.url) as page:
        assert_problem(
            page.post("/api/invitations/accept", json=body | {"password": "short"}), 422, "bad_password"
        )
        assert page.post("/api/invitations/accept", json=body).json()["name"] == "nia"
        assert page.get("/api/whoami").json()["teams"] == ["research"]
    with gateway.client() as other:
        again = other.post("/api/invitations/accept", json=body | {"login": "mal"})
        assert_problem(again, 401, "bad_invitation")
    assert made_one["id"] not in owner.get("/api/invitations").text


def test_a_person_kept_out_is_out_at_once_everywhere(gateway: Running, owner: httpx.Client) -> None:
    made(owner, "/api/users", login="temp", password=PASSWORD)
    with page_of(gateway, "temp") as page:
        token = made(page, "/api/me/tokens", name="laptop")["token"]
        with gateway.client(Authorization=f"Bearer {token}") as program:
            assert program.get("/api/whoami").json()["role"] == "member"
            assert owner.patch("/api/users/temp", json={"disabled": True}).status_code == 200
            assert_problem(page.get("/api/whoami"), 401, "login_ended")
            assert_problem(program.get("/api/whoami"), 401, "bad_token")
        refused = page.post("/api/login", json={"login": "temp", "password": PASSWORD})
        assert_problem(refused, 401, "bad_login")


def test_a_token_of_a_person_may_no_more_than_they_and_makes_no_others(gateway: Running) -> None:
    with page_of(gateway, "vic") as page:
        token = made(page, "/api/me/tokens", name="reads", scope="write")["token"]
    with gateway.client(Authorization=f"Bearer {token}") as program:
        assert program.get("/api/whoami").json()["scope"] == "read"
        assert_problem(program.post("/api/me/tokens", json={"name": "more"}), 403, "token_forbidden")


def test_a_name_of_a_token_is_taken_only_for_whom_it_is_taken(gateway: Running) -> None:
    for login in ("ada", "bob"):
        with page_of(gateway, login) as page:
            made(page, "/api/me/tokens", name="same name")
            again = page.post("/api/me/tokens", json={"name": "same name"})
            assert again.status_code == 409


def test_guessing_is_slowed_down_and_looks_the_same_for_who_is_not_there(
    gateway: Running, owner: httpx.Client
) -> None:
    made(owner, "/api/users", login="slow", password=PASSWORD)
    clock = gateway.hold.clock
    assert isinstance(clock, ManualClock)
    with gateway.client(Origin=gateway.url) as page:
        known = page.post("/api/login", json={"login": "slow", "password": "wrong"}).json()
        unknown = page.post("/api/login", json={"login": "nobody", "password": "wrong"}).json()
        assert {k: known[k] for k in ("code", "detail")} == {k: unknown[k] for k in ("code", "detail")}
        for _ in range(4):
            page.post("/api/login", json={"login": "slow", "password": "wrong"})
        right = {"login": "slow", "password": PASSWORD}
        assert_problem(page.post("/api/login", json=right), 429, "login_waits")
        clock.advance(seconds=2)
        assert page.post("/api/login", json=right).status_code == 200


def test_a_new_password_ends_every_other_login(gateway: Running, owner: httpx.Client) -> None:
    made(owner, "/api/users", login="pat", password=PASSWORD)
    with page_of(gateway, "pat") as here, page_of(gateway, "pat") as there:
        assert len(here.get("/api/me/sessions").json()) == 2
        new = {"password": PASSWORD, "newPassword": "another long password"}
        assert_problem(here.put("/api/me/password", json=new | {"password": "no"}), 401, "bad_login")
        assert here.put("/api/me/password", json=new).json() == {"ok": True}
        assert_problem(there.get("/api/whoami"), 401, "login_ended")
        (only,) = here.get("/api/me/sessions").json()
        assert (only["current"], only["address"]) == (True, "127.0.0.1")
        assert here.delete(f"/api/me/sessions/{only['id']}").json() == {"ok": True}
        assert_problem(here.get("/api/whoami"), 401, "login_ended")


def test_one_off_calls_of_a_person_are_theirs(gateway: Running, owner: httpx.Client) -> None:
    with page_of(gateway, "ada") as ada, page_of(gateway, "bob") as bob:
        body = {"model": "holdfast/main", "messages": [{"role": "user", "content": "My cat is Zorbax."}]}
        answer = ada.post("/v1/chat/completions", json=body, headers={"X-Idempotency-Key": "one"})
        assert answer.status_code == 200, answer.text
        assert "Zorbax" not in bob.get("/api/log").text + bob.get("/api/sessions?status=all").text
        found = owner.get("/api/sessions?status=all").json()
        user = ada.get("/api/whoami").json()["userId"]
        assert f"member:{user}" in {one["audience"] for one in found if user in one["sessionKey"]}


def test_a_person_goes_on_from_their_own_answer_and_a_teams_stays_the_teams(
    gateway: Running, owner: httpx.Client
) -> None:
    key = "agent:main:team:research"
    with page_of(gateway, "ada") as ada:

        def respond(text: str, previous: str) -> httpx.Response:
            sent = {"model": "holdfast/main", "input": text, "previous_response_id": previous}
            return ada.post("/v1/responses", json=sent)

        own = ada.post("/v1/responses", json={"model": "holdfast/main", "input": "Mine."}).json()["id"]
        assert respond("And on.", own).status_code == 200
        runs = [say(ada, text, sessionKey=key)["runId"] for text in ("First of all.", "Then.")]
        assert respond("And on.", f"resp_{runs[1]}").status_code == 200
        assert owner.get(f"/api/sessions/{key}").json()["audience"] == "space:team-research"
        refused = respond("Elsewhere.", f"resp_{runs[0]}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "session_forbidden")


def test_acts_stand_in_the_trail_with_their_address(gateway: Running, owner: httpx.Client) -> None:
    made(owner, "/api/users", login="zoe", password=PASSWORD)
    with page_of(gateway, "zoe") as page:
        page.post("/api/logout")
        page.post("/api/login", json={"login": "zoe", "password": "wrong"})
    acts = owner.get("/api/audit/trail", params={"target": "zoe"}).json()
    assert [(one["act"], one["actor"], one["surface"]) for one in acts] == [
        ("login.failed", "nobody", "page"),
        ("logout", "user:zoe", "page"),
        ("login", "user:zoe", "page"),
        ("user.added", "token:home", "api"),
    ]
    assert {one["address"] for one in acts} == {"127.0.0.1"}
    with gateway.hold.store.read(OWNER) as tx:
        assert audit.verify(tx).faults == []
    reads = make_token(gateway.hold.store, "limited", Scope.READ)
    with gateway.client(Authorization=f"Bearer {reads}") as client:
        assert_problem(client.get("/api/audit/trail"), 403, "role_forbidden")


def test_the_docs_show_the_table_of_roles_as_it_is() -> None:
    page = Path(__file__).parents[2] / "docs" / "people.md"
    assert roles.table() in page.read_text("utf-8")
