"""Which tools a model is told of: pure rules over windows, tools and what a session asked for."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tool_world import World

from holdfast.agents.tools.catalogue import (
    CORE,
    MOST_LOADED,
    SEARCH,
    UNUSED_TURNS,
    Loaded,
    brief,
    cost,
    listed,
    load,
    read_loaded,
    search,
    write_loaded,
)
from holdfast.agents.tools.types import lean
from holdfast.config import Compaction
from holdfast.context import Budgets, ToolCall, ToolSpec

NAMES = st.lists(st.sampled_from([*CORE, *(f"tool_{n}" for n in range(30))]), unique=True, max_size=40)
WINDOWS = st.integers(2_048, 300_000)


def spec(name: str, words: int = 20) -> ToolSpec:
    fields = {"path": {"type": "string", "description": "A path. " + "word " * words}}
    return ToolSpec(
        name, f"Does {name}. {'word ' * words}", {"type": "object", "properties": fields, "required": []}
    )


def tools(names: Sequence[str], words: int = 20) -> dict[str, ToolSpec]:
    return {name: spec(name, words) for name in sorted(names)}


def budgets(window: int) -> Budgets:
    return Budgets.for_window(window, Compaction())


@given(NAMES, WINDOWS, st.integers(0, 200), NAMES)
def test_what_is_told_keeps_to_its_budget_and_to_what_is_permitted(
    names: list[str], window: int, words: int, asked: list[str]
) -> None:
    permitted, shares = tools(names, words), budgets(window)
    core = listed(permitted, spec(SEARCH), mode="auto", budgets=shares)
    room = shares.tools - sum(map(cost, core.tools))
    loaded = load((), asked, turn=1, cost_of=lambda name: cost(spec(name, words)), room=room)
    found = listed(permitted, spec(SEARCH), mode="auto", budgets=shares, loaded=loaded)
    assert found.tools == core.tools
    assert sum(map(cost, (*found.tools, *found.loaded))) <= shares.tools
    assert found.names - {SEARCH} <= permitted.keys()
    assert len(found.names) == len(found.tools) + len(found.loaded)
    assert found.partial or found.names == permitted.keys()
    assert (SEARCH in found.names) == (found.partial and shares.tools > 0)


@given(NAMES, st.lists(NAMES, max_size=12), st.integers(0, 3_000))
def test_what_is_loaded_is_bounded_and_keeps_its_place(
    first: list[str], rounds: list[list[str]], room: int
) -> None:
    known = load((), first, turn=0, cost_of=lambda name: 100, room=room)
    for turn, asked in enumerate(rounds, 1):
        after = load(known, asked, turn=turn, cost_of=lambda name: 100, room=room)
        assert 100 * len(after) <= room
        assert len(after) <= MOST_LOADED
        names = [one.name for one in after]
        assert len(set(names)) == len(names)
        kept = [one.name for one in known if one.name in names]
        assert names[: len(kept)] == kept
        if asked and room >= 100 and len(asked) <= room // 100:
            assert asked[0] in names
        known = after
    assert read_loaded(write_loaded({"model": "x/y"}, known)) == known


def test_what_a_session_no_longer_uses_leaves_when_something_comes() -> None:
    known = load((), ["old", "used"], turn=1, cost_of=lambda name: 1, room=100)
    known = load(known, ["used"], turn=UNUSED_TURNS, cost_of=lambda name: 1, room=100)
    assert [one.name for one in known] == ["old", "used"]
    known = load(known, ["new"], turn=UNUSED_TURNS + 1, cost_of=lambda name: 1, room=100)
    assert known == (Loaded("used", UNUSED_TURNS), Loaded("new", UNUSED_TURNS + 1))


def test_what_is_kept_with_a_session_and_cannot_be_read_is_nothing() -> None:
    assert read_loaded(None) == ()
    assert read_loaded({"tools": "exec"}) == ()
    assert read_loaded({"tools": [["exec", 3], ["broken"], 7]}) == (Loaded("exec", 3),)


def test_a_search_finds_what_is_meant(here: World) -> None:
    offered = {one.name: one for one in here.toolbox.offered(here.caller())}
    for query, wanted in (
        ("run a shell command", "exec"),
        ("fetch a web page", "web_fetch"),
        ("delete a file", "file_delete"),
        ("what was said in another session", "sessions_history"),
        ("update task status", "clawboard_update_task"),
        ("memory_get", "memory_get"),
        ("summary verbatim words", "context_read"),
        ("sesions list", "sessions_list"),
    ):
        assert wanted in search(offered, query)[:3], (query, search(offered, query))
    assert search(offered, "xyzzy") == []
    assert search(offered, "") == list(offered)


def test_a_brief_description_keeps_what_a_call_needs(here: World) -> None:
    for name in here.toolbox.names:
        whole = here.toolbox.get(name).spec
        short = brief(whole)
        assert cost(short) <= cost(whole)
        assert short.parameters.get("required") == whole.parameters.get("required")
        assert short.parameters["properties"].keys() == whole.parameters["properties"].keys()
        for field in short.parameters.get("required", ()):
            assert short.parameters["properties"][field] == whole.parameters["properties"][field]


def test_a_lean_schema_keeps_fields_whatever_they_are_called() -> None:
    schema = {
        "title": "Input",
        "additionalProperties": False,
        "properties": {
            "title": {"title": "Title", "type": "string", "maxLength": 9},
            "kind": {
                "anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}],
                "default": None,
                "description": "x",
            },
            "any": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "default": None},
            "count": {"type": "integer", "default": 0, "minimum": 0},
        },
        "$defs": {"Kind": {"enum": ["a", "b"], "title": "Kind", "type": "string"}},
        "type": "object",
    }
    assert lean(schema, schema["$defs"]) == {  # type: ignore[arg-type]
        "properties": {
            "title": {"type": "string"},
            "kind": {"enum": ["a", "b"], "type": "string", "description": "x"},
            "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "count": {"type": "integer", "default": 0, "minimum": 0},
        },
        "type": "object",
    }


def test_tools_that_are_called_side_by_side_are_all_loaded_and_kept(here: World) -> None:
    caller = here.caller(window=16_384)
    assert not {"sessions_list", "session_status"} & here.toolbox.listed(caller).names
    here.calls([ToolCall("a", "sessions_list", {}), ToolCall("b", "session_status", {})], caller)
    assert {spec.name for spec in here.toolbox.listed(caller).loaded} == {"sessions_list", "session_status"}
    later = here.caller(window=16_384)
    assert here.toolbox.listed(later) == here.toolbox.listed(caller)


def test_a_tool_that_policy_takes_away_is_told_of_no_longer(here: World) -> None:
    caller = here.caller(window=16_384)
    here.ok("session_status", {}, caller)
    here.configure(tools={"deny": ["session_status"]})
    assert here.toolbox.listed(here.caller(window=16_384)).loaded == ()


def test_an_allow_list_need_not_name_the_search_and_a_deny_list_takes_it_away(
    here: World,
) -> None:
    here.configure(tools={"catalogue": "core", "allow": ["group:sessions", "file_read"]})
    assert here.toolbox.listed(here.caller()).names == {"tool_search", "file_read"}
    assert "sessions_list" in here.ok("tool_search", {"query": ""})
    here.configure(tools={"catalogue": "core", "allow": ["file_read"], "deny": ["tool_search"]})
    assert here.toolbox.listed(here.caller()).names == {"file_read"}
    assert "not allowed" in here.refused("tool_search", {"query": ""})
