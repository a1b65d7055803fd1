"""Who may call, and what a token limited to spaces or agents sees."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from serving import Running, assert_problem, make_token, running, streaming, wait_for

from builders import accept, append, session
from holdfast.clock import ManualClock
from holdfast.gateway import tokens
from holdfast.gateway.guard import OPEN
from holdfast.gateway.tokens import Scope, TokenBook
from holdfast.log import FOR_OWNER, OWNER, Store, for_space
from holdfast.runtime import Holdfast

FORMS = [
    lambda t: {"Authorization": f"Bearer {t}"},
    lambda t: {"authorization": f"bearer   {t}"},
    lambda t: {"X-Holdfast-Token": t},
    lambda t: {"X-Clawboard-Token": t},
]


def test_every_form_of_the_header_is_taken(gateway: Running) -> None:
    with gateway.client() as nobody:
        for form in FORMS:
            answer = nobody.get("/api/whoami", headers=form(gateway.admin))
            who = {"name": "home", "scope": "admin", "spaces": None, "agents": None}
            assert answer.json() == who | {"userId": None, "role": None, "teams": [], "agentId": "main"}


def test_without_a_good_token_nothing_is_open_but_health_and_login(gateway: Running) -> None:
    paths = list(gateway.app.openapi()["paths"])
    assert len(paths) > 10
    with gateway.client() as nobody:
        for path in {*paths, "/nowhere", "/openapi.json"} - OPEN:
            for method in ("GET", "POST", "PATCH", "DELETE", "OPTIONS", "PUT"):
                assert_problem(nobody.request(method, path), 401, "no_token")
        for form in FORMS:
            refused = nobody.get("/api/log", headers=form("hf_not-a-token"))
            assert_problem(refused, 401, "bad_token")
            assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert nobody.get("/healthz").status_code == 200


def test_the_odd_methods_get_a_sane_answer(gateway: Running, api: httpx.Client) -> None:
    head = api.head("/api/log")
    assert (head.status_code, head.content, head.headers["allow"]) == (405, b"", "GET, POST")
    assert_problem(api.options("/api/log"), 405, "method_not_allowed")
    assert_problem(api.request("TRACE", "/api/log"), 405, "method_not_allowed")


def test_an_expired_token_ends_by_the_clock(gateway: Running, clock: ManualClock) -> None:
    text = make_token(gateway.hold.store, "brief", expires_at=clock.now() + 1000)
    with gateway.client(text) as client:
        assert client.get("/api/log").status_code == 200
        clock.advance(seconds=1)
        assert_problem(client.get("/api/log"), 401, "token_expired")


def test_a_token_revoked_by_another_process_ends_here_too(gateway: Running) -> None:
    elsewhere = Store(gateway.hold.store.url)
    text = make_token(elsewhere, "remote")
    with gateway.client(text) as client:
        wait_for(lambda: client.get("/api/log").status_code == 200)
        with elsewhere.write(OWNER) as tx:
            tokens.revoke(tx, "remote")
        wait_for(lambda: client.get("/api/log").status_code == 401)
        assert_problem(client.get("/api/log"), 401, "bad_token")
    elsewhere.close()


def test_a_revocation_during_a_look_up_is_not_forgotten(sqlite_store: Store) -> None:
    class Slow(TokenBook):
        def _read(self) -> Any:
            found = super()._read()
            with sqlite_store.write(OWNER) as tx:
                if any(t.revoked_at is None for t in tokens.listing(tx)):
                    tokens.revoke(tx, "racing")
            return found

    text = make_token(sqlite_store, "racing")
    book = Slow(sqlite_store, [])
    assert book.principal(text).name == "racing"
    with pytest.raises(tokens.Unauthorized):
        book.principal(text)


def test_tokens_are_kept_as_hashes_only(gateway: Running) -> None:
    text = make_token(gateway.hold.store, "hashed")
    with gateway.hold.store.read(OWNER) as tx:
        stored = str(tx.conn.exec_driver_sql("SELECT * FROM tokens").all())
    assert text not in stored
    assert text.removeprefix("hf_") not in stored


def test_revoked_tokens_do_not_count_towards_the_limit(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)
    for _ in range(4):
        make_token(sqlite_store, "again")
        with sqlite_store.write(OWNER) as tx:
            tokens.revoke(tx, "again")


def test_a_read_token_may_not_write(gateway: Running) -> None:
    entry = append(gateway.hold.store)
    session(gateway.hold.store)
    with gateway.client(make_token(gateway.hold.store, "reader", Scope.READ)) as reader:
        assert reader.get("/api/log").status_code == 200
        for method, path in [
            ("POST", "/api/log"),
            ("POST", "/api/ingest"),
            ("PATCH", f"/api/log/{entry.id}"),
            ("DELETE", f"/api/log/{entry.id}"),
            ("POST", "/api/sessions/agent:main:main/reset"),
            ("POST", "/api/sessions/agent:main:main/archive"),
            ("PATCH", "/api/config"),
        ]:
            assert_problem(reader.request(method, path, json={"content": "x"}), 403, "forbidden")


def test_config_and_agenda_are_for_admins(gateway: Running) -> None:
    limited = make_token(gateway.hold.store, "boss of one", Scope.ADMIN, spaces=["s1"])
    for text in (make_token(gateway.hold.store, "writer"), limited):
        with gateway.client(text) as client:
            assert_problem(client.get("/api/config"), 403, "forbidden")
            assert_problem(client.patch("/api/config", json={}), 403, "forbidden")
            assert_problem(client.get("/api/agenda"), 403, "forbidden")
    with gateway.client(limited) as client:
        assert_problem(client.get("/metrics"), 403, "forbidden")


def test_a_token_in_the_url_is_refused_and_never_echoed(
    gateway: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    text = make_token(gateway.hold.store, "leaky")
    with gateway.client() as client:
        for name in ("token", "%74oken", "TOKEN", "access_token", "x-clawboard-token"):
            for path in ("/api/log", "/healthz", "/api/stream", "/nowhere"):
                refused = client.get(f"{path}?limit=1&{name}={text}")
                assert_problem(refused, 422, "token_in_url")
                assert text not in refused.text + str(refused.headers)
        assert client.get("/healthz?mytoken=1").status_code == 200
    ours = [r.getMessage() for r in caplog.records if not r.name.startswith("http")]
    assert not any(text in line for line in ours)


class TestSpaces:
    """A token for space s1 on a log that has entries for s1, for s2 and for the owner, one of those in s1."""

    @pytest.fixture
    def limited(self, gateway: Running) -> Any:
        for space in ("s1", "s2", None):
            heard = FOR_OWNER if space is None else for_space(space)
            known = {"space_id": space, "audience": heard, "idempotency_key": f"key-{space}"}
            append(gateway.hold.store, f"in {space}", **known)
        append(gateway.hold.store, "sorted into s1", space_id="s1")
        session(gateway.hold.store)
        with gateway.client(make_token(gateway.hold.store, "narrow", spaces=["s1"])) as client:
            yield client

    def test_it_lists_only_its_own(self, limited: httpx.Client) -> None:
        for params in ({}, {"allowedSpaceIds": "s1,s2"}, {"spaceId": "s1"}):
            assert [e["content"] for e in limited.get("/api/log", params=params).json()] == ["in s1"]
        assert "in s2" not in limited.get("/api/log", params={"spaceId": "s2"}).text
        assert [c["data"]["content"] for c in limited.get("/api/changes").json()] == ["in s1"]
        assert limited.get("/api/sessions").json() == []

    def test_it_reaches_nothing_else_by_id(self, limited: httpx.Client, api: httpx.Client) -> None:
        for entry in api.get("/api/log").json():
            path, mine = f"/api/log/{entry['id']}", entry["content"] == "in s1"
            assert limited.get(path).status_code == (200 if mine else 404)
            assert limited.patch(path, json={"summary": "x"}).status_code == (200 if mine else 404)
            if not mine:
                assert_problem(limited.delete(path), 404, "unknown_entry")
        for rest in ("", "/turns", "/transcript"):
            assert_problem(limited.get(f"/api/sessions/agent:main:main{rest}"), 404, "unknown_session")
        for rest in ("/reset", "/archive"):
            assert_problem(limited.post(f"/api/sessions/agent:main:main{rest}"), 404, "unknown_session")

    def test_it_writes_only_into_its_own(self, limited: httpx.Client) -> None:
        good = {"content": "x", "spaceId": "s1"}
        made = limited.post("/api/log", json=good)
        assert made.status_code == 201
        assert limited.post("/api/ingest", json=[good]).status_code == 202
        for bad in ({"content": "x"}, {"content": "x", "spaceId": "s2"}):
            assert_problem(limited.post("/api/log", json=bad), 403, "space_forbidden")
            assert_problem(limited.post("/api/ingest", json=[good, bad]), 403, "space_forbidden")
        for space in (None, "s2"):
            moved = limited.patch(f"/api/log/{made.json()['id']}", json={"spaceId": space})
            assert_problem(moved, 403, "space_forbidden")

    def test_a_guessed_idempotency_key_opens_nothing(self, limited: httpx.Client) -> None:
        headers = {"X-Idempotency-Key": "key-s2"}
        answer = limited.post("/api/log", json={"content": "x", "spaceId": "s1"}, headers=headers)
        assert_problem(answer, 409, "key_in_use")
        assert "in s2" not in answer.text


class TestAgents:
    """A token for agent `coder` beside agent `main`."""

    @pytest.fixture
    def limited(self, gateway: Running) -> Any:
        for agent in ("coder", "main", "user"):
            append(gateway.hold.store, f"by {agent}", agent_id=agent)
        for agent in ("coder", "main"):
            accept(gateway.hold.store, key=agent, to=f"agent:{agent}:main")
        with gateway.client(make_token(gateway.hold.store, "coder", agents=["coder"])) as client:
            yield client

    def test_it_sees_only_its_own(self, limited: httpx.Client) -> None:
        assert [e["content"] for e in limited.get("/api/log").json()] == ["by coder"]
        assert [s["sessionKey"] for s in limited.get("/api/sessions").json()] == ["agent:coder:main"]
        assert limited.get("/api/sessions", params={"agentId": "main"}).json() == []
        assert limited.get("/api/sessions/agent:coder:main/turns").json()[0]["agentId"] == "coder"
        assert_problem(limited.get("/api/sessions/agent:main:main/turns"), 404, "unknown_session")
        seen = limited.get("/api/changes").json()
        assert {c["data"]["agentId"] for c in seen} == {"coder"}
        assert {c["type"].partition(".")[0] for c in seen} == {"log", "session", "turn"}

    def test_it_writes_only_as_its_own(self, limited: httpx.Client) -> None:
        assert limited.post("/api/log", json={"content": "x", "agentId": "coder"}).status_code == 201
        for bad in ({}, {"agentId": "main"}, {"agentId": "user"}):
            assert_problem(limited.post("/api/log", json={"content": "x", **bad}), 403, "agent_forbidden")
            assert_problem(limited.post("/api/ingest", json={"content": "x", **bad}), 403, "agent_forbidden")
        foreign = {"content": "x", "agentId": "coder", "source": {"sessionKey": "agent:main:main"}}
        for path in ("/api/log", "/api/ingest"):
            assert_problem(limited.post(path, json=foreign), 403, "session_forbidden")

    def test_it_learns_of_deletions_of_its_own_only(self, limited: httpx.Client, api: httpx.Client) -> None:
        for entry in api.get("/api/log").json():
            api.delete(f"/api/log/{entry['id']}")
        gone = [
            c["data"]["agentId"] for c in limited.get("/api/changes").json() if c["type"] == "log.deleted"
        ]
        assert gone == ["coder"]


def test_the_stream_shows_a_limited_token_only_its_own(gateway: Running, api: httpx.Client) -> None:
    mine, other = (api.post("/api/spaces", json={"name": name}).json()["id"] for name in ("Mine", "Other"))
    with (
        gateway.client(make_token(gateway.hold.store, "narrow", spaces=[mine])) as limited,
        streaming(limited) as seen,
    ):
        for space in (other, None, mine):
            api.post("/api/log", json={"content": f"in {space}", "spaceId": space})
        assert next(seen)["data"]["content"] == f"in {mine}"


def test_the_stream_of_a_revoked_token_ends(gateway: Running, api: httpx.Client) -> None:
    with gateway.client(make_token(gateway.hold.store, "watcher")) as client, streaming(client) as seen:
        with gateway.hold.store.write(OWNER) as tx:
            tokens.revoke(tx, "watcher")
        api.post("/api/log", json={"content": "not for you"})
        last = list(seen)
    assert [(e["type"], e["code"]) for e in last] == [("stream.ended", "bad_token")]


class TestCookie:
    ORIGIN = "http://127.0.0.1"

    @pytest.fixture
    def page(self, gateway: Running) -> Any:
        with gateway.client() as client:
            answer = client.post("/api/login", json={"token": gateway.admin})
            assert answer.json() == {"ok": True, "name": "home", "scope": "admin"}
            parts = answer.headers["set-cookie"].split("; ")
            assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(parts)
            assert gateway.admin not in answer.headers["set-cookie"]
            client.cookies.set("other", '{"not": "plain", x}')
            yield client

    def test_it_reads_and_from_its_own_origin_writes(self, gateway: Running, page: httpx.Client) -> None:
        assert page.get("/api/whoami").json()["name"] == "home"
        body = {"content": "x"}
        for good in ({"Origin": gateway.url}, {"Sec-Fetch-Site": "same-origin"}):
            assert page.post("/api/log", json=body, headers=good).status_code == 201
        for bad in (
            {},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert_problem(page.post("/api/log", json=body, headers=bad), 403, "cross_origin")

    def test_it_ends_with_logout_and_with_its_token(self, gateway: Running, page: httpx.Client) -> None:
        assert page.post("/api/logout", headers={"Origin": gateway.url}).json() == {"ok": True}
        assert_problem(page.get("/api/log"), 401, "no_token")
        text = make_token(gateway.hold.store, "page")
        page.post("/api/login", json={"token": text})
        assert page.get("/api/whoami").json()["name"] == "page"
        with gateway.hold.store.write(OWNER) as tx:
            tokens.revoke(tx, "page")
        assert_problem(page.get("/api/whoami"), 401, "login_ended")

    def test_a_wrong_token_does_not_log_in(self, gateway: Running) -> None:
        with gateway.client() as client:
            refused = client.post("/api/login", json={"token": "hf_wrong-and-private"})
            assert_problem(refused, 401, "bad_token")
            assert "set-cookie" not in refused.headers
            assert "private" not in refused.text


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
@pytest.mark.anyio
async def test_a_websocket_elsewhere_without_a_token_is_refused_before_it_opens(
    gateway: Running, extensions: dict[str, Any]
) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    scope = {
        "type": "websocket",
        "path": "/elsewhere",
        "query_string": b"",
        "headers": [],
        "subprotocols": [],
        "extensions": extensions,
    }
    await gateway.app(scope, receive, send)
    if extensions:
        assert sent[0]["type"] == "websocket.http.response.start"
        assert sent[0]["status"] == 401
    else:
        assert sent == [{"type": "websocket.close", "code": 1008, "reason": "no_token"}]


@pytest.mark.anyio
async def test_a_websocket_from_another_origin_may_not_use_the_cookie(gateway: Running) -> None:
    book = gateway.app.state.gateway.book
    cookie = book.open_session(book.home, days=1)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    headers = [(b"cookie", f"holdfast={cookie}".encode()), (b"origin", b"http://evil.example")]
    scope = {
        "type": "websocket", "path": "/ws", "query_string": b"", "headers": headers, "subprotocols": [],
        "extensions": {},
    }  # fmt: skip
    await gateway.app(scope, receive, send)
    assert sent[0]["reason"] == "cross_origin"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestOtherOrigins:
    PAGE = "https://page.example"

    def asks_first(self, gateway: Running, origin: str) -> httpx.Response:
        headers = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, x-idempotency-key",
        }
        with gateway.client() as browser:
            return browser.options("/api/log", headers=headers)

    def test_only_pages_that_the_config_names_may_call_and_it_is_read_live(self, gateway: Running) -> None:
        assert self.asks_first(gateway, self.PAGE).status_code == 401
        gateway.hold.config.patch({"gateway": {"corsOrigins": [self.PAGE]}})
        allowed = self.asks_first(gateway, self.PAGE)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == self.PAGE
        assert "access-control-allow-credentials" not in allowed.headers
        assert self.asks_first(gateway, "https://evil.example").status_code == 400
        with gateway.client(gateway.admin) as browser:
            told = browser.get("/api/log", headers={"Origin": self.PAGE})
            assert told.headers["access-control-allow-origin"] == self.PAGE
            other = browser.get("/api/log", headers={"Origin": "https://evil.example"})
            assert "access-control-allow-origin" not in other.headers

    def test_a_forwarding_header_is_believed_only_of_a_proxy_that_is_named(self, hold: Holdfast) -> None:
        for trusted in (False, True):
            hold.config.patch({"gateway": {"auth": {"trustedProxies": ["127.0.0.1"] if trusted else []}}})
            with running(hold) as served, served.client() as browser:
                answer = browser.post(
                    "/api/login", json={"token": served.admin}, headers={"X-Forwarded-Proto": "https"}
                )
                assert ("Secure" in answer.headers["set-cookie"]) is trusted
