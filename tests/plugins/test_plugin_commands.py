"""`holdfast plugins`: what is shown, what is put in place after a yes, and what is left when it goes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from plugin_stage import plugin

from holdfast.cli.root import cli
from holdfast.config import load_config

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins" / "last-twenty"
CLI = """
import click
@click.group()
def tides(): "Tides."
@tides.command()
def now(): click.echo("low")
def register(api): api.register_cli(tides)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOLDFAST_HOME", "HOLDFAST_STORE", "HOLDFAST_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test is a process of its own to the example's module."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("last_twenty", None)


def run(home: Path, *args: object, **options: Any) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), *map(str, args)], **options)


def shown(home: Path) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in json.loads(run(home, "plugins", "list", "--json").stdout)}


def wheel(folder: Path) -> Path:
    """The example as its author would publish it, made without a network."""
    path = folder / "holdfast_last_twenty-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((EXAMPLE / "last_twenty").iterdir()):
            if file.is_file():
                archive.write(file, f"last_twenty/{file.name}")
        info = "holdfast_last_twenty-0.1.0.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: holdfast-last-twenty\nVersion: 0.1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.parametrize("kind", ["folder", "link", "wheel", "index"])
def test_a_plugin_is_installed_after_a_yes_and_gone_after_another(
    home: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: list[object] = [EXAMPLE] if kind in ("folder", "link") else [wheel(tmp_path)]
    if kind == "index":
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        source = ["holdfast-last-twenty"]
    options = ["-l"] if kind == "link" else []
    refused = run(home, "plugins", "install", *options, *source, input="n\n")
    assert refused.exit_code == 1
    assert "build what the model sees" in refused.stderr
    assert shown(home) == {}
    done = run(home, "plugins", "install", *options, *source, "--yes")
    assert done.exit_code == 0, done.output
    assert load_config(home / "holdfast.json").plugins.engine == "last-twenty"
    told = json.loads(run(home, "plugins", "info", "last-twenty", "--json").stdout)
    assert told["source"].startswith(f"{kind}: ")
    assert (len(told["sha256"]), told["changed"], told["state"]) == (64, False, "validated")
    assert (home / "plugins" / "last-twenty").is_symlink() == (kind == "link")
    checked = run(home, "plugins", "doctor")
    assert checked.exit_code == 0, checked.output
    gone = run(home, "plugins", "uninstall", "last-twenty", "--yes")
    assert gone.exit_code == 0, gone.output
    assert load_config(home / "holdfast.json").plugins.engine == "legacy"
    assert shown(home) == {}


def test_files_that_changed_since_they_were_installed_are_told_of(home: Path) -> None:
    run(home, "plugins", "install", EXAMPLE, "--yes")
    with (home / "plugins" / "last-twenty" / "last_twenty" / "__init__.py").open("a") as file:
        file.write("\n# more\n")
    assert json.loads(run(home, "plugins", "info", "last-twenty", "--json").stdout)["changed"]
    assert "are not those that were installed" in run(home, "doctor").stdout


def test_switching_off_and_on_is_in_the_config_and_in_the_list(home: Path) -> None:
    plugin(home / "plugins", "def register(api): pass", id="one")
    plugin(home / "workspace" / "plugins", "def register(api): pass", id="two")
    assert {id_: p["state"] for id_, p in shown(home).items()} == {"one": "validated", "two": "off"}
    assert run(home, "plugins", "disable", "one").exit_code == 0
    assert shown(home)["one"]["state"] == "off"
    run(home, "plugins", "enable", "one")
    run(home, "plugins", "enable", "two")
    assert {id_: p["state"] for id_, p in shown(home).items()} == {"one": "validated", "two": "validated"}
    assert load_config(home / "holdfast.json").plugins.allow == ("one", "two")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["info", "none"], "no plugin 'none'"),
        (["enable", "none"], "no plugin 'none'"),
        (["uninstall", "none", "--yes"], "was installed in this home"),
        (["install", "-l", "no-such-folder", "--yes"], "there is no folder"),
        (["install", "no-such.whl", "--yes"], "there is no file"),
        (["install", "--yes", "--", "--index-url=x"], "not a package"),
    ],
)
def test_what_is_asked_wrongly_is_one_line_and_exit_2(home: Path, args: list[str], said: str) -> None:
    told = run(home, "plugins", *args)
    assert told.exit_code == 2
    assert said in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1


def test_a_folder_without_a_manifest_and_a_file_that_is_no_wheel_are_refused(
    home: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd.whl").write_text("no zip")
    assert "there is no manifest" in run(home, "plugins", "install", tmp_path / "empty", "--yes").stderr
    assert "is no wheel" in run(home, "plugins", "install", tmp_path / "odd.whl", "--yes").stderr


def test_doctor_and_status_tell_of_what_is_out_and_of_what_is_not_there(home: Path) -> None:
    (home / "plugins" / "odd").mkdir(parents=True)
    (home / "plugins" / "odd" / "holdfast.plugin.json").write_text("{}")
    plugin(home / "plugins", "1 / 0", id="zero")
    config = {"plugins": {"entries": {"ghost": {}}, "slots": {"memory": "ghost"}}}
    (home / "holdfast.json").write_text(json.dumps(config))
    told = run(home, "doctor").stdout
    assert "plugins.entries.ghost is for a plugin that is not there" in told
    assert "plugins.slots.memory names 'ghost'" in told
    assert "fail  plugins: odd: " in told
    loaded = run(home, "plugins", "doctor")
    assert loaded.exit_code == 1
    assert "zero: register raised ZeroDivisionError" in loaded.stdout


def test_a_plugin_adds_commands_that_help_does_not_load(home: Path) -> None:
    plugin(home / "plugins", CLI, id="sea", capabilities=["cli"])
    assert run(home, "tides", "now").stdout == "low\n"
    assert run(home, "no-such-command").exit_code == 2


def test_nothing_of_a_plugin_runs_before_the_yes(home: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    folder = tmp_path / "src"
    plugin(folder, f"open({str(mark)!r}, 'w')\ndef register(api): pass", id="sly")
    (folder / "sly" / "setup.py").write_text(f"open({str(mark)!r}, 'w')")
    run(home, "plugins", "install", folder / "sly", input="n\n")
    run(home, "plugins", "install", folder / "sly", "--yes")
    run(home, "plugins", "list")
    run(home, "plugins", "info", "sly")
    assert not mark.exists()


def test_help_stays_quick_by_not_importing_plugins() -> None:
    code = "import sys; from holdfast.cli.root import cli; cli(['--help'], standalone_mode=False)\n"
    code += "sys.exit('holdfast.plugins' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_the_doctor_says_that_a_name_in_the_policy_may_be_a_tool_of_a_plugins(home: Path) -> None:
    (home / "holdfast.json").write_text(json.dumps({"tools": {"deny": ["tide"]}}))
    assert "until then it allows and forbids nothing" in run(home, "doctor").stdout
    plugin(home / "plugins", "def register(api): pass", id="sea", capabilities=["tools"])
    assert "unless it is a tool of a plugin's (sea:" in run(home, "doctor").stdout


def test_an_engine_that_none_of_the_plugins_is_named_after_is_told_of(home: Path) -> None:
    plugin(home / "plugins", "def register(api): pass", id="deaf", capabilities=["contextEngine"])
    (home / "holdfast.json").write_text(json.dumps({"plugins": {"slots": {"contextEngine": "gone"}}}))
    told = run(home, "doctor").stdout
    assert "warn  context: plugins.slots.contextEngine names 'gone', which is no engine unless" in told
    assert "deaf" in told
    assert "names 'gone', which is no engine: every turn will fail" in run(home, "plugins", "doctor").stdout


def test_skills_that_a_manifest_names_are_listed_and_nothing_of_the_plugin_is_run(home: Path) -> None:
    plugin(home / "plugins", "1 / 0", id="knots", capabilities=["skills"], skills=["skills"])
    bowline = home / "plugins" / "knots" / "skills" / "bowline"
    bowline.mkdir(parents=True)
    (bowline / "SKILL.md").write_text("---\nname: bowline\ndescription: Tie it.\n---\nMake a loop.\n")
    listed = {one["name"] for one in json.loads(run(home, "skills", "list", "--json").stdout)}
    assert "bowline" in listed
    (bowline / "SKILL.md").write_text("no frontmatter")
    assert "bowline" in run(home, "doctor").stdout
    run(home, "plugins", "disable", "knots")
    assert "bowline" not in run(home, "skills", "list").output
