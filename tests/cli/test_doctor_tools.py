"""What `holdfast doctor` tells of the tool policy and of sandboxes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_stage import Run


def tools(run: Run, home: Path, config: dict[str, object]) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    (home / "holdfast.json").write_text(json.dumps(config))
    rows = json.loads(run("doctor", "--json").stdout)
    assert all(row["mend"] for row in rows if row["check"] == "tools" and row["level"] != "ok")
    return {row["message"]: row["level"] for row in rows if row["check"] == "tools"}


def test_a_name_that_is_no_tool_is_told_with_its_place(run: Run, home: Path) -> None:
    deny = {"profile": "coding", "deny": ["exce", "group:web"]}
    own = {"alsoAllow": ["mesage", "message"], "byProvider": {"openai": {"deny": ["group:fss"]}}}
    told = tools(run, home, {"tools": deny, "agents": {"list": [{"id": "main", "tools": own}, {"id": "b"}]}})
    assert told == {
        "tools.deny names 'exce', which is no tool and no group": "warn",
        "agents.main.tools.alsoAllow names 'mesage', which is no tool and no group": "warn",
        "agents.main.tools.byProvider.openai.deny names 'group:fss', which is no tool and no group": "warn",
    }
    assert tools(run, home, {}) == {"every name in the tool policy is a tool's": "ok"}


def test_a_sandbox_that_cannot_be_had_is_a_failure(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    told = tools(run, home, {"agents": {"defaults": {"sandbox": {"mode": "all"}}}})
    ((said, level),) = told.items()
    assert said.startswith("agent main: there is no sandbox: bwrap is not installed")
    assert level == "fail"


def fake(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


DOCKER: dict[str, object] = {"agents": {"defaults": {"sandbox": {"mode": "all", "backend": "docker"}}}}


def test_docker_without_an_engine_is_a_failure_and_with_one_is_not(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'dead'}:{os.environ['PATH']}")
    fake(tmp_path / "dead", "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    ((said, level),) = tools(run, home, DOCKER).items()
    assert "its engine does not answer: Cannot connect to the Docker daemon" in said
    assert level == "fail"
    monkeypatch.setenv("PATH", f"{tmp_path / 'alive'}:{os.environ['PATH']}")
    fake(tmp_path / "alive", "docker", "echo 28.0.1")
    assert tools(run, home, DOCKER) == {"agent main: sandboxed by docker": "ok"}


def test_skills_and_identities_that_cannot_be_read_are_told_with_file_line_and_reason(
    run: Run, home: Path
) -> None:
    run("init")
    skill = home / "workspace" / "skills" / "odd" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: odd\nmetadata: {broken\ndescription: x\n---\n")
    identity = home / "workspace" / "IDENTITY.md"
    identity.write_text("---\nname: Kai\nname: Mia\n---\n")
    rows = [row for row in json.loads(run("doctor", "--json").stdout) if row["check"] == "skills"]
    told = {row["message"]: row["level"] for row in rows}
    assert told == {
        f"{skill}: line 4: not YAML: expected ',' or '}}', but got ':'": "warn",
        f"{identity}: line 3: name is there twice": "warn",
    }
    assert all(row["mend"] for row in rows)
    skill.write_text("---\nname: odd\ndescription: x\n---\n")
    identity.write_text("no head at all")
    rows = [row for row in json.loads(run("doctor", "--json").stdout) if row["check"] == "skills"]
    assert [row["level"] for row in rows] == ["ok"]
