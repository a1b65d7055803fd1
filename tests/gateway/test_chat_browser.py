"""Chat, home and the inspector in a real browser, over a real gateway with a scripted model."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from agent_stage import KilledGateway, agents_serving
from browsing import go_to, log_in, visitor, wait_for_in
from serving import Running, assert_problem

from holdfast.gateway import site
from holdfast.testing import Call, Fail, Say, ScriptedOpenAI, Stall

MARKDOWN = """The **elbow joint** leaks.

| part | price |
|---|---|
| joint | 4 |

<img src=x onerror=alert(1)> [bad](javascript:alert(1)) [good](https://example.org/a)

```python
def leak() -> str:
    return "elbow"
```"""
HOUR = 3_600_000
SLOW = "one two three four five six seven eight nine ten eleven twelve"
FIRST_LOAD = 150_000
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def script(asked: Any) -> Any:
    """Runs the command that a message names, speaks slowly or not at all, else says what leaks."""
    last = asked.messages[-1]
    content = last["content"]
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    if last["role"] == "tool":
        return Say("It ran.", thinking="That went well.")
    if found := re.search(r"RUN:(.*):END", text):
        return Call("exec", {"command": found[1]}, thinking="I have to run something.")
    if "FAIL" in text:
        return Fail(400, "the model refused")
    if "STALL" in text:
        return Stall("One moment")
    return Say(SLOW, chunks=12, pause=0.15) if "SLOWLY" in text else Say(MARKDOWN)


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Any
) -> Iterator[tuple[Running, httpx.Client]]:
    """One gateway for all tests here; each keeps to sessions of its own."""
    home = tmp_path_factory.mktemp("chat") / "home"
    with (
        agents_serving(home, sqlite_template, script) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        yield gateway, api


def at(key: str, **more: str) -> str:
    return f"/chat?session={quote(key)}" + "".join(f"&{name}={value}" for name, value in more.items())


def say(page: Any, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answered(api: httpx.Client, key: str, text: str) -> dict[str, Any]:
    run = api.post("/api/agent", json={"message": text, "sessionKey": key}).json()
    found: dict[str, Any] = api.get(f"/api/agent/{run['runId']}/wait").json()
    return found


def test_a_new_home_leads_to_a_first_answer_and_shows_what_is_remembered_of_it(
    browser: Any, tmp_path: Path, sqlite_template: Path
) -> None:
    with (
        agents_serving(tmp_path / "home", sqlite_template, script) as (gateway, _),
        visitor(browser, gateway) as page,
    ):
        loaded: list[str] = []
        page.on("response", lambda answer: loaded.append(httpx.URL(answer.url).path))
        log_in(page, gateway, "/")
        page.get_by_role("heading", name="Welcome to Holdfast").wait_for()
        page.get_by_text("scripted/scripted answers.").wait_for()
        assert page.locator(".welcome-sign").all_inner_texts() == ["", "2", "3"], "what is done has a tick"
        files = [site.BUILT / path[1:] for path in set(loaded) if (site.BUILT / path[1:]).is_file()]
        assert sum(len(gzip.compress(file.read_bytes())) for file in files) <= FIRST_LOAD

        page.get_by_label("Say something worth remembering").fill("Where does the garden hose leak?")
        page.keyboard.press("Enter")
        answer = page.locator(".answered")
        answer.locator("strong", has_text="elbow joint").wait_for()
        assert "session=agent%3Amain%3Amain" in page.url
        wait_for_in(page, lambda: page.title() == "Where does the garden hose leak? · Holdfast")

        page.get_by_role("link", name="Home", exact=True).click()
        step = page.locator(".welcome-step", has_text="What is remembered")
        step.get_by_role("link").first.wait_for()
        assert step.get_by_role("link").all_inner_texts() == ["Where does the garden hose leak?"]
        page.get_by_role("button", name="Done, hide this").click()
        needs = page.get_by_role("region", name="Needs you")
        needs.get_by_text("Nothing waits for you").wait_for()
        with gateway.client(gateway.admin) as api:
            now = gateway.hold.clock.now()
            topic = api.post("/api/topics", json={"name": "Hose", "dueDate": now + 40 * HOUR}).json()["id"]
            late = {"title": "Buy a joint", "topicId": topic, "dueDate": now - 48 * HOUR}
            api.post("/api/tasks", json=late)
            api.post("/api/tasks", json={**late, "title": "Look at it", "status": "done"})
            api.post("/api/tasks", json={**late, "title": "Paint it", "dueDate": now + 90 * HOUR})
        for due in ("Hose", "Buy a joint"):
            needs.get_by_role("link", name=due).wait_for()
        rows = [row.split("\n") for row in needs.get_by_role("listitem").all_inner_texts()]
        assert [row[0] for row in rows] == ["Buy a joint", "Hose"]
        assert rows[0][1].startswith("Overdue")


def test_an_answer_is_markdown_without_any_markup_of_its_own(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, _ = stage
    with visitor(browser, gateway) as page:
        log_in(page, gateway, at("agent:main:web:dm:markdown"))
        say(page, "<b>What</b> leaks? RIGHT\u202eLEFT")
        answer = page.locator(".answered")
        answer.get_by_role("cell", name="joint").wait_for()
        answer.get_by_text("<img src=x onerror=alert(1)>").wait_for()
        assert answer.locator("img").count() == 0
        assert answer.get_by_role("link").evaluate_all(
            "all => all.map(a => [a.textContent, a.href, a.rel])"
        ) == [["good", "https://example.org/a", "noopener noreferrer nofollow"]]
        answer.locator(".hljs-keyword", has_text="def").wait_for()
        asked = page.locator(".asked")
        assert "<b>What</b> leaks? RIGHTRLOLEFT" in asked.inner_text()


def test_a_call_is_approved_where_it_was_asked_for_and_its_steps_are_told(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, _ = stage
    with visitor(browser, gateway) as page:
        log_in(page, gateway, at("agent:main:web:dm:approve"))
        say(page, "RUN:touch approved.txt:END")
        turn = page.locator(".turn")
        turn.get_by_label("The exact command").get_by_text("touch approved.txt").wait_for()
        turn.get_by_text("Waiting for your decision").wait_for()
        page.wait_for_function("() => document.title.startsWith('(1) ')")
        turn.get_by_role("button", name="Approve once").click()
        turn.get_by_text("It ran.").wait_for()
        turn.locator(".live").wait_for(state="detached")
        assert (gateway.hold.home.path / "workspace/approved.txt").exists()

        # What was thought and called with no words between stands in one list, in the order it happened.
        steps = turn.get_by_role("list", name="Steps", exact=True).locator("summary")
        wait_for_in(page, lambda: steps.count() == 3)
        assert turn.get_by_role("list", name="Steps", exact=True).count() == 1
        assert [text.split("\n")[0] for text in steps.all_inner_texts()] == ["Thought", "exec", "Thought"]
        assert "touch approved.txt" in steps.nth(1).inner_text()
        # By keyboard: the list may still scroll to its end, and a pointer would meet another row.
        steps.nth(0).press("Enter")
        turn.get_by_text("I have to run something.").last.wait_for()
        steps.nth(1).press("Enter")
        turn.get_by_label("What it was given").wait_for()
        turn.get_by_label("Result", exact=True).wait_for()


def test_a_failed_turn_keeps_its_reason_after_a_reload_and_is_tried_again(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    key = "agent:main:web:dm:fails"
    assert answered(api, key, "FAIL")["status"] == "failed"
    with visitor(browser, gateway) as page:
        log_in(page, gateway, at(key))
        for _ in range(2):
            page.get_by_role("alert").get_by_text("the model refused").wait_for()
            page.reload()
        page.get_by_role("button", name="Try again").click()
        wait_for_in(page, lambda: len(api.get(f"/api/sessions/{key}/turns").json()) == 2)
        page.get_by_role("article", name="Turn 2").get_by_text("the model refused").wait_for()
        page.get_by_role("link", name="Home", exact=True).click()
        page.get_by_role("link", name="main gave no answer").first.wait_for()


def test_a_picture_goes_along_when_a_message_is_sent_again_and_files_stand_with_their_words(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    key = "agent:main:web:dm:picture"

    def asked(where: str = key) -> list[dict[str, Any]]:
        said = api.get("/api/conversation", params={"sessionKey": where}).json()["entries"]
        return [entry for entry in said if entry["role"] == "user"]

    with visitor(browser, gateway) as page:
        log_in(page, gateway, at(key))
        picture = {"name": "dot.png", "mimeType": "image/png", "buffer": DOT}
        page.get_by_label("Files to attach").set_input_files(picture)
        page.get_by_role("list", name="Goes along").get_by_text("dot.png").wait_for()
        say(page, "FAIL at this picture")
        page.get_by_role("button", name="Try again").click()
        wait_for_in(page, lambda: len(asked()) == 2)
        assert [entry["images"] for entry in asked()] == [1, 1]

        first = page.locator(".asked").first
        first.hover()
        first.get_by_role("button", name="Edit and send again").click()
        page.get_by_role("link", name="goes on from another chat").wait_for()
        page.get_by_role("list", name="Goes along").get_by_text("Picture 1").wait_for()
        say(page, "And what is this?")
        fork = httpx.URL(page.url).params["session"]
        wait_for_in(page, lambda: [one["images"] for one in asked(fork)] == [1])
        page.goto(at(key))
        upload = {"files": ('<img src=x onerror="alert(1)">.csv', b"noon,high\n", "text/csv")}
        kept = api.post("/api/attachments", params={"logId": asked()[0]["id"]}, files=upload)
        assert kept.status_code == 201, kept.text
        page.reload()
        with page.expect_download() as saved:
            page.get_by_role("list", name="Files").get_by_role("link").click()
        assert Path(saved.value.path()).read_bytes() == b"noon,high\n"


def test_any_file_goes_along_is_kept_with_the_words_and_lies_where_the_agent_can_read_it(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    key = "agent:main:web:dm:papers"

    def asked() -> list[dict[str, Any]]:
        said = api.get("/api/conversation", params={"sessionKey": key}).json()["entries"]
        return [entry for entry in said if entry["role"] == "user"]

    page_of_script = b"\x00<script>alert(1)</script>"
    files = [
        {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.7 the plan"},
        {"name": "../evil[1].html", "mimeType": "image/png", "buffer": page_of_script},
    ]
    with visitor(browser, gateway) as page:
        log_in(page, gateway, at(key))
        page.get_by_label("Files to attach").set_input_files(files)
        along = page.get_by_role("list", name="Goes along")
        along.get_by_text("plan.pdf").wait_for()
        nothing = {"name": "void.bin", "mimeType": "", "buffer": b""}
        page.get_by_label("Files to attach").set_input_files(nothing)
        page.get_by_text("void.bin: the file is empty.").wait_for()
        say(page, "What leaks in the plan?")
        bubble = page.locator(".asked .bubble").first
        kept = bubble.get_by_role("list", name="Files")
        kept.get_by_text("plan.pdf").wait_for()
        assert "[file:" not in bubble.inner_text()
        with page.expect_download() as saved:
            kept.get_by_role("link", name="evil[1].html").click()
        assert Path(saved.value.path()).read_bytes() == page_of_script

        [entry] = asked()
        by_name = {file["fileName"]: file for file in entry["files"]}
        assert {name: file["mimeType"] for name, file in by_name.items()} == {
            "plan.pdf": "application/pdf",
            "evil[1].html": "application/octet-stream",
        }
        got = api.get(f"/api/attachments/{by_name['evil[1].html']['id']}")
        assert got.headers["content-type"] == "application/octet-stream"
        assert got.headers["content-disposition"].startswith("attachment;")
        [place] = re.findall(
            r"\[file: plan.pdf, application/pdf, 1 kB, saved as (inbox/[^]]+)\]", entry["content"]
        )
        copy = gateway.hold.home.path / "workspace" / place
        assert copy.read_bytes() == b"%PDF-1.7 the plan"

        page.locator(".answered").first.wait_for()
        bubble.hover()
        page.locator(".asked").first.get_by_role("button", name="Edit and send again").click()
        page.get_by_role("link", name="goes on from another chat").wait_for()
        assert page.get_by_label("Message", exact=True).input_value() == "What leaks in the plan?"
        along.get_by_text("evil[1].html").wait_for()

    forgotten = api.post("/api/memory/forget", json={"entryIds": [entry["id"]]})
    assert forgotten.status_code == 200, forgotten.text
    assert not copy.exists()
    assert_problem(api.get(f"/api/attachments/{by_name['plan.pdf']['id']}"), 404, "unknown_attachment")


def test_a_message_is_said_otherwise_in_a_chat_of_its_own_that_knows_what_was_said_before(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    key = "agent:main:web:dm:fork"
    for text in ("The heron nests in March.", "Paint the gate green.", "Paint the gate white."):
        answered(api, key, text)
    with visitor(browser, gateway) as page:
        log_in(page, gateway, at(key))
        asked = page.locator(".asked", has_text="Paint the gate green.")
        asked.hover()
        asked.get_by_role("button", name="Edit and send again").click()
        page.get_by_role("link", name="goes on from another chat").wait_for()
        box = page.get_by_label("Message", exact=True)
        assert box.input_value() == "Paint the gate green."
        box.fill("Paint the gate blue.")
        page.keyboard.press("Enter")
        page.locator(".answered").wait_for()
        fork = httpx.URL(page.url).params["session"]
        assert fork != key
    given = api.get(f"/api/sessions/{fork}/turns/1/context").json()["messages"]
    said = [one["content"] for one in given if one["kind"] == "user"]
    assert any("heron nests" in text for text in said)
    assert "gate blue" in said[-1]
    assert not any("gate green" in one["content"] or "gate white" in one["content"] for one in given)
    assert len(api.get(f"/api/sessions/{key}/turns").json()) == 3
    assert_problem(api.post(f"/api/sessions/{key}/fork", json={"beforeTurn": 9}), 404, "unknown_turn")


def test_the_inspector_shows_what_the_model_saw_and_what_changed_since_at_an_address_of_its_own(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    key = "agent:main:web:dm:xray"
    answered(api, key, "The quokka sleeps in the shed.")
    used = answered(api, key, "Where does the quokka sleep?")
    with visitor(browser, gateway) as page:
        log_in(page, gateway, at(key))
        page.get_by_role("link", name="Inspect turn 2").click()
        pane = page.get_by_role("complementary", name="Turn 2")
        pane.get_by_text("byte by byte the same").wait_for()
        context = f"/api/sessions/{key}/turns/2/context"
        manifest = api.get(context).json()["manifest"]
        assert used["turn"] == 2
        assert f"{manifest['used']:,} of {manifest['window']:,} tokens" in pane.inner_text()
        assert pane.locator(".sections tbody tr").count() == len(manifest["sections"])
        history = pane.get_by_role("row").filter(has_text="history").first
        assert history.locator("td").all_inner_texts()[2:] == ["log", "model", "owner"]

        pane.get_by_role("button", name="Compare with the turn before").click()
        pane.locator(".diff .added", has_text="Where does the quokka sleep?").wait_for()
        assert "tokens since turn 1" in pane.locator(".difference").inner_text()

        pane.get_by_role("link", name="What if").click()
        pane.get_by_label("Window in tokens").fill("8000")
        pane.get_by_role("button", name="Look").click()
        pane.get_by_text("8,000 instead of 100,000").wait_for()
        assert pane.locator(".messages > li").count() >= len(api.get(context).json()["messages"])

        pane.get_by_role("link", name="Trace").click()
        pane.locator(".span.of-model").wait_for()
        page.reload()
        pane.locator(".span.of-model").wait_for()
        assert page.url.endswith("view=trace")
        pane.get_by_role("link", name="Recall").click()
        pane.get_by_role("heading", name="Found now for the same words").wait_for()
        pane.get_by_role("heading", name="Weighed and left out").wait_for()
        pane.get_by_role("link", name="Follow-ups").click()
        pane.get_by_text("Nothing followed from this turn").or_(pane.get_by_text("Began with")).wait_for()
        pane.get_by_role("button", name="Close").click()
        pane.wait_for(state="detached")


def test_a_gateway_that_is_killed_in_mid_sentence_loses_no_word_of_anybody(
    browser: Any, tmp_path: Path
) -> None:
    with ScriptedOpenAI(script) as model:
        gateway = KilledGateway(tmp_path / "home", model)
        gateway.start()
        try:
            with visitor(browser, gateway) as page:
                log_in(page, gateway, "/")
                _said_across_a_death(page, gateway)
                _said_to_a_frozen_one(page, gateway)
                _opened_while_it_is_away(page, gateway)
        finally:
            gateway.kill()


def _said_across_a_death(page: Any, gateway: KilledGateway) -> None:
    page.get_by_role("link", name="Chat", exact=True).click()
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("list", name="With whom").get_by_role("button").first.click()
    say(page, "Count SLOWLY")
    page.locator(".streaming", has_text="one two").wait_for()
    gateway.kill()
    page.get_by_text("The connection to the gateway is down").wait_for()
    say(page, "And where does it leak?")
    page.get_by_text("Kept here; sent when the gateway is back.").wait_for()
    box = page.get_by_label("Message", exact=True)
    box.fill("Half a thou")
    page.get_by_role("link", name="Home", exact=True).click()
    page.get_by_text("One message is kept here").wait_for()
    page.go_back()
    assert box.input_value() == "Half a thou"
    gateway.start()
    page.locator(".answered", has_text="eleven twelve").wait_for()
    page.locator(".answered strong", has_text="elbow joint").wait_for()
    page.get_by_text("Kept here").first.wait_for(state="detached")
    assert box.input_value() == "Half a thou"
    log = page.request.get("/api/log").json()
    said = sorted(entry["content"] for entry in log if entry["agentId"] == "user")
    assert said == ["And where does it leak?", "Count SLOWLY"]


def _said_to_a_frozen_one(page: Any, gateway: KilledGateway) -> None:
    gateway.freeze()
    say(page, "Are you there?")
    page.get_by_text("The gateway is there and does not answer").wait_for()
    page.get_by_text("One message is kept here").wait_for()
    gateway.thaw()
    page.get_by_text("does not answer").wait_for(state="detached")
    page.locator(".turn", has_text="Are you there?").locator(".answered").wait_for()
    log = page.request.get("/api/log").json()
    assert sum(entry["content"] == "Are you there?" for entry in log) == 1


def _opened_while_it_is_away(page: Any, gateway: KilledGateway) -> None:
    """As an installed app: the files are there without the gateway, and what it said is not."""
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.wait_for_function("async () => (await (await caches.open('holdfast-shell')).keys()).length > 2")
    page.reload()
    page.locator(".turn", has_text="Are you there?").wait_for()
    gateway.kill()
    page.reload()
    page.get_by_text("The gateway cannot be reached.").wait_for()
    kept = page.evaluate("caches.open('holdfast-shell').then(c => c.keys()).then(k => k.map(r => r.url))")
    assert not [url for url in kept if "/api/" in url]
    gateway.start()
    page.locator(".turn", has_text="Are you there?").wait_for()


def test_a_chat_is_found_by_words_and_commands_are_completed_by_keyboard_alone(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    answered(api, "agent:other:main", "The walrus arrives on Tuesday.")
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/")
        page.keyboard.press("Control+k")
        page.get_by_placeholder("Go to a page").fill("walrus")
        page.get_by_role("option", name="The walrus arrives on Tuesday.").wait_for()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="The walrus arrives on Tuesday.").wait_for()
        page.get_by_role("button", name="Find in this chat").click()
        page.get_by_label("Search in this conversation").fill("WALRUS")
        page.get_by_text("1 found").wait_for()

        box = page.get_by_label("Message", exact=True)
        box.press_sequentially("/sta")
        page.get_by_role("option", name="/status").wait_for()
        page.keyboard.press("Tab")
        assert box.input_value() == "/status "
        page.keyboard.press("Enter")
        page.locator(".turn").nth(1).locator(".answered").wait_for()
        page.locator("main").focus()
        page.keyboard.press("?")
        page.get_by_role("heading", name="Keyboard shortcuts").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        page.keyboard.press("b")
        page.get_by_role("heading", name="Board", exact=True).wait_for()


def test_the_schedule_changes_tasks_and_heartbeats_and_its_agenda_cancels(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    task = api.post("/api/cron", json={"prompt": "Look at the pump", "every": "12h"}).json()
    key = "agent:main:web:dm:agenda"
    runs = api.post("/api/agent", json={"message": "STALL please", "sessionKey": key}).json()
    late = api.post("/api/agent", json={"message": "And then?", "sessionKey": key, "mode": "queue"}).json()
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/schedule")
        waits = page.get_by_role("row", name=f"Turn {key}").filter(has_text="waits")
        waits.get_by_role("button", name="Cancel").click()
        waits.get_by_role("group").get_by_role("button", name="Cancel").click()
        waits.wait_for(state="detached")
        assert api.get(f"/api/agent/{late['runId']}").json()["status"] == "cancelled"

        card = page.get_by_role("list", name="Standing tasks").get_by_role("article")
        card.get_by_role("button", name="Change").click()
        card.get_by_label("What to do").fill("Look at the well")
        card.get_by_label("When:").fill("every 6h")
        card.get_by_role("button", name="Save").click()
        card.get_by_text("every 6h").wait_for()
        changed = api.get("/api/cron").json()[0]
        assert (changed["prompt"], changed["schedule"]["every"]) == ("Look at the well", "6h")
        row = page.get_by_role("row").filter(has_text="Standing task")
        assert "waits" in row.inner_text()

        beat = page.get_by_role("list", name="Heartbeats").get_by_role("article").first
        beat.get_by_role("button", name="Change").click()
        beat.get_by_label("Every").fill("often")
        beat.get_by_role("button", name="Save").click()
        page.locator(".bad-toast").wait_for()
        beat.get_by_label("Every").fill("3h")
        beat.get_by_label("What it is told").fill("Look at the tides.")
        beat.get_by_label("From").fill("08:00")
        beat.get_by_role("button", name="Save").click()
        beat.get_by_text("every 3h").wait_for()
        beat.get_by_text("08:00 to 24:00").wait_for()
        beat.get_by_role("button", name="Switch off").click()
        beat.get_by_role("button", name="Switch on").wait_for()
        told = api.get("/api/heartbeat").json()[0]
        assert (told["every"], told["prompt"], told["enabled"]) == ("3h", "Look at the tides.", False)
        beat.get_by_role("button", name="Switch on").click()
        beat.get_by_text("every 3h").wait_for()
    reader = api.post("/api/tokens", json={"name": "looks-at-schedule", "scope": "read"}).json()
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/schedule", token=reader["token"])
        page.get_by_text("every 3h").wait_for()
        assert page.get_by_role("button", name="Change").count() == 0
        assert page.get_by_text("Look at the tides.").count() == 0
        assert page.get_by_role("heading", name="Agenda").count() == 0
    api.delete(f"/api/cron/{task['id']}")
    api.post(f"/api/agent/{runs['runId']}/cancel")


def test_a_standing_task_is_made_run_and_switched_off_and_what_was_used_is_added_up(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    with visitor(browser, gateway) as page:
        log_in(page, gateway, "/schedule")
        page.get_by_label("What to do").fill("Look at the pump")
        page.get_by_label("When:").fill("whenever")
        page.get_by_role("button", name="Schedule", exact=True).click()
        page.locator(".bad-toast").wait_for()
        assert api.get("/api/cron").json() == []
        page.get_by_label("When:").fill("every 12h")
        page.get_by_role("button", name="Schedule", exact=True).click()
        card = page.get_by_role("list", name="Standing tasks").get_by_role("article")
        card.get_by_role("button", name="Run now").click()
        wait_for_in(page, lambda: api.get("/api/cron").json()[0]["runs"] == 1)
        card.get_by_role("button", name="Switch off").click()
        card.get_by_role("button", name="Switch on").wait_for()
        task = api.get("/api/cron").json()[0]
        assert not task["enabled"]
        page.goto(f"/chat?session={quote(task['sessionKey'])}")
        page.get_by_text("A standing task ran").wait_for()
        assert f"{task['name']}: Look at the pump" in page.locator(".step").first.inner_text()
        chats = {chat["sessionKey"]: chat["title"] for chat in api.get("/api/chats").json()}
        assert chats[task["sessionKey"]] == f"{task['name']}: Look at the pump"
        assert page.get_by_text("You", exact=True).count() == 0
        go_to(page, "Usage")
        page.get_by_role("button", name="Model", exact=True).click()
        page.get_by_role("rowheader", name="scripted/scripted").wait_for()
        go_to(page, "Chains")
        page.get_by_role("heading", name="Chains").wait_for()


def test_a_slow_first_answer_comes_though_much_goes_on_and_is_asked_for_again(
    browser: Any, stage: tuple[Running, httpx.Client]
) -> None:
    gateway, api = stage
    held: list[Any] = []
    asked: list[str] = []
    is_slow = ["so"]
    with visitor(browser, gateway) as page:
        page.route("**/api/usage*", lambda route: held.append(route) if is_slow else route.continue_())
        page.on("request", lambda request: asked.append(request.url))
        log_in(page, gateway, "/usage")
        wait_for_in(page, lambda: bool(held))
        before = api.get("/api/usage").json()
        for _ in range(2):  # each begins and ends further apart than changes are gathered
            answered(api, "agent:main:busy", "Count SLOWLY")
            page.evaluate("0")
        times = sum("/api/usage" in url for url in asked)
        assert times <= 2, "it is given up when the live connection begins, and at no change"
        is_slow.clear()
        held[-1].fulfill(json=before)
        spent = sum(row["turns"] for row in api.get("/api/usage").json()["rows"])
        assert spent > sum(row["turns"] for row in before["rows"])
        page.get_by_role("row", name="All").filter(has_text=f"{spent:,}").wait_for()
