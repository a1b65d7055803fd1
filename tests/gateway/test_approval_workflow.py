"""Approvals by people: who may, how many, in whose stead, asked and answered where they are."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_stage import agents_serving
from serving import Running, assert_problem, events, wait_for

sys.path.append(str(Path(__file__).parents[1] / "channels"))

from channel_stage import SECRET, FarEnd, call, far_end

from holdfast.agents.approvals import Approval, ApprovalRequest, requests, workflow
from holdfast.channels import Inbound, Surface
from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.errors import Forbidden
from holdfast.log import FOR_OWNER, OWNER, SYSTEM, Store, agenda, for_space, outbox, sessions
from holdfast.people import Role, User, contacts, teams, users
from holdfast.testing import Say
from plans import recorded

PASSWORD = "correct horse battery"
TEAM, KITCHEN, OWN = "agent:main:team:research", "agent:main:team:kitchen", "agent:main:main"
RULES = [
    {"tools": ["exec"], "teams": ["research"], "approvers": ["team:research", "user:adm"]},
    {"tools": ["file_write"], "approvers": ["role:member"], "people": 2, "private": True},
    {"tools": ["exec"], "agents": ["other"], "approvers": ["user:bob"], "private": True},
]
Stage = tuple[Running, FarEnd]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Stage]:
    home = tmp_path_factory.mktemp("workflow") / "home"
    with far_end() as end:
        channel = {"url": end.url, "signingSecret": SECRET, "dmPolicy": "open", "streaming": "off"}
        config: dict[str, Any] = {
            "teams": {"approvals": {"rules": RULES, "remindMinutes": 2}},
            "channels": {"pier": channel},
        }
        with agents_serving(home, sqlite_template, lambda asked: Say("Noted."), **config) as (gateway, _):
            with gateway.client(Authorization=f"Bearer {gateway.admin}") as owner:
                assert owner.post("/api/teams", json={"id": "research", "agents": ["main"]}).is_success
                for login, role in (
                    ("ada", "member"),
                    ("ann", "member"),
                    ("bob", "member"),
                    ("adm", "admin"),
                ):
                    body = {"login": login, "role": role, "password": PASSWORD}
                    assert owner.post("/api/users", json=body).is_success
                for login in ("ada", "ann"):
                    assert owner.put(f"/api/teams/research/members/{login}").is_success
            with gateway.hold.store.write(OWNER) as tx:
                sessions.ensure(tx, TEAM, agent_id="main", audience=for_space("team-research"))
                sessions.ensure(tx, KITCHEN, agent_id="main", audience=for_space("team-kitchen"))
                sessions.ensure(tx, OWN, agent_id="main", audience=FOR_OWNER)
            yield gateway, end


@pytest.fixture
def gateway(stage: Stage) -> Running:
    return stage[0]


@pytest.fixture
def owner(gateway: Running) -> Iterator[httpx.Client]:
    with gateway.client(Authorization=f"Bearer {gateway.admin}") as client:
        yield client


@contextmanager
def page_of(gateway: Running, login: str) -> Iterator[httpx.Client]:
    with gateway.client(Origin=gateway.url) as page:
        answer = page.post("/api/login", json={"login": login, "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        yield page


def asked(gateway: Running, key: str = TEAM, tool: str = "exec", agent: str = "main") -> Approval:
    """An agent asks for something that nobody asked for before."""
    asked.count = getattr(asked, "count", 0) + 1  # type: ignore[attr-defined]
    command = f"make thing {asked.count}"  # type: ignore[attr-defined]
    wish = ApprovalRequest(
        agent_id=agent,
        tool=tool,
        command=command,
        arguments={"command": command},
        reason="not on the list",
        session_key=key,
    )
    with gateway.hold.store.write(SYSTEM) as tx:
        return requests.request(tx, wish, lasts_ms=3_600_000)


def answer(client: httpx.Client, id_: str, decision: str = "approve") -> httpx.Response:
    return client.post(f"/api/approvals/{id_}", json={"decision": decision})


def waiting(client: httpx.Client) -> set[str]:
    return {one["id"] for one in client.get("/api/approvals").json()}


def test_those_whom_a_rule_names_decide_and_nobody_else_learns_of_it(
    gateway: Running, owner: httpx.Client
) -> None:
    before = waiting(owner)
    of_team, of_owner, of_others = asked(gateway), asked(gateway, OWN), asked(gateway, KITCHEN)
    with page_of(gateway, "ada") as ada, page_of(gateway, "bob") as bob, page_of(gateway, "adm") as adm:
        assert waiting(ada) - before == waiting(adm) - before == {of_team.id}
        assert waiting(bob) - before == set()
        assert_problem(answer(bob, of_team.id), 404, "unknown_approval")
        for page in (ada, adm):
            assert_problem(answer(page, of_owner.id), 404, "unknown_approval")
            assert_problem(answer(page, of_others.id), 404, "unknown_approval")
        assert_problem(answer(ada, of_team.id, "allow"), 403, "owner_only")
        done = answer(ada, of_team.id).json()
        assert (done["status"], done["decidedBy"]) == ("approved", "user:ada")
        assert_problem(answer(adm, of_team.id, "deny"), 409, "approval_decided")
    for one in (of_owner, of_others):
        assert answer(owner, one.id, "deny").json()["status"] == "denied"
    acts = owner.get("/api/audit/trail", params={"target": of_team.id}).json()
    assert [(one["act"], one["actor"], one["surface"]) for one in acts] == [
        ("approval.approved", "user:ada", "page")
    ]


def test_the_decision_shows_at_once_on_the_pages_of_all_who_may_decide(gateway: Running) -> None:
    heard: list[str] = []
    with page_of(gateway, "ada") as ada, page_of(gateway, "adm") as adm, page_of(gateway, "bob") as bob:
        with adm.stream("GET", "/api/stream") as live:
            wish = asked(gateway)
            assert answer(ada, wish.id).json()["status"] == "approved"
            for event in events(live):
                heard.append(str(event))
                if wish.id in heard[-1] and "user:ada" in heard[-1]:
                    break
        assert '"approved"' in heard[-1].replace("'", '"')
        assert wish.id not in bob.get("/api/changes", params={"limit": 1000}).text
        assert wish.id in adm.get("/api/changes", params={"limit": 1000}).text


def test_a_rule_is_for_its_agent_and_its_tool(gateway: Running) -> None:
    of_other, of_main = asked(gateway, OWN, agent="other"), asked(gateway, OWN)
    with page_of(gateway, "bob") as bob:
        assert waiting(bob) == {of_other.id}
        assert_problem(answer(bob, of_main.id), 404, "unknown_approval")
        assert answer(bob, of_other.id, "deny").json()["status"] == "denied"


def test_where_two_must_agree_one_person_is_one_however_often_they_say_yes(
    gateway: Running, owner: httpx.Client
) -> None:
    both = asked(gateway, OWN, "file_write")
    with page_of(gateway, "ada") as ada, page_of(gateway, "bob") as bob:
        assert_problem(answer(owner, both.id, "allow"), 409, "needs_more")
        for _ in range(2):
            told = answer(ada, both.id).json()
            assert (told["status"], told["approvedBy"], told["needed"]) == ("pending", ["user:ada"], 2)
        done = answer(bob, both.id).json()
        assert (done["status"], done["decidedBy"]) == ("approved", "user:ada, user:bob")
        one = asked(gateway, OWN, "file_write")
        answer(ada, one.id)
        assert answer(bob, one.id, "deny").json()["status"] == "denied"


def test_the_owner_is_one_of_two_as_well(gateway: Running, owner: httpx.Client) -> None:
    both = asked(gateway, OWN, "file_write")
    assert answer(owner, both.id).json()["status"] == "pending"
    with page_of(gateway, "ann") as ann:
        assert answer(ann, both.id).json()["status"] == "approved"


def test_who_stands_in_for_somebody_away_decides_for_them_and_only_meanwhile(
    gateway: Running, owner: httpx.Client
) -> None:
    clock = gateway.hold.clock
    assert isinstance(clock, ManualClock)
    with page_of(gateway, "ada") as ada, page_of(gateway, "bob") as bob:
        first = asked(gateway)
        assert_problem(answer(bob, first.id), 404, "unknown_approval")
        wrong = ada.put("/api/me/away", json={"until": clock.now() + 60_000, "delegate": "ada"})
        assert_problem(wrong, 422, "bad_delegate")
        away = ada.put("/api/me/away", json={"until": clock.now() + 60_000, "delegate": "bob"})
        assert away.json()["delegate"] == "bob"
        assert answer(bob, first.id).json()["status"] == "approved"
        (act,) = owner.get("/api/audit/trail", params={"target": first.id}).json()
        assert (act["actor"], act["onBehalfOf"]) == ("user:bob", "user:ada")
        second = asked(gateway)
        clock.advance(seconds=61)
        assert_problem(answer(bob, second.id), 404, "unknown_approval")
        assert ada.get("/api/me/away").json() == {"until": None, "delegate": None}


def chat(gateway: Running, who: str, text: str) -> dict[str, Any]:
    chat.count = getattr(chat, "count", 0) + 1  # type: ignore[attr-defined]
    body = {"id": f"w{chat.count}", "text": text, "sender": {"id": who, "name": who}}  # type: ignore[attr-defined]
    return call(gateway.url, body | {"peer": {"kind": "dm", "id": who}}, channel="pier")


def test_people_are_asked_and_reminded_in_their_own_chat_and_answer_there(
    stage: Stage, owner: httpx.Client
) -> None:
    gateway, end = stage
    clock = gateway.hold.clock
    assert isinstance(clock, ManualClock)
    with page_of(gateway, "ann") as ann:
        code = ann.post("/api/me/contacts").json()["code"]
        chat(gateway, "ann7", f"/link {code}")

        def linked() -> set[str]:
            return {one["handle"] for one in ann.get("/api/me/contacts").json()}

        wait_for(lambda: "pier:ann7" in linked())
        before = linked()
        chat(gateway, "mal", f"/link {code}")
        assert linked() == before
        wish = asked(gateway)

        def told(words: str) -> list[str]:
            return [p.text for p in end.posts if p.body["to"]["id"] == "ann7" and words in p.text]

        wait_for(lambda: told(f"Waits for approval: exec of agent main\n{wish.command}"))
        clock.advance(seconds=121)
        gateway.on_loop(gateway.hold.store.signals.notify_all)
        wait_for(lambda: told("Still waiting"))
        chat(gateway, "mal", f"/approve {wish.id}")
        wait_for(lambda: any("people who are known here" in text for text in end.texts))
        assert wish.id in waiting(ann)
        chat(gateway, "ann7", f"/approve {wish.id}")
        wait_for(lambda: wish.id not in waiting(ann))
        wait_for(lambda: told(f"exec ({wish.id}) is approved by user:ann."))
        (act,) = owner.get("/api/audit/trail", params={"target": wish.id}).json()
        assert (act["actor"], act["surface"]) == ("user:ann", "pier")


def test_whose_name_somebody_only_writes_under_decides_and_links_nothing(stage: Stage) -> None:
    """A mail can say that it is from anybody: only what the service vouches for counts as theirs."""
    gateway, end = stage
    wish = asked(gateway)
    with gateway.hold.store.write(SYSTEM) as tx:
        ann = users.get(tx, "ann")
        contacts.link(tx, contacts.make_code(tx, "link", user_id=ann.id), "pier:ann9", "pier:dm:ann9")
        code = contacts.make_code(tx, "link", user_id=ann.id)
    for sender, text in (("ann9", f"/approve {wish.id}"), ("mal9", f"/link {code}")):
        surface, id_ = Surface.parse(f"pier:dm:{sender}"), f"forged-{sender}"
        forged = Inbound(surface=surface, message_id=id_, sender=sender, text=text, proven=False)
        receiving = gateway.hold.agency.channels.receive(forged)
        asyncio.run_coroutine_threadsafe(receiving, gateway.loop).result(30)
    wait_for(lambda: sum("not certain who writes" in text for text in end.texts) == 2)
    with gateway.hold.store.read(OWNER) as tx:
        assert requests.get(tx, wish.id).decided_by is None
        assert contacts.at(tx, "pier:mal9") is None


def test_a_button_is_an_answer_of_whoever_the_service_says_pressed_it(gateway: Running) -> None:
    wish = asked(gateway)
    settings = gateway.hold.settings
    with gateway.hold.store.write(SYSTEM) as tx:
        code = contacts.make_code(tx, "link", user_id=users.get(tx, "ann").id)
        contacts.link(tx, code, "pier:ann8", "pier:dm:ann8")
    with pytest.raises(Forbidden), gateway.hold.store.write(SYSTEM) as tx:
        workflow.answer(tx, settings, "pier:mal", wish.id, "approve")
    with gateway.hold.store.write(SYSTEM) as tx:
        assert workflow.answer(tx, settings, "pier:ann8", wish.id, "deny").decided_by == "user:ann"


def test_people_who_agree_at_the_same_time_are_counted_by_either_engine(store: Store) -> None:
    settings = Config.model_validate({"teams": {"approvals": {"rules": RULES}}}).teams
    with store.write(SYSTEM) as tx:
        both = [users.add(tx, login, role=Role.MEMBER) for login in ("ada", "bob")]
        wish = ApprovalRequest(agent_id="main", tool="file_write", command="c", arguments={}, reason="")
        made = requests.request(tx, wish, lasts_ms=3_600_000)

    def agree(user: User) -> str:
        return store.run(
            SYSTEM,
            lambda tx: workflow.decide(tx, settings, workflow.person(user), made.id, "approve").status.value,
        )

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(agree, both)) == ["approved", "pending"]
    with store.read(SYSTEM) as tx:
        assert {one.person for one in workflow.votes_of(tx, [made.id])[made.id]} == {one.id for one in both}


def test_each_part_of_a_rule_narrows_or_widens_who_decides(sqlite_store: Store) -> None:
    """By themselves: the rules say who may, whatever asks them."""
    settings = Config.model_validate({"teams": {"approvals": {"rules": RULES}}}).teams
    with sqlite_store.write(SYSTEM) as tx:
        teams.add(tx, "research")
        ada, bob = (users.add(tx, login, role=Role.MEMBER) for login in ("ada", "bob"))
        adm = users.add(tx, "adm", role=Role.ADMIN)
        teams.join(tx, "research", ada)
        sessions.ensure(tx, TEAM, agent_id="main", audience=for_space("team-research"))
        sessions.ensure(tx, KITCHEN, agent_id="main", audience=for_space("team-kitchen"))

        def deciding(key: str, tool: str = "exec", agent: str = "main") -> tuple[set[str], int]:
            wish = ApprovalRequest(
                agent_id=agent, tool=tool, command=f"{key}{tool}", arguments={}, reason="", session_key=key
            )
            found = workflow.case(tx, settings, requests.request(tx, wish, lasts_ms=60_000))
            return {one.login for one in workflow.deciders(tx, found)}, found.needed

        assert deciding(TEAM) == ({"ada", "adm"}, 1)
        assert deciding(KITCHEN) == (set(), 1)
        assert deciding(OWN) == (set(), 1)
        assert deciding(OWN, agent="other") == ({"bob"}, 1)
        assert deciding(OWN, "file_write") == ({"ada", "bob"}, 2)
        assert deciding(TEAM, "web_fetch") == (set(), 1)
        users.change(tx, bob, disabled=True)
        users.change(tx, adm, role=Role.VIEWER)
        assert deciding(OWN, "file_write", "other") == ({"ada"}, 2)


def test_who_was_asked_is_asked_again_after_as_long_as_the_config_says(sqlite_store: Store) -> None:
    config = Config.model_validate({"teams": {"approvals": {"rules": RULES, "remindMinutes": 3}}})
    with sqlite_store.write(SYSTEM) as tx:
        boss = users.add(tx, "boss", role=Role.OWNER)
        contacts.link(tx, contacts.make_code(tx, "link", user_id=boss.id), "pier:boss", "pier:dm:boss")
        wish = ApprovalRequest(agent_id="main", tool="exec", command="c", arguments={}, reason="")
        made = requests.request(tx, wish, lasts_ms=3_600_000)
        workflow.ask_people(tx, config, made.id, 0)
        due = {one.due_at - tx.now for one in agenda.listing(tx) if one.kind == requests.ASKING}
        assert due == {0, 3 * 60_000}
        assert outbox.sent_to(tx, f"approval:{made.id}:") == [("pier", "pier:dm:boss")]


@pytest.mark.parametrize("login", ["ada", None])
def test_a_list_of_many_calls_asks_the_store_no_more_often_than_one_of_few(
    gateway: Running, owner: httpx.Client, login: str | None
) -> None:
    """Else hundreds who look at their approvals wait for one another."""

    def statements(client: httpx.Client) -> int:
        """Those of others who work on the same store meanwhile are among them."""
        with recorded(gateway.hold.store) as seen:
            assert client.get("/api/approvals?limit=499").status_code == 200
        return len(seen)

    with page_of(gateway, login) if login else nullcontext(owner) as page:
        before, few = waiting(page), statements(page)
        new = {asked(gateway).id for _ in range(40)}
        wait_for(lambda: new <= waiting(page))
        wait_for(lambda: statements(page) <= few + 4)
        for id_ in new:
            assert answer(owner, id_, "deny").is_success
        assert waiting(page) == before


def test_nobody_agrees_to_what_they_asked_for_themselves(gateway: Running, owner: httpx.Client) -> None:
    with page_of(gateway, "ada") as ada, page_of(gateway, "ann") as ann:
        run = ada.post("/api/agent", json={"message": "Go.", "sessionKey": TEAM}).json()["runId"]
        ada.get(f"/api/agent/{run}/wait", params={"timeoutMs": 60_000})
        wish = ApprovalRequest(
            agent_id="main",
            tool="exec",
            command="make own",
            arguments={},
            reason="",
            session_key=TEAM,
            turn_id=run,
        )
        with gateway.hold.store.write(SYSTEM) as tx:
            made = requests.request(tx, wish, lasts_ms=3_600_000)
        assert_problem(answer(ada, made.id), 404, "unknown_approval")
        assert answer(ann, made.id).json()["status"] == "approved"
