"""`holdfast login` and `logout` against a real OAuth server: a page, a pasted address, a device code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from cli_stage import Run

from builders import PATIENCE
from oauth_server import OAuthServer


@pytest.fixture
def server() -> Any:
    with OAuthServer() as found:
        yield found


def configured(home: Path, **oauth: Any) -> None:
    home.mkdir()
    provider = {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "m"}], "oauth": oauth}
    config = {"models": {"providers": {"web": provider}}, "agents": {"defaults": {"model": "web/m"}}}
    (home / "holdfast.json").write_text(json.dumps(config))


def kept(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "credentials/logins/web.json").read_text())["logins"]
    return found


def test_a_page_that_comes_back_logs_in_and_one_with_another_state_does_not(
    run: Run, home: Path, server: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(home, **server.config)
    strays: list[int] = []

    def visit(address: str) -> int:
        """A browser: first a stranger's answer, then the real one."""
        import threading

        target = server.agree(address)
        wrong = target.split("state=")[0] + "state=somebody-elses"

        def go() -> None:
            with httpx.Client(trust_env=False, timeout=PATIENCE) as browser:
                strays.append(browser.get(wrong).status_code)
                strays.append(browser.get(target).status_code)

        threading.Thread(target=go, daemon=True).start()
        return 0

    monkeypatch.setattr(click, "launch", visit)
    result = run("login", "web")
    assert result.exit_code == 0, result.output
    assert "Logged in as web:login." in result.output
    assert strays[0] == 400
    assert [form["grant_type"] for form in server.asked] == ["authorization_code"]
    access = kept(home)["web:login"]["access"]
    assert access in server.granted
    assert access not in result.output
    assert "web:login: logged in" in run("login").output
    assert "web:login: logged in" in run("doctor").output
    assert "Logged out of web:login." in run("logout", "web").output
    assert server.revoked
    assert not (home / "credentials/logins/web.json").exists()
    assert run("login").output == "Nobody is logged in.\n"
    assert run("logout", "web").exit_code != 0


def test_without_a_browser_the_pasted_address_will_do_and_nothing_is_shown_of_it(
    run: Run, home: Path, server: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(home, **server.config)
    shown: list[str] = []

    def paste(text: str, **_: Any) -> str:
        return server.agree(shown[-1].split("Visit ", 1)[1])

    echo = click.echo
    monkeypatch.setattr(
        click, "echo", lambda text="", **more: (shown.append(str(text)), echo(text, **more))[1]
    )
    monkeypatch.setattr(click, "prompt", paste)
    result = run("login", "web", "--no-browser", "--profile", "work")
    assert result.exit_code == 0, result.output
    assert kept(home)["web:work"]["access"] in server.granted
    monkeypatch.setattr(click, "prompt", lambda *a, **k: "http://127.0.0.1/callback?code=x&state=y")
    failed = run("login", "web", "--no-browser")
    assert failed.exit_code == 2
    assert "another login" in failed.output


def test_a_code_typed_elsewhere_logs_in_once_the_person_agreed(
    run: Run, home: Path, server: OAuthServer
) -> None:
    settings = {**server.config, "deviceUrl": f"{server.url}/device"}
    del settings["authorizationUrl"]
    configured(home, **settings)
    server.pending = 2
    result = run("login", "web")
    assert result.exit_code == 0, result.output
    assert "WDJB-MJHT" in result.output
    assert len(server.asked) == 3
    assert kept(home)["web:login"]["access"] in server.granted


def test_the_doctor_tells_of_a_login_that_is_over(run: Run, home: Path, server: OAuthServer) -> None:
    configured(home, **server.config)
    folder = home / "credentials/logins"
    folder.mkdir(parents=True)
    logins = {
        "web:old": {"access": "access-old", "expires": 1},
        "web:gone": {"access": "access-gone", "refresh": "refresh-gone", "expires": 1, "refused": True},
        "web:fine": {"access": "access-fine", "refresh": "refresh-fine", "expires": 1},
    }
    (folder / "web.json").write_text(json.dumps({"logins": logins}))
    result = run("doctor", "--json")
    found = {f["message"]: f for f in json.loads(result.stdout) if f["message"].startswith("web:")}
    levels = {
        message.split(":", 2)[1].split(",")[0]: f["level"]
        for message, f in found.items()
        if message.count(":") > 1
    }
    assert levels == {"old": "fail", "gone": "fail", "fine": "ok"}
    assert "holdfast login web --profile gone" in str(found)
    assert "access-" not in result.output
    unknown = run("login", "nobody")
    assert unknown.exit_code == 2
    assert "does not say how" in unknown.output
