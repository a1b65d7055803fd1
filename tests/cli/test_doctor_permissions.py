"""What `holdfast doctor` tells and mends of files that others may look into."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

from cli_stage import Run

from holdfast.cli.checks import check_permissions
from holdfast.cli.commands.doctor import Patient
from holdfast.home import Home
from holdfast.runtime import open_home

sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from serving import running


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def told(run: Run, *args: str) -> dict[str, object]:
    rows = json.loads(run("doctor", "--json", *args).stdout)
    (found,) = [row for row in rows if row["check"] == "files"]
    return dict(found)


def an_open_home(home: Path) -> list[Path]:
    """A home as an older version, another umask or a copy left it."""
    files = [
        home / name
        for name in (
            "holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "index/main/words.bin", "logs/holdfast.log",
            "credentials/logins/openai.json", "agents/main/outputs/one.txt", "workspace/AGENTS.md",
            "workspace/memory/2026-03-02.md",
        )
    ]  # fmt: skip
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("private")
        file.chmod(0o644)
    folders = {parent for file in files for parent in file.parents if parent.is_relative_to(home)}
    for folder in folders:
        folder.chmod(0o755)
    return [*files, *folders]


def test_files_that_others_may_look_into_are_named_and_mended(run: Run, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    paths = an_open_home(home)
    own = home / "workspace" / "deploy.sh"
    own.write_text("echo")
    own.chmod(0o755)
    elsewhere = tmp_path / "shared.txt"
    elsewhere.write_text("shared")
    elsewhere.chmod(0o644)
    (home / "logs" / "link").symlink_to(elsewhere)
    before = told(run)
    assert before["level"] == "warn"
    assert str(home) in str(before["message"])
    assert f"and {len(paths) - 5} more" in str(before["message"])
    after = told(run, "--fix")
    assert (after["level"], after["mended"]) == ("ok", True)
    paths = [path for path in paths if path.exists()]  # the doctor opened the store, which ended its WAL
    assert {path: mode(path) for path in paths} == {path: 0o700 if path.is_dir() else 0o600 for path in paths}
    assert (mode(own), mode(elsewhere)) == (0o755, 0o644)
    assert told(run) == {**after, "mended": False}


def test_a_workspace_elsewhere_is_looked_at_too(run: Run, home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o700)
    workspace = tmp_path / "elsewhere"
    workspace.mkdir(mode=0o755)
    (workspace / "MEMORY.md").write_text("private")
    (workspace / "MEMORY.md").chmod(0o640)
    config = home / "holdfast.json"
    config.write_text(json.dumps({"agents": {"list": [{"id": "main", "workspace": str(workspace)}]}}))
    config.chmod(0o600)
    assert str(workspace / "MEMORY.md") in str(told(run)["message"])
    told(run, "--fix")
    assert (mode(workspace), mode(workspace / "MEMORY.md")) == (0o700, 0o600)


def test_every_file_of_a_store_is_closed_by_what_the_doctor_does(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    paths = an_open_home(home)
    (finding,) = check_permissions(Patient(Home(home)))
    assert finding.fix is not None
    finding.fix()
    assert not [path for path in paths if mode(path) & 0o077]


def test_a_new_home_has_nothing_that_others_may_look_into(run: Run, home: Path) -> None:
    before = os.umask(0o022)
    try:
        run("init")
        with open_home(home) as hold, running(hold):
            pass
    finally:
        os.umask(before)
    assert told(run)["level"] == "ok", told(run)
