"""The pages' chat is a channel like the others: listed, addressed, delivered to once and in order."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from channel_stage import ended, killable, stage
from serving import running, wait_for

from builders import PATIENCE
from holdfast.channels import ChannelAdmin, Surface
from holdfast.config import Config, InvalidConfig, parse_config
from holdfast.errors import InvalidInput
from holdfast.home import Home
from holdfast.log import OWNER
from holdfast.people import Role, teams, users
from holdfast.runtime import open_home
from holdfast.testing import Asked, Call, Say
from holdfast.testing.script import text_of


@pytest.fixture
def home(tmp_path: Path, sqlite_template: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    (made / "holdfast.db").write_bytes(sqlite_template.read_bytes())
    return made


def script(asked: Asked) -> Say | Call:
    """`do {…}` is a call of the message tool; what came of it is said."""
    last = asked.messages[-1]
    if last.get("role") == "tool":
        return Say(f"done: {text_of(last.get('content'))}")
    said = text_of(last.get("content"))
    if "do {" in said:
        return Call("message", json.loads(said[said.index("{") : said.rindex("}") + 1]))
    return Say("All right.")


def words(api: httpx.Client, key: str) -> list[str]:
    found = api.get(f"/api/sessions/{key}/transcript", params={"limit": 100})
    return [one["content"] for one in found.json()] if found.status_code == 200 else []


def test_an_agent_reaches_people_and_teams_on_the_pages_and_nobody_else(home: Path) -> None:
    with stage(home, script) as here:
        hold, api = here.gateway.hold, here.api
        hold.config.patch({"tools": {"profile": "messaging"}})
        with hold.store.write(OWNER) as tx:
            ann = users.add(tx, "ann", role=Role.MEMBER, password=users.hashed("a long enough one"))
            users.add(tx, "bob", role=Role.MEMBER)
            teams.add(tx, "tide", agents=["main"])
            teams.join(tx, "tide", ann)

        def do(**call: object) -> str:
            body = {"message": f"do {json.dumps(call)}", "sessionKey": "agent:main:main"}
            made = api.post("/api/agent", json=body)
            return str(ended(api, made.json()["runId"])["reply"])

        assert '"accepted"' in do(target="web:dm:ann", text="High tide at noon.")
        assert '"accepted"' in do(target="web:group:tide", text="Low tide at six.")
        here.settled()
        own, shared = f"agent:main:dm:{ann.id}", "agent:main:team:tide"
        assert words(api, own) == ["High tide at noon."]
        assert words(api, shared) == ["Low tide at six."]
        assert "High tide" in do(action="read", target="web:dm:ann")
        with here.gateway.client() as page:
            login = page.post("/api/login", json={"login": "ann", "password": "a long enough one"})
            assert login.status_code == 200, login.text
            assert words(page, own) == ["High tide at noon."]
            assert words(page, shared) == ["Low tide at six."]
            assert words(page, "agent:main:main") == []
        for call in ({"target": "web:group:tide:thread:1"}, {"target": "web:dm:ann", "threadId": "1"}):
            assert "no threads and no accounts" in do(text="In no thread.", **call)
        with pytest.raises(InvalidInput, match="no threads"):
            ChannelAdmin(hold.store, lambda: hold.settings).send("web:group:tide:thread:1", "No.")
        do(target="web:dm:bob", text="No team of his has this agent.")
        wait_for(lambda: api.get("/api/deliveries", params={"status": "failed"}).json())
        [failed] = api.get("/api/deliveries", params={"status": "failed"}).json()
        assert (failed["channel"], failed["error"]) == ("web", "nobody reads web:dm:bob on the pages")
        listed = {one["name"]: one for one in api.get("/api/channels").json()}
        assert (listed["web"]["state"], listed["web"]["adapter"]) == ("connected", "web")
        assert listed["web"]["lastOutboundAt"] is not None
        hold.config.patch({"channels": {"pier": None}})
        assert '"accepted"' in do(target="web:dm:ann", text="The pages are the only channel now.")


def test_files_that_an_agent_sends_stand_with_its_words_for_whoever_reads_them(home: Path) -> None:
    with stage(home, script) as here:
        hold, api = here.gateway.hold, here.api
        hold.config.patch({"tools": {"profile": "messaging"}})
        with hold.store.write(OWNER) as tx:
            for login in ("ann", "eve"):
                teams_of = users.add(tx, login, role=Role.MEMBER, password=users.hashed("a long enough one"))
                teams.add(tx, f"team-{login}", agents=["main"])
                teams.join(tx, f"team-{login}", teams_of)
        workspace = hold.home.path / "workspace"
        workspace.mkdir(exist_ok=True)
        (workspace / "tides.csv").write_text("noon,high\n")
        (workspace / "tool.bin").write_bytes(b"\x7fELF")

        def do(**call: object) -> str:
            body = {"message": f"do {json.dumps(call)}", "sessionKey": "agent:main:main"}
            return str(ended(api, api.post("/api/agent", json=body).json()["runId"])["reply"])

        sent = {"target": "web:dm:ann", "text": "The tides."}
        assert "are not taken" in do(**sent, attachments=["tool.bin"])
        assert '"accepted"' in do(**sent, attachments=["tides.csv"])
        here.settled()
        for login, seen in (("ann", 200), ("eve", 404)):
            with here.gateway.client() as page:
                page.post("/api/login", json={"login": login, "password": "a long enough one"})
                who = page.get("/api/whoami").json()["userId"]
                said = page.get("/api/conversation", params={"sessionKey": f"agent:main:dm:{who}"}).json()
                if login == "ann":
                    [entry] = said["entries"]
                    [file] = entry["files"]
                    assert (entry["content"], file["fileName"], file["mimeType"]) == (
                        "The tides.",
                        "tides.csv",
                        "text/csv",
                    )
                got = page.get(f"/api/attachments/{file['id']}")
                assert got.status_code == seen, login
                assert login == "eve" or got.text == "noon,high\n"


def test_bindings_choose_who_answers_on_the_pages(home: Path) -> None:
    with stage(home, script) as here:
        here.gateway.hold.config.patch(
            {
                "agents": {"list": [{"id": "main", "default": True}, {"id": "clerk"}]},
                "bindings": [{"agentId": "clerk", "match": {"channel": "web"}}],
            }
        )
        with here.gateway.client() as page:
            page.headers["Origin"] = here.gateway.url
            assert page.post("/api/login", json={"token": here.gateway.admin}).status_code == 200
            assert page.get("/api/whoami").json()["agentId"] == "clerk"
            run = page.post("/api/agent", json={"message": "hello"}).json()
            assert run["sessionKey"] == "agent:clerk:main"
        by_token = here.api.post("/api/agent", json={"message": "hello"}).json()
        assert by_token["sessionKey"] == "agent:main:main"


def test_through_a_kill_what_is_sent_to_the_pages_stands_there_once_and_in_order(home: Path) -> None:
    with stage(home, script):
        pass  # the config is written
    said = [f"number {number}" for number in range(12)]
    with open_home(home) as hold:
        office = ChannelAdmin(hold.store, lambda: hold.settings)
        for text in said:
            office.send("web:dm:owner", text)

    def client(url: str) -> httpx.Client:
        token = {"Authorization": f"Bearer {Home(home).admin_token()}"}
        return httpx.Client(base_url=url, headers=token, timeout=PATIENCE, verify=False)

    with killable(home) as url, client(url) as api:
        wait_for(lambda: len(words(api, "agent:main:main")) >= 3)
    with open_home(home) as hold, running(hold) as gateway, client(gateway.url) as api:
        wait_for(lambda: api.get("/api/deliveries", params={"status": "pending"}).json() == [])
        assert words(api, "agent:main:main") == said


def test_the_pages_chat_takes_few_settings_and_no_other_channel_has_its_name() -> None:
    assert parse_config('{"channels": {"web": {"enabled": false}}}').channels["web"].enabled is False
    with pytest.raises(InvalidConfig, match=r"channels\.web\.url"):
        parse_config('{"channels": {"web": {"url": "https://chat.example/x"}}}')
    assert Surface.parse("web:dm:owner").address == "web:dm:owner"
    assert Config().channels == {}
