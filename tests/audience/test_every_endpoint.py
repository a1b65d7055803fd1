"""Whoever asks, whatever address, with whatever in it: nobody is told a word that is not theirs."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from itertools import groupby
from typing import Any

import httpx
import pytest
from asking import Addresses, Known, Question, Unknown
from marked_world import MAIN, SPOKEN, World
from marks import HOLDERS, PEOPLE, SPACE_A, SPACE_B, SURFACES, hears
from serving import events
from websockets.sync.client import connect

from builders import PATIENCE, share
from holdfast.log import Reader

# Where the answer is made to stand in the chat that is asked for, whoever holds the token.
IN_THE_CHAT = frozenset({"/api/context", "/api/search", "/api/memory/search", "/api/memory/get"})
# What is told to who has no token: that there is a gateway, and that its `/mcp` wants one.
WELL_KNOWN = "/.well-known/oauth-protected-resource"
TO_ANYONE = frozenset({"/healthz", WELL_KNOWN, f"{WELL_KNOWN}/mcp"})
WRITERS = {"unlimited": "owner", "viewer": "member"}
READS_ALL = [name for name, reader in HOLDERS.items() if reader.reads_all]


LIVE = [one for one in HOLDERS if one != "stranger"]


@pytest.fixture(scope="module")
def questions(world: World) -> list[Question]:
    return list(Addresses(world).questions())


def turn_of(holder: str) -> int:
    return list(HOLDERS).index(holder)


def asked_by(holder: str, questions: list[Question]) -> list[Question]:
    """Who may read everything is asked what depends on the chat, and each address once. Of the others two
    who are alike stand side by side, and share the questions."""
    if HOLDERS[holder].audiences is not None or HOLDERS[holder].agents is not None:
        by_address = groupby(questions, key=lambda one: one.template)
        return [one for _, alike in by_address for one in share(alike, turn_of(holder), of=2)]
    once = {one.template: one for one in reversed(questions)}
    return [one for one in questions if one.template in IN_THE_CHAT or once[one.template] is one]


def reader_of(holder: str, question: Question) -> Reader:
    reader = HOLDERS[holder]
    if question.template in IN_THE_CHAT and question.key in SURFACES:
        return reader.within(hears(str(question.key)))
    return reader


def told(answer: httpx.Response) -> str:
    """All that an answer tells: status line, headers, body."""
    head = "\n".join(f"{name}: {value}" for name, value in answer.headers.items())
    return f"{answer.status_code} {answer.reason_phrase}\n{head}\n{answer.text}"


class Line:
    """One connection, asked thousands of things: the client of other tests costs more than the answers."""

    def __init__(self, world: World, holder: str) -> None:
        url = httpx.URL(world.gateway.url)
        self._line = HTTPConnection(url.host, url.port, timeout=PATIENCE)
        self._headers = {"Authorization": f"Bearer {world.tokens[holder]}"}

    def ask(self, target: str) -> tuple[int, str]:
        """The status, and all that the answer tells: status line, headers, body."""
        self._line.request("GET", target, headers=self._headers)
        answer = self._line.getresponse()
        body = answer.read().decode(errors="replace")
        return answer.status, f"{answer.status} {answer.reason}\n{answer.headers}\n{body}"


@pytest.mark.parametrize("holder", HOLDERS)
def test_no_address_tells_anybody_what_is_not_theirs(
    world: World, questions: list[Question], holder: str
) -> None:
    leaks: dict[str, str] = {}
    broken: list[str] = []
    line = Line(world, holder)
    for question in asked_by(holder, questions):
        target = question.target
        status, text = line.ask(target)
        if status >= 500:
            broken.append(f"{target}: {text[:400]}")
        for name in world.marks.leaked(text, reader_of(holder, question)):
            leaks.setdefault(f"{question.template} told {holder} of {name}", target[:300])
        if holder == "stranger" and status == 200:
            assert question.template in TO_ANYONE, target
    assert not broken
    assert not leaks, json.dumps(leaks, indent=1)


def test_the_owner_finds_everything_that_anybody_said(world: World, questions: list[Question]) -> None:
    for holder in ("owner", "unlimited"):
        with world.client(holder) as client:
            log = client.get("/api/log", params={"limit": 1000, "includeRaw": True}).text
            for mark in world.marks.all:
                assert mark.word in log, mark.name
                found = client.get("/api/search", params={"q": mark.hook}).text
                assert mark.word in found, mark.name


@pytest.mark.parametrize("holder", [one for one in LIVE if one not in READS_ALL])
def test_who_holds_a_limited_token_finds_what_is_theirs(world: World, holder: str) -> None:
    with world.client(holder) as client:
        for mark in world.marks.own(HOLDERS[holder]):
            for path, query in (("/api/log", {"limit": "500"}), ("/api/search", {"q": mark.hook})):
                assert mark.word in client.get(path, params=query).text, (path, mark.name)


@pytest.mark.parametrize("key", SPOKEN)
def test_each_chat_finds_its_own_words(world: World, key: str) -> None:
    """What stands in a group's prompt comes from `/api/context` for its key, so nothing may be lost there."""
    agent = key.split(":")[1]
    for mark in world.marks.all:
        if (mark.audience, mark.agent) == (SURFACES[key], agent):
            for path in ("/api/context", "/api/search", "/api/memory/search"):
                query = {"q": mark.hook, "sessionKey": key}
                query |= {"mode": "patient"} if "context" in path else {}
                query |= {"agentId": agent} if "memory" in path else {}
                assert mark.word in world.api.get(path, params=query).text, (path, mark.name)


def test_asking_for_a_secret_by_its_very_word_tells_no_more_than_a_word_that_nobody_said(
    world: World,
) -> None:
    """Not even that it is there: the answer has the word as often as one to nonsense has that."""
    nonsense = "mknobodyq0123456789"
    for holder, reader in HOLDERS.items():
        with world.client(holder) as client:
            for path in ("/api/search", "/api/context", "/api/memory/search"):
                for mark in world.marks.foreign(reader):
                    counts = [
                        client.get(path, params={"q": f"sauna {word}"}).text.count(word)
                        for word in (mark.word, nonsense)
                    ]
                    assert counts[0] == counts[1], (holder, path, mark.name)


def own_word(world: World, holder: str, text: str) -> None:
    """Something happens that this holder may know of."""
    place: dict[str, Any] = {"agentId": "beta"} if "beta" in holder else {"agentId": "user"}
    if holder.endswith(" A"):
        place["spaceId"] = SPACE_A
    if holder.endswith(" B"):
        place["spaceId"] = SPACE_B
    if holder == "beta":
        place["source"] = {"sessionKey": "agent:beta:main"}
    if PEOPLE.get(holder, ("", "", None))[2] is not None:
        place["spaceId"] = f"team-{PEOPLE[holder][2]}"
    with world.client(WRITERS.get(holder, holder)) as client:
        world.made("/api/log", {"content": text, **place}, client)


@pytest.mark.parametrize("holder", LIVE)
def test_live_events_and_what_was_missed_of_them_are_for_those_who_may_know(
    world: World, holder: str
) -> None:
    with world.client(holder) as client:
        for params in ({}, {"spaceId": SPACE_A}, {"allowedSpaceIds": f"{SPACE_A},{SPACE_B}"}):
            if "spaceId" in params and (holder == "space B" or holder in PEOPLE):
                continue
            with client.stream("GET", "/api/stream", params=params, headers={"Last-Event-ID": "1"}) as live:
                assert live.status_code == 200, live.read()
                end = f"the end of it for {holder}"
                if params == {}:
                    own_word(world, holder, end)
                heard: list[str] = []
                for event in events(live):
                    heard.append(json.dumps(event))
                    if end in heard[-1] or (params and event.get("event") == "ready"):
                        break
                assert not world.marks.leaked("\n".join(heard), HOLDERS[holder])


@pytest.mark.parametrize("holder", LIVE)
def test_no_method_of_the_socket_tells_anybody_what_is_not_theirs(world: World, holder: str) -> None:
    from holdfast.gateway.rpc.connection import METHODS

    known, leaks = Known(world), []
    address = world.gateway.url.replace("http", "ws", 1) + "/ws"
    headers = {"Authorization": f"Bearer {world.tokens[holder]}"}
    with connect(address, additional_headers=headers, proxy=None) as socket:
        for number, (name, params) in enumerate(_calls(known, METHODS, turn_of(holder))):
            socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": name, "params": params}))
            while True:
                text = str(socket.recv(PATIENCE))
                leaks += [(name, one) for one in world.marks.leaked(text, HOLDERS[holder])]
                if json.loads(text).get("id") == number:
                    break
        socket.send(
            json.dumps(
                {"jsonrpc": "2.0", "id": 10**6, "method": "events.subscribe", "params": {"sinceSeq": 0}}
            )
        )
        end = f"the end of the socket for {holder}"
        own_word(world, holder, end)
        while end not in (text := str(socket.recv(PATIENCE))):
            leaks += [("events.subscribe", one) for one in world.marks.leaked(text, HOLDERS[holder])]
    assert not set(leaks)


def _mcp(client: httpx.Client, method: str, **params: Any) -> httpx.Response:
    """One request of the newer era, which needs no more than itself."""
    version = "2026-07-28"
    meta = {
        f"io.modelcontextprotocol/{name}": value
        for name, value in (
            ("protocolVersion", version),
            ("clientCapabilities", {}),
            ("clientInfo", {"name": "t", "version": "1"}),
        )
    }
    named = params.get("name") or params.get("uri")
    headers = {
        "MCP-Protocol-Version": version,
        "Mcp-Method": method,
        "Accept": "application/json, text/event-stream",
    }
    headers |= {"Mcp-Name": named} if named else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return client.post("/mcp", json=body, headers=headers)


def _mcp_calls(known: Known, world: World, turn: int) -> list[tuple[str, dict[str, Any]]]:
    """Every tool that only reads, every resource and prompt, with all that is known of the home."""
    from holdfast.mcp_server.tools import TOOLS

    hooks = [mark.hook for mark in world.marks.all]
    ids = [id_ for table in ("entries", "topics", "tasks", "turns") for id_ in known.ids(table)]
    ids += [f"session:{key}" for key in known.sessions] + ["MEMORY.md", "USER.md", "memory/2026-03-02.md"]
    asked: dict[str, list[dict[str, Any]]] = {
        "recall": [{"query": hook, "limit": 50} for hook in hooks],
        "open": [{"ids": ids[start : start + 5]} for start in range(0, len(ids), 5)],
        "board": [{}, *({"topic": id_} for id_ in known.ids("topics"))],
        "continue": [{"about": " ".join(hooks)}, *({"session": key} for key in known.sessions)],
    }
    reading = {name for name, tool in TOOLS.items() if tool.reads_only}
    if reading != asked.keys():
        raise Unknown(f"tools over MCP that this suite does not know: {sorted(reading ^ asked.keys())}")
    calls = [
        ("tools/call", {"name": name, "arguments": each})
        for name, every in asked.items()
        for each in share(every, turn, of=2)
    ]
    calls += [("resources/list", {}), ("prompts/get", {"name": "continue", "arguments": {"about": hooks[0]}})]
    calls += [
        ("prompts/get", {"name": "recap", "arguments": {"topic": hook}}) for hook in share(hooks, turn, of=2)
    ]
    ids = share(known.ids("entries"), turn, of=2)
    return calls + [("resources/read", {"uri": f"holdfast://entry/{id_}"}) for id_ in ids]


@pytest.mark.parametrize("holder", LIVE)
def test_nothing_over_mcp_tells_anybody_what_is_not_theirs(world: World, holder: str) -> None:
    leaks: list[tuple[str, str]] = []
    with world.client(holder) as client:
        for method, params in _mcp_calls(Known(world), world, turn_of(holder)):
            answer = _mcp(client, method, **params)
            assert answer.status_code < 500, answer.text
            found = world.marks.leaked(answer.text, HOLDERS[holder])
            leaks += [(f"{method} {params}"[:200], name) for name in found]
    assert not leaks


@pytest.mark.parametrize("holder", [one for one in LIVE if one not in READS_ALL])
def test_who_holds_a_limited_token_recalls_what_is_theirs_over_mcp(world: World, holder: str) -> None:
    with world.client(holder) as client:
        for mark in world.marks.own(HOLDERS[holder]):
            told = _mcp(client, "tools/call", name="recall", arguments={"query": mark.hook, "limit": 50})
            assert mark.word in told.text, mark.name


# Methods that change something are tried by test_findings and the gateway's own tests.
_LOOKING = {"connect", "sessions.list", "sessions.get", "sessions.history", "chat.history"}
_LOOKING |= {"agent.wait", "agent.status", "agent.subscribe"}
_CHANGING = {"agent", "agent.steer", "agent.cancel", "agent.resume", "chat.send", "chat.abort"}
_CHANGING |= {"sessions.reset", "events.subscribe", "events.unsubscribe", "agent.unsubscribe"}


def _calls(known: Known, methods: Any, turn: int = 0) -> list[tuple[str, dict[str, Any]]]:
    unknown = set(methods) - _LOOKING - _CHANGING
    if unknown:
        raise Unknown(f"methods of the socket that this suite does not know: {sorted(unknown)}")
    found: list[tuple[str, dict[str, Any]]] = [("connect", {})]
    found += [("sessions.list", {"status": status, "limit": 400}) for status in ("active", "all", "archived")]
    for key in share(known.sessions, turn, of=2):
        found += [
            (name, {"sessionKey": key, **more})
            for name, more in (
                ("sessions.get", {}),
                ("sessions.history", {"limit": 400}),
                ("chat.history", {"limit": 400}),
            )
        ]
    runs = share(known.ids("turns"), turn, of=2)
    found += [(name, {"runId": id_}) for name in ("agent.status", "agent.subscribe") for id_ in runs]
    found += [("agent.wait", {"runId": id_, "timeoutMs": 0}) for id_ in runs]
    return found


def test_an_address_that_the_suite_knows_nothing_of_fails_it(world: World) -> None:
    known = Known(world)
    for ask in (
        lambda: known.in_path("/api/diaries/{id}", "id"),
        lambda: known.in_path("/api/diaries/{diary}", "diary"),
        lambda: known.in_query("/api/log", "whose", {}),
        lambda: _calls(known, {"diaries.read": None}),
    ):
        with pytest.raises(Unknown):
            ask()


@pytest.mark.parametrize("holder", [one for one in HOLDERS if one not in ("stranger", "unlimited")])
def test_an_agent_that_is_asked_over_the_api_says_nothing_that_the_asker_may_not_read(
    world: World, holder: str
) -> None:
    """The model says all that it is shown; and what it was shown is what its asker may read."""
    before = len(world.model.requests)
    with world.client(holder) as client:
        for agent in ("main", "beta"):
            body = {"model": f"holdfast/{agent}", "messages": [{"role": "user", "content": "the sauna?"}]}
            asked = [
                client.post("/v1/chat/completions", json=body | {"store": store}) for store in (True, False)
            ]
            for run in share(Known(world).ids("turns"), turn_of(holder), of=2):
                sent = {
                    "model": f"holdfast/{agent}",
                    "input": "the sauna?",
                    "previous_response_id": f"resp_{run}",
                }
                asked.append(client.post("/v1/responses", json=sent))
            for key in (None, MAIN, f"agent:{agent}:main", "agent:main:pier:group:g1"):
                sent = {"message": "What of the sauna?", "agentId": agent}
                accepted = client.post("/api/agent", json=sent | ({"sessionKey": key} if key else {}))
                asked.append(accepted)
                if accepted.status_code == 202:
                    run = accepted.json()["runId"]
                    asked.append(client.get(f"/api/agent/{run}/wait", params={"timeoutMs": 20_000}))
            for answer in asked:
                assert answer.status_code < 500
                assert not world.marks.leaked(told(answer), HOLDERS[holder]), answer.url
    for asked in world.model.requests[before:]:
        assert not world.marks.leaked(json.dumps(asked.body, ensure_ascii=False), HOLDERS[holder])
