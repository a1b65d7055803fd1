"""`/ws`: JSON-RPC with a real WebSocket client, a scripted model behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_stage import agents_serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Running, make_token
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from builders import PATIENCE, append
from holdfast.gateway import tokens
from holdfast.gateway.page_sessions import COOKIE
from holdfast.gateway.rpc import connection, protocol
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER
from holdfast.testing import Asked, Say, Stall, Turn


def answer(asked: Asked) -> Turn:
    return Stall("so far") if "wait for ever" in asked.last_text else Say("Good morning.")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("ws") / "home"
    limits = {"entryBytes": 16_384, "bodyBytes": 16_384}
    own = {"shutdownGraceSeconds": 1, "limits": limits}
    with agents_serving(home, sqlite_template, answer, gateway=own) as (found, _):
        yield found


class Peer:
    """A client that keeps what it is told unasked until somebody looks for it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.told: list[dict[str, Any]] = []
        self._number = 0

    def send(self, method: str, **params: Any) -> int:
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.socket.send(json.dumps(body))
        return self._number

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.socket.recv(PATIENCE))
        assert found["jsonrpc"] == "2.0"
        return found

    def answer(self, id_: int | None) -> dict[str, Any]:
        while True:
            found = self.read()
            if "method" not in found:
                assert found["id"] == id_
                return found
            self.told.append(found)

    def call(self, method: str, **params: Any) -> Any:
        found = self.answer(self.send(method, **params))
        assert "error" not in found, found
        return found["result"]

    def refused(self, method: str, **params: Any) -> dict[str, Any]:
        error: dict[str, Any] = self.answer(self.send(method, **params))["error"]
        assert error["message"]
        assert error["data"]["code"]
        return error

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """What is told, up to the first that holds."""
        while not any(map(holds, self.told)):
            self.told.append(self.read())
        found, self.told = self.told, []
        return found

    def closed(self) -> int | None:
        """The code with which the gateway ends the connection."""
        while True:
            try:
                self.socket.recv(PATIENCE)
            except ConnectionClosed as end:
                return None if end.rcvd is None else end.rcvd.code


@contextmanager
def peer(gateway: Running, token: str | None = "", **headers: str) -> Iterator[Peer]:
    """A connection; with the home's own token unless another, or none, is named."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token or gateway.admin}"
    address = gateway.url.replace("http", "ws", 1) + "/ws"
    with connect(address, additional_headers=headers, proxy=None) as socket:
        yield Peer(socket)


def is_end(note: dict[str, Any]) -> bool:
    return note["method"] == "agent.event" and note["params"]["data"].get("phase") in ("end", "error")


def test_a_run_is_accepted_streamed_and_waited_for(gateway: Running) -> None:
    with peer(gateway) as ws:
        run = ws.call("agent", message="hello", sessionKey="agent:main:web:dm:ws")
        events = [note["params"] for note in ws.until(is_end)]
        assert {event["runId"] for event in events} == {run["runId"]}
        deltas = [e["data"]["delta"] for e in events if e["data"].get("kind") == "text"]
        assert "".join(deltas) == "Good morning."
        done = ws.call("agent.wait", runId=run["runId"], timeoutMs=20_000)
        assert (done["status"], done["reply"]) == ("committed", "Good morning.")
        assert ws.call("agent.status", runId=run["runId"]) == done
        quiet = ws.call("agent", message="hello", stream=False)
        ws.call("agent.wait", runId=quiet["runId"])
        assert ws.told == []
        ws.call("agent.subscribe", runId=quiet["runId"])
        assert ws.until(is_end)[-1]["params"]["data"]["text"] == "Good morning."


def test_calls_run_side_by_side_and_a_run_is_steered_and_stopped(gateway: Running) -> None:
    key = "agent:main:web:dm:steered"
    with peer(gateway) as ws:
        run = ws.call("chat.send", message="wait for ever", sessionKey=key)["runId"]
        ws.until(lambda note: bool(note["params"]["data"].get("delta")))
        waiting = ws.send("agent.wait", runId=run, timeoutMs=20_000)
        steered = ws.call("agent.steer", message="never mind", sessionKey=key, stream=False)
        assert (steered["joined"], steered["runId"]) == (True, run)
        cancelling = ws.send("agent.cancel", runId=run)
        found = {}
        while len(found) < 2:
            message = ws.read()
            if "method" not in message:
                found[message["id"]] = message["result"]["status"]
        assert found == {waiting: "cancelled", cancelling: found[cancelling]}
        assert ws.call("chat.abort", runId=run) == {"aborted": 0}


def test_a_chat_is_read_aborted_and_begun_anew(gateway: Running) -> None:
    key = "agent:main:web:dm:chat"
    with peer(gateway) as ws:
        ws.call("chat.send", message="hello", sessionKey=key)
        ws.until(is_end)
        history = ws.call("chat.history", sessionKey=key)
        assert [(m["role"], m["content"]) for m in history["messages"]] == [
            ("user", "hello"),
            ("assistant", "Good morning."),
        ]
        whole = ws.call("sessions.history", sessionKey=key, limit=1)
        assert [e["content"] for e in whole["entries"]] == ["hello"]
        rest = ws.call("sessions.history", sessionKey=key, after=whole["next"])
        assert (rest["entries"][0]["content"], rest["next"]) == ("Good morning.", None)
        listed = ws.call("sessions.list", agentId="main", limit=499)["sessions"]
        before = ws.call("sessions.get", sessionKey=key)
        assert before["sessionId"] in [s["sessionId"] for s in listed]
        ws.call("chat.send", message="wait for ever", sessionKey=key)
        ws.until(lambda note: bool(note["params"]["data"].get("delta")))
        assert ws.call("chat.abort", sessionKey=key) == {"aborted": 1}
        ws.until(is_end)
        assert ws.call("sessions.reset", sessionKey=key)["sessionId"] != before["sessionId"]
        assert ws.call("chat.history", sessionKey=key)["messages"] == []


def test_changes_come_to_those_who_subscribed_and_may_see_them(gateway: Running) -> None:
    store = gateway.hold.store
    limited = make_token(store, "ws-events", Scope.READ, agents=["other"])
    with peer(gateway) as ours, peer(gateway, limited) as theirs:
        first, second = ours.call("events.subscribe"), theirs.call("events.subscribe")
        append(store, "of main", agent_id="main")
        append(store, "of other", agent_id="other")

        def says(text: str) -> Callable[[dict[str, Any]], bool]:
            return lambda note: (note["params"].get("data") or {}).get("content") == text

        seen = [n["params"]["data"]["content"] for n in ours.until(says("of other"))]
        assert seen == ["of main", "of other"]
        notes = theirs.until(says("of other"))
        assert [n["params"]["data"]["content"] for n in notes] == ["of other"]
        assert notes[0]["params"]["subscriptionId"] == second["subscriptionId"]
        assert notes[0]["params"]["type"] == "log.appended"
        ended = ours.call("events.unsubscribe", subscriptionId=first["subscriptionId"])
        assert ended["unsubscribed"] is True
        again = ours.call("events.subscribe", sinceSeq=first["seq"])
        assert again["seq"] == first["seq"]
        assert ours.until(says("of other"))[0]["params"]["subscriptionId"] == again["subscriptionId"]


def test_a_token_may_come_with_the_first_message(gateway: Running) -> None:
    with peer(gateway, None) as ws:
        assert ws.refused("sessions.list")["code"] == -32001
        assert ws.refused("connect", token="wrong")["data"]["code"] == "bad_token"
        told = ws.call("connect", token=gateway.admin)
        assert (told["name"], told["scope"]) == ("home", "admin")
        assert "agent.wait" in told["methods"]
        assert "sessions" in ws.call("sessions.list")


def test_who_shows_no_token_in_time_or_too_many_wrong_ones_is_shown_out(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with peer(gateway, None) as ws:
        for _ in range(2):
            ws.refused("connect", token="wrong")
        ws.send("connect", token="wrong")
        assert ws.closed() == 1008
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.01)
    with peer(gateway, None) as ws:
        assert ws.closed() == 1008


def test_a_page_comes_in_by_its_cookie_and_one_of_another_origin_does_not(gateway: Running) -> None:
    with gateway.client() as page:
        page.post("/api/login", json={"token": gateway.admin})
        cookie = f"{COOKIE}={page.cookies[COOKIE]}"
    with peer(gateway, None, Cookie=cookie, **{"Sec-Fetch-Site": "same-origin"}) as ws:
        assert ws.call("connect")["name"] == "home"
    with pytest.raises(InvalidStatus), peer(gateway, None, Cookie=cookie, **{"Sec-Fetch-Site": "cross-site"}):
        pass
    for header in ({"Authorization": "Bearer wrong"}, {"X-Holdfast-Token": "wrong"}):
        with pytest.raises(InvalidStatus), peer(gateway, None, **header):
            pass


def test_scopes_and_limits_hold_for_every_method(gateway: Running) -> None:
    store = gateway.hold.store
    with peer(gateway) as ws:
        theirs = ws.call("chat.send", message="hello", sessionKey="agent:main:web:dm:secret")["runId"]
    reader = make_token(store, "ws-reader", Scope.READ)
    with peer(gateway, reader) as ws:
        for method in ("agent", "agent.steer", "chat.send"):
            assert ws.refused(method, message="x", sessionKey="agent:main:main")["code"] == -32003
        for method, params in (
            ("agent.cancel", {"runId": theirs}),
            ("agent.resume", {"runId": theirs}),
            ("chat.abort", {"runId": theirs}),
            ("sessions.reset", {"sessionKey": "agent:main:web:dm:secret"}),
        ):
            assert ws.refused(method, **params)["code"] == -32003
        assert ws.call("agent.status", runId=theirs)["runId"] == theirs
    limited = make_token(store, "ws-other", agents=["other"])
    with peer(gateway, limited) as ws:
        assert ws.refused("agent", message="x")["data"]["code"] == "agent_forbidden"
        for method in ("agent", "agent.steer", "chat.send"):
            refused = ws.refused(method, message="x", sessionKey="agent:main:web:dm:secret")
            assert refused["data"]["code"] == "session_forbidden"
        for method in ("agent.status", "agent.wait", "agent.cancel", "agent.resume", "agent.subscribe"):
            assert ws.refused(method, runId=theirs)["data"]["code"] == "unknown_run"
        for method in ("sessions.get", "sessions.history", "sessions.reset", "chat.history", "chat.abort"):
            refused = ws.refused(method, sessionKey="agent:main:web:dm:secret")
            assert refused["data"]["code"] == "unknown_session"
        assert all(s["agentId"] == "other" for s in ws.call("sessions.list")["sessions"])
        mine = ws.call("agent", message="x", agentId="other", stream=False)["runId"]
        assert ws.call("agent.wait", runId=mine)["status"] == "committed"


def test_a_revoked_token_ends_its_connection(gateway: Running) -> None:
    token = make_token(gateway.hold.store, "ws-revoked", Scope.READ)
    with peer(gateway, token) as ws:
        ws.call("events.subscribe")
        with gateway.hold.store.write(OWNER) as tx:
            tokens.revoke(tx, "ws-revoked")
        append(gateway.hold.store, "something")
        assert ws.closed() == 1008


def test_what_is_no_call_is_answered_and_the_connection_stays(gateway: Running) -> None:
    with peer(gateway) as ws:
        for text, code in (
            ("{", -32700),
            ('{"a": 1, "a": 2}', -32700),
            ("[" * 80 + "]" * 80, -32600),
            ("[]", -32600),
            ('{"id": 1, "method": "agent"}', -32600),
            ('{"jsonrpc": "2.0", "id": {}, "method": "agent"}', -32600),
            ('{"jsonrpc": "2.0", "id": 5, "method": "agent", "params": []}', -32600),
            ('{"jsonrpc": "2.0", "id": 5, "method": "no.such"}', -32601),
            ('{"jsonrpc": "2.0", "id": 5, "method": "agent", "params": {}}', -32602),
            ('{"jsonrpc": "2.0", "id": 5, "method": "agent.wait", "params": {"runId": "x"}}', -32004),
            (json.dumps({"jsonrpc": "2.0", "id": 5, "method": "x", "params": {"x": "y" * 17_000}}), -32013),
        ):
            ws.socket.send(text)
            assert ws.read()["error"]["code"] == code, text
        ws.socket.send('{"jsonrpc": "2.0", "method": "no.such"}')
        assert ws.call("connect")["name"] == "home"


def test_a_binary_frame_ends_the_connection(gateway: Running) -> None:
    with peer(gateway) as ws:
        ws.socket.send(b"\x00")
        assert ws.closed() == 1003


def test_no_more_calls_run_at_once_than_are_allowed(gateway: Running) -> None:
    with peer(gateway) as ws:
        run = ws.call("agent", message="wait for ever", stream=False, sessionKey="agent:main:web:dm:busy")
        for _ in range(connection.MAX_CALLS):
            ws.send("agent.wait", runId=run["runId"], timeoutMs=60_000)
        busy = ws.send("agent.status", runId=run["runId"])
        assert ws.answer(busy)["error"]["code"] == -32029
    with peer(gateway) as ws:
        ws.call("agent.cancel", runId=run["runId"])


def test_the_gateway_says_that_it_goes(tmp_path: Path, sqlite_template: Path) -> None:
    with (
        agents_serving(tmp_path / "home", sqlite_template, answer) as (gateway, _),
        peer(gateway) as ws,
    ):
        ws.call("events.subscribe")
        gateway.on_loop(lambda: gateway.server.handle_exit(signal.SIGTERM, None))
        assert ws.closed() == 1001


@settings(max_examples=80, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=60) | st.from_regex(r'\{"jsonrpc": ?"2\.0", ?"(id|method|params)": ?.{0,20}\}'))
def test_any_text_is_a_call_or_refused(text: str) -> None:
    try:
        call = protocol.read(text)
    except protocol.Refused as refused:
        told = json.loads(protocol.failure(refused.id, refused.error, refused.code))
        assert told["error"]["code"] in (-32700, -32600)
    else:
        assert isinstance(call.method, str)
