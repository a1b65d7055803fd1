"""What was elected is seen and taken back at the command line, over HTTP and in `/status`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from builders import soon
from holdfast.agents.loop import Ask
from holdfast.cli.root import cli
from holdfast.gateway.app import create_app
from holdfast.runtime import open_home
from holdfast.services import Services
from holdfast.testing import Call, Say, ScriptedOpenAI

KEY = "agent:main:main"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose agent has elected a turn in five minutes."""

    async def main() -> None:
        script = [Call("continue_work", {"reason": "look again", "delaySeconds": 300}), Say("Later.")]
        with ScriptedOpenAI(script) as server:
            provider = {"baseUrl": server.url, "apiKey": "none", "models": [{"id": "scripted"}]}
            agents = {"defaults": {"model": "scripted/scripted", "continuation": {"enabled": True}}}
            settings = {"models": {"providers": {"scripted": provider}}, "agents": agents}
            (tmp_path / "holdfast.json").write_text(json.dumps(settings))
            with open_home(tmp_path) as hold:
                async with Services(hold).running():
                    accepted = await hold.runs.accept(Ask(text="watch it", session_key=KEY))
                    assert (await soon(hold.runs.wait(accepted.run_id))).reply == "Later."
                    said = (await hold.runs.accept(Ask(text="/status", session_key=KEY))).reply
                    assert "Continuation: chain 1/10" in (said or "")

    asyncio.run(main())
    return tmp_path


def test_it_is_listed_and_cancelled_at_the_command_line_and_over_http(home: Path) -> None:
    listed = CliRunner().invoke(cli, ["--home", str(home), "continuation", "list", "--json"])
    found = json.loads(listed.output)
    assert [(one["kind"], one["text"], one["sessionKey"]) for one in found] == [("work", "look again", KEY)]
    assert "look again" in CliRunner().invoke(cli, ["--home", str(home), "continuation", "list"]).output
    with open_home(home) as hold, TestClient(create_app(hold)) as client:
        headers = {"Authorization": f"Bearer {hold.home.admin_token()}"}
        over_http = client.get("/api/continuation", headers=headers).json()
        assert [one["id"] for one in over_http] == [found[0]["id"]]
        unknown = client.delete("/api/continuation/cont-none", headers=headers)
        assert (unknown.status_code, unknown.headers["content-type"]) == (404, "application/problem+json")
        gone = client.delete(f"/api/continuation/{found[0]['id']}", headers=headers).json()
        assert gone["status"] == "cancelled"
        assert client.get("/api/continuation", headers=headers).json() == []
    again = CliRunner().invoke(cli, ["--home", str(home), "continuation", "list"])
    assert "Nothing was elected." in again.output
