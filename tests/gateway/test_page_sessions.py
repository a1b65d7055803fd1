"""Page sessions end at logout, with their token and by time: at once, in every process and every stream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from serving import Running, assert_problem, make_token, running, streaming, wait_for
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from builders import PATIENCE
from holdfast.clock import DAY_MS, ManualClock
from holdfast.gateway import page_sessions, tokens
from holdfast.gateway.page_sessions import COOKIE, login_link
from holdfast.log import OWNER, Store
from holdfast.runtime import Holdfast, open_home


def log_in(gateway: Running, token: str) -> str:
    """The cookie's value of a new session that stands on this token."""
    with gateway.client() as page:
        answer = page.post("/api/login", json={"token": token})
        assert answer.status_code == 200, answer.text
        return str(page.cookies[COOKIE])


def with_cookie(gateway: Running, cookie: str) -> httpx.Client:
    return gateway.client(Cookie=f"{COOKIE}={cookie}", Origin=gateway.url)


def whoami(gateway: Running, cookie: str) -> httpx.Response:
    with with_cookie(gateway, cookie) as page:
        return page.get("/api/whoami")


def log_out(gateway: Running, cookie: str) -> None:
    with with_cookie(gateway, cookie) as page:
        assert page.post("/api/logout").json() == {"ok": True}


@contextmanager
def socket_of(gateway: Running, **headers: str) -> Iterator[ClientConnection]:
    address = gateway.url.replace("http", "ws", 1) + "/ws"
    with connect(address, additional_headers=headers, proxy=None) as socket:
        yield socket


def closing_of(socket: ClientConnection) -> tuple[int, str]:
    """The code and the reason with which the gateway ends a connection on which nothing else is sent."""
    with pytest.raises(ConnectionClosed) as end:
        socket.recv(PATIENCE)
    told = end.value.rcvd
    assert told is not None
    return told.code, told.reason


@pytest.fixture
def second(gateway: Running) -> Iterator[Running]:
    """Another gateway process on the same home and store."""
    hold = gateway.hold
    with (
        open_home(hold.home.path, store_url=str(hold.store.url), clock=hold.clock) as opened,
        running(opened) as found,
    ):
        yield found


def test_a_cookie_taken_before_logout_opens_nothing_after_it(gateway: Running) -> None:
    cookie, other = log_in(gateway, gateway.admin), log_in(gateway, gateway.admin)
    assert whoami(gateway, cookie).json()["name"] == "home"
    log_out(gateway, cookie)
    assert_problem(whoami(gateway, cookie), 401, "login_ended")
    assert whoami(gateway, other).status_code == 200


def test_logout_with_a_token_in_the_header_ends_the_cookie_beside_it(gateway: Running) -> None:
    cookie = log_in(gateway, gateway.admin)
    with gateway.client(gateway.admin, Cookie=f"{COOKIE}={cookie}") as client:
        assert client.post("/api/logout").status_code == 200
    assert_problem(whoami(gateway, cookie), 401, "login_ended")


def test_a_logout_is_known_to_another_gateway_of_the_store(gateway: Running, second: Running) -> None:
    cookie = log_in(gateway, gateway.admin)
    wait_for(lambda: whoami(second, cookie).status_code == 200)
    log_out(gateway, cookie)
    wait_for(lambda: whoami(second, cookie).status_code == 401)


def test_revoking_a_token_ends_its_sessions_for_good(gateway: Running) -> None:
    store = gateway.hold.store
    cookie = log_in(gateway, make_token(store, "page"))
    with store.write(OWNER) as tx:
        revoked = tokens.revoke(tx, "page")
    assert_problem(whoami(gateway, cookie), 401, "login_ended")
    with store.read(OWNER) as tx:
        rows = page_sessions.listing(tx, revoked.id)
    assert [row.ended_at for row in rows] == [revoked.revoked_at]


def test_a_session_ends_with_the_token_that_expires_and_with_its_own_time(
    gateway: Running, clock: ManualClock
) -> None:
    brief = log_in(gateway, make_token(gateway.hold.store, "brief", expires_at=clock.now() + 1000))
    lasting = log_in(gateway, gateway.admin)
    clock.advance(seconds=1)
    assert_problem(whoami(gateway, brief), 401, "token_expired")
    clock.advance(ms=30 * DAY_MS - 2000)
    assert whoami(gateway, lasting).status_code == 200
    clock.advance(seconds=1)
    assert_problem(whoami(gateway, lasting), 401, "login_ended")


def test_a_changed_token_in_the_config_ends_the_sessions_opened_with_the_old_one(gateway: Running) -> None:
    gateway.hold.config.patch({"gateway": {"auth": {"token": "first-configured-token"}}})
    by_config, by_home = log_in(gateway, "first-configured-token"), log_in(gateway, gateway.admin)
    gateway.hold.config.patch({"gateway": {"auth": {"token": "second-configured-token"}}})
    assert_problem(whoami(gateway, by_config), 401, "login_ended")
    assert whoami(gateway, by_home).status_code == 200
    gateway.hold.config.patch({"gateway": {"auth": {"token": "first-configured-token"}}})
    assert_problem(whoami(gateway, by_config), 401, "login_ended")


def rotate(hold: Holdfast) -> None:
    """Write a new token into the home, as its owner would with an editor."""
    draft = hold.home.credentials / "draft"
    draft.write_text("another-home-token\n")
    os.replace(draft, hold.home.credentials / "token")


def test_a_changed_token_file_ends_its_sessions_and_links_and_the_old_token_while_served(
    gateway: Running, clock: ManualClock
) -> None:
    old = gateway.admin
    cookie = log_in(gateway, old)
    with gateway.client() as page:
        code = login_link(gateway.hold.home, clock, gateway.url).partition("#code=")[2]
        assert page.post("/api/login", json={"code": code}).status_code == 200
        linked = str(page.cookies[COOKIE])
    rotate(gateway.hold)
    wait_for(lambda: whoami(gateway, cookie).status_code == 401)
    assert_problem(whoami(gateway, linked), 401, "login_ended")
    with gateway.client(old) as before, gateway.client("another-home-token") as after:
        assert_problem(before.get("/api/whoami"), 401, "bad_token")
        assert after.get("/api/whoami").status_code == 200


def test_the_live_stream_of_an_ended_session_closes_although_nothing_happens(gateway: Running) -> None:
    cookie = log_in(gateway, gateway.admin)
    with with_cookie(gateway, cookie) as page, streaming(page) as seen:
        log_out(gateway, cookie)
        assert [(e["type"], e["code"]) for e in seen] == [("stream.ended", "login_ended")]


def test_the_live_stream_of_an_ended_session_closes_in_another_gateway(
    gateway: Running, second: Running
) -> None:
    cookie = log_in(gateway, gateway.admin)
    wait_for(lambda: whoami(second, cookie).status_code == 200)
    with with_cookie(second, cookie) as page, streaming(page) as seen:
        log_out(gateway, cookie)
        assert [(e["type"], e["code"]) for e in seen] == [("stream.ended", "login_ended")]


def test_an_idle_websocket_of_an_ended_session_is_closed_with_the_reason(gateway: Running) -> None:
    cookie = log_in(gateway, gateway.admin)
    with socket_of(gateway, Cookie=f"{COOKIE}={cookie}", Origin=gateway.url) as socket:
        log_out(gateway, cookie)
        assert closing_of(socket) == (1008, "login_ended")


def test_streams_and_websockets_of_a_home_token_that_was_changed_are_closed(gateway: Running) -> None:
    gateway.hold.config.patch({"gateway": {"auth": {"token": "first-configured-token"}}})
    with (
        gateway.client("first-configured-token") as client,
        streaming(client) as seen,
        socket_of(gateway, Authorization="Bearer first-configured-token") as socket,
    ):
        gateway.hold.config.patch({"gateway": {"auth": {"token": "second-configured-token"}}})
        assert [(e["type"], e["code"]) for e in seen] == [("stream.ended", "bad_token")]
        assert closing_of(socket) == (1008, "bad_token")


def test_an_idle_stream_of_a_revoked_token_closes_too(gateway: Running) -> None:
    text = make_token(gateway.hold.store, "watcher")
    with gateway.client(text) as client, streaming(client) as seen:
        with gateway.hold.store.write(OWNER) as tx:
            tokens.revoke(tx, "watcher")
        assert [(e["type"], e["code"]) for e in seen] == [("stream.ended", "bad_token")]


def test_a_cookie_that_was_made_up_or_belongs_to_an_older_holdfast_opens_nothing(gateway: Running) -> None:
    good = log_in(gateway, gateway.admin)
    for bad in (good[:-1], good + "x", "x", "..", "home.99999999999999.c2lnbmVk", "home"):
        assert_problem(whoami(gateway, bad), 401, "login_ended")


def test_the_store_keeps_neither_cookies_nor_tokens(gateway: Running) -> None:
    cookie = log_in(gateway, gateway.admin)
    with gateway.hold.store.read(OWNER) as tx:
        stored = str(tx.conn.exec_driver_sql("SELECT * FROM page_sessions").all())
    assert cookie not in stored
    assert gateway.admin not in stored


def test_the_last_use_is_written_down_now_and_then(gateway: Running, clock: ManualClock) -> None:
    cookie = log_in(gateway, gateway.admin)
    opened = clock.now()
    for minutes, seen in ((59, opened), (1, opened + 60 * 60_000)):
        clock.advance(minutes=minutes)
        assert whoami(gateway, cookie).status_code == 200
        with gateway.hold.store.read(OWNER) as tx:
            assert [row.last_used_at for row in page_sessions.listing(tx, "home")] == [seen]


def test_a_token_holds_only_so_many_sessions_and_the_oldest_ends(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_sessions, "MAX_PER_TOKEN", 2)
    for token_id in ("tok-a", "tok-b", "tok-a", "tok-a"):
        clock.advance(seconds=1)
        with store.write(OWNER) as tx:
            page_sessions.start(tx, token_id, days=1)
    with store.read(OWNER) as tx:
        assert [row.ended_at is None for row in page_sessions.listing(tx, "tok-a")] == [False, True, True]
        assert [row.ended_at is None for row in page_sessions.listing(tx, "tok-b")] == [True]


def test_sessions_that_are_long_over_are_forgotten(store: Store, clock: ManualClock) -> None:
    with store.write(OWNER) as tx:
        ended = page_sessions.start(tx, "tok-a", days=90)
        page_sessions.start(tx, "tok-a", days=1)
        page_sessions.start(tx, "tok-a", days=90)
        page_sessions.end(tx, page_sessions.id_of(ended))
    for days, left in ((6, 3), (1, 2), (1, 1), (30, 1)):
        clock.advance(ms=days * DAY_MS)
        with store.write(OWNER) as tx:
            page_sessions.prune(tx)
            assert len(page_sessions.listing(tx, "tok-a")) == left
