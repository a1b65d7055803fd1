"""Holdfast as an MCP server, asked by the official client over both transports and in both eras."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from serving import Running, assert_problem, make_token, running

import forks
from builders import PATIENCE
from holdfast.cli.client import announced
from holdfast.gateway.tokens import Scope, revoke
from holdfast.log import OWNER
from holdfast.mcp_server import api as mcp_api
from holdfast.mcp_server import tools
from holdfast.mcp_server.server import _tool
from holdfast.runtime import Holdfast
from holdfast.text import rough_tokens

ERAS = ("auto", "legacy", "2026-07-28")
SPACE = "space-garden"
ENVELOPE: dict[str, Any] = {
    "protocolVersion": "2026-07-28",
    "clientCapabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    from holdfast.runtime import open_home

    with open_home(tmp_path_factory.mktemp("mcp")) as hold, running(hold) as found:
        yield found


@pytest.fixture(scope="module")
def api(gateway: Running) -> Iterator[httpx.Client]:
    with gateway.client(gateway.admin) as client:
        yield client


@asynccontextmanager
async def over_http(
    gateway: Running, token: str | None = None, mode: Any = "auto", **more: Any
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token or gateway.admin}"}
    transport = streamable_http_client(
        f"{gateway.url}/mcp", http_client=create_mcp_http_client(headers=headers)
    )
    async with Client(transport, mode=mode, **more) as client:
        yield client


@asynccontextmanager
async def over_stdio(
    hold: Holdfast, token: str = "", mode: Any = "auto", **more: Any
) -> AsyncIterator[Client]:
    arguments = ["-m", "holdfast.cli", "mcp", "--home", str(hold.home.path)]
    env = {"HOLDFAST_TOKEN": token} if token else {}
    async with Client(
        StdioServerParameters(command=forks.python(), args=arguments, env=env), mode=mode, **more
    ) as client:
        yield client


def answered(result: Any) -> dict[str, Any]:
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content
    return found


async def recalled(client: Client, query: str) -> list[str]:
    found = answered(await client.call_tool("recall", {"query": query}))["found"]
    return [one["line"] for one in found]


def test_the_list_of_tools_costs_a_model_less_than_a_thousand_tokens() -> None:
    listed = [
        _tool(name, tool).model_dump(by_alias=True, exclude_none=True, mode="json")
        for name, tool in tools.TOOLS.items()
    ]
    text = json.dumps(listed, separators=(",", ":"))
    # JSON has more tokens a letter than prose: three letters a token is more than any tokenizer needs.
    cost = max(rough_tokens(text), len(text) // 3)
    print(f"tools: {len(listed)}, {len(text)} characters, {rough_tokens(text)} to {cost} tokens")
    assert len(listed) <= 6
    assert cost < 1_100
    assert rough_tokens(text) < 1_000
    assert len(tools.INSTRUCTIONS.encode()) < 2_048
    assert all(tool["outputSchema"] and "readOnlyHint" in tool["annotations"] for tool in listed)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_of_each_era_remembers_recalls_and_opens(gateway: Running, mode: str) -> None:
    async with over_http(gateway, mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == list(tools.TOOLS)
        text = f"The heron pond is drained in {mode} spring, Ann decided."
        kept = answered(await client.call_tool("remember", {"text": text}))
        again = answered(await client.call_tool("remember", {"text": text}))
        found = answered(await client.call_tool("recall", {"query": f"pond drained {mode} spring"}))["found"]
        opened = answered(await client.call_tool("open", {"ids": [kept["id"]]}))
    assert again["id"] == kept["id"]
    assert kept["id"] in [one["id"] for one in found]
    assert text in opened["text"]


@pytest.mark.anyio
async def test_what_was_remembered_is_in_the_log_when_the_answer_comes(
    gateway: Running, api: httpx.Client
) -> None:
    async with over_http(gateway) as client:
        kept = answered(await client.call_tool("remember", {"text": "Durable before it is told."}))
    entry = api.get(f"/api/log/{kept['id']}").json()
    assert (entry["content"], entry["type"]) == ("Durable before it is told.", "note")


@pytest.mark.anyio
async def test_a_note_that_was_deleted_can_be_remembered_again(gateway: Running, api: httpx.Client) -> None:
    async with over_http(gateway) as client:
        first = answered(await client.call_tool("remember", {"text": "The key is under the pot."}))
        api.delete(f"/api/log/{first['id']}")
        second = answered(await client.call_tool("remember", {"text": "The key is under the pot."}))
    assert second["id"] != first["id"]
    assert api.get(f"/api/log/{second['id']}").status_code == 200


@pytest.mark.anyio
async def test_the_board_is_read_and_tasks_are_added_and_changed(gateway: Running, api: httpx.Client) -> None:
    topic = api.post("/api/topics", json={"name": "Boat house"}).json()
    async with over_http(gateway) as client:
        made = answered(await client.call_tool("task", {"title": "Paint the boat", "topic": "boat house"}))
        done = answered(await client.call_tool("task", {"id": made["id"], "status": "doing"}))
        board = answered(await client.call_tool("board", {"topic": topic["id"]}))["found"]
    assert done == {"id": made["id"], "status": "doing"}
    assert [one["id"] for one in board] == [topic["id"], made["id"]]
    assert "doing" in board[1]["line"]


@pytest.mark.anyio
async def test_continue_gives_the_block_of_the_last_session_and_names_it(
    gateway: Running, api: httpx.Client
) -> None:
    for number in range(2):
        source = {"sessionKey": f"codex:boat-{number}"}
        body = {"content": f"We stopped at plank {number} of the boat", "agentId": "user", "source": source}
        assert api.post("/api/log", json=body).status_code == 201
    async with over_http(gateway) as client:
        made = answered(await client.call_tool("continue", {}))
        other = answered(await client.call_tool("continue", {"session": "codex:boat-0"}))
        opened = answered(await client.call_tool("open", {"ids": ["session:codex:boat-0"]}))
    assert "plank 1" in made["block"]
    assert made["sessions"][0]["id"] == "session:codex:boat-1"
    assert "plank 0" in other["block"]
    assert "plank 0" in opened["text"]


@pytest.mark.anyio
async def test_a_long_entry_is_read_word_for_word_in_pages_below_twenty_thousand_bytes(
    gateway: Running, api: httpx.Client
) -> None:
    long = "".join(f'{n}: "quoted" \\ and\tnew\nline ünï 🦆 ' for n in range(1500))
    id_ = api.post("/api/log", json={"content": long, "agentId": "user"}).json()["id"]
    topic = api.post("/api/topics", json={"name": "Where it is put while it is read"}).json()["id"]
    parts: list[str] = []
    async with over_http(gateway) as client:
        cursor = ""
        while True:
            result = await client.call_tool("open", {"ids": [id_], "cursor": cursor})
            assert len(result.model_dump_json(by_alias=True).encode()) < tools.ANSWER_BYTES
            page = answered(result)
            parts.append(page["text"].partition("\n")[2].rpartition("\n</holdfast:data")[0])
            cursor = page.get("next", "")
            if not cursor:
                break
            api.patch(f"/api/log/{id_}", json={"topicId": topic}).raise_for_status()
    assert len(parts) > 5
    assert "".join(parts).partition("\n")[2].removesuffix("\n") == long


@pytest.mark.anyio
async def test_several_ids_and_a_long_topic_are_read_whole_whatever_comes_in_between(
    gateway: Running, api: httpx.Client
) -> None:
    topic = api.post("/api/topics", json={"name": "Long thread"}).json()["id"]
    words = [f"word{n} " * 150 for n in range(30)]
    ids = [api.post("/api/log", json={"content": w, "topicId": topic}).json()["id"] for w in words]
    seen, cursor = "", ""
    async with over_http(gateway) as client:
        while True:
            ask = {"ids": [topic, "log-nowhere", ids[0]], "cursor": cursor}
            page = answered(await client.call_tool("open", ask))
            seen += page["text"]
            api.post("/api/log", json={"content": "something new", "topicId": topic})
            cursor = page.get("next", "")
            if not cursor:
                break
    for number, word in enumerate(words):
        assert seen.count(word.strip()) == (2 if number == 0 else 1), number
    assert "log-nowhere: no entry" in seen


@given(st.text(max_size=400), st.integers(0, 400))
def test_a_page_holds_no_more_bytes_than_it_may_and_takes_all_that_fits(text: str, most: int) -> None:
    cut = mcp_api.fitting(text, most)
    assert 0 <= cut <= len(text)
    assert cut == 0 or mcp_api.weight(text[:cut]) <= most
    if mcp_api.weight(text) <= most:
        assert cut == len(text)


@pytest.mark.anyio
async def test_a_token_reads_and_writes_over_mcp_what_it_may_over_http(
    gateway: Running, api: httpx.Client
) -> None:
    store = gateway.hold.store
    api.post("/api/spaces", json={"id": SPACE, "name": "Garden"})
    shared = make_token(store, "garden", spaces=[SPACE])
    reader = make_token(store, "onlooker", scope=Scope.READ)
    api.post("/api/log", json={"content": "The quokka password is owl", "agentId": "user"})
    async with over_http(gateway, shared) as client:
        kept = answered(await client.call_tool("remember", {"text": "The quokka hutch stands in the garden"}))
        lines = await recalled(client, "quokka")
        assert any("hutch" in line for line in lines)
        assert not any("password" in line for line in lines)
    assert api.get(f"/api/log/{kept['id']}").json()["audience"] == f"space:{SPACE}"
    async with over_http(gateway, reader) as client:
        assert any("password" in line for line in await recalled(client, "quokka"))
        refused = await client.call_tool("remember", {"text": "It may not"})
        assert refused.is_error
        assert "may read, not write" in refused.content[0].text


@pytest.mark.anyio
async def test_what_a_model_did_wrong_is_told_in_words_it_can_mend(gateway: Running) -> None:
    async with over_http(gateway) as client:
        for name, arguments, told in (
            ("recall", {}, "query"),
            ("open", {"ids": ["log-none"]}, "no entry"),
            ("open", {"ids": ["log-none"], "cursor": "{"}, "cursor"),
            ("task", {}, "title"),
            ("board", {"topic": "no such"}, "no topic"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error, name
            assert told in result.content[0].text


@pytest.mark.anyio
async def test_topics_memory_files_and_sessions_are_resources(gateway: Running, api: httpx.Client) -> None:
    hold = gateway.hold
    workspace = hold.workspace(hold.settings.default_agent_id)
    (workspace / "memory").mkdir(parents=True, exist_ok=True)
    (workspace / "memory" / "2026-03-02.md").write_text("We bought a kiln.\n")
    topic = api.post("/api/topics", json={"name": "Kiln & clay"}).json()["id"]
    async with over_http(gateway) as client:
        listed = {str(one.uri): one.name for one in (await client.list_resources()).resources}
        text = (await client.read_resource("holdfast://memory/memory/2026-03-02.md")).contents[0].text
        head = (await client.read_resource(f"holdfast://topic/{topic}")).contents[0].text
        templates = (await client.list_resource_templates()).resource_templates
        with pytest.raises(MCPError):
            await client.read_resource("holdfast://memory/memory/../../holdfast.json")
    assert listed[f"holdfast://topic/{topic}"] == "Kiln & clay"
    assert "holdfast://memory/memory/2026-03-02.md" in listed
    assert "We bought a kiln." in text
    assert "# Kiln & clay" in head
    assert {one.name for one in templates} == {"topic", "session", "memory", "entry"}


@pytest.mark.anyio
async def test_prompts_bring_the_block_and_what_is_known(gateway: Running, api: httpx.Client) -> None:
    api.post("/api/log", json={"content": "The loom needs a new shuttle", "agentId": "user"})
    async with over_http(gateway) as client:
        assert [one.name for one in (await client.list_prompts()).prompts] == ["continue", "recap"]
        block = (await client.get_prompt("continue", {"about": "loom"})).messages[0].content.text
        recap = (await client.get_prompt("recap", {"topic": "loom shuttle"})).messages[0].content.text
    assert "CLAWBOARD_CONTEXT_BEGIN" in block
    assert "new shuttle" in recap


def test_who_has_no_token_is_told_where_to_look(gateway: Running) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with gateway.client() as client:
        refused = client.post("/mcp", json=body)
        assert_problem(refused, 401, "no_token")
        where = refused.headers["www-authenticate"].partition('resource_metadata="')[2].partition('"')[0]
        told = client.get(where).json()
        assert told["resource"] == f"{gateway.url}/mcp"
        assert told["bearer_methods_supported"] == ["header"]
        assert client.get("/.well-known/oauth-protected-resource").json() == told


def test_pages_of_other_origins_are_refused(gateway: Running) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with gateway.client(gateway.admin, Origin="https://evil.example") as client:
        assert_problem(client.post("/mcp", json=body), 403, "cross_origin")
    with gateway.client(gateway.admin) as client:
        assert_problem(client.get("/mcp"), 405, "method_not_allowed")


@pytest.mark.anyio
async def test_a_listener_hears_of_new_topics_and_only_of_those_it_may_read(
    gateway: Running, api: httpx.Client
) -> None:
    from mcp.client.subscriptions import ResourcesListChanged

    api.post("/api/spaces", json={"id": "space-loft", "name": "Loft"})
    limited = make_token(gateway.hold.store, "loft", spaces=["space-loft"])
    async with (
        over_http(gateway, limited, "2026-07-28") as client,
        client.listen(resources_list_changed=True) as heard,
    ):
        api.post("/api/topics", json={"name": "Owner's own"})
        api.post("/api/topics", json={"name": "Loft ladder", "spaceId": "space-loft"})
        with anyio.fail_after(PATIENCE):
            event = await anext(aiter(heard))
        assert isinstance(event, ResourcesListChanged)
        names = [one.name for one in (await client.list_resources()).resources]
    assert names == ["Loft ladder"]


@pytest.mark.anyio
async def test_a_listener_of_the_older_era_hears_over_http_of_what_it_may_read(
    gateway: Running, api: httpx.Client
) -> None:
    api.post("/api/spaces", json={"id": "space-shed", "name": "Shed"})
    limited = make_token(gateway.hold.store, "shed", spaces=["space-shed"])
    told: dict[str, int] = {"owner": 0, "limited": 0}

    def counting(who: str) -> Any:
        async def heard(message: Any) -> None:
            told[who] += getattr(message, "method", "") == "notifications/resources/list_changed"

        return heard

    async with (
        over_http(gateway, mode="legacy", message_handler=counting("owner")) as owner,
        over_http(gateway, limited, "legacy", message_handler=counting("limited")) as client,
    ):
        assert owner.server_capabilities.resources.list_changed
        assert await until_told(api, told, "owner", {"name": "Owner's own"})
        assert told["limited"] == 0
        assert await until_told(api, told, "limited", {"name": "Shed roof", "spaceId": "space-shed"})
        names = {one.name for one in (await client.list_resources()).resources}
    assert names
    assert all(name.startswith("Shed roof") for name in names)


async def until_told(api: httpx.Client, told: dict[str, int], who: str, topic: dict[str, str]) -> bool:
    """Make topics until somebody is told: a client says to nobody when it has begun to listen."""
    with anyio.move_on_after(PATIENCE):
        while not told[who]:
            name = f"{topic['name']} {anyio.current_time()}"
            assert api.post("/api/topics", json={**topic, "name": name}).status_code == 201
            await anyio.sleep(0.2)
    return told[who] > 0


def test_a_stream_of_the_older_era_ends_with_its_token_and_refuses_pages(gateway: Running) -> None:
    listens = {"Accept": "text/event-stream"}
    with gateway.client() as client:
        assert_problem(client.get("/mcp", headers=listens), 401, "no_token")
    with gateway.client(gateway.admin, Origin="https://evil.example") as client:
        assert_problem(client.get("/mcp", headers=listens), 403, "cross_origin")
    ended = make_token(gateway.hold.store, "ended")
    with gateway.client(ended) as client, client.stream("GET", "/mcp", headers=listens) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        gateway.hold.store.run(OWNER, lambda tx: revoke(tx, "ended"))
        assert all("list_changed" not in line for line in lines)


@pytest.mark.anyio
async def test_a_client_of_the_older_era_goes_on_after_a_restart_of_the_gateway(hold: Holdfast) -> None:
    serving = running(hold)
    first = serving.__enter__()
    async with over_http(first, mode="legacy") as client:
        assert not (await client.call_tool("board", {})).is_error
        await anyio.to_thread.run_sync(serving.__exit__, None, None, None)
        again = running(hold, int(first.url.rpartition(":")[2]))
        await anyio.to_thread.run_sync(again.__enter__)
        try:
            assert not (await client.call_tool("board", {})).is_error
        finally:
            await anyio.to_thread.run_sync(again.__exit__, None, None, None)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_on_stdio_it_speaks_for_the_running_gateway_and_says_what_changed(
    gateway: Running, api: httpx.Client, mode: str
) -> None:
    told = anyio.Event()

    async def heard(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/list_changed":
            told.set()

    with announced(gateway.hold.home, gateway.url):
        async with over_stdio(gateway.hold, mode=mode, message_handler=heard) as client:
            kept = answered(await client.call_tool("remember", {"text": f"Said on stdio, {mode}"}))
            assert api.get(f"/api/log/{kept['id']}").status_code == 200
            if mode == "legacy":
                assert client.server_capabilities.resources.list_changed
                with anyio.fail_after(PATIENCE):
                    while not told.is_set():
                        api.post("/api/topics", json={"name": f"Topic {anyio.current_time()}"})
                        await anyio.sleep(0.2)


def test_a_client_that_mixes_the_eras_on_one_pipe_is_answered_in_each(hold: Holdfast) -> None:
    """As Claude Code does to a server that is slow to start."""
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in ENVELOPE.items()}
    shake = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": ENVELOPE["clientInfo"]}
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "server/discover", "params": {"_meta": meta}},
        {"id": 2, "method": "initialize", "params": shake},
        {"method": "notifications/initialized"},
        {"id": 3, "method": "server/discover", "params": {"_meta": meta}},
        {"id": 4, "method": "tools/list", "params": {"_meta": meta}},
        {"id": 5, "method": "tools/list"},
    ]
    line = [sys.executable, "-m", "holdfast.cli", "mcp", "--home", str(hold.home.path)]
    with forks.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(b"".join(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in asked))
        program.stdin.flush()
        answers = {}
        while len(answers) < 5:
            answer = json.loads(program.stdout.readline())
            answers[answer.get("id")] = answer
        program.stdin.close()
        assert program.wait(PATIENCE) == 0
    assert not [one for one in answers.values() if "error" in one]
    assert answers[2]["result"]["protocolVersion"] == "2025-11-25"
    for number in (4, 5):
        assert [tool["name"] for tool in answers[number]["result"]["tools"]] == list(tools.TOOLS)


@pytest.mark.anyio
async def test_on_stdio_without_a_gateway_it_opens_the_home_with_what_the_token_may(hold: Holdfast) -> None:
    limited = make_token(hold.store, "shed", spaces=["space-shed"])
    async with over_stdio(hold) as client:
        answered(await client.call_tool("remember", {"text": "The otter sleeps in the boat"}))
        assert any("otter" in line for line in await recalled(client, "where does the otter sleep"))
    async with over_stdio(hold, limited) as client:
        assert await recalled(client, "where does the otter sleep") == []
    async with over_stdio(hold, "hf_unknown") as client:
        refused = await client.call_tool("board", {})
        assert refused.is_error
        assert "not known" in refused.content[0].text


def test_without_the_sdk_the_gateway_says_what_to_install(
    hold: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.streamable_http_manager", None)
    with running(hold) as gateway, gateway.client(gateway.admin) as client:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        told = assert_problem(client.post("/mcp", json=body), 503, "mcp_missing")
        assert "holdfast[mcp]" in told["hint"]
