"""`holdfast service`: what it writes is what systemd takes, for this home and this program."""

from __future__ import annotations

import plistlib
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cli_stage import Run

from holdfast.cli.commands.service import Service, launchd_plist, systemd_unit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "config/systemd/user"


def line(unit: str, name: str) -> str:
    [found] = [each.partition("=")[2] for each in unit.splitlines() if each.startswith(f"{name}=")]
    return found


def test_a_service_is_written_shown_and_removed(run: Run, home: Path, folder: Path) -> None:
    run("init")
    dry = run("service", "install", "--dry-run")
    assert not folder.exists()
    done = run("service", "install")
    assert done.exit_code == 0, done.output
    unit = (folder / "holdfast.service").read_text()
    assert dry.stdout == f"# {folder / 'holdfast.service'}\n{unit}"
    assert shlex.split(line(unit, "ExecStart")) == [
        *(sys.executable, "-m", "holdfast", "up", "--no-link", "--home", str(home))
    ]
    assert (line(unit, "Restart"), line(unit, "RestartPreventExitStatus")) == ("on-failure", "2")
    for said in (str(folder / "holdfast.service"), "systemctl --user enable --now holdfast", "enable-linger"):
        assert said in done.stdout
    assert run("service", "status").exit_code == 1
    assert run("service", "uninstall").exit_code == 0
    assert not (folder / "holdfast.service").exists()
    assert run("service", "uninstall").exit_code == 2


def test_two_homes_have_services_of_their_own_and_a_strange_name_is_refused(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    run("init")
    run("init", "--home", tmp_path / "second")
    assert run("service", "install").exit_code == 0
    assert run("service", "install", "--name", "second", "--home", tmp_path / "second").exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["holdfast.service", "second.service"]
    assert run("service", "install", "--name", "../x").exit_code == 2


def strange(tmp_path: Path) -> Service:
    home = tmp_path / 'ho"me of $USER at 100%'
    return Service(name="holdfast", home=home, python=Path(sys.executable), grace_seconds=10, path="/bin")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="the program systemd-analyze is not here")
@pytest.mark.parametrize("odd", [False, True])
def test_systemd_finds_nothing_wrong_with_it(run: Run, folder: Path, tmp_path: Path, odd: bool) -> None:
    run("init")
    run("service", "install")
    file = folder / "holdfast.service"
    if odd:
        file.write_text(systemd_unit(strange(tmp_path)))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(file)], capture_output=True, text=True, timeout=60
    )
    complaints = [each for each in done.stderr.splitlines() if "holdfast.service" in each]
    assert (done.returncode, complaints) == (0, [])


def test_the_unit_s_own_command_starts_the_program(run: Run, folder: Path) -> None:
    run("init")
    run("service", "install")
    command = shlex.split(line((folder / "holdfast.service").read_text(), "ExecStart"))
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "--no-link" in done.stdout) == (0, True)


def test_the_file_for_macos_names_the_same_command(tmp_path: Path) -> None:
    wanted = strange(tmp_path)
    found = plistlib.loads(launchd_plist(wanted))
    assert found["ProgramArguments"] == wanted.command
    assert found["KeepAlive"] == {"SuccessfulExit": False}


def test_a_home_made_on_the_way_is_private(run: Run, home: Path) -> None:
    assert run("service", "install").exit_code == 0
    assert stat.S_IMODE((home / "credentials").stat().st_mode) == 0o700
