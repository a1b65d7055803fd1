"""A plugin is found, checked, registered and stopped; what goes wrong with one is told, and stays with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from plugin_stage import host_of, loaded, plugin

from holdfast.plugins import Origin, Phase, Plugin, PluginHost, discover

GOOD = "def register(api):\n    pass\n"
FILLING = """
from pydantic import BaseModel
from holdfast.plugins import Effect, Tool
class Page(BaseModel):
    "Open a page."
async def browse(caller, given, call_id):
    return ""
def register(api):
    for slot in %r:
        if slot == "browser":
            made = Tool(name="browser", input=Page, run=browse, effect=Effect.WORLD, repeatable=False)
            api.register_tool(made)
        else:
            getattr(api, f"register_{slot}")(lambda given: None)
"""
ENGINE = """
from holdfast.context import BaseEngine, EngineInfo
class Mine(BaseEngine):
    info = EngineInfo(id="mine", name="Mine")
    async def assemble(self, params): ...
    async def compact(self, params): ...
def register(api):
    api.register_context_engine("mine", lambda context: Mine())
"""


def one(host: PluginHost, id_: str) -> Plugin:
    return {each.id: each for each in host.find()}[id_]


def test_a_folder_in_the_home_is_found_checked_and_registered(tmp_path: Path) -> None:
    id_ = plugin(tmp_path / "plugins", ENGINE, capabilities=["contextEngine"])
    with loaded(tmp_path) as host:
        found = host.get(id_)
        assert (found.phase, found.found.origin, found.reason) == (Phase.REGISTERED, Origin.HOME, "")
        assert found.registered.summary() == {"contextEngine": ["mine"]}
        assert {"legacy", "lossless", "mine"} <= set(host.engines)
    assert found.phase is Phase.STOPPED


def test_a_package_that_is_installed_while_others_are_known_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def packages() -> list[str]:
        every, _ = discover(paths=(), workspaces=(), home=tmp_path / "none")
        return [one.id for one in every if one.origin is Origin.PACKAGE]

    known = packages()
    for name in ("heron", "wren"):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[holdfast.plugins]\n{name} = {name}\n")
        # As a clock that goes on would have it: two folders may be made within one tick of it.
        at = tmp_path.stat().st_mtime_ns + 1
        os.utime(tmp_path, ns=(at, at))
        assert name in packages()
    assert set(packages()) == {*known, "heron", "wren"}


def test_of_two_with_one_id_the_nearer_to_the_config_counts(tmp_path: Path) -> None:
    for place in ("listed", "space/plugins", "plugins"):
        plugin(tmp_path / place, GOOD, id="twin", name=place)
    for paths, allow, expected in (
        (["listed/twin"], ["twin"], Origin.CONFIG),
        ([], ["twin"], Origin.WORKSPACE),
        ([], None, Origin.WORKSPACE),
    ):
        load = {"paths": [str(tmp_path / path) for path in paths]}
        host = host_of(tmp_path, tmp_path / "space", load=load, allow=allow)
        assert one(host, "twin").found.origin is expected
        assert [each.id for each in host.hidden] == ["twin"] * (2 if paths else 1)


def test_what_lies_in_a_workspace_runs_only_if_it_is_named(tmp_path: Path) -> None:
    plugin(tmp_path / "space" / "plugins", "raise SystemExit('it ran')", id="sly")
    closed = one(host_of(tmp_path, tmp_path / "space"), "sly")
    assert not closed.is_in
    assert "plugins.allow" in closed.reason
    assert one(host_of(tmp_path, tmp_path / "space", allow=["sly"]), "sly").is_in


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"deny": ["it"]}, "plugins.deny"),
        ({"allow": ["other"]}, "plugins.allow"),
        ({"entries": {"it": {"enabled": False}}}, "plugins.entries.it.enabled"),
        ({"deny": ["it"], "allow": ["it"]}, "plugins.deny"),
    ],
)
def test_the_config_says_which_are_let_in(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    plugin(tmp_path / "plugins", "raise RuntimeError", id="it")
    with loaded(tmp_path, **settings) as host:
        found = host.get("it")
        assert said in found.reason
        assert not found.failed
    with loaded(tmp_path, enabled=False) as host:
        assert host.plugins == []


def test_settings_are_held_against_the_schema_and_filled_in(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"lines": {"type": "integer"}}, "additionalProperties": False}
    code = (
        "def register(api):\n    assert api.config == {'lines': 7, 'deep': 1} or api.config['lines'] == 20\n"
    )
    id_ = plugin(tmp_path / "plugins", code, config={"schema": schema, "defaults": {"lines": 20}})
    with loaded(tmp_path) as host:
        assert host.get(id_).config == {"lines": 20}
    with loaded(tmp_path, entries={id_: {"config": {"lines": "many"}}}) as host:
        assert host.get(id_).reason.startswith(f"plugins.entries.{id_}.config.lines: ")
    with loaded(tmp_path, entries={id_: {"config": {"more": 1}}}) as host:
        assert "more" in host.get(id_).reason


BROKEN = {
    "it cannot be imported": ("import no_such_module_anywhere", "ModuleNotFoundError"),
    "it has a fault": ("def register(api:", "SyntaxError"),
    "it raises": ("def register(api): raise ValueError('no luck')", "ValueError: no luck"),
    "it ends the process": ("import sys\ndef register(api): sys.exit(3)", "SystemExit"),
    "it has no register": ("x = 1", "has no register(api)"),
    "it hangs": ("import threading\ndef register(api): threading.Event().wait()", "took longer than 1 s"),
    "it declares nothing": ("def register(api): api.on('gateway_start', print)", "does not declare 'hooks'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_that_fails_is_out_with_its_reason_and_the_others_go_on(tmp_path: Path, name: str) -> None:
    code, said = BROKEN[name]
    bad = plugin(tmp_path / "plugins", code, id="a-bad")
    good = plugin(tmp_path / "plugins", ENGINE, id="b-good", capabilities=["contextEngine"])
    with loaded(tmp_path, limits={"startSeconds": 1}) as host:
        assert said in host.get(bad).reason
        assert host.get(bad).failed
        assert host.get(good).phase is Phase.REGISTERED


def test_a_refusal_that_its_plugin_swallows_is_told_all_the_same(tmp_path: Path) -> None:
    code = """
def register(api):
    try:
        api.register_service(object())
    except Exception:
        pass
"""
    id_ = plugin(tmp_path / "plugins", code, capabilities=["hooks"])
    with loaded(tmp_path) as host:
        assert host.get(id_).is_in
        assert host.get(id_).troubles == ["a service: the manifest does not declare 'services'"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no JSON"),
        ("[]", "expected an object"),
        ('{"id": "UPPER"}', "id: "),
        ('{"id": "x", "capabilities": ["fly"]}', "capabilities.0"),
        ('{"id": "x", "skills": ["../out"]}', "skills: "),
        ('{"id": "x", "module": "a b"}', "module: "),
        ("[" * 100_000, "it is no JSON"),
    ],
)
def test_a_manifest_that_cannot_be_used_says_where(tmp_path: Path, text: str, said: str) -> None:
    folder = tmp_path / "plugins" / "odd"
    folder.mkdir(parents=True)
    (folder / "holdfast.plugin.json").write_text(text)
    found = one(host_of(tmp_path), "odd")
    assert found.failed
    assert said in found.reason


def test_what_it_needs_is_looked_for_before_it_runs(tmp_path: Path) -> None:
    for requires, said in (
        ({"holdfast": ">=99"}, "it needs holdfast >=99"),
        ({"bins": ["no-such-program"]}, "the program no-such-program"),
        ({"env": ["NO_SUCH_VARIABLE"]}, "the variable NO_SUCH_VARIABLE"),
    ):
        id_ = plugin(tmp_path / "plugins", "raise SystemExit", requires=requires)
        assert said in one(host_of(tmp_path), id_).reason


def filling(home: Path, id_: str, *slots: str) -> None:
    """A plugin that registers what the slots that it claims are for."""
    may = ["tools", "memory", "sandbox"]
    plugin(home / "plugins", FILLING % (slots,), id=id_, slots=list(slots), capabilities=may)


def test_a_slot_goes_to_the_one_named_else_to_the_first_that_claims_it(tmp_path: Path) -> None:
    filling(tmp_path, "first", "memory")
    filling(tmp_path, "second", "memory", "sandbox")
    with loaded(tmp_path) as host:
        held = host.holder("memory")
        assert held is not None
        assert held.id == "first"
        assert host.get("second").reason == "the slot memory is held by first"
    for chosen in ("second", "builtin"):
        with loaded(tmp_path, slots={"memory": chosen}) as host:
            held = host.holder("memory")
            assert (None if held is None else held.id) == (None if chosen == "builtin" else "second")
            assert (host.holder("sandbox") is None) == (chosen == "builtin")
    filling(tmp_path, "third", "browser")
    with loaded(tmp_path) as host:
        assert host.get("third").slots == ("browser",)
    with loaded(tmp_path, slots={"memory": "second", "sandbox": "builtin", "browser": "x"}) as host:
        assert "sandbox" in host.get("second").reason
        assert host.get("third").reason == "the slot browser is held by x"


@pytest.mark.parametrize("slot", ["contextEngine", "memory", "sandbox", "browser"])
def test_who_claims_a_slot_registers_what_it_is_for(tmp_path: Path, slot: str) -> None:
    plugin(tmp_path / "plugins", GOOD, id="empty", slots=[slot])
    with loaded(tmp_path) as host:
        assert host.get("empty").reason == f"it claims the slot {slot}, and registers nothing for it"


def test_only_who_holds_the_slot_gives_agents_a_browser(tmp_path: Path) -> None:
    filling(tmp_path, "holder", "browser")
    plugin(tmp_path / "plugins", FILLING % (["browser"],), id="other", capabilities=["tools"])
    with loaded(tmp_path) as host:
        assert host.get("holder").registered.summary()["tools"] == ["browser"]
        assert "only who claims the slot 'browser' registers it" in host.get("other").reason


def test_a_plugin_of_openclaw_lends_its_skills_and_its_code_stays_out(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "claw"
    (folder / "skills" / "tidy").mkdir(parents=True)
    said = {"id": "claw", "configSchema": {"type": "object", "required": ["key"]}, "skills": ["skills"]}
    (folder / "openclaw.plugin.json").write_text(json.dumps(said))
    (folder / "index.js").write_text("process.exit(1)")
    with loaded(tmp_path) as host:
        assert "key" in host.get("claw").reason
    with loaded(tmp_path, entries={"claw": {"config": {"key": 1}}}) as host:
        assert host.skill_folders == [folder / "skills"]
        manifest = host.get("claw").found.manifest
        assert manifest is not None
        assert any("cannot run here" in line for line in manifest.may())


def test_shutdown_is_called_and_one_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"def register(api): pass\ndef shutdown(): open({str(mark)!r}, 'w').write('bye')"
    plugin(
        tmp_path / "plugins",
        "import threading\ndef register(api): pass\ndef shutdown(): threading.Event().wait()",
        id="a-hung",
    )
    plugin(tmp_path / "plugins", code, id="b-polite")
    with loaded(tmp_path, limits={"startSeconds": 1}) as host:
        pass
    assert mark.read_text() == "bye"
    assert "shutdown took longer" in host.get("a-hung").troubles[0]
