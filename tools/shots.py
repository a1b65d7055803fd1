"""Takes pictures of every page, for people to look at: `make shots`, then look into build/shots.

The home is a new one with a scripted model, and what a few weeks leave behind: tests/gateway/example_home.py.
Arguments: pages, widths (`phone`), themes (`dark`); without any, all.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from browsing import THEMES, WIDTHS, chromium, log_in
from example_home import fill, gateway, pages
from serving import Running

OUT: Final = Path("build/shots")


def shoot(browser: Any, found: Running, wanted: dict[str, str]) -> None:
    for theme in _of(THEMES):
        for size in _of(tuple(WIDTHS)):
            width, height = WIDTHS[size]
            context = browser.new_context(
                base_url=found.url, viewport={"width": width, "height": height}, color_scheme=theme
            )
            page = context.new_page()
            log_in(page, found, "/")
            for name, path in wanted.items():
                page.goto(path)
                page.locator("h1").first.wait_for(state="attached")
                page.locator(".skeleton, .loading").first.wait_for(state="detached")
                page.wait_for_timeout(500)
                page.screenshot(path=OUT / f"{name}-{size}-{theme}.png")
            if _is_wanted("palette"):
                page.keyboard.press("Control+k")
                page.wait_for_timeout(400)
                page.screenshot(path=OUT / f"palette-{size}-{theme}.png")
            context.close()


def _of(all_: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for one in all_ if one in sys.argv) or all_


def _is_wanted(page: str) -> bool:
    named = set(sys.argv[1:]) - {*THEMES, *WIDTHS}
    return not named or page in named


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        with gateway(Path(folder) / "first", model=False) as found:
            if _is_wanted("first-run"):
                shoot(browser, found, {"first-run": "/"})
        with gateway(Path(folder) / "home") as found, found.client(found.admin) as api:
            fill(api)
            every = pages(api)
            shoot(browser, found, {n: p for n, p in every.items() if _is_wanted(n)})
    print(f"{len(list(OUT.glob('*.png')))} pictures in {OUT}")


if __name__ == "__main__":
    main()
