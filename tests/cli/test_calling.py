from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast import __version__
from holdfast.cli import output
from holdfast.cli.root import COMMANDS, cli

Run = Callable[..., Result]
HEAVY = ("sqlalchemy", "pydantic", "fastapi", "rich", "httpx", "alembic", "json5")


def one_line(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert "Traceback" not in result.output
    return line


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom holdfast.cli.root import cli\n"
        "try: cli(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_takes_a_home(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert "--home DIR" in result.output
    assert max(map(len, result.output.splitlines())) <= 100


def test_version_is_told() -> None:
    assert __version__ in CliRunner().invoke(cli, ["--version"]).output


def test_the_package_can_be_run_as_a_module() -> None:
    told = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True)
    assert (told.returncode, __version__ in told.stdout) == (0, True)


def test_the_home_may_stand_before_or_behind_the_command(home: Path) -> None:
    before = CliRunner().invoke(cli, ["--home", str(home), "token"])
    behind = CliRunner().invoke(cli, ["token", "--home", str(home)])
    by_name = CliRunner().invoke(cli, ["token"], env={"HOLDFAST_HOME": str(home)})
    assert before.output == behind.output == by_name.output
    assert (home / "credentials" / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["sessions", "nonsense"],
        ["sessions", "list", "--limit", "0"],
        ["sessions", "list", "--status", "odd"],
        ["sessions", "show"],
        ["sessions", "show", "agent:main:none"],
        ["sessions", "show", "\x1b[31m"],
        ["sessions", "reset", "nope"],
        ["sessions", "archive", "nope"],
        ["sessions", "export", "nope"],
        ["sessions", "import", "nope.jsonl", "--key", "agent:main:main"],
        ["sessions", "import", "nope.jsonl"],
        ["export-trajectory"],
        ["export-trajectory", "--session-key", "nope"],
        ["agents", "add", "Bad Id!"],
        ["agents", "add", "main"],
        ["agents", "remove", "nobody"],
        ["agents", "remove", "main"],
        ["agents", "bindings", "--explain"],
        ["agents", "bindings", "--explain", "planet=mars"],
        ["agents", "bindings", "--explain", "channel=discord", "peer=king:1"],
        ["agenda", "list", "--limit", "x"],
        ["tokens", "add", ""],
        ["tokens", "add", "x", "--scope", "root"],
        ["tokens", "add", "x", "--expires", "soon"],
        ["tokens", "revoke", "nobody"],
        ["import", "openclaw", "/does/not/exist"],
        ["store", "copy", "/does/not/exist.db", "/tmp/never.db"],
        ["store", "copy", "mysql://x/y", "/tmp/never.db"],
        ["store", "copy", "", ""],
        ["up", "--port", "70000"],
        ["up", "--store", "mysql://x/y"],
        ["init", "--colour"],
        ["doctor", "extra"],
        ["status", "--yaml"],
        ["token", "extra"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line_and_exit_two(run: Run, args: list[str]) -> None:
    assert run("init").exit_code == 0
    result = run(*args)
    assert result.exit_code == 2, result.output
    line = one_line(result)
    assert line.endswith((".", "…")) or "--help" in line or "=" in line


@pytest.mark.parametrize(
    "args",
    [["sessions", "list"], ["agents", "list"], ["store", "check"], ["tokens", "list"], ["status"]],
    ids=" ".join,
)
def test_a_home_that_is_not_there_is_not_made_by_looking(run: Run, home: Path, args: list[str]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert "holdfast init" in one_line(result)
    assert not home.exists()


def test_a_broken_config_names_the_key(run: Run, home: Path) -> None:
    run("init")
    (home / "holdfast.json").write_text('{"gateway": {"port": "many"}}')
    result = run("sessions", "list")
    assert result.exit_code == 2
    assert "gateway.port" in one_line(result)


def test_a_store_that_is_damaged_is_a_failure_not_wrong_use(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "holdfast.db").write_bytes(b"this is not a database" * 500)
    result = run("sessions", "list")
    assert result.exit_code == 1
    assert "damaged" in one_line(result)


def test_a_traceback_comes_only_when_asked_for(run: Run, home: Path) -> None:
    assert run("sessions", "show", "nope", "--traceback").exception is not None
    assert "Traceback" not in run("sessions", "show", "nope").output


def test_json_is_json_everywhere(run: Run) -> None:
    run("init")
    for args in (
        ["status"],
        ["doctor"],
        ["sessions", "list"],
        ["agents", "list"],
        ["agenda", "list"],
        ["tokens", "list"],
        ["agents", "bindings"],
        ["store", "check"],
        ["store", "migrate"],
        ["init"],
    ):
        json.loads(run(*args, "--json").stdout)


def test_tables_fit_eighty_columns_and_obey_nobody(tmp_path: Path) -> None:
    path = tmp_path / "out"
    rows = [[output.cell("agent:main:discord:channel:" + "9" * 90), output.cell("\x1b[31m[bold]red\nline")]]
    with path.open("w") as out:
        output.render_table(["key", "label"], rows, out, width=80)
    text = path.read_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "[bold]red" in text
