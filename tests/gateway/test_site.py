"""The pages as files: what a browser gets, with which headers, and what it cannot get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from serving import Running, assert_problem, make_token, running
from starlette.datastructures import Headers

from holdfast.clock import ManualClock
from holdfast.gateway import site
from holdfast.gateway.page_sessions import LASTS_MS, login_link
from holdfast.gateway.tokens import Scope
from holdfast.runtime import Holdfast

HTML = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "built"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>pages</title>")
    (folder / "assets/index-1a2b.js").write_text("console.log('pages');")
    (tmp_path / "secret.html").write_text("not for you")
    monkeypatch.setattr(site, "BUILT", folder)
    return folder


@pytest.fixture
def gateway(built: Path, hold: Holdfast) -> Iterator[Running]:
    with running(hold) as found:
        yield found


@pytest.fixture
def browser(gateway: Running) -> Iterator[httpx.Client]:
    """Nobody yet: no token, no cookie."""
    with gateway.client(**HTML) as client:
        yield client


def test_the_files_come_to_anyone_with_headers_that_confine_them(browser: httpx.Client) -> None:
    index = browser.get("/")
    assert (index.status_code, index.headers["cache-control"]) == (200, "no-cache")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    script = browser.get("/assets/index-1a2b.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.text == "console.log('pages');"
    for answer in (index, script):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    plain = browser.get("/assets/index-1a2b.js", headers={"Accept-Encoding": "identity"})
    assert (script.headers["content-encoding"], plain.headers.get("content-encoding")) == ("gzip", None)
    head = browser.head("/", headers={"Accept-Encoding": "identity"})
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0


def test_a_place_within_the_pages_is_the_index_and_a_missing_file_is_missing(browser: httpx.Client) -> None:
    index = browser.get("/").text
    for place in ("/approvals", "/approvals/audit", "/board/topics/topic-1", "/apix"):
        assert browser.get(place).text == index
    for missing in ("/assets/index-0000.js", "/assets/", "/favicon.ico", "/a/b.html"):
        assert_problem(browser.get(missing), 404, "not_found")


def test_programs_are_answered_with_problems_as_ever(gateway: Running, browser: httpx.Client) -> None:
    for path in ("/api/nothing", "/api", "/api/log", "/v1/models", "/metrics", "/openapi.json"):
        assert browser.get(path).status_code == 401
    assert_problem(browser.post("/approvals"), 401, "no_token")
    with gateway.client(gateway.admin) as api:
        assert_problem(api.get("/api/nothing", headers=HTML), 404, "not_found")
        assert_problem(api.get("/spi/log"), 404, "not_found")
    assert_problem(browser.get("/?token=hf_x"), 422, "token_in_url")


def test_no_path_leads_out_of_the_folder(gateway: Running, browser: httpx.Client) -> None:
    for path in (
        "/../secret.html",
        "/assets/../../secret.html",
        "/%2e%2e/secret.html",
        "/assets/%2e%2e%2f%2e%2e%2fsecret.html",
        "/assets/..%5c..%5csecret.html",
        "//secret.html",
    ):
        request = httpx.Request("GET", gateway.url, headers=HTML)
        request.url = request.url.copy_with(raw_path=path.encode())
        answer = browser.send(request)
        assert answer.status_code in (404, 422), path
        assert "not for you" not in answer.text


def test_no_route_is_taken_for_a_page(gateway: Running) -> None:
    asked = Headers({"accept": "text/html"})
    for context in iter_route_contexts(gateway.app.routes):
        if context.path is not None:
            scope = {"type": "http", "method": "GET", "path": context.path}
            assert not site.is_page(scope, asked), context.path


def test_a_new_build_is_taken_up_and_without_one_the_page_says_how_to_make_it(
    built: Path, browser: httpx.Client
) -> None:
    browser.get("/")
    (built / "assets/index-3c4d.js").write_text("new")
    (built / "index.html").write_text("a newer page")
    assert browser.get("/").text == "a newer page"
    assert browser.get("/assets/index-3c4d.js").text == "new"
    (built / "index.html").unlink()
    unbuilt = browser.get("/approvals")
    assert unbuilt.status_code == 503
    assert "make pages" in unbuilt.text


def test_a_login_link_opens_the_pages_once_and_not_for_long(
    gateway: Running, browser: httpx.Client, clock: ManualClock
) -> None:
    def code() -> str:
        link = login_link(gateway.hold.home, clock, gateway.url)
        address, _, found = link.partition("#code=")
        assert address == f"{gateway.url}/"
        return found

    first, second = code(), code()
    assert_problem(browser.post("/api/login", json={"code": first}), 401, "code_ended")
    assert browser.post("/api/login", json={"code": second}).json()["scope"] == "admin"
    assert browser.get("/api/whoami").json()["name"] == "home"
    assert_problem(browser.post("/api/login", json={"code": second}), 401, "code_ended")
    late = code()
    clock.advance(ms=LASTS_MS)
    assert_problem(browser.post("/api/login", json={"code": late}), 401, "code_ended")
    for wrong in ({}, {"token": "a", "code": "b"}, {"code": ""}):
        assert_problem(browser.post("/api/login", json=wrong), 422, "invalid_input")


def test_whoever_may_only_read_can_log_out(gateway: Running, browser: httpx.Client) -> None:
    token = make_token(gateway.hold.store, "reader", Scope.READ)
    browser.post("/api/login", json={"token": token})
    assert browser.post("/api/logout", headers={"Origin": gateway.url}).json() == {"ok": True}
    assert_problem(browser.get("/api/whoami"), 401, "no_token")
