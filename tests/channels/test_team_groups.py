"""A group of a chat service that is a team's: its members read it, its agent answers, its budget pays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from channel_stage import Stage, stage
from serving import assert_problem, wait_for

from holdfast.log import OWNER
from holdfast.people import Role, contacts, teams, users
from holdfast.testing import Asked, Say

PASSWORD = "a long enough one"
PEOPLE = {"ann": "tide", "eve": "tide", "bob": "kelp", "adm": "kelp"}
ROLES = {"eve": Role.VIEWER, "adm": Role.ADMIN}


def script(asked: Asked) -> Say:
    return Say("Aye.")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Stage]:
    """Two teams with an agent each; everybody linked their chat on the pier."""
    home = tmp_path_factory.mktemp("team-groups")
    (home / "holdfast.db").write_bytes(sqlite_template.read_bytes())
    with stage(home, script, groupPolicy="allowlist") as found:
        agents = [{"id": "main", "default": True}, {"id": "clerk"}, {"id": "cook"}]
        found.gateway.hold.config.patch({"agents": {"list": agents}})
        hashed = users.hashed(PASSWORD)
        with found.gateway.hold.store.write(OWNER) as tx:
            teams.add(tx, "tide", agents=["clerk"])
            teams.add(tx, "kelp", agents=["cook"])
            for login, team in PEOPLE.items():
                user = users.add(tx, login, role=ROLES.get(login, Role.MEMBER), password=hashed)
                teams.join(tx, team, user)
                code = contacts.make_code(tx, "link", user_id=user.id)
                contacts.link(tx, code, f"pier:{login}", f"pier:dm:{login}")
        yield found


@contextmanager
def page_of(here: Stage, login: str) -> Iterator[httpx.Client]:
    with here.gateway.client(Origin=here.gateway.url) as page:
        assert page.post("/api/login", json={"login": login, "password": PASSWORD}).status_code == 200
        yield page


def attach(here: Stage, group: str, team: str = "tide") -> httpx.Response:
    return here.api.post(f"/api/teams/{team}/channels", json={"address": f"pier:group:{group}"})


def say(here: Stage, who: str, group: str, text: str = "@clerk, when is high tide?") -> dict[str, Any]:
    told = here.write(text, sender={"id": who, "name": who}, peer={"kind": "group", "id": group})
    if told.get("runId"):
        assert here.run(told)["status"] == "committed"
    return told


def words(client: httpx.Client, key: str) -> list[str]:
    found = client.get(f"/api/sessions/{key}/transcript", params={"limit": 100})
    return [one["content"] for one in found.json()] if found.status_code == 200 else []


def test_what_is_said_in_a_teams_group_is_its_members_and_no_other_teams(here: Stage) -> None:
    before = say(here, "ann", "quay")
    assert before["state"] == "ignored", "a group that is nobody's is treated as ever"
    assert {"address": "pier:group:quay", "exposed": False} in attach(here, "quay").json()["channels"]
    used = here.api.get("/api/teams/tide/usage").json()["day"]["tokens"]
    assert say(here, "ann", "quay")["state"] == "answered"
    key = "agent:clerk:pier:group:quay"
    said = ["[ann] @clerk, when is high tide?", "Aye."]
    assert here.api.get(f"/api/sessions/{key}").json()["audience"] == "space:team-tide"
    for login, reads in (("ann", said), ("eve", said), ("bob", []), ("adm", [])):
        with page_of(here, login) as page:
            assert words(page, key) == reads, login
            listed = [one["sessionKey"] for one in page.get("/api/sessions").json()]
            assert (key in listed) == bool(reads), login
            found = page.get("/api/log", params={"limit": 100}).json()
            assert any("high tide" in one["content"] for one in found) == bool(reads), login
    assert here.api.get("/api/teams/tide/usage").json()["day"]["tokens"] > used
    assert here.api.get("/api/teams/kelp/usage").json()["day"]["tokens"] == 0
    refused = say(here, "eve", "quay")
    assert (refused["state"], refused["reason"]) == ("ignored", "eve reads, and may not talk to agents")


def test_a_group_that_others_write_in_is_the_teams_no_longer_until_that_is_said_again(here: Stage) -> None:
    attach(here, "mole")
    assert say(here, "ann", "mole")["state"] == "answered"
    assert say(here, "bob", "mole")["state"] == "ignored", "one of another team is not known here"
    [team] = [one for one in here.api.get("/api/teams").json() if one["id"] == "tide"]
    assert {"address": "pier:group:mole", "exposed": True} in team["channels"]
    assert say(here, "ann", "mole")["state"] == "ignored", "it is a group like others now"
    owner = say(here, "ada", "mole", "@main, and now?")
    assert owner["state"] == "answered"
    session = here.api.get("/api/sessions/agent:main:pier:group:mole").json()
    assert session["audience"] == "group:pier::mole"
    assert attach(here, "mole").status_code == 200
    assert say(here, "ann", "mole")["state"] == "answered"
    with page_of(here, "ann") as page:
        assert words(page, "agent:main:pier:group:mole") == [], "what the others heard is not made the team's"


def test_a_spent_budget_is_told_in_the_group(here: Stage) -> None:
    attach(here, "weir")
    assert say(here, "ann", "weir")["state"] == "answered"
    here.settled()
    told = len(here.end.texts)
    assert here.api.patch("/api/teams/tide", json={"budget": {"tokensPerDay": 1}}).status_code == 200
    try:
        refused = say(here, "ann", "weir")
        assert refused["state"] == "ignored"
        wait_for(lambda: len(here.end.texts) > told)
        assert "team tide has used its 1 tokens of the day" in here.end.texts[-1]
    finally:
        here.api.patch("/api/teams/tide", json={"budget": {}})


def test_a_binding_chooses_among_the_teams_agents_and_never_another(here: Stage) -> None:
    config = here.gateway.hold.config
    here.api.patch("/api/teams/tide", json={"agents": ["clerk", "main"]})
    attach(here, "lock")
    try:
        for bound, answers in (("main", "main"), ("cook", "clerk")):
            match = {"channel": "pier", "peer": {"kind": "group", "id": "lock"}}
            config.patch({"bindings": [{"agentId": bound, "match": match}]})
            assert say(here, "ann", "lock", f"@{answers}, hello")["state"] == "answered", bound
            assert words(here.api, f"agent:{answers}:pier:group:lock")
    finally:
        config.patch({"bindings": []})
        here.api.patch("/api/teams/tide", json={"agents": ["clerk"]})


def test_only_the_owner_gives_a_group_to_one_team(here: Stage) -> None:
    for login, code in (("ann", "role_forbidden"), ("adm", "role_forbidden"), ("eve", "forbidden")):
        with page_of(here, login) as page:
            body = {"address": "pier:group:dock"}
            assert_problem(page.post("/api/teams/tide/channels", json=body), 403, code)
            assert_problem(page.delete("/api/teams/tide/channels", params=body), 403, code)
    assert attach(here, "dock").status_code == 200
    assert_problem(attach(here, "dock", "kelp"), 409, "channel_taken")
    assert_problem(attach(here, "dock", "nobody"), 404, "unknown_team")
    for address in ("pier:dm:ann", "pier:group:dock:thread:1", "pier/second:group:dock", "web:group:tide"):
        answer = here.api.post("/api/teams/tide/channels", json={"address": address})
        assert_problem(answer, 422, "bad_surface")
    gone = here.api.delete("/api/teams/tide/channels", params={"address": "pier:group:dock"})
    assert "pier:group:dock" not in [one["address"] for one in gone.json()["channels"]]
    again = here.api.delete("/api/teams/tide/channels", params={"address": "pier:group:dock"})
    assert_problem(again, 404, "unknown_channel")
    assert attach(here, "dock", "kelp").status_code == 200
    here.gateway.hold.config.patch({"channels": {"pier": {"private": ["desk"]}}})
    assert_problem(attach(here, "desk"), 409, "private_surface")
    acts = [one["act"] for one in here.api.get("/api/audit/trail").json()]
    assert {"team.channel_added", "team.channel_removed"} <= set(acts)


def test_a_group_of_a_team_that_ended_is_one_like_others(here: Stage) -> None:
    assert here.api.post("/api/teams", json={"id": "brief", "agents": ["clerk"]}).status_code == 201
    attach(here, "slip", "brief")
    assert here.api.delete("/api/teams/brief").status_code == 200
    assert say(here, "ada", "slip", "@main, hello")["state"] == "answered"
    session = here.api.get("/api/sessions/agent:main:pier:group:slip").json()
    assert session["audience"] == "group:pier::slip"
