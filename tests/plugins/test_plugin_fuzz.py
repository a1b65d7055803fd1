"""Whatever is registered, and however it behaves then: the gateway answers on, and says whose fault it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from agent_stage import agents_serving
from hypothesis import given, settings
from hypothesis import strategies as st
from plugin_stage import host_of, plugin
from serving import wait_for

from builders import examples
from holdfast.agents.plugin_hooks import EVENTS, BeforeToolCall, MessageChange, PromptAddition, ToolCallChange
from holdfast.plugins import Manifest, PluginApi, Refused
from holdfast.plugins.hooks import _changed
from holdfast.plugins.manifest import Capability
from holdfast.testing import Say

ALL = list(get_args(Capability))
JUNK: tuple[Any, ...] = (
    *(None, 0, -1, "", "x", "X y", "../..", "x" * 100_000, b"x", float("nan"), [], {}, object()),
    *(print, lambda: 1, lambda *_: object(), type("Odd", (), {"name": 5, "run": 7})(), Path("/etc")),
)
METHODS = {
    "register_context_engine": 2,
    "register_tool": 1,
    "register_memory": 1,
    "register_sandbox": 1,
    "register_channel": 2,
    "register_provider": 2,
    "register_embedder": 2,
    "register_command": 2,
    "register_cli": 1,
    "register_http_route": 3,
    "register_service": 1,
    "register_skills": 1,
    "on": 2,
}
FUZZ = """
import asyncio, itertools, threading
from pathlib import Path
from holdfast.plugins import *
from holdfast.channels import Abilities

HANG = threading.Event().wait

class Evil:
    name = "evil"
    def __getattr__(self, name):
        raise RuntimeError("evil")
    def __repr__(self):
        raise RuntimeError("evil")

class Backend:
    def __init__(self, *_): pass
    def search(self, query, *, agent, limit):
        return HANG() if query == "hang" else [object()]
    def update(self, agent):
        return "many"

class Embedder:
    @property
    def id(self):
        HANG()

class Channel:
    abilities = Abilities(most_chars=200)
    def __init__(self, context): self.context = context
    async def run(self):
        await self.context.receive("hello")
    def send(self, message):
        raise KeyboardInterrupt

class Service:
    name = "busy"
    async def run(self):
        HANG()

def register(api):
    junk = [None, 0, "", "x", "X y", "x" * 100_000, [], {}, object(), print, lambda: 1, Evil()]
    for name in ("register_context_engine", "register_tool", "register_memory", "register_channel",
                 "register_sandbox",
                 "register_provider", "register_embedder", "register_command", "register_cli",
                 "register_http_route", "register_service", "register_skills", "on"):
        for args in itertools.product(junk[:3] + junk[-3:], repeat=2):
            try:
                getattr(api, name)(*args)
            except BaseException:
                pass
    api.registered.refused.clear()
    api.registered.memory = Backend
    api.register_embedder("hung", lambda config: Embedder())
    api.register_channel("odd", Channel)
    api.register_service(Service())
    api.register_provider("odd", lambda name: HANG())
    api.register_context_engine("hung", lambda context: HANG())

def shutdown():
    HANG()
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_registration_of_the_wrong_shape_is_refused_and_never_breaks(tmp_path: Path, method: str) -> None:
    manifest = Manifest(id="fuzz", module="fuzz", capabilities=tuple(ALL))
    for given_ in itertools.product(JUNK, repeat=METHODS[method]):
        api = PluginApi(manifest, {}, tmp_path, tmp_path / "data")
        refused = False
        try:
            getattr(api, method)(*given_)
        except Refused:
            refused = True
        assert len(api.registered.refused) == refused
        assert refused or api.registered.summary()
        assert all(len(said) <= 300 for said in api.registered.refused)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.one_of(_JSON, st.builds(ToolCallChange, params=_JSON, block=_JSON), st.builds(MessageChange)))
def test_what_a_handler_gives_is_a_change_that_its_event_allows_or_an_error_of_ours(change: Any) -> None:
    event = BeforeToolCall(session_key="k", turn_id="t", tool="x", call_id="1", params={"a": 1})
    try:
        after = _changed(event, "p", change)
    except (TypeError, ValueError):
        return
    assert after.tool == "x"
    assert after.blocked is None or after.blocked.plugin == "p"
    assert isinstance(after.params, dict)


@pytest.mark.parametrize("hook", EVENTS)
def test_no_event_takes_the_change_of_another(hook: str) -> None:
    wrong: Any = PromptAddition(text="x") if hook != "before_prompt_build" else MessageChange(text="x")
    event = object.__new__(EVENTS[hook])
    with pytest.raises(TypeError, match="expected"):
        _changed(event, "p", wrong)


def test_a_gateway_with_the_worst_of_plugins_serves_turns_memory_and_channels(
    tmp_path: Path, sqlite_template: Path
) -> None:
    listed = tmp_path / "listed"
    plugin(listed, FUZZ, id="fuzz", capabilities=ALL, slots=["memory"])
    config = {
        "plugins": {
            "load": {"paths": [str(listed)]},
            "limits": {"startSeconds": 2, "hookMs": 100, "callSeconds": 1, "failures": 2},
        },
        "channels": {"odd": {"adapter": "odd", "owners": ["ada"], "dmPolicy": "open"}},
        "memory": {"search": {"embedding": {"providers": ["hung"]}}},
    }
    with (
        agents_serving(tmp_path / "home", sqlite_template, lambda asked: Say("Well."), **config) as (
            gateway,
            _,
        ),
        gateway.client(gateway.admin) as api,
    ):
        told = api.post("/api/agent", json={"message": "hello", "sessionKey": "agent:main:main"}).json()
        done = api.get(f"/api/agent/{told['runId']}/wait", params={"timeoutMs": 30_000}).json()
        assert (done["status"], done["reply"]) == ("committed", "Well.")
        found = api.get("/api/memory/search", params={"q": "hang"})
        assert found.status_code == 200
        assert "fuzz" in found.json()["fallback"]
        gateway.hold.agency.channels.send("odd:dm:ada", "hello")
        _wait_for_failure(lambda: str(api.get("/api/deliveries").json()))
        [fuzz] = api.get("/api/plugins").json()
        assert fuzz["registered"]["services"] == ["busy"]
        assert api.get("/healthz", params={"ready": "true"}).status_code == 200
        assert api.patch("/api/config", json={"plugins": {"slots": {"contextEngine": "hung"}}}).is_success
        told = api.post("/api/agent", json={"message": "again", "sessionKey": "agent:main:main"}).json()
        done = api.get(f"/api/agent/{told['runId']}/wait", params={"timeoutMs": 30_000}).json()
        assert done["status"] == "failed"
        assert "plugin fuzz: engine hung" in done["error"]
        assert "took longer than 2 s" in done["error"]
        assert api.get("/healthz").status_code == 200


def _wait_for_failure(deliveries: Callable[[], str]) -> None:
    wait_for(lambda: "plugin fuzz: channel odd" in deliveries())


def test_too_many_registrations_and_endless_manifests_are_bounded(tmp_path: Path) -> None:
    code = "def register(api):\n    for n in range(10_000): api.on('gateway_start', print)"
    id_ = plugin(tmp_path / "plugins", code, capabilities=["hooks"])
    host = host_of(tmp_path)
    host.load()
    assert "more than 200 of a kind" in host.get(id_).reason
    (tmp_path / "plugins" / "big").mkdir()
    (tmp_path / "plugins" / "big" / "holdfast.plugin.json").write_text(" " * 300_000 + "{}")
    assert "larger than" in {one.id: one for one in host.find()}["big"].reason
