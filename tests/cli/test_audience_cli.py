"""Sharing, private surfaces and the spaces of sessions, from the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_stage import Run
from click.testing import Result

from builders import append, session
from holdfast.agents.approvals import audit
from holdfast.board import sharing, spaces, topics
from holdfast.log import OWNER, entries, for_group, sessions, surfaces
from holdfast.runtime import open_home

GROUP = "agent:main:discord:group:42"


@pytest.fixture
def made(run: Run, home: Path) -> dict[str, str]:
    """A space, a topic in it with a word under it, and a session of a group."""
    run("init")
    config = {"channels": {"discord": {"private": []}}}
    with open_home(home) as hold:
        hold.config.patch(config)
        with hold.store.write(OWNER) as tx:
            spaces.upsert(tx, "Garden")
            topic = topics.upsert(tx, "valves", space_id="space-garden").topic.id
        entry = append(hold.store, "the valve leaks", topic_id=topic, space_id="space-garden").id
        session(hold.store, GROUP)
    return {"topic": topic, "entry": entry}


def body(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_token_for_a_space_shares_what_comes_and_says_so(
    run: Run, home: Path, made: dict[str, str]
) -> None:
    told = run("tokens", "add", "guest", "--space", "space-garden")
    assert told.exit_code == 0
    assert told.stdout.count("\n") == 1
    assert "Shared from now on: what is put into space-garden" in told.stderr
    assert "stays yours until you share it" in told.stderr
    with open_home(home) as hold, hold.store.read(OWNER) as tx:
        assert sharing.is_shared(tx, "space-garden")
        assert entries.get(tx, made["entry"]).audience == "owner"
    unknown = run("tokens", "add", "other", "--space", "space-none")
    assert unknown.exit_code == 2
    assert "space-none" in unknown.stderr
    assert "Shared" not in run("tokens", "add", "whole").stderr


def test_things_are_shared_and_stand_in_the_trail(run: Run, home: Path, made: dict[str, str]) -> None:
    space = "space:space-garden"
    entry = body(run("board", "share", "entry", made["entry"], "--with", space, "--json"))
    assert (entry["before"], entry["audience"]) == ("owner", space)
    topic = run("board", "share", "topic", made["topic"], "--with", space, "--entries")
    assert topic.stdout == f"topic {made['topic']}: owner -> {space}; 0 entries.\n"
    wider = run("board", "share", "session", GROUP, "--with", "anyone")
    assert wider.exit_code == 0, wider.output
    assert f"read by  {space}" in run("board", "topics", made["topic"]).stdout
    with open_home(home) as hold, hold.store.read(OWNER) as tx:
        trail = audit.listing(tx)
        assert sessions.find(tx, GROUP).audience == "anyone"
    assert [(one.event, one.actor) for one in trail] == [("shared", "cli")] * 3
    assert trail[-1].reason == f"owner -> {space}, 1 entries"
    for wrong in (
        ("entry", made["entry"], "--with", "owner"),
        ("entry", "log-none", "--with", space),
        ("entry", made["entry"], "--with", "everybody"),
        ("entry", made["entry"], "--with", space, "--entries"),
    ):
        assert run("board", "share", *wrong).exit_code == 2


def test_a_session_is_put_into_a_space_and_taken_out(run: Run, made: dict[str, str]) -> None:
    assert body(run("sessions", "space", GROUP, "space-garden", "--json"))["spaceId"] == "space-garden"
    assert run("sessions", "space", GROUP, "--none").stdout == f"{GROUP} is in no space now.\n"
    for wrong in ((GROUP,), (GROUP, "space-garden", "--none"), (GROUP, "space-none"), ("nobody", "--none")):
        assert run("sessions", "space", *wrong).exit_code == 2


def test_what_a_session_would_get_is_read_as_its_surface(run: Run, made: dict[str, str]) -> None:
    for command in (["board", "search", "valve"], ["board", "context", "valve", "--mode", "full"]):
        assert run(*command, "--session", GROUP).exit_code == 0
    assert run("memory", "search", "valve", "--session", GROUP).exit_code == 0


class TestPrivateSurfaces:
    def test_one_is_declared_and_taken_back(self, run: Run, home: Path, made: dict[str, str]) -> None:
        assert run("channels", "private", "discord", "42").stdout == "discord 42 is yours alone.\n"
        assert body(run("channels", "private", "discord", "*", "--json"))["private"] == ["42", "*"]
        listed = {one["name"]: one for one in body(run("channels", "list", "--json"))}["discord"]
        assert (listed["private"], listed["exposed"]) == (["42", "*"], [])
        assert "42, *" in run("channels", "list").stdout
        with open_home(home) as hold:
            assert hold.settings.is_private("discord", "7")
        for id_ in ("42", "*"):
            assert run("channels", "private", "discord", id_, "--remove").exit_code == 0
        with open_home(home) as hold:
            assert not hold.settings.is_private("discord", "42")
        for wrong in (("discord", "42", "--remove"), ("no such", "42"), ("a:b", "42")):
            assert run("channels", "private", *wrong).exit_code == 2

    def test_the_channel_may_be_another_programs(self, run: Run, home: Path, made: dict[str, str]) -> None:
        assert run("channels", "private", "elsewhere", "42").exit_code == 0
        with open_home(home) as hold:
            assert hold.settings.is_private("elsewhere", "42")

    def test_one_in_which_others_write_is_told_of_until_it_is_claimed_again(
        self, run: Run, home: Path, made: dict[str, str]
    ) -> None:
        run("channels", "private", "discord", "42")
        assert ("surfaces", "ok") in levels(run)
        with open_home(home) as hold, hold.store.write(OWNER) as tx:
            surfaces.expose(tx, for_group("discord", None, "42"), "mallory")
            surfaces.expose(tx, for_group("discordia", None, "42"), "somebody")
        listed = {one["name"]: one for one in body(run("channels", "list", "--json"))}["discord"]
        assert [(one["id"], one["sender"]) for one in listed["exposed"]] == [("42", "mallory")]
        assert "discord 42 is read by others: mallory wrote there" in run("channels", "list").stdout
        assert ("surfaces", "warn") in levels(run)
        assert "discord 42 is private no longer: mallory wrote there" in run("doctor").stdout
        run("channels", "private", "discord", "*")
        assert ("surfaces", "warn") in levels(run), "a star claims nothing that others were seen in"
        run("channels", "private", "discord", "42")
        assert body(run("channels", "list", "--json"))[0]["exposed"] == []
        assert ("surfaces", "ok") in levels(run)


def levels(run: Run) -> set[tuple[str, str]]:
    return {(row["check"], row["level"]) for row in json.loads(run("doctor", "--json").stdout)}


def test_a_group_is_given_to_a_team_and_taken_back(run: Run, home: Path, made: dict[str, str]) -> None:
    run("teams", "add", "crew", "--agent", "main")
    assert run("teams", "channel", "crew", "discord:channel:42").exit_code == 0
    [team] = body(run("teams", "list", "--json"))
    assert team["channels"] == [{"address": "discord:channel:42", "exposed": False}]
    with open_home(home) as hold, hold.store.write(OWNER) as tx:
        assert surfaces.group_heard(tx, for_group("discord", None, "42"), declared=False) == "space:team-crew"
        surfaces.expose(tx, for_group("discord", None, "42"), "somebody")
    assert "discord:channel:42 (others write there)" in run("teams", "list").stdout
    assert run("teams", "channel", "crew", "discord:dm:42").exit_code == 2
    assert run("teams", "channel", "crew", "discord:channel:42", "--remove").exit_code == 0
    assert body(run("teams", "list", "--json"))[0]["channels"] == []
