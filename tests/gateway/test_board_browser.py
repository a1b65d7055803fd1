"""The board in a real browser, over a real gateway: live, by keyboard, and only what one may see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from agent_stage import agents_serving
from browsing import log_in, visitor, wait_for_in
from serving import Running, make_token, wait_for

from holdfast.gateway.tokens import Scope
from holdfast.testing import Say

HOSTILE = "<img src=x onerror=alert(1)> <b>quokka</b> \u202edne\u202c zero\u200bwidth \x1b[2K"


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Any
) -> Iterator[tuple[Running, httpx.Client]]:
    """One gateway for all tests here; each keeps to topics of its own."""
    home = tmp_path_factory.mktemp("board") / "home"
    with (
        agents_serving(home, sqlite_template, lambda _: Say("The elbow joint leaks.")) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        yield gateway, api


SIDE_BY_SIDE = {"width": 1280, "height": 720}
"""Wide enough that all columns are in sight; what is not in sight is not drawn."""


_OUTSIDE_OF_ITS_CARD = """all => all.flatMap(card => [...card.querySelectorAll('button, select')]
  .filter(one => one.getBoundingClientRect().right > card.getBoundingClientRect().right)
  .map(one => one.getAttribute('aria-label')))"""


def make(api: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = api.post(path, json=body)
    assert answer.status_code in (200, 201), answer.text
    made: dict[str, Any] = answer.json()
    return made


def names_in(page: Any, status: str) -> list[str]:
    found: list[str] = page.locator(f'[data-status="{status}"] h3').all_inner_texts()
    return found


def test_the_board_follows_what_happens_elsewhere_and_a_refused_edit_is_taken_back_with_its_reason(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    make(api, "/api/topics", name="Compost")
    with visitor(browser, gateway, viewport=SIDE_BY_SIDE) as page:
        log_in(page, gateway, "/board")
        page.get_by_role("link", name="Compost").wait_for()
        pond = make(api, "/api/topics", name="Pond", status="doing", tags=["Water"])
        page.get_by_role("link", name="Pond").wait_for()
        page.get_by_role("link", name="Water 1 topic").wait_for()
        api.patch(f"/api/topics/{pond['id']}", json={"status": "blocked", "priority": "high"})
        page.locator('[data-status="blocked"]').get_by_text("Pond").wait_for()
        assert "Pond" not in names_in(page, "doing")

        page.get_by_role("button", name="Pin Pond").click()
        wait_for(lambda: api.get(f"/api/topics/{pond['id']}").json()["pinned"])

        page.get_by_role("button", name="Edit Pond").click()
        page.get_by_label("Name", exact=True).fill("Compost")
        page.get_by_role("combobox", name="Space", exact=True).select_option("space-default")
        page.get_by_role("button", name="Save").click()
        refused = page.get_by_role("alert")
        refused.wait_for()
        assert "has a topic 'Compost' already" in refused.inner_text()
        assert names_in(page, "blocked") == ["Pond"]
        assert api.get(f"/api/topics/{pond['id']}").json()["name"] == "Pond"
        refused.get_by_role("button").click()
        refused.wait_for(state="detached")

        page.get_by_label("Filter by words").fill("pon")
        page.get_by_role("link", name="Compost").wait_for(state="detached")
        page.get_by_role("button", name="Edit Pond").click()
        page.get_by_role("button", name="For a week").click()
        page.locator('[data-status="snoozed"]').get_by_text("Pond").wait_for()
        wait_for(lambda: api.get(f"/api/topics/{pond['id']}").json()["status"] == "snoozed")


def test_a_task_is_moved_by_keyboard_and_pointer_and_the_gateway_knows(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    topic = make(api, "/api/topics", name="Roof")["id"]
    task = make(api, "/api/tasks", title="Order slates", topicId=topic)["id"]

    def status() -> str:
        found: str = api.get(f"/api/tasks/{task}").json()["status"]
        return found

    with visitor(browser, gateway, viewport={"width": 390, "height": 800}) as page:
        log_in(page, gateway, f"/board/topics/{topic}")
        link = page.get_by_role("link", name="Order slates")
        link.focus()
        page.keyboard.press("Alt+ArrowRight")
        page.locator('[data-status="doing"] [data-task]').wait_for()
        wait_for(lambda: status() == "doing")
        page.wait_for_function("() => document.activeElement?.textContent === 'Order slates'")
        page.keyboard.press("Alt+ArrowRight")
        wait_for(lambda: status() == "blocked")

        page.get_by_role("button", name="Move Order slates to Doing").press("Enter")
        wait_for(lambda: status() == "doing")
        page.locator("[data-task]").drag_to(page.locator('[data-status="done"]'))
        wait_for(lambda: status() == "done")
        page.get_by_label("Title of a new task").fill("Call the roofer")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Call the roofer").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_topic_is_moved_between_columns_and_spaces_by_keyboard_and_pointer_and_the_way_back_is_offered(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    space = make(api, "/api/spaces", name="Kites")["id"]
    made = make(api, "/api/topics", name="Tail of ribbons", status="todo")

    def now(name: str) -> str:
        found: str = api.get(f"/api/topics/{made['id']}").json()[name]
        return found

    with visitor(browser, gateway, viewport=SIDE_BY_SIDE) as page:
        log_in(page, gateway, "/board?q=ribbons")
        page.get_by_role("link", name="Tail of ribbons").focus()
        assert page.locator(".columns .topic").evaluate_all(_OUTSIDE_OF_ITS_CARD) == []
        page.keyboard.press("Alt+ArrowRight")
        wait_for(lambda: now("status") == "active")
        page.wait_for_function("() => document.activeElement?.textContent === 'Tail of ribbons'")
        page.keyboard.press("Alt+ArrowRight")
        wait_for(lambda: now("status") == "doing")
        handle = page.get_by_role("link", name="Tail of ribbons")
        handle.drag_to(page.locator('[data-status="blocked"]'))
        wait_for(lambda: now("status") == "blocked")
        page.get_by_text("Tail of ribbons moved to Blocked.").locator("..").get_by_role(
            "button", name="Undo"
        ).click()
        wait_for(lambda: now("status") == "doing")
        handle.drag_to(page.get_by_role("link", name="Kites"))
        wait_for(lambda: now("spaceId") == space)


def test_the_board_reads_on_as_one_scrolls_and_for_what_is_looked_for(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    space = make(api, "/api/spaces", name="Orchard")["id"]
    for name in ("Medlar", *(f"Apple tree {number}" for number in range(60))):
        make(api, "/api/topics", name=name, spaceId=space, status="todo")
    with visitor(browser, gateway, viewport={"width": 1000, "height": 500}) as page:
        # As with many thousands: what is read at first is a part of it.
        page.route(
            re.compile(r"/api/topics\?"),
            lambda route: route.continue_(url=route.request.url.replace("limit=500", "limit=5")),
        )
        log_in(page, gateway, f"/board?space={space}")
        page.get_by_role("link", name="Apple tree 59", exact=True).wait_for()
        last = page.get_by_role("link", name="Medlar", exact=True)
        assert last.count() == 0

        def at_the_end() -> bool:
            page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
            return bool(last.count())

        wait_for_in(page, at_the_end)
        page.get_by_text("Reading more topics").wait_for(state="detached")
        page.goto("/board?q=medlar")
        last.wait_for()


def test_search_finds_while_one_types_waits_where_it_is_busy_and_hostile_text_stays_text(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    topic = make(api, "/api/topics", name="Zoo")["id"]
    entry = make(
        api, "/api/log", content=HOSTILE, agentId="main", topicId=topic, classificationStatus="classified"
    )["id"]
    busy = {"type": "about:blank", "title": "Busy", "status": 429, "code": "search_busy", "detail": "busy"}
    turned_away: list[str] = []

    def once(route: Any) -> None:
        if turned_away:
            route.continue_()
        else:
            turned_away.append(route.request.url)
            headers = {"Retry-After": "0", "Content-Type": "application/problem+json"}
            route.fulfill(status=429, headers=headers, json=busy)

    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/approvals")
        page.route("**/api/search*", once)
        page.get_by_role("heading", name="Approvals").wait_for()
        page.keyboard.press("/")
        page.get_by_role("combobox").press_sequentially("quokka")
        hit = page.get_by_role("group", name="Entries").get_by_role("option").first
        hit.wait_for()
        assert turned_away
        assert hit.locator("mark").all_inner_texts() == ["quokka"]
        assert "<b>quokka</b>" in hit.inner_text()
        while hit.get_attribute("aria-selected") != "true":
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/log/{entry}")
        said = page.locator(".said")
        said.wait_for()
        shown = "<img src=x onerror=alert(1)> <b>quokka</b> RLOdnePDF zeroZWSPwidth ESC[2K"
        assert said.inner_text() == shown
        page.get_by_text("A rule settled it as it came in.").wait_for()
        page.get_by_label("Topic", exact=True).get_by_text("Zoo").wait_for(state="attached")
        page.goto(f"/board/topics/{topic}")
        said = page.locator(f'[data-entry="{entry}"] .prose')
        said.wait_for()
        assert said.inner_text() == shown
        assert page.locator("main img, main b").count() == 0


def drafts_of(api: httpx.Client) -> list[str]:
    return [draft["value"] for draft in api.get("/api/drafts").json()]


def test_a_topic_is_talked_about_with_the_agent_and_notes_stay_with_it(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    topic = make(api, "/api/topics", name="Drip line")["id"]
    other = make(api, "/api/topics", name="Hoses")["id"]
    with visitor(browser, gateway) as page:
        log_in(page, gateway, f"/board/topics/{topic}")
        box = page.get_by_label("Message", exact=True)
        box.fill("Where does it leak?")
        page.keyboard.press("Enter")
        page.locator(".answered", has_text="The elbow joint leaks.").wait_for()
        asked = api.get("/api/log", params={"sessionKey": f"clawboard:topic:{topic}"}).json()
        assert {entry["topicId"] for entry in asked} == {topic}
        page.locator(".live").wait_for(state="detached")

        box.fill("Valve 3 stays shut.")
        wait_for(lambda: drafts_of(api) == ["Valve 3 stays shut."])
        page.reload()
        page.wait_for_function("() => document.querySelector('textarea')?.value === 'Valve 3 stays shut.'")
        page.get_by_role("button", name="Keep as note").click()
        note = page.locator(".alone.is-note", has_text="Valve 3 stays shut.")
        note.wait_for()
        wait_for(lambda: drafts_of(api) == [])
        page.get_by_role("button", name="Find in this topic").click()
        page.get_by_label("Search in this conversation").fill("VALVE")
        page.get_by_text("1 found").wait_for()
        page.get_by_label("Jump to a day").fill("2001-01-01")
        note.wait_for(state="detached")
        page.get_by_role("button", name="Back to the newest").click()
        note.wait_for()
        page.get_by_role("button", name="Close search").click()
        (kept,) = api.get("/api/log", params={"topicId": topic, "type": "note"}).json()
        assert (kept["agentId"], kept["classificationStatus"]) == ("user", "classified")

        note.get_by_role("link", name="Details").click()
        page.get_by_label("Topic", exact=True).select_option(other)
        page.get_by_role("button", name="Move", exact=True).click()
        wait_for(lambda: api.get(f"/api/log/{kept['id']}").json()["topicId"] == other)
        page.go_back()
        page.locator(".answered").wait_for()
        note.wait_for(state="detached")


def test_the_log_does_not_move_under_ones_eyes_and_its_filters_are_in_the_address(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    topic = make(api, "/api/topics", name="Long")["id"]
    place = {"topicId": topic, "classificationStatus": "classified", "agentId": "other"}
    api.post("/api/ingest", json=[{"content": f"line {n}", **place} for n in range(150)])
    wait_for(lambda: len(api.get("/api/log", params={"agentId": "other", "limit": 200}).json()) == 150)
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/log?agent=other")
        rows = page.locator(".entry")
        rows.nth(59).wait_for()
        make(api, "/api/log", content="arrives at the top", **place)
        rows.first.get_by_text("arrives at the top").wait_for()
        page.get_by_role("button", name="Older entries").click()
        rows.nth(119).wait_for()
        page.mouse.wheel(0, 900)
        page.wait_for_function("() => scrollY >= 900")
        before = rows.nth(20).bounding_box()
        make(api, "/api/log", content="waits for a word", **place)
        make(api, "/api/log", content="of another agent", **place | {"agentId": "main"})
        arrived = page.get_by_role("button", name="1 new entry")
        arrived.wait_for()
        assert rows.nth(20).bounding_box() == before
        arrived.click()
        rows.first.get_by_text("waits for a word").wait_for()
        page.get_by_label("Type", exact=True).select_option("note")
        page.get_by_text("Nothing was logged that fits.").wait_for()
        assert "agent=other" in page.url
        assert "type=note" in page.url


def test_who_may_see_one_space_sees_nothing_of_another_then_or_later(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    for name in ("Open", "Secret"):
        make(api, "/api/spaces", name=name)
    token = make_token(gateway.hold.store, "guest", Scope.READ, spaces=["space-open"])
    for name in ("Open", "Secret"):
        make(api, "/api/topics", name=f"{name} first", spaceId=f"space-{name.lower()}")
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/board", token=token)
        page.get_by_role("link", name="Open first").wait_for()
        make(api, "/api/topics", name="Secret later", spaceId="space-secret")
        make(api, "/api/topics", name="Open later", spaceId="space-open")
        page.get_by_role("link", name="Open later").wait_for()
        assert page.locator(".topics h3").all_inner_texts() == ["Open later", "Open first"]
        spaces = [" ".join(text.split()) for text in page.locator(".spaces li").all_inner_texts()]
        assert spaces == ["All spaces 2 topics", "Open 2 topics"]
        assert page.get_by_role("button", name="Make topic").count() == 0
        page.goto("/graph?view=table")
        page.get_by_text("Nothing to draw yet").wait_for()
        assert "Secret" not in page.content()
