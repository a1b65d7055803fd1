"""The toolbox: what is offered, what runs, and that whatever goes wrong is a result that says so."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from tool_world import World

from builders import append, soon
from holdfast.agents.approvals import audit
from holdfast.agents.loop.rounds import needs_note
from holdfast.agents.models import INVALID_ARGUMENTS
from holdfast.agents.tools import Caller, Effect, Tool, ToolOutput
from holdfast.agents.tools.checks import MALFORMED
from holdfast.context import Image, ToolCall, Trust
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.log import OWNER

INTERFACES = """
memory_search memory_get memory_write sessions_list sessions_history sessions_send session_status
file_read file_write file_edit file_delete exec web_fetch clawboard_search clawboard_context
clawboard_get_topic clawboard_get_task clawboard_get_log clawboard_create_note clawboard_update_task
context_read context_search skill_read
""".split()  # noqa: SIM905


class Probe(BaseModel):
    """Says what it is told."""

    text: Annotated[str, Field(min_length=1)] = "hi"
    count: Annotated[int, Field(ge=0)] = 0


def tool(name: str = "probe", *, effect: Effect = Effect.NONE, run: Any = None, **fields: Any) -> Tool[Probe]:
    async def says(_caller: Caller, given: Probe, _id: str) -> ToolOutput:
        return ToolOutput(text=given.text)

    return Tool(name=name, input=Probe, run=run or says, effect=effect, **{"repeatable": False, **fields})


def test_every_tool_of_the_interface_is_offered_with_a_description_and_a_closed_schema(here: World) -> None:
    specs = {spec.name: spec for spec in here.toolbox.offered(here.caller())}
    assert specs.keys() == set(INTERFACES)
    for spec in specs.values():
        assert spec.description
        assert spec.parameters["type"] == "object"
        assert here.toolbox.get(spec.name).input.model_config["extra"] == "forbid"
    assert "web_search" in here.toolbox


def test_policy_says_what_is_offered_and_refuses_the_rest_with_its_reason(here: World) -> None:
    here.configure(tools={"profile": "coding", "deny": ["file_delete"]})
    names = {spec.name for spec in here.toolbox.offered(here.caller())}
    assert {"exec", "file_edit", "memory_search"} <= names
    assert not names & {"file_delete", "web_fetch", "sessions_send"}
    (here.workspace / "a").write_text("x")
    assert "tools.deny names it" in here.refused("file_delete", {"path": "a", "password": "hunter22secret"})
    assert (here.workspace / "a").exists()
    with here.hold.store.read(OWNER) as tx:
        record = audit.listing(tx)[0]
    assert (record.event, record.tool, record.rule) == ("block", "file_delete", "deny")
    assert "hunter22secret" not in record.command


def test_a_subagent_and_a_provider_lose_what_the_policy_takes_from_them(here: World) -> None:
    here.configure(tools={"byProvider": {"tiny": {"deny": ["exec"]}}})
    child = {spec.name for spec in here.toolbox.offered(here.caller(subagent=True, depth=1))}
    assert "session_status" in child
    assert not child & {"sessions_list", "sessions_history", "sessions_send"}
    assert "exec" in here.toolbox.get("exec").spec.name
    assert "exec" not in {s.name for s in here.toolbox.offered(here.caller(provider="tiny", model="t"))}


def test_an_unknown_tool_is_told_with_what_is_near_among_what_may_be_used(here: World) -> None:
    assert "file_read" in here.refused("read_file", {"path": "a"})
    here.configure(tools={"deny": ["file_read"]})
    assert "file_read" not in here.refused("file_red", {"path": "a"})


def test_other_rooms_register_theirs_and_no_name_twice(here: World) -> None:
    here.toolbox.register(tool())
    assert here.ok("probe", {"text": "from a plugin"}) == "from a plugin"
    with pytest.raises(Conflict):
        here.toolbox.register(tool())
    with pytest.raises(NotFound):
        here.toolbox.get("nothing")


def test_arguments_that_do_not_fit_are_told_by_path_and_expectation(here: World) -> None:
    here.toolbox.register(tool())
    said = here.refused("probe", {"count": -3})
    assert "count: Input should be greater than or equal to 0, not -3" in said
    assert "text, count" in said
    assert "path: Field required" in here.refused("file_read", {"pth": "x"})
    assert MALFORMED == INVALID_ARGUMENTS
    said = here.refused("probe", {INVALID_ARGUMENTS: '{"text": "cut of'})
    assert "not valid JSON" in said
    assert '{"text": "cut of' in said


def test_a_fault_in_a_tool_is_logged_and_never_ends_the_turn(
    here: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(*_: Any) -> ToolOutput:
        raise KeyError("secret inner thing")

    here.toolbox.register(tool(run=breaks))
    with caplog.at_level(logging.ERROR):
        said = here.refused("probe", {})
    assert "secret inner thing" not in said
    assert "the tool probe failed" in caplog.text


def test_calls_that_change_nothing_run_side_by_side_and_answer_in_their_order(here: World) -> None:
    async def scene() -> list[str]:
        met = asyncio.Barrier(3)

        async def waits(_: Caller, given: Probe, _id: str) -> ToolOutput:
            await met.wait()
            return ToolOutput(text=given.text)

        here.toolbox.register(tool(run=waits))
        calls = [ToolCall(f"c{n}", "probe", {"text": f"t{n}"}) for n in range(3)]
        return [r.text for r in await soon(here.toolbox.run_all(here.caller(), calls))]

    assert asyncio.run(scene()) == ["t0", "t1", "t2"]


def test_calls_with_an_effect_run_one_after_another_until_one_ends_the_turn(here: World) -> None:
    ran: list[str] = []

    async def runs(_: Caller, given: Probe, id_: str) -> ToolOutput:
        ran.append(f"begin {id_}")
        await asyncio.sleep(0)
        ran.append(f"end {id_}")
        return ToolOutput(text=given.text, ends_turn=given.text == "last")

    here.toolbox.register(tool("acts", effect=Effect.WORLD, run=runs))
    here.toolbox.register(tool("looks", run=runs))
    calls = [
        ToolCall("a", "looks", {}),
        ToolCall("b", "acts", {"text": "last"}),
        ToolCall("c", "acts", {}),
    ]
    results = here.calls(calls)
    assert ran == ["begin a", "end a", "begin b", "end b"]
    assert [r.call_id for r in results] == ["a", "b", "c"]
    assert results[2].is_error
    assert "acts ended the turn" in results[2].text
    assert [e.call_id for e in here.events if e.ends_turn] == ["b"]


def test_a_cancelled_turn_begins_no_further_call(here: World) -> None:
    stop: list[bool] = []

    async def runs(*_: Any) -> ToolOutput:
        stop.append(True)
        return ToolOutput(text="done")

    here.toolbox.register(tool("acts", effect=Effect.OWN, run=runs))
    caller = here.caller(cancelled=lambda: bool(stop))
    results = here.calls([ToolCall("a", "acts", {}), ToolCall("b", "acts", {})], caller)
    assert [r.is_error for r in results] == [False, True]
    assert "cancelled" in results[1].text
    assert len(stop) == 1


def test_cancelling_the_task_cancels_the_tool(here: World) -> None:
    async def scene() -> bool:
        began, ended = asyncio.Event(), asyncio.Event()

        async def hangs(*_: Any) -> ToolOutput:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        here.toolbox.register(tool(run=hangs))
        running = asyncio.create_task(here.toolbox.run_all(here.caller(), [ToolCall("a", "probe", {})]))
        await soon(began.wait())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return ended.is_set()

    assert asyncio.run(scene())


def test_surfaces_hear_of_start_progress_and_end_with_secrets_masked(here: World) -> None:
    key = "sk-abcdefghijklmnop"

    async def tells(caller: Caller, given: Probe, _: str) -> ToolOutput:
        caller.progress(f"half way with {key}")
        return ToolOutput(text=f"used {given.text}", details={"header": [f"Bearer {key}"]})

    here.toolbox.register(tool(run=tells))
    heard: list[str] = []
    result = here.call("probe", {"text": key}, here.caller(progress=heard.append))
    assert key in result.text
    assert [e.kind for e in here.events] == ["start", "progress", "end"]
    assert key not in repr(here.events)
    assert "half way" in here.events[1].text
    assert heard == [f"half way with {key}"]


def test_a_long_result_is_capped_by_the_window_and_the_whole_can_be_paged_through(here: World) -> None:
    whole = "".join(f"line {n} {'x' * 40}\n" for n in range(3000))

    async def long(*_: Any) -> ToolOutput:
        return ToolOutput(text=whole, trust=Trust.OUTSIDE)

    here.toolbox.register(tool(run=long))
    for window, cap in (
        (4_096, 1_842),
        (8_000, 3_600),
        (64_000, 16_000),
        (100_000, 32_000),
        (400_000, 64_000),
    ):
        assert cap - 400 < len(here.call("probe", {}, here.caller(window=window)).text) <= cap
    caller = here.caller()
    shown = here.call("probe", {}, caller).text
    way = json.loads(shown.split("read on with file_read ")[1].split(" …]")[0])
    assert shown.startswith("line 0 ")
    assert shown.endswith("line 2999 " + "x" * 40 + "\n")
    read, start = "", 1
    while True:
        page = here.call("file_read", {"path": way["path"], "from": start}, here.caller())
        assert page.trust is Trust.OUTSIDE
        body, _, note = page.text.rpartition("[lines ")
        read += body
        if "read on" not in note:
            break
        start = int(note.split('"from": ')[1].rstrip("]"))
    assert read == whole
    assert f"line {way['from'] - 1} " in whole.splitlines()[way["from"] - 1]
    assert f"line {way['from'] - 1} " not in shown
    other = here.caller("agent:main:discord:dm:7")
    assert "no kept output" in here.refused("file_read", {"path": way["path"]}, other)
    here.configure(tools={"resultMaxChars": 1000, "deny": ["file_read"]})
    cut = here.call("probe", {}).text
    assert len(cut) <= 1000
    assert "output:" not in cut


def test_pictures_go_only_to_models_that_can_see(here: World) -> None:
    async def draws(*_: Any) -> ToolOutput:
        return ToolOutput(text="a dot", images=(Image("image/png", "AA=="),))

    here.toolbox.register(tool(run=draws))
    assert here.call("probe", {}, here.caller(images=True)).images
    assert not here.call("probe", {}).images


def test_the_same_call_over_and_over_is_warned_of_and_then_refused(here: World) -> None:
    here.toolbox.register(tool())
    here.configure(tools={"loopDetection": {"warnAfter": 2, "stopAfter": 4}})
    results = [here.call("probe", {"text": "a"}, here.caller(turn="t")) for _ in range(6)]
    assert ["very call has now" in r.text for r in results] == [False, True, True, True, False, False]
    assert [r.is_error for r in results] == [False] * 4 + [True] * 2
    assert "the same result 4 times" in results[4].text
    assert here.ok("probe", {"text": "b"}, here.caller(turn="t")) == "b"
    assert here.ok("probe", {"text": "a"}, here.caller(turn="another")) == "a"
    here.toolbox.forget("t")
    assert here.ok("probe", {"text": "a"}, here.caller(turn="t")) == "a"


def test_after_a_compaction_an_agent_that_starts_over_is_stopped_early(here: World) -> None:
    here.toolbox.register(tool())
    caller = here.caller(turn="t")
    here.ok("probe", {}, caller)
    here.toolbox.compacted("t")
    for _ in range(3):
        here.ok("probe", {}, caller)
    assert "before the compaction" in here.refused("probe", {}, caller)


def test_memory_board_context_and_skills_answer_in_the_callers_name(here: World) -> None:
    (here.workspace / "skills" / "tea").mkdir(parents=True)
    (here.workspace / "skills/tea/SKILL.md").write_text(
        "---\nname: tea\ndescription: Tea.\n---\nBoil water.\n"
    )
    (here.workspace / "skills/tea/times.txt").write_text("green 2 min")
    assert "Boil water." in here.ok("skill_read", {"name": "tea"})
    assert here.ok("skill_read", {"name": "tea", "file": "times.txt"}) == "green 2 min"
    for path in ("../../SOUL.md", "/etc/passwd", "x/../../y"):
        assert "not a path within" in here.refused("skill_read", {"name": "tea", "file": path})
    written = json.loads(here.ok("memory_write", {"text": "The gate code is 4711."}))
    got = here.call("memory_get", {"path": written["path"]})
    assert "4711" in got.text
    assert got.trust is Trust.OTHER_SESSION
    group = here.caller("agent:main:discord:group:9")
    assert "4711" not in here.call("memory_get", {"path": written["path"]}, group).text
    assert json.loads(here.ok("clawboard_search", {"q": "gate"}))["ok"] is True
    assert "no" in here.refused("clawboard_get_topic", {"id": "nothing"})
    own, other = here.session(), here.session("agent:main:discord:dm:7")
    said = append(here.hold.store, "the heron stands", session_key=own.key, session_id=own.id, role="user")
    theirs = append(here.hold.store, "a heron flies", session_key=other.key, session_id=other.id, role="user")
    found = here.call("context_search", {"query": "heron"})
    assert said.id in found.text
    assert theirs.id not in found.text
    assert "the heron stands" in here.ok("context_read", {"id": said.id})
    assert "nothing here has the id" in here.refused("context_read", {"id": theirs.id})


def test_a_page_of_what_was_said_leaves_room_in_a_small_window(here: World) -> None:
    own = here.session()
    words = "\n".join(f"line {number} of the tale" for number in range(2_000))
    said = append(here.hold.store, words, session_key=own.key, session_id=own.id, role="user")
    pages = {
        window: here.ok("context_read", {"id": said.id, "limit": 40_000}, here.caller(window=window))
        for window in (16_000, 200_000)
    }
    assert 500 < len(pages[16_000]) < 12_000
    assert len(pages[200_000]) > 12_000
    assert json.loads(pages[16_000])["next"]


def test_a_skill_that_the_prompt_leaves_out_can_still_be_read_when_a_person_calls_it(here: World) -> None:
    folder = here.workspace / "skills" / "quiet"
    folder.mkdir(parents=True)
    head = "name: quiet\ndescription: For people.\ndisable-model-invocation: true"
    (folder / "SKILL.md").write_text(f"---\n{head}\n---\nSpeak softly.\n")
    assert "quiet" not in here.parts.skills.prompt("main").text
    assert "quiet" in [command.skill for command in here.parts.skills.commands("main")]
    assert "Speak softly." in here.ok("skill_read", {"name": "quiet"})


def test_a_tool_that_does_not_say_what_it_does_is_not_registered(here: World) -> None:
    async def says(_caller: Caller, given: Probe, _id: str) -> ToolOutput:
        return ToolOutput(text=given.text)

    untyped: Any = Tool
    told: dict[str, Any] = {"name": "probe", "input": Probe, "run": says}
    for missing in ({}, {"effect": Effect.NONE}, {"repeatable": True}):
        with pytest.raises(TypeError):
            untyped(**told, **missing)
    for wrong in (
        {"effect": "none", "repeatable": True},
        {"effect": None, "repeatable": True},
        {"effect": Effect.NONE, "repeatable": 1},
        {"effect": Effect.NONE, "repeatable": None},
    ):
        with pytest.raises(InvalidInput) as refused:
            here.toolbox.register(untyped(**told, **wrong))
        assert refused.value.code == "tool_undeclared"
    undeclared: Any = SimpleNamespace(**told)
    with pytest.raises(InvalidInput, match="probe does not say what it does"):
        here.toolbox.register(undeclared)
    assert "probe" not in here.toolbox


def test_what_is_not_known_to_be_harmless_runs_alone_and_is_never_repeated_unasked(here: World) -> None:
    here.toolbox.register(tool("looks", repeatable=True))
    here.toolbox.register(tool("looks_once"))
    assert not needs_note("looks", here.toolbox)
    assert needs_note("looks_once", here.toolbox)
    assert needs_note("no_such_tool", here.toolbox)
    assert here.toolbox._effect(ToolCall("c1", "no_such_tool", {})) is Effect.WORLD


def test_tools_that_write_say_so_and_only_reading_ones_run_side_by_side(here: World) -> None:
    harmless = {name for name in here.toolbox.names if here.toolbox.get(name).effect is Effect.NONE}
    assert harmless == {
        *("memory_search", "memory_get", "context_read", "context_search", "skill_read", "file_read"),
        *("clawboard_search", "clawboard_context"),
        *("clawboard_get_topic", "clawboard_get_task", "clawboard_get_log"),
        *("sessions_list", "sessions_history", "session_status", "web_fetch", "web_search"),
        "tool_search",
    }
    again = {name for name in here.toolbox.names if here.toolbox.get(name).repeatable}
    assert again == harmless | {"clawboard_create_note"}
