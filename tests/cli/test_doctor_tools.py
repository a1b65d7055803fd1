"""What `holdfast doctor` tells of the tool policy and of sandboxes."""

from __future__ import annotations

import json
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
