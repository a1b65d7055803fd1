"""Budgets of teams: what is beyond one is refused in words, and goes on with the next day."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_stage import agents_serving
from serving import Running, assert_problem

from holdfast.clock import ManualClock, parse_iso
from holdfast.log import (
    FOR_OWNER,
    SYSTEM,
    EntryDraft,
    Outcome,
    Store,
    for_member,
    for_space,
    sessions,
    turns,
)
from holdfast.people import Role, budgets, teams, users
from holdfast.testing import Say

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("budgets") / "home"
    with agents_serving(home, sqlite_template, lambda asked: Say("Noted.")) as (found, _):
        with found.client(Authorization=f"Bearer {found.admin}") as owner:
            for team, agent in (("research", "main"), ("kitchen", "other")):
                assert owner.post("/api/teams", json={"id": team, "agents": [agent]}).is_success
            for login, role in (("ada", "member"), ("bob", "member"), ("adm", "admin")):
                body = {"login": login, "role": role, "password": PASSWORD}
                assert owner.post("/api/users", json=body).is_success
            for team, login in (("research", "ada"), ("kitchen", "bob"), ("kitchen", "adm")):
                assert owner.put(f"/api/teams/{team}/members/{login}").is_success
        yield found


@pytest.fixture
def owner(gateway: Running) -> Iterator[httpx.Client]:
    with gateway.client(Authorization=f"Bearer {gateway.admin}") as client:
        yield client


@contextmanager
def page_of(gateway: Running, login: str) -> Iterator[httpx.Client]:
    with gateway.client(Origin=gateway.url) as page:
        assert page.post("/api/login", json={"login": login, "password": PASSWORD}).status_code == 200
        yield page


def said(client: httpx.Client, **fields: Any) -> httpx.Response:
    """Ask; where it is taken, wait for the end."""
    answer = client.post("/api/agent", json={"message": "Go on.", **fields})
    if answer.status_code == 202:
        run = answer.json()["runId"]
        client.get(f"/api/agent/{run}/wait", params={"timeoutMs": 60_000})
    return answer


def set_budget(owner: httpx.Client, team: str, **budget: float) -> None:
    answer = owner.patch(f"/api/teams/{team}", json={"budget": budget})
    assert answer.status_code == 200, answer.text
    assert {k: v for k, v in answer.json()["budget"].items() if v is not None} == budget


def test_a_team_that_has_used_its_tokens_waits_for_the_next_day(
    gateway: Running, owner: httpx.Client
) -> None:
    clock = gateway.hold.clock
    assert isinstance(clock, ManualClock)
    with page_of(gateway, "ada") as ada, page_of(gateway, "bob") as bob:
        assert said(ada).status_code == 202
        assert said(ada, sessionKey="agent:main:team:research").status_code == 202
        used = ada.get("/api/teams/research/usage").json()
        assert used["day"]["tokens"] == used["month"]["tokens"] > 0
        assert_problem(bob.get("/api/teams/research/usage"), 404, "unknown_team")
        assert owner.get("/api/teams/kitchen/usage").json()["day"]["tokens"] == 0
        set_budget(owner, "research", tokensPerDay=used["day"]["tokens"])
        for fields in ({}, {"sessionKey": "agent:main:team:research"}):
            told = assert_problem(said(ada, **fields), 429, "budget_spent")
            assert "team research has used its" in told["detail"]
            assert "tokens of the day" in told["detail"]
        one_off = {"model": "holdfast/main", "messages": [{"role": "user", "content": "And so?"}]}
        assert ada.post("/v1/chat/completions", json=one_off).status_code == 429
        assert said(bob).status_code == 202
        assert said(owner).status_code == 202
        clock.advance(hours=24)
        assert said(ada).status_code == 202
        set_budget(owner, "research", tokensPerMonth=used["day"]["tokens"])
        assert "of the month" in assert_problem(said(ada), 429, "budget_spent")["detail"]
        set_budget(owner, "research")
        assert said(ada).status_code == 202


def test_only_the_owner_sets_budgets_and_it_stands_in_the_trail(
    gateway: Running, owner: httpx.Client
) -> None:
    with page_of(gateway, "adm") as admin:
        refused = admin.patch("/api/teams/kitchen", json={"budget": {"costPerDay": 3}})
        assert_problem(refused, 403, "role_forbidden")
    set_budget(owner, "kitchen", costPerDay=0.0)
    with page_of(gateway, "bob") as bob:
        assert "of cost of the day" in assert_problem(said(bob), 429, "budget_spent")["detail"]
    act = owner.get("/api/audit/trail", params={"act": "team.changed", "target": "kitchen"}).json()[0]
    assert act["details"]["budget"] == "cost_per_day=0.0"
    set_budget(owner, "kitchen")


def test_what_was_used_is_added_up_by_either_engine(store: Store) -> None:
    with store.write(SYSTEM) as tx:
        team = teams.add(tx, "lab", agents=["main"])
        ada = users.add(tx, "ada", role=Role.MEMBER)
        team = teams.join(tx, team.id, ada)
        for key, heard, cost in (
            ("agent:main:team:lab", for_space(team.space_id), 0.25),
            (f"agent:main:dm:{ada.id}", for_member(ada.id), None),
            (f"agent:other:dm:{ada.id}", for_member(ada.id), 9.0),
            ("agent:main:main", FOR_OWNER, 9.0),
        ):
            made = sessions.ensure(tx, key, agent_id=key.split(":")[1], audience=heard)
            used = {"inputTokens": 10, "outputTokens": 5} | ({} if cost is None else {"cost": cost})
            said = EntryDraft(content="x", role="user", agent_id="user", audience=heard)
            turns.record(tx, made, said, Outcome(usage=used), key=key, trigger="user")
        assert budgets.spent(tx, team, 0) == budgets.Spent(30, 0.25)
        assert budgets.spent(tx, team, tx.now + 1) == budgets.Spent(0, 0.0)


def test_a_month_ends_with_the_year(gateway: Running) -> None:
    began, ends = budgets.periods(parse_iso("2026-12-31T23:00:00Z"))["month"]
    assert (began, ends) == (parse_iso("2026-12-01T00:00:00Z"), parse_iso("2027-01-01T00:00:00Z"))
