"""`holdfast channels add`: what a service needs is asked for and tried before anything is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from discord_server import TOKEN as DISCORD_TOKEN
from service_stage import opened
from telegram_server import TOKEN, TelegramServer

from holdfast.cli.root import cli


def add(home: Path, *arguments: str, answers: str = "") -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), "channels", "add", *arguments], input=answers)


def channels(home: Path) -> dict[str, object]:
    path = home / "holdfast.json"
    return json.loads(path.read_text()).get("channels", {}) if path.exists() else {}


def test_a_service_is_asked_for_what_it_needs_tried_and_written(home: Path, tmp_path: Path) -> None:
    with opened("telegram", tmp_path) as service:
        assert isinstance(service, TelegramServer)
        where = ("--option", f"apiUrl={service.url}")
        done = add(home, "telegram", *where, "--owner", "7", answers=f"{TOKEN}\n")
        assert done.exit_code == 0, done.output
        assert "@kelp_bot" in done.output
        assert TOKEN not in done.output
        options = {"apiUrl": service.url, "botToken": TOKEN}
        assert channels(home) == {"telegram": {"options": options, "owners": ["7"]}}
        again = add(home, "telegram", *where, "--account", "work", "--name", "tg", answers=f"{TOKEN}\n")
        assert again.exit_code == 0
        assert channels(home)["tg"] == {"adapter": "telegram", "accounts": {"work": {"options": options}}}


def test_discord_is_asked_for_its_token_and_tried(home: Path, tmp_path: Path) -> None:
    with opened("discord", tmp_path) as service:
        api = service.channel()["options"]["apiUrl"]
        done = add(home, "discord", "--option", f"apiUrl={api}", answers=f"{DISCORD_TOKEN}\n")
        assert done.exit_code == 0, done.output
        assert "kelp" in done.output
        assert channels(home) == {"discord": {"options": {"apiUrl": api, "botToken": DISCORD_TOKEN}}}
        wrong = add(home, "discord", "--option", f"apiUrl={api}", "--name", "other", answers="wrong\n")
        assert wrong.exit_code != 0
        assert "token is not good" in wrong.output
        assert "other" not in channels(home)


def test_what_cannot_connect_is_told_and_nothing_is_written(home: Path, tmp_path: Path) -> None:
    with opened("telegram", tmp_path) as service:
        assert isinstance(service, TelegramServer)
        service.token_is_good = False
        done = add(home, "telegram", "--option", f"apiUrl={service.url}", answers=f"{TOKEN}\n")
    assert done.exit_code != 0
    assert "token is not good" in done.output
    assert channels(home) == {}


@pytest.mark.parametrize(
    ("arguments", "said"), [(["pigeon"], "no service"), (["telegram", "--option", "x"], "not an option")]
)
def test_what_is_asked_wrongly_is_told_in_a_line(home: Path, arguments: list[str], said: str) -> None:
    done = add(home, *arguments)
    assert done.exit_code == 2
    assert said in done.output
