"""One home, one store: what `up --store` says is kept, and every command finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from sqlalchemy.engine import make_url

from holdfast.cli.client import announced
from holdfast.cli.commands.store import keep_store, same_store
from holdfast.config import SecretUrl, load_config
from holdfast.errors import Conflict
from holdfast.home import Home
from holdfast.log import OWNER, EntryDraft, entries, sqlite_url
from holdfast.runtime import configured_url, open_home

Run = Callable[..., Result]


@pytest.fixture
def up(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`holdfast up` whose gateway stops as soon as it would serve; `meanwhile` is called in between."""

    def start(*args: object, meanwhile: Callable[[], None] = lambda: None) -> Result:
        def serve(hold: Any, sock: Any) -> None:
            sock.close()
            meanwhile()

        monkeypatch.setattr("holdfast.gateway.server.serve", serve)
        return run("up", "--port", "0", *args)

    return start


def say(home: Path, text: str, url: str | None = None) -> None:
    with open_home(home, store_url=url) as hold, hold.store.write(OWNER) as tx:
        entries.append(tx, EntryDraft(content=text, session_key="agent:main:main"))


def test_the_store_that_up_was_given_is_every_commands_from_then_on(
    up: Run, run: Run, home: Path, tmp_path: Path
) -> None:
    """It was forgotten, and the next command began a second log beside it."""
    elsewhere = tmp_path / "elsewhere.db"
    started = up("--store", elsewhere)
    assert started.exit_code == 0, started.output
    assert "elsewhere.db" in started.output
    say(home, "told to the one store")
    assert not (home / "holdfast.db").exists()
    told = json.loads(run("status", "--json").output)
    assert "elsewhere.db" in told["store"]["url"]
    assert "/* Models." in (home / "holdfast.json").read_text(), "comments are kept"
    assert "(kept in" not in up("--store", elsewhere).output, "once is enough"
    assert up().exit_code == 0
    assert not (home / "holdfast.db").exists()


def test_a_store_that_is_left_with_data_is_told_with_the_way_to_take_it_along(
    up: Run, run: Run, home: Path, tmp_path: Path
) -> None:
    say(home, "do not leave me behind")
    other = tmp_path / "other.db"
    refused = up("--store", other)
    assert refused.exit_code == 2
    assert "store copy" in refused.output
    assert not other.exists()
    assert load_config(home / "holdfast.json").store.url is None
    assert run("store", "copy", home / "holdfast.db", other).exit_code == 0
    moved = up("--store", other)
    assert moved.exit_code == 0, moved.output
    with open_home(home) as hold, hold.store.read(OWNER) as tx:
        assert str(hold.store.url.database) == str(other)
        assert entries.head(tx) == 1


@pytest.mark.parametrize(
    ("wrong", "code"), [("mysql://x/y", 2), ("  ", 2), ("postgresql+psycopg://a:s3cr3t@127.0.0.1:1/x", 1)]
)
def test_what_is_no_address_or_cannot_be_reached_makes_no_home(
    up: Run, home: Path, wrong: str, code: int
) -> None:
    refused = up("--store", wrong)
    assert refused.exit_code == code
    assert "s3cr3t" not in refused.output
    assert not home.exists()


def with_password(url: str, password: str) -> str:
    """The server of the tests asks for none, and takes any."""
    return (
        make_url(url)
        .set(password="PASSWORD")
        .render_as_string(hide_password=False)
        .replace("PASSWORD", password)
    )


def test_a_password_is_kept_apart_and_shown_nowhere_with_postgres(
    home: Path, run: Run, postgres_url: str
) -> None:
    place = Home(home)
    told = keep_store(place, with_password(postgres_url, "s3cr3t%21"))
    assert told is not None
    assert "s3cr3t" not in told
    assert ":***@" in told
    secret = place.credentials / "store_password"
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("s3cr3t!\n", 0o600)
    assert "s3cr3t" not in place.config.read_text()
    assert make_url(configured_url(place, load_config(place.config), {})).password == "s3cr3t!"
    for command in (["status"], ["status", "--json"], ["doctor"]):
        assert "s3cr3t" not in run(*command).output
    assert json.loads(run("status", "--json").output)["store"]["engine"] == "postgresql"


def test_a_reference_to_the_environment_is_kept_as_it_is_with_postgres(
    home: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    place = Home(home)
    monkeypatch.setenv("LOG_PASSWORD", "s3cr3t")
    url = with_password(postgres_url, "${LOG_PASSWORD}")
    keep_store(place, url)
    assert load_config(place.config).store.url == SecretUrl(url)
    assert not (place.credentials / "store_password").exists()


def test_what_a_running_gateway_uses_is_what_commands_see(run: Run, home: Path, tmp_path: Path) -> None:
    """As after `HOLDFAST_STORE=… holdfast up` in another shell: nothing of it is in the config."""
    there = sqlite_url(tmp_path / "there.db")
    say(home, "only there", there)
    with announced(Home(home), "http://127.0.0.1:9", there):
        assert "there.db" in json.loads(run("status", "--json").output)["store"]["url"]
        found = {one["check"]: one for one in json.loads(run("doctor", "--json").output)}
        assert found["store"]["level"] == "ok"
    masked = "postgresql+psycopg://holdfast:***@localhost:1/log"
    with announced(Home(home), "http://127.0.0.1:9", masked):
        refused = run("sessions", "list")
        assert refused.exit_code == 2
        assert masked in refused.output
        assert "HOLDFAST_STORE" in refused.output
        told = run("doctor").output
        assert "there is no store yet" not in told
        assert masked in told
    assert not (home / "holdfast.db").exists()


def test_what_only_the_environment_named_is_not_begun_anew_without_it(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = sqlite_url(tmp_path / "there.db")
    say(home, "only there", there)
    with monkeypatch.context() as shell:
        shell.setenv("HOLDFAST_STORE", there)
        with announced(Home(home), "http://127.0.0.1:9", there):
            pass
        assert run("status").exit_code == 0
    assert run("sessions", "list").exit_code == 2
    assert not (home / "holdfast.db").exists()


def test_postgresql_by_up_is_postgresql_for_all(
    up: Run, run: Run, home: Path, emptied: Callable[[], str]
) -> None:
    started = up("--store", emptied())
    assert started.exit_code == 0, started.output
    assert json.loads(run("status", "--json").output)["store"]["engine"] == "postgresql"
    found = {one["check"]: one for one in json.loads(run("doctor", "--json").output)}
    assert found["store"]["level"] == "ok"
    assert not (home / "holdfast.db").exists()
    say(home, "so that there is something to leave")
    with pytest.raises(Conflict):
        keep_store(Home(home), str(home / "second.db"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql+psycopg://a:x@h/db", "postgresql+psycopg://b@h:5432/db", True),
        ("postgresql+psycopg://a@h/db", "postgresql+psycopg://a@h/other", False),
        ("postgresql+psycopg://a@h/db", "sqlite:////tmp/db", False),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/../tmp/a.db", True),
    ],
)
def test_addresses_are_compared_by_where_they_lead(one: str, other: str, same: bool) -> None:
    assert same_store(one, other) is same
