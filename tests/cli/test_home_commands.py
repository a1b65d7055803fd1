from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
from click.testing import Result

import forks
from builders import PATIENCE
from holdfast.config import load_config, parse_config
from holdfast.templates import FILES, template

Run = Callable[..., Result]


def test_init_writes_a_home_and_never_overwrites(run: Run, home: Path) -> None:
    assert run("init").exit_code == 0
    workspace = home / "workspace"
    assert all((workspace / name).read_bytes() == template(name) for name in FILES)
    assert (workspace / "memory").is_dir()
    assert (home / "holdfast.json").stat().st_mode & 0o777 == 0o600
    (workspace / "SOUL.md").write_text("mine")
    (workspace / "BOOTSTRAP.md").unlink()
    (workspace / "USER.md").unlink()
    (home / "holdfast.json").write_text("{}")
    written = json.loads(run("init", "--json").stdout)["written"]
    assert written == [str(workspace / "USER.md")]
    assert (workspace / "SOUL.md").read_text() == "mine"
    assert (home / "holdfast.json").read_text() == "{}"


def test_status_counts_what_is_there(run: Run) -> None:
    run("init")
    body = json.loads(run("status", "--json").stdout)
    assert (body["gateway"]["running"], body["store"]["engine"], body["log"]["head"]) == (False, "sqlite", 0)
    assert (body["agents"], body["configErrors"]) == (["main"], [])
    assert max(map(len, run("status").stdout.splitlines())) <= 160


def test_status_with_a_broken_config_says_so_and_fails(run: Run, home: Path) -> None:
    run("init")
    (home / "holdfast.json").write_text('{"gatway": {}, "store": {"poolSize": -1}}')
    result = run("status", "--json")
    assert result.exit_code == 1
    assert len(json.loads(result.stdout)["configErrors"]) == 2


def levels(run: Run, *args: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in json.loads(run("doctor", "--json", *args).stdout):
        found.setdefault(row["check"], set()).add(row["level"])
        assert row["level"] == "ok" or row["mend"] or row["check"] == "store"
    return found


def test_the_doctor_finds_and_mends(run: Run, home: Path) -> None:
    assert levels(run)["home"] == {"fail"}
    run("init")
    run("token")
    (home / "credentials/token").chmod(0o644)
    home.chmod(0o755)
    (home / "workspace/SOUL.md").unlink()
    sick = levels(run)
    assert (sick["token"], sick["home"]) == ({"fail"}, {"warn"})
    assert (sick["workspace"], sick["store"]) == ({"warn"}, {"warn"})
    assert run("doctor").exit_code == 1
    well = levels(run, "--fix")
    for name in ("token", "home", "workspace", "store"):
        assert well[name] == {"ok"}
    assert levels(run)["store"] == {"ok"}


def test_the_doctor_lists_every_fault_of_the_config(run: Run, home: Path) -> None:
    run("init")
    (home / "holdfast.json").write_text('{"gatway": {}, "store": {"poolSize": -1}}')
    result = run("doctor")
    assert result.exit_code == 1
    assert "gatway" in result.stdout
    assert "store.poolSize" in result.stdout


IDLE = """{
  // mine
  channels: {
    telegram: { botToken: "x", dmPolicy: "open" }, // one day
    discord: { private: ["42"] },
  },
  teams: { list: { crew: {} }, auditDays: 30 },
  agents: { list: [{ id: "main", colour: "red" }] }, // one agent
}
"""


def test_settings_that_do_nothing_stop_the_start_and_the_doctor_takes_them_out(run: Run, home: Path) -> None:
    run("init")
    config = home / "holdfast.json"
    config.write_text(IDLE)
    refused = run("skills", "list")
    assert refused.exit_code == 2
    assert "doctor --fix" in refused.stderr
    sick = [row["message"] for row in json.loads(run("doctor", "--json").stdout) if row["check"] == "config"]
    assert [message.partition(":")[0] for message in sick] == [
        "agents.list[0].colour",
        "channels.telegram.botToken",
        "teams.list",
    ]
    assert levels(run, "--fix")["config"] == {"ok"}
    kept = config.read_text()
    assert "// mine" in kept
    assert "// one agent" in kept
    assert load_config(config) == parse_config(
        '{channels: {discord: {private: ["42"]}}, teams: {auditDays: 30}, agents: {list: [{id: "main"}]}}'
    )
    assert (home / "holdfast.json.bak").read_text() == IDLE


def test_the_lenient_go_on_without_settings_that_do_nothing(run: Run, home: Path) -> None:
    run("init")
    (home / "holdfast.json").write_text(IDLE)
    assert run("status").exit_code == 1
    assert run("--lenient", "status").exit_code == 0
    told = json.loads(run("--lenient", "doctor", "--json").stdout)
    assert {row["level"] for row in told if row["check"] == "config"} == {"warn"}
    assert "--lenient" in run("up", "--help").stdout


def test_bindings_are_listed_with_their_comments(run: Run, home: Path) -> None:
    run("init")
    (home / "holdfast.json").write_text(
        '{bindings: [{agentId: "main", match: {channel: "slack"}, comment: "the office"}]}'
    )
    assert "the office" in run("agents", "bindings").stdout


def test_the_doctor_sees_a_port_that_is_taken(run: Run, home: Path) -> None:
    run("init")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (home / "holdfast.json").write_text(json.dumps({"gateway": {"port": port}}))
        assert levels(run)["port"] == {"fail"}


def test_up_sets_everything_up_serves_and_stops_cleanly(run: Run, home: Path) -> None:
    command = [sys.executable, "-m", "holdfast.cli", "up", "--home", str(home), "--port", "0"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = forks.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
    try:
        assert process.stdout is not None
        url = link = ""
        for line in process.stdout:
            if line.startswith("Holdfast is running at "):
                url = line.split()[-1]
            if line.startswith("Log in with"):
                link = line.split()[-1]
                break
        token = run("token").output.strip()
        transport = httpx.HTTPTransport(retries=20)
        with httpx.Client(transport=transport, base_url=url, trust_env=False, timeout=PATIENCE) as client:
            assert client.get("/healthz").status_code == 200
            answer = client.get("/api/whoami", headers={"Authorization": f"Bearer {token}"})
            assert answer.json()["scope"] == "admin"
            assert link.startswith(f"{url}/#code=")
            assert client.post("/api/login", json={"code": link.partition("=")[2]}).status_code == 200
            another = run("token", "--link").output.strip()
            assert another.startswith(f"{url}/#code=")
            assert client.post("/api/login", json={"code": another.partition("=")[2]}).status_code == 200
        seen = json.loads(run("status", "--json").stdout)["gateway"]
        assert (seen["running"], seen["url"]) == (True, url)
        assert (home / "workspace/AGENTS.md").is_file()
        assert (home / "gateway.json").stat().st_mode & 0o077 == 0
        other = run("up", "--port", "0")
        assert (other.exit_code, url in other.stderr) == (1, True)
        assert json.loads(run("status", "--json").stdout)["gateway"]["url"] == url
        second = run("up", "--port", url.rpartition(":")[2])
        assert second.exit_code == 1
        assert "already" in second.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    assert not (home / "gateway.json").exists()
