"""Logins: used like keys, refreshed before their end and when refused, once for all who share them."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from model_stage import Stage, run, stage

import forks
from builders import in_threads
from holdfast.agents.models import ModelFailure, logins
from holdfast.agents.models.logins import EARLY_MS, Logins, Tokens
from holdfast.cli.commands.login import by_hand
from holdfast.clock import ManualClock
from holdfast.config.models import OAuth
from holdfast.errors import Forbidden, InvalidInput
from holdfast.home import Home
from holdfast.testing import Asked, Say, ScriptedOpenAI, unauthorised
from oauth_server import OAuthServer

RACER = """
import sys, json
from pathlib import Path
from holdfast.agents.models.logins import Logins
from holdfast.clock import SystemClock
from holdfast.config.models import OAuth
from holdfast.home import Home
home, settings, refused = sys.argv[1:]
sys.stdin.readline()
logins = Logins(Home(Path(home)), SystemClock())
print(logins.renewed("p:login", OAuth.model_validate_json(settings), "p", refused).access)
"""


def served(folder: Path, model: ScriptedOpenAI, server: OAuthServer, **more: Any) -> Stage:
    provider = {"baseUrl": model.url, "api": model.api, "oauth": server.config, "models": [{"id": "m"}]}
    return stage(folder, {"models": {"providers": {"p": provider, **more}}})


def logged_in(made: Stage, server: OAuthServer, profile: str = "login") -> str:
    given = server.make()
    tokens = Tokens(given["access_token"], given["refresh_token"], given["expires_in"])
    made.models.credentials.logins.keep("p", profile, tokens)
    return tokens.access


def knows(server: OAuthServer) -> Any:
    """A model that answers only those who show a token that is good now."""

    def answer(asked: Asked) -> Any:
        shown = asked.headers.get("authorization", "").removeprefix("Bearer ")
        return Say("Yes.") if shown in server.granted else unauthorised()

    return answer


def test_a_login_is_used_as_a_bearer_and_refreshed_before_its_end(tmp_path: Path) -> None:
    with OAuthServer(lasts=3600) as server, ScriptedOpenAI(knows(server)) as model:
        made = served(tmp_path, model, server)
        first = logged_in(made, server)
        answered = run(made, lambda: made.answer("p/m"))
        assert (answered.reply.text, answered.attempts[-1].credential) == ("Yes.", "p:login")
        assert server.asked == []
        made.clock.advance(ms=3_600_000 - EARLY_MS)
        assert run(made, lambda: made.answer("p/m")).reply.text == "Yes."
        assert [form["grant_type"] for form in server.asked] == ["refresh_token"]
        (kept,) = made.models.credentials.logins.listing("p")
        assert kept.access in server.granted
        assert kept.access != first
        path = made.models.credentials.logins.path("p")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_refused_token_is_refreshed_once_and_the_call_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with OAuthServer() as server, ScriptedOpenAI(knows(server)) as model:
        made = served(tmp_path, model, server)
        logged_in(made, server)
        server.granted.clear()
        assert run(made, lambda: made.answer("p/m")).reply.text == "Yes."
        assert len(model.requests) == 2
        assert made.slept == []
        server.granted.clear()
        model_says_no = [*server.asked]
        server.down = True
        with pytest.raises(ModelFailure) as failed:
            run(made, lambda: made.answer("p/m"))
        assert failed.value.reason == "auth"
        assert len(server.asked) == len(model_says_no) + 1
        assert made.models.credentials.rest("p:login").resting(made.clock.now())
        (kept,) = made.models.credentials.logins.listing("p")
        assert kept.refreshable
        for secret in (kept.access, str(kept.refresh)):
            assert secret not in caplog.text
            assert secret not in repr(kept)
            assert secret not in str(failed.value)


def test_a_revoked_refresh_token_ends_the_login_and_the_next_credential_is_used(tmp_path: Path) -> None:
    with OAuthServer() as server, ScriptedOpenAI(knows(server)) as model:
        made = served(tmp_path, model, server)
        logged_in(made, server, "first")
        logged_in(made, server, "second")
        second = {*server.granted}
        server.forget_refresh()
        answered = run(made, lambda: made.answer("p/m"))
        assert [(a.credential, a.reason) for a in answered.attempts] == [
            ("p:first", "auth"),
            ("p:second", None),
        ]
        assert second == server.granted
        first = made.models.credentials.logins.listing("p")[0]
        assert first.refused
        assert len(server.asked) == 1
        made.clock.advance(hours=2)
        run(made, lambda: made.answer("p/m"))
        assert [form["refresh_token"][:9] for form in server.asked] == ["refresh-1", "refresh-2"]


def test_among_threads_and_processes_one_refreshes_and_the_token_on_disk_wins(tmp_path: Path) -> None:
    """The server takes each refresh token once: a second refresh with the same one would end the login."""
    with OAuthServer() as server:
        home = Home(tmp_path)
        home.prepare()
        settings = OAuth.model_validate(server.config)
        given = server.make()
        own = Logins(home, ManualClock())
        own.keep("p", "login", Tokens(given["access_token"], given["refresh_token"], 3600))
        told = json.dumps(server.config)
        command = [sys.executable, "-c", RACER, str(tmp_path), told, given["access_token"]]
        path = os.pathsep.join(sys.path)
        racers = [
            forks.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            )
            for _ in range(2)
        ]
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        logins = [Logins(home, ManualClock()) for _ in range(4)]
        here = in_threads(4, lambda n: logins[n].renewed("p:login", settings, "p", given["access_token"]))
        there = [racer.communicate(timeout=60)[0].strip() for racer in racers]
        assert {login.access for login in here if login is not None} | {*there} == server.granted
        assert len(server.asked) == 1
        assert not own.listing("p")[0].refused


def test_an_answer_for_another_login_is_not_taken_and_a_typed_code_is(tmp_path: Path) -> None:
    with OAuthServer() as server:
        settings = OAuth.model_validate(server.config)
        started = logins.start(settings, "http://127.0.0.1:9/callback")
        address = server.agree(started.url)
        other = logins.start(settings, "http://127.0.0.1:9/callback")
        with pytest.raises(Forbidden) as caught:
            logins.code_in(address, other)
        assert caught.value.code == "oauth_state"
        with pytest.raises(Forbidden):
            logins.code_in("code=abc", started)
        with pytest.raises(Forbidden):
            logins.code_in("abc#wrong-state", started, typed=True)
        code = logins.code_in(address, started)
        assert logins.code_in(code, started, typed=True) == code
        assert logins.code_in(f"{code}#{started.state}", started, typed=True) == code
        with pytest.raises(logins.OAuthRefused, match="invalid_grant"):
            logins.redeem(settings, other, code)
        again = logins.code_in(server.agree(started.url), started)
        assert logins.redeem(settings, started, again).access in server.granted
        with pytest.raises(logins.OAuthRefused, match="access_denied"):
            logins.code_in(f"error=access_denied&state={started.state}", started)


def test_tokens_travel_only_where_nobody_listens_and_names_stay_in_their_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="https"):
        OAuth.model_validate(
            {"tokenUrl": "http://example.org/t", "authorizationUrl": "https://x.org/a", "clientId": "c"}
        )
    with pytest.raises(ValueError, match="authorizationUrl or deviceUrl"):
        OAuth.model_validate({"tokenUrl": "https://example.org/t", "clientId": "c"})
    logins = Logins(Home(tmp_path), ManualClock())
    for name in ("../x", "", ".hidden", "a/b"):
        with pytest.raises(InvalidInput):
            logins.keep("p", name, Tokens("a"))
        with pytest.raises(InvalidInput):
            logins.path(name)


def test_a_login_asks_comes_back_and_ends_as_the_config_says() -> None:
    with OAuthServer() as server:
        own = {"clientSecret": "s3cret", "redirectPort": 45_671, "redirectPath": "/back"}
        settings = OAuth.model_validate(server.config | own)
        shown: list[str] = []

        def paste(address: str) -> str:
            shown.append(address)
            return server.agree(address)

        tokens = by_hand(settings, paste)
        asked = parse_qs(urlsplit(shown[0]).query)
        assert asked["redirect_uri"] == ["http://127.0.0.1:45671/back"]
        assert asked["scope"] == ["models offline"]
        assert server.asked[-1]["client_secret"] == "s3cret"
        logins.revoke(settings, tokens.access)
        assert server.revoked == [tokens.access]
