"""Real coding agents and the MCP inspector against a gateway, with scripted models on loopback.

`HOLDFAST_CODING_AGENTS=DIR` names a folder in which `npm install @anthropic-ai/claude-code @openai/codex
@modelcontextprotocol/inspector` was run; without it these are skipped by name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from serving import Running, running, wait_for

from holdfast.adopt import Report
from holdfast.adopt.coding_agents import sessions_of
from holdfast.adopt.conversations import take_over
from holdfast.cli.client import announced
from holdfast.coding_agents import connect, hook
from holdfast.runtime import open_home
from holdfast.testing import Asked, Call, Say, ScriptedAnthropic, Turn
from holdfast.testing.openai import ScriptedResponses

PROGRAMS = Path(os.environ.get("HOLDFAST_CODING_AGENTS", "/nowhere")) / "node_modules" / ".bin"
# The programs need a newer Node than many machines have: that of the development environment.
PATH = f"{Path(sys.executable).parent}:{PROGRAMS}:{os.environ['PATH']}"
SECONDS = 180
RECALL = "mcp__holdfast__recall"


def needs(program: str) -> pytest.MarkDecorator:
    there = (PROGRAMS / program).exists()
    return pytest.mark.skipif(not there, reason=f"{program} is not installed (npm; HOLDFAST_CODING_AGENTS)")


def answer(asked: Asked) -> Turn:
    """Looks the heron up with our tool if it is there, and says what it was told."""
    said = json.dumps(asked.messages[-1])
    if "nests in the reeds" in said and "tool_result" in said:
        return Say("It nests in the reeds, says your memory.")
    if RECALL in asked.tools and "Where does the heron nest" in json.dumps(asked.messages[-3:]):
        return Call(RECALL, {"query": "where does the heron nest"}, id="toolu_recall")
    return Say("Understood.")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with (
        open_home(tmp_path_factory.mktemp("live") / "home") as hold,
        running(hold) as found,
        announced(hold.home, found.url),
    ):
        yield found


class ClaudeCode:
    """The real program in print mode, in a home and a project of its own."""

    def __init__(self, folder: Path, gateway: Running, model: ScriptedAnthropic) -> None:
        self.home, self.project, self.gateway = folder / "user", folder / "boat", gateway
        self.home.mkdir()
        self.project.mkdir()
        settings = self.home / connect.SETTINGS["claude-code"]
        line = connect.command("claude-code", gateway.hold.home)
        connect.write_settings(settings, connect.with_hooks({}, "claude-code", line))
        server = {
            "type": "http",
            "url": f"{gateway.url}/mcp",
            "headers": {"Authorization": f"Bearer {gateway.admin}"},
            "alwaysLoad": True,
        }
        self.servers = folder / "mcp.json"
        self.servers.write_text(json.dumps({"mcpServers": {"holdfast": server}}))
        self.env = {
            "HOME": str(self.home),
            "PATH": PATH,
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def say(self, text: str, *more: str) -> dict[str, Any]:
        line = [str(PROGRAMS / "claude"), "-p", text, "--output-format", "json", "--allowedTools", RECALL]
        line += ["--mcp-config", str(self.servers), "--strict-mcp-config", *more]
        done = subprocess.run(
            line,
            cwd=self.project,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def logged(api: httpx.Client, session: str, count: int, host: str = "claude-code") -> list[tuple[str, str]]:
    rows: list[dict[str, Any]] = []

    def there() -> bool:
        key = f"{host}:boat|thread:{session}"
        rows[:] = api.get("/api/log", params={"sessionKey": key, "limit": 100}).json()
        return len(rows) >= count

    wait_for(there)
    return [(row["agentId"], row["content"]) for row in rows[::-1]]


@needs("claude")
def test_claude_code_logs_its_session_gets_the_block_and_calls_our_tools(
    gateway: Running, tmp_path: Path
) -> None:
    with gateway.client(gateway.admin) as api, ScriptedAnthropic(answer) as model:
        note = {"type": "note", "agentId": "main", "content": "The heron nests in the reeds behind the boat"}
        assert api.post("/api/log", json=note).status_code == 201
        claude = ClaudeCode(tmp_path, gateway, model)
        first = claude.say("Where does the heron nest, exactly?")
        assert first["result"] == "It nests in the reeds, says your memory."
        session = first["session_id"]
        told = [
            ("user", "Where does the heron nest, exactly?"),
            ("claude-code", "It nests in the reeds, says your memory."),
        ]
        assert logged(api, session, 2) == told
        assert any("CLAWBOARD_CONTEXT_BEGIN" in json.dumps(one.messages) for one in model.requests)

        before = len(model.requests)
        claude.say("And what did I ask you before?", "--resume", session)
        more = [("user", "And what did I ask you before?"), ("claude-code", "Understood.")]
        assert logged(api, session, 4) == told + more
        given = json.dumps([one.messages for one in model.requests[before:]])
        assert "Where does the heron nest, exactly?" in given

        word = gateway.hold.home.path / "gateway.json"
        kept = word.read_text()
        word.write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": 1}))
        try:
            claude.say("Said while nobody listens", "--resume", session)
        finally:
            word.write_text(kept)
        assert list((gateway.hold.home.path / hook.HOOKS / "spool").glob("*.json"))
        claude.say("Said when it is back again", "--resume", session)
        words = [text for _, text in logged(api, session, 8)]
        assert words.count("Said while nobody listens") == 1
        assert len(words) == 8

        report = Report("", False)
        take_over(
            gateway.hold,
            sessions_of("claude-code", claude.home / ".claude" / "projects"),
            report,
            dry_run=False,
        )
        again = [text for _, text in logged(api, session, 8)]
        assert [text for text in again if again.count(text) > words.count(text) and text in words] == []


def codex_answer(asked: Asked) -> Turn:
    """The same for Codex, whose tools of others stand in a space of their own; and it lists files."""
    given = list(asked.body["input"])
    last = max(index for index, one in enumerate(given) if one.get("role") == "user")
    told, done = json.dumps(given[last]), [one["call_id"] for one in given[last:] if "output" in one]
    if "Where does the heron nest" in told:
        if "call_recall" in done:
            return Say("It nests in the reeds, says your memory.")
        return Call("mcp__holdfast/recall", {"query": "where does the heron nest"}, id="call_recall")
    if "Show me the planks" in told:
        if "call_cat" in done:
            return Say("Oak, says the file.")
        return Call("exec_command", {"cmd": "cat planks.txt"}, id="call_cat")
    return Say("Understood.")


class Codex:
    """The real program, run once a prompt, as a user has it who typed `holdfast connect codex`."""

    def __init__(self, folder: Path, gateway: Running, model: ScriptedResponses) -> None:
        self.home, self.project = folder / "user", folder / "boat"
        self.home.mkdir()
        self.project.mkdir()
        (self.project / "planks.txt").write_text("oak\n")
        self.env = {"HOME": str(self.home), "PATH": PATH, "OPENAI_API_KEY": "scripted"}
        self.env["HOLDFAST_TOKEN"] = gateway.admin
        line = [sys.executable, "-m", "holdfast.cli", "--home", str(gateway.hold.home.path)]
        done = subprocess.run(
            [*line, "connect", "codex", "--json"], env=self.env, capture_output=True, check=True
        )
        self.connected: dict[str, Any] = json.loads(done.stdout)
        (self.home / ".codex/config.toml").write_text(
            'model = "scripted"\nmodel_provider = "scripted"\n'
            f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{model.url}"\n'
            'wire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
            f'[mcp_servers.holdfast]\nurl = "{gateway.url}/mcp"\nbearer_token_env_var = "HOLDFAST_TOKEN"\n'
            "required = true\n"
        )

    def say(self, text: str, *more: str) -> list[dict[str, Any]]:
        trusted = ["--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox"]
        line = [str(PROGRAMS / "codex"), "exec", "--json", "--skip-git-repo-check", *trusted, *more, text]
        done = subprocess.run(
            line,
            cwd=self.project,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(one) for one in done.stdout.splitlines()]


@needs("codex")
def test_codex_logs_its_session_gets_the_block_and_calls_our_tools(gateway: Running, tmp_path: Path) -> None:
    with gateway.client(gateway.admin) as api, ScriptedResponses(codex_answer) as model:
        note = {"type": "note", "agentId": "main", "content": "The heron nests in the reeds behind the boat"}
        assert api.post("/api/log", json=note).status_code == 201
        codex = Codex(tmp_path, gateway, model)
        assert codex.connected["ok"], codex.connected
        first = codex.say("Where does the heron nest, exactly?")
        complaints = [one["item"]["message"] for one in first if one.get("item", {}).get("type") == "error"]
        assert [one for one in complaints if "hooks.json" in one] == []
        calls = [one["item"] for one in first if one.get("item", {}).get("type") == "mcp_tool_call"]
        assert "nests in the reeds" in json.dumps(calls[-1]["result"])
        session = first[0]["thread_id"]
        told = [
            ("user", "Where does the heron nest, exactly?"),
            ("codex", "It nests in the reeds, says your memory."),
        ]
        assert logged(api, session, 2, "codex") == told
        assert any("CLAWBOARD_CONTEXT_BEGIN" in json.dumps(one.body["input"]) for one in model.requests)

        codex.say("Show me the planks", "resume", session)
        words = [text for _, text in logged(api, session, 5, "codex")]
        assert words[2] == "Show me the planks"
        assert words[4] == "Oak, says the file."
        assert "cat planks.txt" in words[3]

        word = gateway.hold.home.path / "gateway.json"
        kept = word.read_text()
        word.write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": 1}))
        try:
            codex.say("Said while nobody listens", "resume", session)
        finally:
            word.write_text(kept)
        codex.say("Said when it is back again", "resume", session)
        words = [text for _, text in logged(api, session, 9, "codex")]
        assert words.count("Said while nobody listens") == 1
        assert len(words) == 9

        sessions = sessions_of("codex", codex.home / ".codex" / "sessions")
        report = take_over(gateway.hold, sessions, Report("", False), dry_run=False)
        assert report.entries_added == 0, logged(api, session, 10, "codex")


@needs("mcp-inspector")
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_the_inspector_lists_and_calls_our_tools(gateway: Running, transport: str) -> None:
    line = [str(PROGRAMS / "mcp-inspector"), "--cli", "--connect-timeout", "120000"]
    if transport == "http":
        line += [f"{gateway.url}/mcp", "--transport", "http"]
        line += ["--header", f"Authorization: Bearer {gateway.admin}"]
    else:
        line += [sys.executable, "-m", "holdfast.cli", "mcp", "--home", str(gateway.hold.home.path)]
    for call in (["--method", "tools/list"], ["--method", "tools/call", "--tool-name", "board"]):
        done = subprocess.run(
            [*line, *call],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "PATH": PATH},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert '"tools"' in done.stdout or "structuredContent" in done.stdout
