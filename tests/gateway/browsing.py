"""A real browser on the pages of a gateway: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from serving import wait_for

from builders import PATIENCE
from holdfast.gateway import site

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


class Served(Protocol):
    """A gateway that can be visited, in this process or another."""

    @property
    def url(self) -> str: ...

    @property
    def admin(self) -> str: ...


@contextmanager
def chromium() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    if not site.is_built():
        pytest.skip("the pages are not built: make pages")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visitor(browser: Any, gateway: Served, **options: Any) -> Iterator[Any]:
    """A fresh person at a page, logged out. Whatever the browser complains of fails the test.

    `HOLDFAST_VIEW=phone-dark` (or another width and theme) has all of them come that way.
    """
    options = _view(os.environ.get("HOLDFAST_VIEW")) | options
    context = browser.new_context(base_url=gateway.url, **options)
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.on("console", lambda said: complaints.append(said.text) if _is_complaint(said) else None)
    try:
        yield page
    finally:
        context.close()
    assert not complaints, "\n".join(complaints)


def log_in(page: Any, gateway: Served, at: str = "/approvals", *, token: str | None = None) -> None:
    page.goto(at)
    page.get_by_label("Token").fill(token or gateway.admin)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("navigation", name="Pages").wait_for()


def go_to(page: Any, name: str) -> None:
    """By the navigation, as it is at this width."""
    _navigation(page).get_by_role("link", name=name).click()


def log_out(page: Any) -> None:
    _navigation(page).get_by_role("button", name="Log out").click()


def offered_pages(page: Any) -> set[str]:
    links = page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
    return {name.strip() for name in (*links, *_navigation(page).locator("li a").all_inner_texts())}


def _navigation(page: Any) -> Any:
    """What stands beside the page, or on a phone behind *More*."""
    page.get_by_role("navigation", name="Pages").wait_for()
    more = page.get_by_role("button", name="More", exact=True)
    if not more.is_visible():
        return page.locator("header.side")
    if more.get_attribute("aria-expanded") != "true":
        more.click()
    return page.get_by_role("dialog", name="More")


def text_in(editor: Any) -> str:
    """What stands in an editor of files; of a long one, the part that is in sight."""
    lines = "one => [...one.querySelectorAll('.cm-line')].map(line => line.textContent).join('\\n')"
    found: str = editor.evaluate(lines)
    return found


def write_in(editor: Any, text: str) -> None:
    """Put this in the place of all that stands in an editor of files, by its keys as a person does."""
    editor.press("ControlOrMeta+a")
    editor.press("Delete")
    editor.page.keyboard.insert_text(text)


def wait_for_in(page: Any, holds: Any) -> None:
    """Wait while the browser goes on: its events are heard only then."""

    def held() -> bool:
        page.wait_for_timeout(20)
        return bool(holds())

    wait_for(held)


def visit(page: Any, path: str) -> None:
    """Go there within the pages, as a link does, and wait until all of it is there."""
    page.evaluate("to => { history.pushState({}, '', to); dispatchEvent(new Event('popstate')); }", path)
    page.locator("h1").first.wait_for(state="attached")
    page.locator(".skeleton, .loading").first.wait_for(state="detached")


def _is_complaint(said: Any) -> bool:
    """A refused or broken request is part of the play; a broken policy or a warning of React's is not."""
    return said.type in ("error", "warning") and not said.text.startswith("Failed to load resource")


WIDTHS: Final = {"wide": (1440, 900), "middle": (1024, 768), "phone": (390, 844)}
THEMES: Final = ("light", "dark")
AXE: Final = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
# Links within a text, boxes with a label around them, and slices that a table below has again.
_BESIDES: Final = "'.prose, p, td, dd, label, .window-bar, .spoken, .skip'"
_SMALL: Final = """() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary')]
  .filter(e => e.checkVisibility() && !e.closest(_BESIDES))
  .map(e => [e, e.getBoundingClientRect()])
  .filter(([e, box]) => box.width > 1 && (box.height < 24 || box.width < 24) && !e.disabled)
  .map(([e, box]) => `${e.outerHTML.slice(0, 90)} ${Math.round(box.width)}x${Math.round(box.height)}`)"""


def _view(named: str | None) -> dict[str, Any]:
    if named is None:
        return {}
    size, theme = named.split("-")
    width, height = WIDTHS[size]
    return {"viewport": {"width": width, "height": height}, "color_scheme": theme}


def axe_violations(page: Any) -> list[str]:
    """What axe finds wrong with the page as it stands: rule, and the first place of it."""
    if page.evaluate("window.axe === undefined"):
        page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in found["violations"]]


def small_targets(page: Any) -> list[str]:
    """What is to be hit and is under 24 pixels high or wide; links within a text may be as the text is."""
    found: list[str] = page.evaluate(_SMALL.replace("_BESIDES", _BESIDES))
    return found
