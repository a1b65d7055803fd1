"""Every page, at three widths and in both themes: nothing is cut off, too small, or out of reach."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from browsing import THEMES, WIDTHS, axe_violations, log_in, small_targets, visit, visitor
from example_home import BOATS, fill, gateway, pages
from serving import Running

from builders import share

# axe takes half a second a page: each is looked at in two ways of the six, in all with HOLDFAST_PAGES=all.
EVERY = [(size, theme) for size in WIDTHS for theme in THEMES]
LOOKED_AT = EVERY if os.environ.get("HOLDFAST_PAGES") == "all" else [("wide", "light"), ("phone", "dark")]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, httpx.Client]]:
    with gateway(tmp_path_factory.mktemp("every") / "home") as found, found.client(found.admin) as api:
        fill(api)
        yield found, api


def test_every_page_is_for_everybody(browser: Any, stage: tuple[Running, httpx.Client]) -> None:
    found, api = stage
    wrong: list[str] = []
    with visitor(browser, found, reduced_motion="reduce") as page:
        log_in(page, found, "/")
        for name, path in pages(api).items():
            visit(page, path)
            for size, (width, height) in WIDTHS.items():
                page.set_viewport_size({"width": width, "height": height})
                wrong += [f"{name}, {size}: {one}" for one in _unfit(page)]
                if size == "phone" and _is_too_wide_turned_around(page):
                    wrong.append(f"{name}, {size}, from right to left: wider than the screen")
                for theme in THEMES:
                    if (size, theme) in LOOKED_AT:
                        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                        wrong += [f"{name}, {size}, {theme}: {one}" for one in axe_violations(page)]
    assert not wrong, "\n".join(wrong)


_TOO_WIDE = "document.documentElement.scrollWidth > innerWidth"


def _unfit(page: Any) -> list[str]:
    return [*(["wider than the screen"] if page.evaluate(_TOO_WIDE) else []), *small_targets(page)]


def _is_too_wide_turned_around(page: Any) -> bool:
    """With all of the page from right to left, as a translation would have it."""
    page.evaluate("document.documentElement.dir = 'rtl'")
    wide = bool(page.evaluate(_TOO_WIDE))
    page.evaluate("document.documentElement.removeAttribute('dir')")
    return wide


def test_where_one_writes_is_in_sight_and_text_runs_as_its_script_does(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    found, api = stage
    width, height = WIDTHS["phone"]
    with visitor(browser, found, viewport={"width": width, "height": height}) as page:
        log_in(page, found, "/")
        for name in ("chat", "topic", "chat-arabic"):
            visit(page, pages(api)[name])
            send = page.get_by_role("button", name="Send", exact=True)
            send.wait_for()
            box = send.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= height, name
        visit(page, pages(api)["topic"])
        page.get_by_role("button", name="Edit", exact=True).click()
        page.get_by_role("form").get_by_label("Description").fill("Slates and flashing.")
        page.get_by_role("button", name="Save").click()
        page.get_by_label("Description").wait_for(state="detached")
        visit(page, pages(api)["chat-arabic"])
        answer = page.locator(".prose", has_text="التسرب")
        assert answer.evaluate("one => getComputedStyle(one).direction") == "rtl"


def test_what_the_runtime_told_an_agent_is_nobodys_words_and_stands_there_for_who_opens_it(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    found, _api = stage
    with visitor(browser, found, reduced_motion="reduce") as page:
        log_in(page, found, f"/chat?session={quote(BOATS)}")
        step = page.locator("details.step", has_text="How the delegate fared").first
        step.wait_for()
        assert page.locator(".asked", has_text=re.compile("continuation|ubagent|Seven boats")).count() == 0
        assert "[continuation:" not in step.locator("summary").inner_text()
        step.locator("summary").click()
        step.get_by_text("[continuation:delegate-return]").wait_for()


# By day two logins that are alike share the pages, and every page is met by one of each two.
LESSER: tuple[dict[str, Any], ...] = (
    {"scope": "read"},
    {"scope": "write", "spaces": True},
    {"scope": "read", "spaces": True},
)
_REFUSED = re.compile(r"may not|forbidden|not allowed|403", re.IGNORECASE)
EVIL = "<img src=x onerror=alert(1)><b id=pwned>x</b>\"'><script>alert(2)</script>"
LINKS = (
    "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,<script>alert(1)</script>) "
    "[d](\x01javascript:alert(1)) [e](java\nscript:alert(1)) [f](vbscript:x) [g](//evil.example/x) "
    "<javascript:alert(1)> ![p](javascript:alert(1)) ![q](https://evil.example/pixel.png) "
    '<a href="javascript:alert(1)">h</a> <svg/onload=alert(1)> <iframe src="javascript:alert(1)"></iframe>'
)
_GOT_IN = """() => {
  const bad = '#pwned, main script, iframe, object, embed, main [onerror], main [onload]';
  const within = [...document.querySelectorAll(bad)].map(one => one.outerHTML.slice(0, 90));
  const leading = [...document.querySelectorAll('a[href], area[href]')].map(one => one.href);
  const shown = [...document.images].map(one => one.src);
  return [
    ...within,
    ...leading.filter(to => !/^(https?:|mailto:|blob:|data:text\\/csv)/.test(to)),
    ...shown.filter(src => !src.startsWith(location.origin) && !src.startsWith('data:image/')),
  ];
}"""


def _poison(api: httpx.Client) -> dict[str, str]:
    """Names, texts and files that would like to be more than text, wherever somebody may write some."""
    space = api.post(
        "/api/spaces", json={"name": f"S {EVIL}"[:80], "color": "red;background:url(//evil.example)"}
    )
    topic = api.post(
        "/api/topics", json={"name": EVIL[:100], "description": LINKS, "tags": [EVIL[:40]]}
    ).json()
    api.post("/api/tasks", json={"title": EVIL[:100], "topicId": topic["id"]})
    for type_ in ("note", "conversation", "action"):
        place = {"topicId": topic["id"], "classificationStatus": "classified"}
        words = f"Tool call: exec {json.dumps({EVIL: EVIL})}" if type_ == "action" else f"{EVIL}\n\n{LINKS}"
        api.post(
            "/api/log",
            json={"type": type_, "content": words, "agentId": "main", "agentLabel": EVIL[:60], **place},
        )
    api.post("/api/log", json={"content": "long " * 400_000, "agentId": "user", "topicId": topic["id"]})
    key = "agent:main:web:dm:evil"
    for text in (f"{EVIL} {LINKS}", f"leak {EVIL}"):
        run = api.post("/api/agent", json={"message": text, "sessionKey": key}).json()
        api.get(f"/api/agent/{run['runId']}/wait", params={"timeoutMs": 60_000})
    api.post(
        "/api/cron",
        json={"prompt": EVIL, "name": EVIL[:80], "every": "9h", "session": "isolated", "deliver": "last"},
    )
    api.post("/api/tokens", json={"name": EVIL[:60], "scope": "read"})
    api.post(
        "/api/users",
        json={"login": "evil", "name": EVIL[:60], "role": "viewer", "password": "a long password"},
    )
    api.post("/api/teams", json={"id": "evil", "name": EVIL[:60], "agents": []})
    file = {"path": "memory/evil.md", "text": f"{EVIL}\n{LINKS}", "before": None}
    api.put("/api/workspace/file", json=file)
    sender = {"id": "66", "name": EVIL[:60]}
    words = {"id": "2", "text": EVIL, "sender": sender, "peer": {"kind": "dm", "id": "66"}}
    api.post("/api/channels/signal/inbound", json=words)
    assert space.status_code in (201, 400, 422)
    return {
        "evil topic": f"/board/topics/{topic['id']}",
        "evil chat": f"/chat?session={quote(key)}",
        "evil context": f"/chat?session={quote(key)}&turn=1&view=context",
        "evil recall": f"/chat?session={quote(key)}&turn=1&view=recall",
        "evil file": "/memory/files?path=memory%2Fevil.md",
        "evil search": f"/search?q={quote(EVIL)}",
        "evil memory": f"/memory?q={quote(EVIL)}",
        "evil board": f"/board?q={quote(EVIL)}&space={quote(EVIL)}",
        "evil place": f"/{quote(EVIL)}",
    }


def test_names_and_texts_stay_text_on_every_page_and_a_lesser_login_meets_no_refusal(
    browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with gateway(tmp_path_factory.mktemp("evil") / "home") as found, found.client(found.admin) as api:
        fill(api)
        every = pages(api) | _poison(api)
        wrong: list[str] = []
        with visitor(browser, found, reduced_motion="reduce") as page:
            log_in(page, found, "/")
            for name, path in every.items():
                visit(page, path)
                page.locator("details:not([open]) > summary").evaluate_all(
                    "all => all.slice(0, 40).forEach(one => one.click())"
                )
                wrong += [f"{name}: {one}" for one in page.evaluate(_GOT_IN)]
        house = next(
            one["id"]
            for one in api.get("/api/spaces").json()
            if one["name"] == "House" and one["id"] == "space-house"
        )
        secret = api.post("/api/topics", json={"name": "Zanzibar", "spaceId": "space-default"}).json()["id"]
        for turn, limit in enumerate(LESSER):
            limit = limit | ({"spaces": [house]} if "spaces" in limit else {})
            token = api.post("/api/tokens", json={"name": str(limit)[:40], **limit}).json()["token"]
            theirs = {"secret": f"/board/topics/{secret}", **pages(api)}.items()
            with visitor(browser, found, reduced_motion="reduce") as page:
                log_in(page, found, "/", token=token)
                for name, path in share(theirs, turn, of=2):
                    visit(page, path)
                    refused = page.locator("[role=alert]").filter(has_text=_REFUSED).all_inner_texts()
                    wrong += [f"{limit}, {name}: {one}" for one in refused]
                    if "spaces" in limit and "Zanzibar" in page.content():
                        wrong.append(f"{limit}, {name}: shows what is not theirs")
        assert not wrong, "\n".join(wrong)
