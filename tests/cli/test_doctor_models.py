"""What `holdfast doctor` and `holdfast status` tell of models and contexts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_stage import Run
from talk_builders import Scripted, scripted, write_config

from holdfast.agents.models import ModelRef, StoredLessons
from holdfast.agents.models.lessons import Lesson, Remembered
from holdfast.log import OWNER
from holdfast.runtime import open_home
from holdfast.testing import Call, Say

__all__ = ["scripted"]


def findings(run: Run, check: str, *args: str) -> dict[str, str]:
    rows = json.loads(run("doctor", "--json", *args).stdout)
    assert all(row["mend"] for row in rows if row["check"] == check and row["level"] != "ok")
    return {row["message"]: row["level"] for row in rows if row["check"] == check}


def test_a_key_is_told_by_its_name_and_the_model_that_it_would_bring(
    run: Run, home: Path, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted([], models={}, agents={})
    assert (
        findings(run, "models")["agent main has no model: holdfast/recall answers from memory alone"]
        == "warn"
    )
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-very-secret-value")
    told = findings(run, "models")
    assert "very-secret" not in str(told)
    (key,) = [said for said in told if said.startswith("anthropic: credential")]
    assert "ANTHROPIC_API_KEY" in key
    assert any(said.startswith("agent main asks anthropic/") for said in told)
    assert told["openai: no key (OPENAI_API_KEY)"] == "ok"


def test_a_server_on_this_machine_is_found_and_used(run: Run, home: Path, scripted: Scripted) -> None:
    server = scripted([])
    write_config(home, server.url, models={"providers": {"ollama": {"baseUrl": server.url}}}, agents={})
    told = findings(run, "models")
    assert told[f"ollama: at {server.url}: scripted"] == "ok"
    assert told["agent main asks ollama/scripted"] == "ok"
    assert json.loads(run("status", "--json").stdout)["model"] == "ollama/scripted"


def test_a_model_that_cannot_be_asked_is_a_failure(run: Run, scripted: Scripted) -> None:
    scripted(
        [], agents={"defaults": {"model": {"primary": "scripted/m", "fallbacks": ["openai/x", "nowhere/y"]}}}
    )
    told = findings(run, "models")
    assert told["agent main cannot ask openai/x: there is no credential for openai"] == "fail"
    assert len([said for said in told if said.startswith("agent main cannot ask nowhere/y")]) == 1


def test_a_context_with_a_hole_is_found_and_mended(run: Run, home: Path, scripted: Scripted) -> None:
    from dataclasses import replace

    from holdfast.context.lossless import check, projections
    from holdfast.log import sessions
    from holdfast.runtime import open_home

    scripted([Say("Hello.")])
    run("agent", "-m", "Hi")
    with open_home(home) as hold, hold.store.write(OWNER) as tx:
        session = sessions.find(tx, "agent:main:main")
        whole = projections.of(tx, session.id, retain_depth=2)
        projections.save(tx, replace(whole, items=()))
        assert [problem.code for problem in check(tx, session.id)] == ["uncovered"]
    (said,) = findings(run, "context")
    assert said.startswith(f"the context of session {session.id} is broken: entries ")
    assert run("doctor").exit_code == 1
    mended = findings(run, "context", "--fix")
    assert mended == {"every entry can be reached: looked at all sessions (1)": "ok"}


def test_status_tells_the_model_and_what_waits(run: Run, home: Path, scripted: Scripted) -> None:
    scripted(
        [Call("exec", {"command": "echo 1 > one"}), Say("Done.")], tools={"exec": {"askTimeoutSeconds": 600}}
    )
    assert run("agent", "-m", "make one", "--timeout", "2").exit_code == 1
    body = json.loads(run("status", "--json").stdout)
    assert (body["model"], body["runningTurns"], body["approvalsWaiting"]) == ("scripted/m", 0, 1)
    lines = dict(line.split(None, 1) for line in run("status").stdout.splitlines())
    assert (lines["model"], lines["running"], lines["approvals"]) == ("scripted/m", "no turns", "1 waiting")
    assert lines["engine"] == "legacy"


def test_status_tells_how_far_token_estimates_were_off(run: Run, home: Path) -> None:
    from holdfast.context import calibration
    from holdfast.runtime import open_home

    assert run("init").exit_code == 0
    assert "none yet" in run("status").output
    with open_home(home) as hold, hold.store.write(OWNER) as tx:
        calibration.observe(tx, "scripted/one", estimated_raw=1_000, reported=1_250)
    told = json.loads(run("status", "--json").output)["tokenEstimates"]
    assert told["scripted/one"]["samples"] == 1
    assert "scripted/one" in run("status").output


def test_a_window_that_is_small_is_told_with_how_it_is_shared(
    run: Run, home: Path, scripted: Scripted
) -> None:
    server = scripted([])
    models = [{"id": id_, "contextWindow": size} for id_, size in (("a", 4_096), ("b", 1_024), ("c", 32_768))]
    chosen = {"primary": "small/a", "fallbacks": ["small/b", "small/c"]}
    providers = {"small": {"baseUrl": server.url, "apiKey": "none", "models": models}}
    write_config(home, server.url, models={"providers": providers}, agents={"defaults": {"model": chosen}})
    told = findings(run, "models")
    (small,) = [said for said in told if "small/a has 4,096 tokens" in said]
    assert told[small] == "warn"
    assert "1,024 for the answer, 430 for tools" in small
    (smallest,) = [said for said in told if "small/b has 1,024 tokens" in said]
    assert told[smallest] == "fail"
    assert not any("small/c has" in said for said in told)


def test_a_workspace_file_that_is_cut_is_told(run: Run, home: Path, scripted: Scripted) -> None:
    scripted([])
    run("init")
    (home / "workspace" / "AGENTS.md").write_text("A rule.\n" * 3_750)
    told = findings(run, "workspace")
    cut = "the workspace of main: AGENTS.md has 30,000 characters; 12,000 are shown (bootstrapMaxChars)."
    assert told[cut] == "warn"
    assert "AGENTS.md has 30,000 characters" in run("status").stdout


def test_a_slot_that_names_no_engine_is_told(run: Run, scripted: Scripted) -> None:
    scripted([], plugins={"slots": {"contextEngine": "gone"}})
    (said,) = [said for said, level in findings(run, "context").items() if level == "fail"]
    assert said.startswith("plugins.slots.contextEngine names 'gone'")


def test_an_engine_that_is_not_there_is_told_by_doctor_and_status(run: Run, scripted: Scripted) -> None:
    scripted([], plugins={"slots": {"contextEngine": "gone"}})
    assert run("agent", "-m", "Hello").exit_code == 1
    failed = [said for said, level in findings(run, "context").items() if level == "fail"]
    assert any("context engine 'gone' fails" in said for said in failed)
    body = json.loads(run("status", "--json").stdout)
    [used] = [one for one in body["engines"] if one["selected"]]
    assert (used["engine"], used["registered"]) == ("gone", False)
    assert used["failures"] >= 1
    assert "gone IS NOT THERE: every turn fails" in run("status").stdout


def test_an_engine_that_is_switched_off_is_told(run: Run, scripted: Scripted) -> None:
    plugins = {"slots": {"contextEngine": "lossless"}, "entries": {"lossless": {"enabled": False}}}
    scripted([], plugins=plugins)
    told = findings(run, "context")
    assert told["context engine 'lossless' is switched off: 'legacy' builds contexts"] == "warn"


def test_the_context_of_a_turn_that_did_not_fit_is_shown(run: Run, scripted: Scripted) -> None:
    scripted(
        [], tools={"catalogue": "all"}, agents={"defaults": {"model": "scripted/m", "contextTokens": 3_072}}
    )
    failed = run("agent", "-m", "Hello")
    assert failed.exit_code == 1
    assert "The largest part is tools" in failed.stderr
    shown = run("context", "show").stdout
    assert "not sent: the context needs" in shown
    assert "tools ×" in shown
    assert json.loads(run("context", "show", "--json").stdout)["refused"].startswith("the context needs")


def test_agents_are_listed_by_the_name_that_they_have(run: Run, home: Path, scripted: Scripted) -> None:
    own = [{"id": "main", "identity": {"emoji": "⚓"}}, {"id": "work", "name": "Clerk"}]
    scripted([], agents={"defaults": {"model": "scripted/m"}, "list": own})
    run("init")
    (home / "workspace" / "IDENTITY.md").write_text("---\nname: Logic\nemoji: x\n---\n")
    found = {row["id"]: row for row in json.loads(run("agents", "list", "--json").stdout)}
    assert (found["main"]["name"], found["main"]["identity"]["emoji"]) == ("Logic", "⚓")
    assert found["work"]["name"] == "Clerk"
    assert "Logic" in run("agents", "list").stdout


def test_what_a_server_taught_is_told_where_it_limits_a_model(
    run: Run, home: Path, scripted: Scripted
) -> None:
    refusal = "System role not supported"
    pictures = "This model does not support image input"
    server = scripted([])
    write_config(home, server.url)
    run("sessions", "list")
    with open_home(home) as hold:
        keeper, now = StoredLessons(hold.store), hold.clock.now()
        for fact, why in (("system", refusal), ("images", pictures)):
            keeper.save(Remembered(ModelRef("scripted", "m"), "here", Lesson(fact, False, why), now))
    told = [said for said in findings(run, "models") if "learned" in said]
    assert len(told) == 1
    assert told[0].startswith("scripted/m takes no pictures, learned ")
    assert pictures in told[0]
