"""Every page, at three widths and in both themes: nothing is cut off, too small, or out of reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from browsing import THEMES, WIDTHS, axe_violations, log_in, small_targets, visit, visitor
from example_home import fill, gateway, pages
from serving import Running

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
                for theme in THEMES:
                    if (size, theme) in LOOKED_AT:
                        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
                        wrong += [f"{name}, {size}, {theme}: {one}" for one in axe_violations(page)]
    assert not wrong, "\n".join(wrong)


def _unfit(page: Any) -> list[str]:
    wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return [*(["wider than the screen"] if wide else []), *small_targets(page)]


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
        answer = page.locator(".prose", has_text="التسرب")
        assert answer.evaluate("one => getComputedStyle(one).direction") == "rtl"
        # And with all of the page turned around, as a translation would have it.
        for name, path in pages(api).items():
            visit(page, path)
            page.evaluate("document.documentElement.dir = 'rtl'")
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), name
