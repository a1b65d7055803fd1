"""Config and skills in the store: two gateways on one database, and the terminal beside them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import httpx
import pytest
from browsing import axe_violations, chromium, log_in, visitor, write_in
from click.testing import CliRunner, Result
from serving import Running, assert_problem, make_token, running, wait_for

from holdfast.cli.root import cli
from holdfast.log import sqlite_url
from holdfast.runtime import open_home

SKILL = "---\nname: minutes\ndescription: {about}\n---\n\n# Notes\n{body}\n"


class Pair:
    """Two homes with nothing in their files but where the config lies, and a client of each gateway."""

    def __init__(self, first: Running, second: Running) -> None:
        self.gateways = (first, second)
        self.one = first.client(first.admin)
        self.two = second.client(second.admin)

    def zones(self) -> list[str | None]:
        return [found.hold.settings.agents.defaults.user_timezone for found in self.gateways]

    def about(self, name: str) -> list[str | None]:
        found = (
            [one for one in api.get("/api/skills").json() if one["name"] == name] for api in self.clients
        )
        return [one[0]["description"] if one else None for one in found]

    @property
    def clients(self) -> tuple[httpx.Client, httpx.Client]:
        return self.one, self.two


@pytest.fixture
def pair(store_url: str, tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as opened:
        found = []
        for name in ("one", "two"):
            home = tmp_path / name
            home.mkdir()
            (home / "holdfast.json").write_text(json.dumps({"config": {"source": "store"}}))
            hold = opened.enter_context(open_home(home, store_url=store_url))
            found.append(opened.enter_context(running(hold)))
        pair = Pair(*found)
        for client in pair.clients:
            opened.enter_context(client)
        yield pair


def test_what_one_gateway_changes_the_other_takes_up_and_either_goes_back(pair: Pair) -> None:
    zone = {"agents": {"defaults": {"userTimezone": "Europe/Berlin"}}}
    assert pair.one.patch("/api/config", json=zone).status_code == 200
    wait_for(lambda: pair.zones() == ["Europe/Berlin"] * 2)
    text = pair.two.get("/api/config/text").json()["text"]
    edited = text.replace("Europe/Berlin", "Asia/Tokyo")
    saved = pair.two.put("/api/config/text", json={"text": edited, "before": text})
    assert saved.status_code == 200
    wait_for(lambda: pair.zones() == ["Asia/Tokyo"] * 2)
    late = pair.one.put("/api/config/text", json={"text": "{}", "before": text})
    assert_problem(late, 409, "config_changed")
    bad = pair.two.patch("/api/config", json={"agents": {"defaults": {"maxConcurrent": -1}}})
    assert_problem(bad, 422, "invalid_config")
    assert "agents.defaults.maxConcurrent" in bad.json()["detail"]
    assert pair.zones() == ["Asia/Tokyo"] * 2

    found = pair.one.get("/api/config/versions").json()
    assert found["shared"]
    assert [(one["version"], one["what"]) for one in found["versions"]] == [(2, "as text"), (1, "agents")]
    assert {(one["by"], one["surface"]) for one in found["versions"]} == {("token:home", "api")}
    second = pair.one.get("/api/config/versions/2").json()
    assert '-      "userTimezone": "Europe/Berlin"' in second["diff"]
    assert '+      "userTimezone": "Asia/Tokyo"' in second["diff"]
    assert pair.two.post("/api/config/versions/1/rollback").json()["version"] == 3
    wait_for(lambda: pair.zones() == ["Europe/Berlin"] * 2)
    assert_problem(pair.one.post("/api/config/versions/9/rollback"), 404, "unknown_version")
    trail = pair.one.get("/api/audit/trail", params={"act": "config.changed"}).json()
    assert [act["details"]["version"] for act in trail] == ["3", "2", "1"]


def test_a_secret_in_clear_is_refused_and_what_is_a_gateway_s_own_stays_in_its_file(pair: Pair) -> None:
    channel = {"url": "${PIER_URL}", "signingSecret": "hunter2-hunter2"}
    refused = pair.one.patch("/api/config", json={"channels": {"pier": channel}})
    assert_problem(refused, 422, "invalid_config")
    assert "channels.pier.signingSecret" in refused.json()["detail"]
    assert "hunter2" not in refused.text
    named = channel | {"signingSecret": "${PIER_SECRET}"}
    assert pair.one.patch("/api/config", json={"channels": {"pier": named}}).status_code == 200
    wait_for(lambda: all("pier" in found.hold.settings.channels for found in pair.gateways))
    assert pair.one.get("/api/config/text").json()["restart"] == []
    assert pair.one.patch("/api/config", json={"agenda": {"leaseSeconds": 90}}).status_code == 200
    wait_for(lambda: pair.two.get("/api/config/text").json()["restart"] == ["agenda.leaseSeconds"])
    assert pair.one.patch("/api/config", json={"logging": {"level": "error"}}).status_code == 200
    first, second = (found.hold for found in pair.gateways)
    assert (first.settings.logging.level, second.settings.logging.level) == ("error", "info")
    assert json.loads(first.home.config.read_text())["logging"] == {"level": "error"}
    text = pair.two.get("/api/config/text").json()["text"]
    both = pair.two.put("/api/config/text", json={"text": '{"gateway": {"port": 1}}', "before": text})
    assert_problem(both, 422, "invalid_config")
    assert "gateway" in both.json()["detail"]
    assert len(pair.two.get("/api/config/versions").json()["versions"]) == 2


def test_two_who_write_at_once_lose_nothing_of_each_other(pair: Pair) -> None:
    def patch(client: httpx.Client, who: str) -> None:
        for n in range(3):
            entry = {f"{who}{n}": {"enabled": False}}
            assert client.patch("/api/config", json={"skills": {"entries": entry}}).status_code == 200

    writers = [
        Thread(target=patch, args=(client, who)) for client, who in zip(pair.clients, "ab", strict=True)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    names = {f"{who}{n}" for who in "ab" for n in range(3)}
    wait_for(lambda: all(set(found.hold.settings.skills.entries) == names for found in pair.gateways))
    listed = pair.one.get("/api/config/versions").json()["versions"]
    assert [one["version"] for one in listed] == [6, 5, 4, 3, 2, 1]


def test_an_edit_of_a_skill_writes_over_nothing_that_was_published_meanwhile(pair: Pair) -> None:
    """Two who edit other files at once both have theirs in the end; who read an older version is told."""
    path = "/api/skills/versions/minutes"
    first = {"SKILL.md": SKILL.format(about="Of talks", body="")}
    assert pair.one.put(path, json={"files": first, "read": 0}).status_code == 200

    def edit(api: httpx.Client, name: str) -> None:
        for number in range(4):
            assert api.put(path, json={"files": {f"{name}{number}.md": name}}).status_code == 200

    both = [Thread(target=edit, args=(api, name)) for api, name in ((pair.one, "a"), (pair.two, "b"))]
    for one in both:
        one.start()
    for one in both:
        one.join()
    newest = pair.one.get(f"{path}/9").json()
    assert set(newest["files"]) == {
        "SKILL.md",
        *(f"{name}{number}.md" for name in "ab" for number in range(4)),
    }
    late = pair.two.put(path, json={"files": {"SKILL.md": SKILL.format(about="Late", body="")}, "read": 8})
    assert_problem(late, 409, "skill_changed")
    assert pair.two.put(path, json={"files": {"a0.md": None}, "read": 9}).json()["version"] == 10


def test_a_skill_of_the_store_is_every_gateway_s_and_goes_back_and_away(pair: Pair) -> None:
    def put(about: str, body: str = "Write it down.") -> httpx.Response:
        files = {"SKILL.md": SKILL.format(about=about, body=body), "scripts/list.sh": "ls\n"}
        return pair.one.put("/api/skills/versions/minutes", json={"files": files})

    assert put("Keeping notes").json()["version"] == 1
    wait_for(lambda: pair.about("minutes") == ["Keeping notes"] * 2)
    assert put("Keeping better notes").json()["version"] == 2
    wait_for(lambda: pair.about("minutes") == ["Keeping better notes"] * 2)
    assert put("Keeping better notes").json()["version"] == 2
    shown = next(one for one in pair.two.get("/api/skills").json() if one["name"] == "minutes")
    assert shown["tier"] == "store"
    folder = Path(shown["location"]).parent
    assert (folder / "scripts" / "list.sh").read_text() == "ls\n"
    told = pair.two.get("/api/skills/versions/minutes/2").json()
    assert "-description: Keeping notes" in told["diff"]
    assert set(told["files"]) == {"SKILL.md", "scripts/list.sh"}

    for files, why in (
        ({"SKILL.md": "---\nname: other\ndescription: x\n---\n"}, "not 'minutes'"),
        ({"SKILL.md": "no head"}, "no frontmatter"),
        ({"../out.sh": "x"}, "not a name"),
        ({"SKILL.md": None}, "SKILL.md"),
    ):
        refused = pair.one.put("/api/skills/versions/minutes", json={"files": files})
        assert (refused.status_code, why in refused.json()["detail"]) == (422, True), refused.text

    assert pair.two.post("/api/skills/versions/minutes/1/rollback").json()["version"] == 3
    wait_for(lambda: pair.about("minutes") == ["Keeping notes"] * 2)
    assert pair.two.delete("/api/skills/versions/minutes").json()["removed"]
    wait_for(lambda: pair.about("minutes") == [None] * 2)
    assert not folder.exists()
    assert_problem(pair.one.delete("/api/skills/versions/minutes"), 404, "unknown_skill")
    listed = pair.one.get("/api/skills/versions", params={"name": "minutes"}).json()["versions"]
    assert [one["what"] for one in listed][:2] == ["taken away", "back to version 1"]
    acts = pair.one.get("/api/audit/trail", params={"act": "skill"}).json()
    assert [act["act"] for act in acts] == ["skill.withdrawn", *["skill.published"] * 3]


def test_the_pages_show_what_each_version_changed_and_go_back(tmp_path: Path, sqlite_template: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.json").write_text('{"config": {"source": "store"}}')
    url = sqlite_url(shutil.copy(sqlite_template, home))
    with (
        open_home(home, store_url=url) as hold,
        running(hold) as gateway,
        gateway.client(gateway.admin) as api,
        chromium() as browser,
        visitor(browser, gateway) as page,
    ):
        for most in (7, 9):
            assert api.patch("/api/config", json={"cron": {"maxJobs": most}}).status_code == 200
        files = {"SKILL.md": SKILL.format(about="Keeping notes", body="x")}
        assert api.put("/api/skills/versions/minutes", json={"files": files}).status_code == 200
        log_in(page, gateway, "/settings/text")
        page.get_by_text("History, 2 versions").click()
        page.get_by_role("listitem").filter(has_text="1 cron").locator("summary").click()
        page.get_by_text('+    "maxJobs": 7').wait_for()
        assert axe_violations(page) == []
        page.get_by_role("button", name="Roll back").click()
        page.get_by_role("group", name="Make version 1 the newest").get_by_text("Roll back").click()
        page.get_by_text("History, 3 versions").wait_for()
        assert hold.settings.cron.max_jobs == 7
        page.goto("/agents/main")
        page.get_by_text("History, 1 version").click()
        page.get_by_role("list", name="Versions").get_by_text("SKILL.md").wait_for()
        page.get_by_text("Edit", exact=True).click()
        field = page.get_by_label("Text of SKILL.md")
        write_in(field, files["SKILL.md"] + "\nSay who was there.\n")
        assert axe_violations(page) == []
        page.get_by_role("button", name="Save").click()
        page.get_by_text("History, 2 versions").wait_for()
        saved = api.get("/api/skills/versions/minutes/2").json()
        assert "+Say who was there." in saved["diff"]
        again = {"files": {"SKILL.md": files["SKILL.md"]}, "read": 2}
        assert api.put("/api/skills/versions/minutes", json=again).json()["version"] == 3
        write_in(field, "---\nname: minutes\n---\nMine.\n")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("button", name="Keep my text, compare").click()
        page.get_by_text("What you changed").wait_for()


def test_only_who_may_change_the_config_sees_its_versions(gateway: Running) -> None:
    """And where it lies in files there are none."""
    with gateway.client(gateway.admin) as api:
        assert api.get("/api/config/versions").json() == {"shared": False, "versions": []}
        assert_problem(api.post("/api/config/versions/1/rollback"), 409, "config_in_files")
        put = api.put("/api/skills/versions/minutes", json={"files": {"SKILL.md": "x"}})
        assert_problem(put, 409, "config_in_files")
    with gateway.client(make_token(gateway.hold.store, "w")) as writer:
        assert_problem(writer.get("/api/config/versions"), 403, "forbidden")
        assert_problem(writer.get("/api/skills/versions"), 403, "forbidden")


def _run(home: Path, *args: str, **more: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), *args], **more)  # type: ignore[arg-type]


def _said(home: Path, *args: str, **more: str) -> str:
    found = _run(home, *args, **more)
    assert found.exit_code == 0, found.output
    return str(found.stdout)


def test_at_the_terminal_a_home_moves_in_goes_back_and_moves_out(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", store_url)
    one, two = tmp_path / "one", tmp_path / "two"
    for home in (one, two):
        home.mkdir()
    text = "{\n  // how long\n  cron: { maxJobs: 7 },\n  gateway: { port: 0 },\n}\n"
    (one / "holdfast.json").write_text(text)
    (two / "holdfast.json").write_text('{"cron": {"maxJobs": 9}}')
    refused = _run(one, "config", "history")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    _said(one, "config", "use", "store")
    own = (one / "holdfast.json").read_text()
    assert ("cron" in own, "port: 0" in own) == (False, True)
    assert (one / "holdfast.json.bak").read_text() == text
    assert "// how long" in _said(one, "config", "show")

    taken = _run(two, "config", "use", "store")
    assert (taken.exit_code, "version 1 by owner" in taken.stderr) == (2, True)
    _said(two, "config", "use", "store", "--take")
    assert "maxJobs: 7" in _said(two, "config", "export")
    _said(two, "agents", "add", "clerk")
    assert "clerk" in _said(one, "config", "show", "--version", "2")
    _said(one, "config", "import", "-", input='{"cron": {"maxJobs": 3}, "gateway": {"port": 5}}')
    rows = json.loads(_said(two, "config", "history", "--json"))
    assert [(row["version"], row["surface"]) for row in rows] == [(3, "cli"), (2, "cli"), (1, "cli")]
    assert "clerk" in _said(two, "config", "diff", "3")
    assert json.loads(_said(two, "config", "rollback", "2", "--json")) == {"version": 4}
    with open_home(one) as hold:
        assert (hold.settings.cron.max_jobs, hold.settings.gateway.port) == (7, 0)

    skill = tmp_path / "minutes"
    skill.mkdir()
    (skill / "SKILL.md").write_text(SKILL.format(about="Keeping notes", body="x"))
    assert "version 1" in _said(one, "skills", "publish", str(skill))
    with open_home(two):
        assert "store" in _said(two, "skills", "list")
    assert json.loads(_said(two, "skills", "withdraw", "minutes", "--json"))["version"] == 2
    assert json.loads(_said(one, "skills", "rollback", "minutes", "1", "--json"))["version"] == 3
    assert "+description: Keeping notes" in _said(one, "skills", "diff", "minutes", "3")
    assert len(json.loads(_said(one, "skills", "history", "minutes", "--json"))) == 3

    _said(one, "config", "use", "files")
    assert "maxJobs: 7" in (one / "holdfast.json").read_text()
    with open_home(one) as hold:
        assert (hold.settings.config.source, hold.settings.gateway.port) == ("files", 0)
    stray = json.loads((two / "holdfast.json").read_text()) | {"cron": {"maxJobs": 1}}
    (two / "holdfast.json").write_text(json.dumps(stray))
    wrong = _run(two, "agents", "list")
    assert (wrong.exit_code, "cron: lies in the store" in wrong.stderr) == (2, True)
