"""A real browser on the pages of a gateway: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from serving import Running

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
def visitor(browser: Any, gateway: Running, **options: Any) -> Iterator[Any]:
    """A fresh person at a page, logged out. Whatever the browser complains of fails the test."""
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
    assert complaints == []


def log_in(page: Any, gateway: Running, at: str = "/approvals", *, token: str | None = None) -> None:
    page.goto(at)
    page.get_by_label("Token").fill(token or gateway.admin)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()


def _is_complaint(said: Any) -> bool:
    """A refused or broken request is part of the play; a broken policy or a warning of React's is not."""
    return said.type in ("error", "warning") and not said.text.startswith("Failed to load resource")
