"""The pages in a real browser, over a real gateway, with real calls that wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from agent_stage import agents_serving
from browsing import log_in, log_out, visitor, wait_for_in
from serving import Running, wait_for

from holdfast.gateway.page_sessions import login_link
from holdfast.testing import Call, Say

HOSTILE = "echo '<img src=x onerror=alert(1)>' \u202edne\u202c \x1b[2K pаy\n# second line"


@pytest.fixture
def stage(tmp_path: Path, sqlite_template: Path) -> Iterator[tuple[Running, httpx.Client]]:
    """An agent that runs whatever command the message names, and then says so."""

    def answer(asked: Any) -> Any:
        last = asked.messages[-1]
        return Say("Done.") if last["role"] == "tool" else Call("exec", {"command": _said(last["content"])})

    tools = {"resultMaxChars": 1000, "exec": {"allowlist": ["seq *"]}}
    with (
        agents_serving(tmp_path / "home", sqlite_template, answer, tools=tools) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        yield gateway, api


def _said(content: Any) -> str:
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    found = re.search(r"RUN:(.*):END", text, re.DOTALL)
    assert found is not None, text
    # The model is shown what hides in a message; this one writes the characters themselves again.
    return re.sub(r"\[U\+([0-9A-F]+)\]", lambda code: chr(int(code[1], 16)), found[1])


def run(api: httpx.Client, command: str, session: str = "agent:main:main") -> str:
    body = {"message": f"RUN:{command}:END", "sessionKey": session}
    found: str = api.post("/api/agent", json=body).json()["runId"]
    return found


def ended(api: httpx.Client, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/api/agent/{run_id}/wait").json()
    assert found["status"] == "committed", found
    return found


def test_a_call_arrives_live_is_approved_and_runs_and_who_logs_out_is_out(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    with visitor(browser, gateway) as page:
        page.goto("/approvals")
        page.get_by_label("Token").fill("hf_wrong")
        page.get_by_role("button", name="Log in").click()
        assert "not known" in page.get_by_role("alert").inner_text()
        log_in(page, gateway)
        page.get_by_text("Nothing waits for you").wait_for()
        assert page.url == f"{gateway.url}/approvals"

        turn = run(api, "touch made.txt")
        card = page.get_by_role("article")
        card.get_by_role("button", name="Approve once").wait_for()
        assert page.get_by_label("The exact command").inner_text() == "touch made.txt"
        assert page.get_by_role("link", name="Approvals 1 waiting").is_visible()
        told = card.inner_text()
        assert "main asks to run exec" in told
        assert str(gateway.hold.home.path / "workspace") in told
        assert "no pattern of the allowlist fits" in told
        assert re.search(r"expires in (9:\d\d|10:00)", told)

        card.get_by_role("button", name="Approve once").focus()
        page.keyboard.press("Enter")
        page.get_by_text("Approved by token:home").wait_for()
        ended(api, turn)
        assert (gateway.hold.home.path / "workspace/made.txt").exists()

        page.get_by_role("link", name="Decisions").click()
        page.get_by_text("ran, approved").wait_for()
        log_out(page)
        page.get_by_label("Token").wait_for()
        page.goto("/approvals/allowlist")
        page.get_by_label("Token").wait_for()
        assert page.request.get("/api/approvals").status == 401


def test_hostile_text_stays_text_with_what_it_hides_made_visible_and_is_denied(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    turn = run(api, HOSTILE)
    with visitor(browser, gateway) as page:
        page.goto(login_link(gateway.hold.home, gateway.hold.clock, gateway.url))
        page.get_by_role("link", name="Approvals").click()
        shown = page.get_by_label("The exact command")
        shown.wait_for()
        assert "code=" not in page.url
        assert shown.inner_text() == (
            "echo '<img src=x onerror=alert(1)>' RLOdnePDF ESC[2K pаy↵\n# second line"
        )
        assert page.locator("main img").count() == 0
        assert [mark.inner_text() for mark in shown.locator(".mark").all()] == ["RLO", "PDF", "ESC", "↵"]
        assert shown.locator(".strange").all_inner_texts() == ["а"]
        page.get_by_role("button", name="Deny").click()
        page.get_by_text("Denied by token:home").wait_for()
    assert ended(api, turn)["reply"] == "Done."


def test_what_is_decided_elsewhere_leaves_and_a_decision_that_comes_too_late_is_told(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    with visitor(browser, gateway) as page:
        log_in(page, gateway)
        first = run(api, "touch one.txt")
        page.get_by_text("touch one.txt", exact=True).wait_for()
        (waiting,) = api.get("/api/approvals").json()
        api.post(f"/api/approvals/{waiting['id']}", json={"decision": "deny"})
        page.get_by_text("Denied by token:home").wait_for()
        assert page.get_by_role("link", name="Approvals", exact=True).is_visible()
        ended(api, first)
        page.get_by_role("article").wait_for(state="detached")

        second = run(api, "touch two.txt")
        page.get_by_role("button", name="Approve once").wait_for()
        page.route("**/api/stream", lambda route: route.abort())
        gateway.on_loop(gateway.services.feed.close)
        page.get_by_text("The connection to the gateway is down").wait_for()
        (waiting,) = api.get("/api/approvals").json()
        api.post(f"/api/approvals/{waiting['id']}", json={"decision": "deny"})
        page.get_by_role("button", name="Approve once").click()
        assert "denied already" in page.get_by_role("alert").inner_text()
        page.get_by_text("Denied by token:home").wait_for()
        ended(api, second)


def test_tabs_share_one_connection_that_outlives_the_tab_that_made_it_and_misses_nothing(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    with visitor(browser, gateway) as page:
        streams: list[dict[str, str]] = []
        context = page.context
        context.on("request", lambda r: streams.append(r.headers) if r.url.endswith("/api/stream") else None)
        log_in(page, gateway)
        page.get_by_text("Nothing waits for you").wait_for()
        other = context.new_page()
        other.goto("/approvals")
        other.get_by_text("Nothing waits for you").wait_for()
        first = run(api, "touch one.txt")
        for tab in (page, other):
            tab.get_by_text("touch one.txt", exact=True).wait_for()
        assert len(streams) == 1

        page.close()
        wait_for_in(other, lambda: len(streams) == 2)
        assert int(streams[1]["last-event-id"]) > 0
        run(api, "touch two.txt", "agent:main:web:dm:b")
        other.get_by_text("touch two.txt", exact=True).wait_for()

        third = context.new_page()
        third.goto("/log")
        log_out(third)
        other.get_by_label("Token").wait_for()
    for waiting in api.get("/api/approvals").json():
        api.post(f"/api/approvals/{waiting['id']}", json={"decision": "deny"})
    ended(api, first)


def test_a_pattern_is_allowed_used_and_taken_back_and_a_long_output_is_read_to_its_end(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    made = gateway.hold.home.path / "workspace/kept.txt"
    with visitor(browser, gateway, viewport={"width": 390, "height": 800}) as page:
        log_in(page, gateway)
        turn = run(api, "touch kept.txt")
        page.get_by_role("button", name="Always allow…").click()
        pattern = page.get_by_label("Commands of main that run unasked")
        assert pattern.input_value() == "touch kept.txt"
        pattern.fill("rm *")
        page.keyboard.press("Enter")
        assert "does not fit" in page.get_by_role("alert").inner_text()
        pattern.fill("touch *")
        page.keyboard.press("Enter")
        page.get_by_text("Approved by token:home").wait_for()
        ended(api, turn)
        wait_for(made.exists)
        ended(api, run(api, "touch again.txt"))

        page.get_by_role("link", name="Allowlist").click()
        row = page.get_by_role("row").filter(has_text="touch *")
        assert "touch again.txt" in row.inner_text()
        row.get_by_role("button", name="Remove touch *").click()
        row.wait_for(state="detached")
        assert [r["pattern"] for r in api.get("/api/allowlist?agentId=main").json()] == ["seq *"]

        ended(api, run(api, "seq 1 20000"))
        page.goto("/chat?session=agent:main:main")
        step = page.locator("summary", has_text="seq 1 20000")
        stood = lying_still(page, step)
        step.click()
        page.get_by_role("link", name="Read the whole output").wait_for()
        assert lying_still(page, step) == stood, "what one opens does not move away under the hand"
        press_while_it_scrolls(page, page.get_by_role("link", name="Read the whole output"))
        page.get_by_text("of 20,000").wait_for()
        text = ""
        while True:
            text += page.get_by_label("Output", exact=True).inner_text() + "\n"
            more = page.get_by_role("link", name="Read on")
            if more.count() == 0:
                break
            before = page.url
            more.click()
            page.wait_for_function("before => location.href !== before", arg=before)
            page.get_by_label("Output", exact=True).wait_for()
        assert text.split() == [str(n) for n in range(1, 20_001)]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def lying_still(page: Any, what: Any) -> float:
    """Where it stands on the page once nothing moves it any more."""
    what.wait_for()
    place: float = what.evaluate(
        """async thing => {
            let [before, now] = [NaN, thing.getBoundingClientRect().top];
            while (before !== now) {
                before = now;
                for (let frame = 0; frame < 10; frame++) await new Promise(requestAnimationFrame);
                now = thing.getBoundingClientRect().top;
            }
            return now;
        }"""
    )
    return place


def press_while_it_scrolls(page: Any, what: Any) -> None:
    """Clicks while words come in: between pressing and letting go the thread scrolls a little."""
    what.scroll_into_view_if_needed()
    lying_still(page, what)
    place = what.bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.mouse.down()
    page.locator(".said-scroll").evaluate(
        """async box => {
            for (const by of [-1, 1]) {
                box.scrollTop += by;
                for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
            }
        }"""
    )
    page.mouse.up()


def notices(page: Any) -> list[list[str]]:
    """What the browser shows: title, words, and where it leads."""
    found: list[list[str]] = page.evaluate(
        "navigator.serviceWorker.ready.then(async worker => (await worker.getNotifications())"
        ".map(one => [one.title, one.body, one.data.path]))"
    )
    return found


def look_elsewhere(page: Any) -> None:
    page.context.new_cdp_session(page).send("Emulation.setFocusEmulationEnabled", {"enabled": False})
    page.context.new_page().bring_to_front()
    wait_for_in(page, lambda: not page.evaluate("document.hasFocus()"))


def test_who_looks_elsewhere_is_told_by_the_browser_and_nobody_who_looks_here(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    with visitor(browser, gateway, permissions=["notifications"]) as page:
        log_in(page, gateway, "/chat?session=agent%3Amain%3Amain")
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")

        page.get_by_label("Message", exact=True).fill("RUN:touch one.txt:END")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Approve once").click()
        page.locator(".answered", has_text="Done.").wait_for()
        assert notices(page) == [], "who looks at the page needs no word of it"

        look_elsewhere(page)
        run(api, "touch two.txt", "agent:main:web:dm:elsewhere")
        wait_for_in(page, lambda: notices(page) != [])
        there = "/chat?session=agent%3Amain%3Aweb%3Adm%3Aelsewhere"
        assert notices(page) == [["Holdfast needs you", "main asks to run exec", there]]
        assert "two.txt" not in str(notices(page)), (
            "what would run is read on the page, not on a locked screen"
        )


def test_who_asked_and_looks_elsewhere_is_told_of_the_answer_and_a_click_leads_to_it(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    key = "agent:main:web:dm:asked-here"
    there = f"/chat?session={quote(key, safe='')}"
    with visitor(browser, gateway, permissions=["notifications"]) as page:
        log_in(page, gateway, there)
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        page.get_by_label("Message", exact=True).fill("RUN:touch asked-here.txt:END")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Approve once").wait_for()
        page.get_by_role("link", name="Board", exact=True).click()
        page.get_by_role("heading", name="Board", exact=True).wait_for()
        look_elsewhere(page)
        ended(api, run(api, "seq 3", "agent:main:web:dm:asked-by-others"))
        [waiting] = [one for one in api.get("/api/approvals").json() if one["sessionKey"] == key]
        api.post(f"/api/approvals/{waiting['id']}", json={"decision": "approve"})
        wait_for_in(page, lambda: notices(page) != [])
        told = [["main answered", "Open the chat to read on.", there]]
        assert notices(page) == told, "of what was asked here, and of nothing that others asked"

        page.context.service_workers[0].evaluate(
            "async () => { const [notification] = await registration.getNotifications();"
            " dispatchEvent(new NotificationEvent('notificationclick', { notification })); }"
        )
        page.locator(".answered", has_text="Done.").wait_for()
        assert page.url.endswith(there)
        assert notices(page) == []


def test_rows_of_every_page_are_gone_through_by_j_and_k(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    for name in ("Alder", "Birch"):
        api.post("/api/topics", json={"name": name})
    ended(api, run(api, "seq 3", "agent:main:web:dm:first"))
    ended(api, run(api, "seq 4", "agent:main:web:dm:second"))
    run(api, "touch three.txt", "agent:main:web:dm:third")
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/board")
        for path, first, second in (
            ("/board", "Birch", "Alder"),
            ("/board?view=list", "Birch", "Alder"),
            ("/", "main asks to run exec", "RUN:touch three.txt:END"),
            ("/chat", "RUN:touch three.txt:END", "RUN:seq 4:END"),
            ("/memory/files", "IDENTITY.md", "SOUL.md"),
        ):
            page.goto(path)
            for row in (first, second):
                page.locator("main").get_by_text(row).first.wait_for()
            for key, there in (("j", first), ("j", second), ("k", first)):
                page.keyboard.press(key)
                at = page.evaluate("document.activeElement.innerText")
                assert at.startswith(there), f"{path}: {key} leads to {at[:80]!r}"


def test_what_somebody_wrote_is_not_sent_in_the_name_of_who_logs_in_next(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    made = api.post("/api/tokens", json={"name": "mine", "scope": "write"}).json()
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/chat?session=agent%3Amain%3Aweb%3Adm%3Amine", token=made["token"])
        page.route("**/api/agent", lambda route: route.abort())
        field = page.get_by_label("Message", exact=True)
        field.fill("RUN:touch mine.txt:END")
        page.keyboard.press("Enter")
        page.get_by_text("Kept here; sent when the gateway is back.").wait_for()
        field.fill("a word in private")
        page.unroute("**/api/agent")
        api.delete(f"/api/tokens/{made['id']}")
        page.get_by_label("Token").wait_for()
        log_in(page, gateway, "/chat?session=agent%3Amain%3Aweb%3Adm%3Amine")
        field.wait_for()
        assert field.input_value() == ""
        assert page.locator(".unsent").count() == 0
        assert page.evaluate("localStorage.getItem('holdfast.outbox')") == "[]"
    assert api.get("/api/chats").json() == []
