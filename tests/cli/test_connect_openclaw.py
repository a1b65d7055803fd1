from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from cli_stage import Run
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.commands.connect import Wanted, connected, disconnected
from holdfast.errors import InvalidInput

WANTED = Wanted(url="http://127.0.0.1:8787", token_file="/o/holdfast.token", plugin="/o/holdfast-plugin")
THEIRS = """{ // mine
  gateway: { auth: { token: "theirs" } },
  plugins: { slots: { memory: "memory-lancedb" } },
}
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "openclaw"
    folder.mkdir()
    (folder / "openclaw.json").write_text(THEIRS)
    return folder


def read(state: Path) -> dict[str, Any]:
    return dict(json.loads((state / "openclaw.json").read_text()))


def test_connecting_writes_the_config_with_a_backup_and_a_token_of_its_own(run: Run, state: Path) -> None:
    done = run("connect", "openclaw", state, "--url", "http://127.0.0.1:9")
    assert done.exit_code == 0, done.output
    config = read(state)
    plugins = config["plugins"]
    assert config["gateway"] == {"auth": {"token": "theirs"}}
    assert plugins["slots"] == {"memory": "memory-lancedb", "contextEngine": "holdfast"}
    assert "slot memory is held by 'memory-lancedb'" in done.output
    entry = plugins["entries"]["holdfast"]
    assert (entry["enabled"], entry["hooks"]) == (True, {"allowConversationAccess": True})
    (folder,) = plugins["load"]["paths"]
    assert (Path(folder) / "dist/index.js").is_file()
    token = Path(entry["config"]["tokenFile"])
    assert (token.stat().st_mode & 0o777, bool(token.read_text().strip())) == (0o600, True)
    assert token.read_text().strip() not in done.output + json.dumps(config)
    assert (state / "openclaw.json.before-holdfast.1").read_text() == THEIRS
    assert "no gateway answers" in done.output
    (listed,) = json.loads(run("tokens", "list", "--json").stdout)
    assert (listed["name"].startswith("openclaw-"), listed["scope"]) == (True, "write")


def test_connecting_again_changes_nothing_and_undoing_leaves_what_was_theirs(run: Run, state: Path) -> None:
    args = ("connect", "openclaw", state, "--url", "http://127.0.0.1:9")
    run(*args)
    first, token = read(state), (state / "holdfast.token").read_text()
    run(*args)
    assert (read(state), (state / "holdfast.token").read_text()) == (first, token)
    assert not (state / "openclaw.json.before-holdfast.2").exists()
    run("connect", "openclaw", state, "--undo")
    assert "holdfast" not in (state / "openclaw.json").read_text()
    assert read(state)["plugins"]["slots"] == {"memory": "memory-lancedb"}


def test_a_dry_run_and_a_config_that_cannot_be_read_write_nothing(run: Run, state: Path) -> None:
    shown = run(
        "connect", "openclaw", state, "--dry-run", "--url", "http://127.0.0.1:9", "--without", "engine"
    )
    assert "contextEngine" not in json.loads(shown.stdout)["plugins"]["slots"]
    assert [path.name for path in state.iterdir()] == ["openclaw.json"]
    (state / "openclaw.json").write_text("{ broken")
    assert run("connect", "openclaw", state).exit_code == 2
    assert (state / "openclaw.json").read_text() == "{ broken"
    assert run("connect", "openclaw", state / "nowhere").exit_code == 2


def test_a_plugin_that_is_forbidden_stays_so() -> None:
    for plugins in ({"enabled": False}, {"deny": ["holdfast"]}):
        with pytest.raises(InvalidInput, match="forbids"):
            connected({"plugins": plugins}, WANTED)


NAMES = st.sampled_from(["memory-core", "memory-lancedb", "legacy", "lossless-claw", "voice"])
PLUGINS = st.fixed_dictionaries(
    {},
    optional={
        "allow": st.lists(NAMES, unique=True),
        "entries": st.dictionaries(NAMES, st.fixed_dictionaries({"enabled": st.just(True)})),
        "slots": st.fixed_dictionaries({}, optional={"memory": NAMES, "contextEngine": NAMES}),
        "load": st.fixed_dictionaries({}, optional={"paths": st.lists(st.just("/x/voice"), max_size=1)}),
    },
)


@given(PLUGINS, st.booleans())
def test_what_is_not_ours_is_never_touched(plugins: dict[str, Any], take: bool) -> None:
    before = {"gateway": {"port": 1}, "plugins": plugins}
    kept = copy.deepcopy(before)
    wanted = Wanted(WANTED.url, WANTED.token_file, WANTED.plugin, take_slots=take)
    new, notes = connected(before, wanted)
    assert before == kept
    assert connected(new, wanted)[0] == new
    slots = plugins.get("slots", {})
    foreign = {s: h for s, h in slots.items() if h not in ("legacy", "memory-core")} if not take else {}
    if slots.get("memory") == "legacy" or slots.get("contextEngine") == "memory-core":
        return
    assert {s: new["plugins"]["slots"][s] for s in foreign} == foreign
    assert len(notes) == len(foreign)
    back = disconnected(new)["plugins"]
    own = {name: entry for name, entry in plugins.get("entries", {}).items() if name != "memory-core"}
    assert {n: e for n, e in back["entries"].items() if n != "memory-core"} == own
    assert back.get("allow") == plugins.get("allow")
    assert back["load"]["paths"] == plugins.get("load", {}).get("paths", [])
