"""Memory, agents, settings, channels, people and audit in a real browser, over a real gateway."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from agent_stage import agents_serving
from browsing import (
    axe_violations,
    go_to,
    log_in,
    log_out,
    offered_pages,
    text_in,
    visitor,
    wait_for_in,
    write_in,
)
from serving import Running, assert_problem, make_token

from builders import PATIENCE
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER, outbox
from holdfast.testing import Say

# Nothing listens there: what is sent is refused at once.
CHANNEL = {"dmPolicy": "pairing", "url": "http://127.0.0.1:9/out", "signingSecret": "s"}


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Any
) -> Iterator[tuple[Running, httpx.Client]]:
    """One gateway for all tests here; each keeps to things of its own."""
    home = tmp_path_factory.mktemp("manage") / "home"
    more: dict[str, Any] = {"channels": {"letters": CHANNEL}, "tools": {"deny": ["web_search"]}}
    with (
        agents_serving(home, sqlite_template, lambda asked: Say("All right."), **more) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        yield gateway, api


def told(api: httpx.Client, key: str, text: str) -> None:
    run = api.post("/api/agent", json={"message": text, "sessionKey": key}).json()
    api.get(f"/api/agent/{run['runId']}/wait", params={"timeoutMs": int(PATIENCE * 1000)})


def test_memory_is_asked_with_reasons_and_what_was_said_is_forgotten_with_its_copies(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    told(api, "agent:main:web:dm:forget", "The blue kayak has a crack under its left seat.")
    note = {
        "path": "memory/kayak.md",
        "text": "The blue kayak has a crack under its left seat.\n",
        "before": None,
    }
    assert api.put("/api/workspace/file", json=note).status_code == 200
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/memory")
        page.get_by_label("Ask memory").fill("Which boat has a crack?")
        page.keyboard.press("Enter")
        found = page.get_by_role("list", name="Found", exact=True)
        said = (
            found.get_by_role("article")
            .filter(has=page.get_by_role("link", name="Open the entry"))
            .filter(has_text="blue kayak")
        )
        said.get_by_role("list", name="What the score is made of").get_by_text(
            re.compile("words \\+")
        ).wait_for()
        found.get_by_role("link", name="memory/kayak.md, line 1").wait_for()
        page.get_by_text(re.compile(r"Looked through \d+ pieces")).wait_for()

        said.get_by_role("button", name="Forget…").click()
        dialog = page.get_by_role("dialog", name="Forget this for good?")
        dialog.get_by_role("link", name="memory/kayak.md, line 1").wait_for()
        assert axe_violations(page) == []
        dialog.get_by_role("button", name="Forget it").click()
        dialog.wait_for(state="detached")
        page.get_by_text(re.compile("^Forgotten")).wait_for()
        said.wait_for(state="detached")
    said_now = [one["content"] for one in api.get("/api/log", params={"limit": 50}).json()]
    assert not any("kayak" in text for text in said_now)
    context = api.get("/api/sessions/agent:main:web:dm:forget/turns/1/context")
    assert "kayak" not in context.text


def test_a_file_of_the_workspace_is_edited_compared_put_back_and_not_overwritten(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    where = {"path": "USER.md"}
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/memory/files?agent=main&path=USER.md")
        text = page.get_by_label("Text of USER.md")
        write_in(text, "Ann, a baker.\n")
        page.keyboard.press("Control+s")
        page.get_by_text("USER.md is saved.").wait_for()
        write_in(text, "Ann, a boat builder.\n")
        page.get_by_text("What you changed", exact=True).click()
        page.locator(".diff .removed", has_text="a baker").wait_for()
        page.get_by_role("button", name="Save").click()
        page.get_by_role("status").filter(has_text="saved").first.wait_for()
        page.get_by_role("button", name="Compare with now").first.click()
        page.locator(".diff .added", has_text="boat builder").wait_for()
        page.get_by_role("button", name="Put this text back").click()
        assert text_in(text) == "Ann, a baker.\n"

        now = api.get("/api/workspace/file", params=where).json()
        changed = {**where, "text": "Changed by the agent.\n", "before": now["digest"]}
        assert api.put("/api/workspace/file", json=changed).status_code == 200
        page.get_by_role("button", name="Save").click()
        page.get_by_role("alert").get_by_text("was changed meanwhile").wait_for()
        assert api.get("/api/workspace/file", params=where).json()["text"] == "Changed by the agent.\n"
        page.goto("/memory/index")
        page.get_by_role("meter").first.wait_for()


def test_an_agents_tools_tell_who_decided_for_whoever_asks(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, _ = stage
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/agents/main")
        tools = page.get_by_role("list", name="Tools", exact=True)
        search = tools.get_by_role("listitem").filter(has=page.get_by_text("web_search", exact=True)).first
        search.get_by_text("refused").wait_for()
        assert "by a deny list: tools.deny names it" in search.inner_text()
        search.locator("summary").click()
        search.get_by_text("the profile: ").wait_for()
        page.get_by_text("not in force for this asker").wait_for()
        page.get_by_role("button", name="Somebody else").click()
        page.get_by_text("in force for this asker", exact=True).wait_for()
        page.get_by_role("button", name="As a subagent").click()
        page.get_by_label("Find a tool").fill("message")
        page.get_by_text("by the kind of session").first.wait_for()
        page.get_by_role("heading", name="Skills").wait_for()


def test_settings_are_changed_in_a_form_and_as_text_and_what_is_wrong_is_refused(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/settings?section=gateway")
        field = page.get_by_label("gateway.shutdownGraceSeconds", exact=True)
        assert field.input_value() == "1"
        field.fill("2")
        page.get_by_text("One change is not saved.").wait_for()
        page.get_by_role("button", name="Save").click()
        page.get_by_text("The setting is in force.").wait_for()
        assert gateway.hold.settings.gateway.shutdown_grace_seconds == 2
        page.get_by_label("Find a setting").fill("gateway.port")
        page.get_by_label("gateway.port", exact=True).fill("none")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("That is not a number.").wait_for()

        page.goto("/settings/text")
        text = page.get_by_label("Text of the config")
        text.get_by_text("shutdownGraceSeconds").wait_for()
        shown: str = api.get("/api/config/text").json()["text"]
        assert '"***"' in shown
        write_in(text, shown.replace('"shutdownGraceSeconds": 2', '"shutdownGraceSeconds": "soon"'))
        page.get_by_role("button", name="Save").click()
        page.get_by_role("alert").get_by_text("gateway.shutdownGraceSeconds").first.wait_for()
        write_in(text, shown.replace('"shutdownGraceSeconds": 2', '"shutdownGraceSeconds": 1'))
        page.get_by_role("button", name="Save").click()
        page.get_by_text("The config is in force.").wait_for()
    assert gateway.hold.settings.gateway.shutdown_grace_seconds == 1
    key = gateway.hold.settings.models.providers["scripted"].api_key
    assert key is not None
    assert key.reveal({}) == "key"


def test_a_token_is_shown_once_and_revoked_and_the_doctor_mends(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, _api = stage
    config = gateway.hold.home.path / "holdfast.json"
    config.chmod(0o644)
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/settings/tokens")
        page.get_by_label("Name of the token").fill("laptop")
        page.get_by_role("button", name="Make a token").click()
        made = page.locator(".once code").inner_text()
        with gateway.client(made) as program:
            assert program.get("/api/whoami").json()["scope"] == "read"
            row = page.get_by_role("row").filter(has_text="laptop")
            row.get_by_role("button", name="Revoke").click()
            page.get_by_role("group").get_by_role("button", name="Revoke").click()
            page.get_by_text("laptop is revoked.").wait_for()
            assert_problem(program.get("/api/whoami"), 401, "bad_token")
        page.get_by_role("link", name="Doctor").click()
        finding = (
            page.get_by_role("list", name="Findings")
            .get_by_role("listitem")
            .filter(has_text="holdfast.json (mode")
        )
        finding.get_by_role("button", name="Mend").first.click()
        page.get_by_text("config is mended.").wait_for()
        assert axe_violations(page) == []
        page.get_by_role("link", name="Providers").click()
        page.get_by_role("heading", name="scripted").wait_for()
        page.get_by_role("link", name="Plugins").click()
        page.get_by_role("heading", name="Settings").wait_for()
    assert config.stat().st_mode & 0o777 == 0o600


def test_what_was_made_while_the_list_was_on_its_way_stands_in_the_list(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    from playwright.sync_api import Error

    gateway, _api = stage
    on_its_way: list[tuple[Any, Any]] = []

    def slowly(route: Any) -> None:
        if route.request.method != "GET" or on_its_way:
            route.continue_()
        else:
            on_its_way.append((route, route.fetch()))

    with visitor(browser, gateway) as page:
        page.route("**/api/tokens", slowly)
        log_in(page, gateway, "/settings/tokens")
        page.get_by_label("Name of the token").fill("phone")
        wait_for_in(page, lambda: bool(on_its_way))
        page.get_by_role("button", name="Make a token").click()
        page.locator(".once code").wait_for()
        first, answer = on_its_way[0]
        with suppress(Error):  # the page may have given it up
            first.fulfill(response=answer)
        row = page.get_by_role("row").filter(has_text="phone")
        row.get_by_role("button", name="Revoke").click()
        page.get_by_role("group").get_by_role("button", name="Revoke").click()
        page.get_by_text("phone is revoked.").wait_for()


def test_a_stranger_is_let_in_and_what_could_not_be_delivered_is_tried_again(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    words = {
        "id": "1",
        "text": "Hello?",
        "sender": {"id": "7", "name": "Ruth"},
        "peer": {"kind": "dm", "id": "7"},
    }
    assert api.post("/api/channels/letters/inbound", json=words).json()["state"] == "pairing"
    waiting = api.get("/api/deliveries").json()[0]["id"]
    with gateway.hold.store.write(OWNER) as tx:
        outbox.attempt_failed(tx, waiting, "the post office is closed", final=True)
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/channels")
        page.get_by_role("heading", name="letters").wait_for()
        page.get_by_role("heading", name="Ruth").wait_for()
        page.get_by_role("button", name="Let them in").click()
        page.get_by_role("list", name="Let in").get_by_text("Ruth").wait_for()
        row = page.get_by_role("row").filter(has_text="the post office is closed")
        row.get_by_role("button", name="Try again").click()
        page.get_by_text("It is on its way again.").wait_for()
    assert (
        next(one for one in api.get("/api/deliveries").json() if one["id"] == waiting)["status"] != "failed"
    )
    again = api.post(f"/api/deliveries/{waiting}/retry")
    assert again.status_code in (200, 409)


def test_a_key_is_entered_and_forgotten_and_a_channel_is_tried_before_it_is_kept(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    (email,) = (one for one in api.get("/api/channels/services").json() if one["id"] == "email")
    asks = {one["name"]: one["ask"] for one in email["options"]}
    # No letters are kept on this machine.
    answers = {"address": "a@example.org", "imapHost": "127.0.0.1", "smtpHost": "127.0.0.1"}
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/settings/providers")
        card = page.get_by_role("article").filter(has=page.get_by_role("heading", name="scripted"))
        card.get_by_role("button", name="Enter another key for scripted").click()
        card.get_by_label("Key of scripted").fill("another-key-of-mine")
        card.get_by_role("button", name="Keep it").click()
        card.get_by_text("Key page is kept").wait_for()
        assert "another-key-of-mine" not in page.content()
        card.get_by_role("button", name="Forget").click()
        card.get_by_role("group").get_by_role("button", name="Forget").click()
        page.get_by_text("The key is forgotten.").wait_for()
        card.get_by_text("Key page is kept").wait_for(state="detached")

        page.goto("/channels")
        page.get_by_role("button", name="Add a channel").click()
        page.get_by_role("button", name=email["title"], exact=True).click()
        for name, text in {**answers, "password": "hush hush"}.items():
            page.get_by_label(asks[name], exact=True).fill(text)
        page.get_by_label("Name of the channel").fill("post")
        page.get_by_role("button", name="Try it and keep it").click()
        keep = page.get_by_role("button", name="Keep it all the same")
        keep.wait_for()
        assert "post" not in api.get("/api/config/text").text
        keep.click()
        page.get_by_text("post is added.").wait_for()
    kept = api.get("/api/config/text").json()["text"]
    assert '"post"' in kept
    assert "hush hush" not in kept


def test_the_map_is_searched_and_come_closer_to_by_keyboard(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    topic = api.post("/api/topics", json={"name": "Regatta"}).json()["id"]
    place = {"topicId": topic, "classificationStatus": "classified", "agentId": "main"}
    for number in range(3):
        words = f"Saskia Brandt and Otis Lindqvist sail race {number}."
        assert api.post("/api/log", json={"content": words, **place}).status_code == 201
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/graph")
        node = page.locator(".graph [role=link]").first
        node.wait_for()
        page.get_by_label("Find on the map").focus()
        page.keyboard.type("regatta")
        page.wait_for_function("() => document.querySelector('.graph .node.dim') !== null")
        assert "q=regatta" in page.url
        farther = page.get_by_role("button", name="Farther")
        assert farther.is_disabled()
        page.locator('.graph [role=link][tabindex="0"]').focus()
        page.keyboard.press("+")
        page.locator("button[aria-label='Farther']:enabled").wait_for()
        page.keyboard.press("0")
        page.locator("button[aria-label='Farther']:disabled").wait_for()


def test_somebody_invited_comes_in_by_their_own_password_and_is_offered_what_is_theirs(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, _api = stage
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/people")
        page.get_by_label("Name of the team").fill("Boat yard")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Boat yard").wait_for()
        page.get_by_label("Into which team").select_option("boat-yard")
        page.get_by_role("button", name="Invite somebody").click()
        link = page.locator(".once code").inner_text()
        with visitor(browser, gateway) as guest:
            guest.goto(link.removeprefix(gateway.url))
            guest.get_by_label("What people call you").fill("Ida Berg")
            guest.get_by_label("Name to log in with").fill("ida")
            guest.get_by_label("Password").fill("correct horse battery")
            guest.get_by_role("button", name="Come in").click()
            pages = guest.get_by_role("navigation", name="Pages")
            pages.get_by_role("link", name="Board").wait_for()
            assert pages.get_by_role("link", name="People").count() == 0
            assert pages.get_by_role("link", name="Settings").count() == 0
            guest.goto("/people")
            guest.get_by_role("heading", name="There is no such page").wait_for()
            for path in ("/api/users", "/api/config/text", "/api/tokens", "/api/audit/trail"):
                assert guest.request.get(path).status == 403, path
            guest.goto("/account")
            guest.get_by_role("link", name="Files of boat-yard").click()
            guest.get_by_label("Name of the file").fill("plan.md")
            guest.keyboard.press("Enter")
            guest.get_by_label("Text of plan.md").fill("Caulk on Monday.\n")
            guest.get_by_role("button", name="Save").click()
            guest.get_by_text("plan.md is saved.").wait_for()
            assert axe_violations(guest) == []
            guest.goto("/account")
            guest.get_by_text("here", exact=True).wait_for()
            log_out(guest)
            guest.get_by_role("button", name="Use a name and a password").click()
            guest.get_by_label("Name", exact=True).fill("ida")
            guest.get_by_label("Password").fill("correct horse battery")
            guest.get_by_role("button", name="Log in", exact=True).click()
            pages.wait_for()
            page.reload()
            page.get_by_label("Role of Ida Berg").select_option("viewer")
            page.get_by_text("Ida Berg is viewer now.").wait_for()
            guest.goto("/teams/boat-yard/files?path=plan.md")
            plan = guest.get_by_label("Text of plan.md")
            assert text_in(plan) == "Caulk on Monday.\n"
            assert plan.get_attribute("contenteditable") == "false"
            assert guest.get_by_role("button", name="Save").count() == 0
        go_to(page, "Audit")
        page.get_by_label("Kind").fill("login")
        page.get_by_role("button", name="Filter").click()
        page.get_by_role("cell", name="ida").first.wait_for()
        assert page.get_by_role("cell", name="team.added").count() == 0
        assert "act=login" in page.url


@pytest.mark.parametrize("limit", ["read only", "one space"])
def test_a_lesser_login_is_offered_nothing_that_would_be_refused_and_is_refused_it(
    browser: Any, stage: tuple[Running, httpx.Client], limit: str
) -> None:
    gateway, api = stage
    space = api.post("/api/spaces", json={"name": f"Yard {limit}"}).json()["id"]
    scope, spaces = (Scope.READ, None) if limit == "read only" else (Scope.WRITE, [space])
    token = make_token(gateway.hold.store, f"lesser {limit}", scope, spaces=spaces)
    topic = api.post("/api/topics", json={"name": f"Keel {limit}", "spaceId": space}).json()["id"]
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/board", token=token)
        offered = offered_pages(page)
        assert not {"Channels", "People", "Audit", "Settings"} & offered
        assert ("Memory" in offered) == (limit == "read only")
        page.goto("/settings")
        page.get_by_role("heading", name="There is no such page").wait_for()
        for path in ("/api/config/text", "/api/tokens", "/api/doctor", "/api/pairings", "/api/providers"):
            assert page.request.get(path).status == 403, path
        saved = page.request.put("/api/workspace/file", data={"path": "USER.md", "text": "x", "before": None})
        assert saved.status == 403
        assert page.request.post("/api/memory/forget", data={"entryIds": ["log-1"]}).status == 403
        if limit == "read only":
            page.goto("/memory/files?agent=main&path=AGENTS.md")
            page.get_by_label("Text of AGENTS.md").wait_for()
            assert page.get_by_role("button", name="Save").count() == 0
            page.goto(f"/board/topics/{topic}")
            page.get_by_role("heading", name=f"Keel {limit}").wait_for()
            assert page.get_by_label("Message", exact=True).count() == 0
        else:
            page.goto("/board")
            page.get_by_text(f"Keel {limit}").first.wait_for()
            assert page.get_by_text("Keel read only").count() == 0
            page.goto(f"/board/topics/{topic}")
            page.get_by_role("button", name="Keep as note").wait_for()


def test_what_is_typed_over_a_selection_stands_there_and_breaks_no_policy(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    """The visitor fails if the browser complains, as it does of a style that it carries over by itself."""
    gateway, _api = stage
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/settings/text")
        text = page.get_by_label("Text of the config")
        text.get_by_text("shutdownGraceSeconds").wait_for()
        text.press("ControlOrMeta+a")
        page.keyboard.insert_text('{"gateway": {"port": 1,\n  "bind": true}}')
        # From within a word in a colour into one of the next line: the browser would carry the colours over.
        text.press("ControlOrMeta+Home")
        for _ in range(3):
            text.press("ArrowRight")
        text.press("Shift+ArrowDown")
        page.keyboard.type("host_")
        assert text_in(text) == '{"ghost_bind": true}}'
        text.press("ControlOrMeta+z")
        assert text_in(text) == '{"gateway": {"port": 1,\n  "bind": true}}'


# Types a letter, and another as soon as the page has drawn what the first one changed, before anything that
# follows from having drawn it: what a fast hand does now and then.
_TWO_LETTERS = """field => {
  const type = letter => document.execCommand('insertText', false, letter);
  const watch = new MutationObserver(() => { watch.disconnect(); type('b'); });
  const status = document.querySelector('.editor [role=status]');
  watch.observe(status, { characterData: true, childList: true, subtree: true });
  field.focus();
  setTimeout(type, 0, 'a');
}"""


def test_what_is_typed_while_the_page_draws_the_letter_before_it_is_not_taken_back(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, _api = stage
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/memory/files?agent=main&path=memory%2Ffast.md")
        text = page.get_by_label("Text of memory/fast.md")
        text.press("a")
        text.press("Backspace")
        page.get_by_text("not there yet", exact=True).wait_for()
        text.evaluate(_TWO_LETTERS)
        page.get_by_text("changed, not saved").wait_for()
        page.get_by_role("button", name="Save").click()
        page.get_by_text("memory/fast.md is saved.").wait_for()
        assert text_in(text) == "ab"
        saved = page.request.get("/api/workspace/file?agentId=main&path=memory%2Ffast.md").json()
        assert saved["text"] == "ab"


def test_a_page_whose_files_went_with_an_update_is_loaded_anew_where_one_was_going(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, _api = stage
    context = browser.new_context(base_url=gateway.url, service_workers="block")
    page = context.new_page()
    log_in(page, gateway, "/")
    gone: list[str] = []

    def refuse(route: Any) -> None:
        gone.append(route.request.url)
        route.fulfill(status=404)

    page.route(re.compile(r"/assets/(schedule-page|palette)-"), refuse, times=1)
    go_to(page, "Schedule")
    page.get_by_role("heading", name="Schedule", level=1).wait_for()
    assert len(gone) == 1
    # What stays gone is told of, and the rest of the page stays.
    page.route(re.compile(r"/assets/palette-"), refuse)
    page.keyboard.press("Control+k")
    page.get_by_role("alert").get_by_text("This page failed").wait_for()
    page.get_by_role("heading", name="Schedule", level=1).wait_for()
    context.close()
