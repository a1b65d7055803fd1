"""The pages: what the first load weighs, and what a browser works for what a person looks at.

    PYTHONPATH=tests:tests/gateway python bench/pages.py [--topics 10000] [--entries 20000] [--rounds 3]

Compares, in one run and one Chromium: the pages over a gateway with a scripted model, and a bare page that
shows the same amount of text without any library. Prints the bytes of the first load as they are sent (gzip),
the milliseconds of script and of all work of the page's thread up to its first useful paint, up to a topic
among many, to the board of all of them, to a thread of many entries and back through ten pages of it, and for
each second of an answer that streams at a hundred tokens a second; with the elements that the board and the
thread then consist of. Needs Chromium and `make pages`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from browsing import chromium, log_in
from common import table
from serving import Running, running

from holdfast.board import topics
from holdfast.log import OWNER, EntryDraft, EntryType, entries
from holdfast.runtime import Holdfast, open_home
from holdfast.testing import Say, ScriptedOpenAI

Look = Callable[[Any], None]
A_SECOND = 100
PAGES_BACK = 10
LONG = "A long thread"
SESSION = "/chat?session=agent%3Amain%3Aweb%3Adm%3Abench"
BARE = """<!doctype html><html lang="en"><title>bare</title><h1>Home</h1><p id="said"></p><script>
addEventListener("message", (event) => {
  let left = event.data;
  const timer = setInterval(() => {
    document.getElementById("said").append("word ");
    if (--left <= 0) { clearInterval(timer); document.title = "done"; }
  }, 10);
});
</script></html>"""


@contextmanager
def bare_page() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(BARE.encode())

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()


@contextmanager
def gateway(folder: Path, count: int, lines: int, seconds: int) -> Iterator[Running]:
    words = " ".join(["word"] * A_SECOND * seconds)
    with ScriptedOpenAI(lambda asked: Say(words, chunks=A_SECOND * seconds, pause=1 / A_SECOND)) as model:
        provider = {"baseUrl": model.url, "apiKey": "key", "api": "openai-completions"}
        provider |= {"models": [{"id": "scripted", "contextWindow": 100_000}]}
        config = {
            "models": {"providers": {"scripted": provider}},
            "agents": {"defaults": {"model": "scripted/scripted"}, "list": [{"id": "main", "default": True}]},
            "board": {"contextAugment": False},
        }
        folder.mkdir()
        (folder / "holdfast.json").write_text(json.dumps(config))
        with open_home(folder) as hold:
            for start in range(0, count, 1_000):
                with hold.store.write(OWNER) as tx:
                    for number in range(start, min(start + 1_000, count)):
                        topics.upsert(tx, f"Topic number {number}")
            _said(hold, lines)
            with running(hold) as found:
                yield found


def _said(hold: Holdfast, lines: int) -> None:
    """A thread about one topic, the newest of all."""
    with hold.store.write(OWNER) as tx:
        topic = topics.upsert(tx, LONG).topic.id
    drafts = [
        EntryDraft(
            content=f"Line {number} of what was said", type=EntryType.NOTE, topic_id=topic, agent_id="user"
        )
        for number in range(lines)
    ]
    for start in range(0, lines, 1_000):
        with hold.store.write(OWNER) as tx:
            for draft in drafts[start : start + 1_000]:
                entries.append(tx, draft)


class Work:
    """What the thread of a page has done since it was asked last, in milliseconds."""

    def __init__(self, page: Any) -> None:
        self._cdp = page.context.new_cdp_session(page)
        self._cdp.send("Performance.enable")
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        return {one["name"]: one["value"] for one in self._cdp.send("Performance.getMetrics")["metrics"]}

    def since(self) -> tuple[float, float]:
        now, before = self._now(), self._before
        self._before = now
        script, task = ((now[n] - before[n]) * 1000 for n in ("ScriptDuration", "TaskDuration"))
        return script, task


def loaded(browser: Any, url: str, look: Look, prepare: Look | None = None) -> Any:
    """A page opened anew: the bytes that came, and its work up to what one looks for."""
    context = browser.new_context(service_workers="block")
    page = context.new_page()
    if prepare is not None:
        prepare(page)
    came: list[int] = []
    cdp = context.new_cdp_session(page)
    cdp.send("Network.enable")
    cdp.send("Network.setCacheDisabled", {"cacheDisabled": True})
    cdp.on("Network.loadingFinished", lambda event: came.append(int(event["encodedDataLength"])))
    page.goto("about:blank")
    work = Work(page)
    page.goto(url)
    look(page)
    return page, sum(came), work.since(), work


def streamed(work: Work, begin: Callable[[], None], ended: Callable[[], None], seconds: int) -> Any:
    work.since()
    begin()
    ended()
    return tuple(one / seconds for one in work.since())


def ours(browser: Any, found: Running, seconds: int) -> dict[str, tuple[float, float]]:
    def prepare(page: Any) -> None:
        page.goto(found.url)
        log_in(page, found, found.url)

    rows: dict[str, tuple[float, float]] = {}
    first = lambda page: page.locator("main h1, main h2").first.wait_for()  # noqa: E731
    page, came, rows["first useful paint"], _ = loaded(browser, f"{found.url}/", first, prepare)
    rows["bytes"] = (came, 0)
    page.context.close()

    topic = found.client(found.admin).get("/api/topics", params={"limit": 1}).json()[0]
    look = lambda page: page.get_by_role("heading", name=topic["name"]).first.wait_for()  # noqa: E731
    place = f"{found.url}/board/topics/{topic['id']}"
    page, _, rows["to a topic among many"], _ = loaded(browser, place, look, prepare)
    page.context.close()

    rows |= _long_lists(browser, found, prepare)
    field = lambda page: page.get_by_label("Message", exact=True).wait_for()  # noqa: E731
    page, _, _, work = loaded(browser, f"{found.url}{SESSION}", field, prepare)
    box = page.get_by_label("Message", exact=True)

    def ask() -> None:
        box.fill("Go")
        box.press("Enter")

    def over() -> None:
        page.locator(".turn-foot").last.wait_for(timeout=(seconds * 20 + 60) * 1000)

    rows["a second of streaming"] = streamed(work, ask, over, seconds)
    page.context.close()
    return rows


def _long_lists(browser: Any, found: Running, prepare: Look) -> dict[str, tuple[float, float]]:
    rows: dict[str, tuple[float, float]] = {}
    look = lambda page: page.locator(".topics h3").nth(5).wait_for(timeout=120_000)  # noqa: E731
    page, _, rows["to the board"], _ = loaded(browser, f"{found.url}/board", look, prepare)
    rows["elements of the board"] = (page.locator("main *").count(), 0)
    page.context.close()

    long = found.client(found.admin).get("/api/topics", params={"limit": 500}).json()
    topic = next(one["id"] for one in long if one["name"] == LONG)
    look = lambda page: page.locator(".said-scroll article").nth(3).wait_for()  # noqa: E731
    place = f"{found.url}/board/topics/{topic}"
    page, _, rows["to a long thread"], work = loaded(browser, place, look, prepare)
    for _ in range(PAGES_BACK):
        with page.expect_response("**/api/conversation*"):
            page.get_by_role("button", name="Show older").click()
    page.get_by_role("button", name="Show older").wait_for()
    rows["ten pages back in it"] = work.since()
    rows["elements of the thread"] = (page.locator(".said-scroll *").count(), 0)
    page.context.close()
    return rows


def bare(browser: Any, url: str, seconds: int) -> dict[str, tuple[float, float]]:
    look = lambda page: page.locator("h1").wait_for()  # noqa: E731
    page, came, paint, work = loaded(browser, url, look)
    count = A_SECOND * seconds
    begin = lambda: page.evaluate(f"postMessage({count})")  # noqa: E731
    ended = lambda: page.wait_for_function(  # noqa: E731
        "document.title === 'done'", timeout=(seconds * 20 + 60) * 1000
    )
    rows = {"bytes": (came, 0.0), "first useful paint": paint}
    rows["a second of streaming"] = streamed(work, begin, ended, seconds)
    page.context.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    own: list[dict[str, tuple[float, float]]] = []
    other: list[dict[str, tuple[float, float]]] = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser, bare_page() as url:
        for number in range(given.rounds):
            with gateway(Path(folder) / f"home{number}", given.topics, given.entries, given.seconds) as found:
                own.append(ours(browser, found, given.seconds))
            other.append(bare(browser, url, given.seconds))
    table(
        "script (all work of the thread)",
        [(name, _cell(own, name), _cell(other, name), "bare page") for name in own[0]],
    )


def _cell(rows: list[dict[str, tuple[float, float]]], name: str) -> str:
    """Medians of the rounds: script, and all work of the thread in brackets."""
    if name not in rows[0]:
        return "-"
    script, task = (statistics.median(one[name][part] for one in rows) for part in (0, 1))
    return (
        f"{script:,.0f}"
        if name == "bytes" or name.startswith("elements")
        else f"{script:,.0f} ms ({task:,.0f})"
    )


if __name__ == "__main__":
    main()
