"""Logins by a real OpenID provider (npm `oidc-provider`, on loopback), and what of it does not count."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from serving import Running, assert_problem, running

from builders import PATIENCE
from holdfast.clock import ManualClock, Millis
from holdfast.config import Config
from holdfast.errors import Forbidden, Unauthorized
from holdfast.gateway.oidc import check_claims, person_of
from holdfast.log import SYSTEM, Store, sqlite_url
from holdfast.people import Role, teams, users
from holdfast.runtime import open_home

VENV = Path(__file__).parents[2] / ".venv"
MODULES = VENV / "oidc" / "node_modules"
NODE = shutil.which("node") or str(VENV / "bin" / "node")
SCOPES = ["openid", "email", "profile", "offline_access"]
NEEDS = pytest.mark.skipif(
    not Path(NODE).exists() or not (MODULES / "oidc-provider").is_dir(),
    reason="oidc-provider is not installed: make oidc-provider",
)


@dataclass
class House:
    gateway: Running
    issuer: str
    clock: ManualClock

    @property
    def callback(self) -> str:
        return f"{self.gateway.url}/api/oidc/callback"

    def set_groups(self, **groups: list[str]) -> None:
        answer = httpx.get(
            f"{self.issuer}/test/groups", params={"of": json.dumps(groups)}, timeout=PATIENCE, trust_env=False
        )
        assert answer.status_code == 200


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[House]:
    home = tmp_path_factory.mktemp("oidc") / "home"
    home.mkdir()
    (home / "holdfast.json").write_text("{}")
    clock = ManualClock(Millis(int(time.time() * 1000)))
    store = sqlite_url(shutil.copy(sqlite_template, home))
    with open_home(home, store_url=store, clock=clock) as hold, running(hold) as gateway:
        script = Path(__file__).with_name("oidc_provider.mjs")
        command = [NODE, str(script), str(MODULES), f"{gateway.url}/api/oidc/callback"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, **pipes) as provider:
            assert provider.stdout is not None
            issuer = provider.stdout.readline().strip()
            assert issuer.startswith("http://127.0.0.1:"), issuer
            oidc = {
                "issuer": issuer,
                "clientId": "holdfast",
                "clientSecret": "secret-of-holdfast",
                "create": True,
                "roles": {"staff": "member"},
                "teams": {"lab": "lab"},
                "sessionMinutes": 30,
                "leewaySeconds": 120,
                "scopes": SCOPES,
            }
            with gateway.client(Authorization=f"Bearer {gateway.admin}") as owner:
                assert owner.post("/api/teams", json={"id": "lab"}).status_code == 201
                assert owner.patch("/api/config", json={"teams": {"oidc": oidc}}).status_code == 200
            try:
                yield House(gateway, issuer, clock)
            finally:
                assert provider.stdin is not None
                provider.stdin.close()


def let_in(client: httpx.Client, house: House, url: str, login: str) -> str:
    """Go through the provider's pages as a person does; the address that it sends the browser back to."""
    for _ in range(12):
        if url.startswith(house.callback):
            return url
        answer = client.get(url)
        if answer.is_redirect:
            url = str(answer.next_request.url) if answer.next_request else ""
            continue
        assert answer.status_code == 200, answer.text
        form = re.search(r'action="([^"]+)"', answer.text)
        prompt = re.search(r'name="prompt" value="([^"]+)"', answer.text)
        assert form, answer.text
        assert prompt, answer.text
        said = {"prompt": prompt[1]} | ({"login": login, "password": "x"} if prompt[1] == "login" else {})
        sent = client.post(str(answer.url.join(form[1])), data=said)
        assert sent.is_redirect, sent.text
        url = str(sent.next_request.url) if sent.next_request else ""
    raise AssertionError(f"the provider goes on for ever: {url}")


def challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


@contextmanager
def shifted(house: House, minutes: float) -> Iterator[None]:
    """The gateway's clock goes wrong, by so much."""
    house.clock.set(Millis(int(time.time() * 1000 + minutes * 60_000)))
    yield
    house.clock.set(Millis(int(time.time() * 1000)))


@contextmanager
def browser(house: House) -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=PATIENCE, headers={"Origin": house.gateway.url}) as client:
        yield client


def begun(client: httpx.Client, house: House, login: str) -> str:
    start = client.get(f"{house.gateway.url}/api/oidc/login")
    assert start.status_code == 302, start.text
    asked = parse_qs(urlsplit(start.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["nonce"]
    assert asked["scope"] == [" ".join(SCOPES)]
    assert asked["state"]
    return let_in(client, house, start.headers["location"], login)


def logged_in(client: httpx.Client, house: House, login: str) -> dict[str, Any]:
    answer = client.get(begun(client, house, login))
    assert answer.status_code == 200, answer.text
    return who(client, house).json()


def who(client: httpx.Client, house: House) -> httpx.Response:
    return client.get(f"{house.gateway.url}/api/whoami")


@NEEDS
def test_who_the_provider_vouches_for_is_in_with_the_role_and_teams_of_their_groups(house: House) -> None:
    with browser(house) as client:
        told = logged_in(client, house, "ada")
        assert (told["name"], told["role"], told["teams"]) == ("ada@example.org", "member", ["lab"])
    with browser(house) as client:
        told = logged_in(client, house, "bob")
        assert (told["role"], told["teams"]) == ("member", [])
    house.set_groups(bob=["lab"], ada=["staff"])
    with browser(house) as client:
        assert (logged_in(client, house, "bob")["role"], who(client, house).json()["teams"]) == (
            "viewer",
            ["lab"],
        )
    with browser(house) as client:
        assert logged_in(client, house, "ada")["teams"] == []
    house.set_groups()


@NEEDS
def test_a_code_and_a_state_count_once_and_in_the_browser_that_asked(house: House) -> None:
    with browser(house) as client, browser(house) as another:
        back = begun(client, house, "ada")
        assert_problem(another.get(back), 401, "oidc_broken_off")
        assert_problem(client.get(back), 401, "bad_code")
        again = begun(client, house, "ada")
        assert client.get(again).status_code == 200
        assert_problem(client.get(again), 401, "bad_code")
        # The same code under a new state, which belongs to this browser: the provider has it spent.
        code = parse_qs(urlsplit(again).query)["code"][0]
        state = parse_qs(urlsplit(begun(client, house, "ada")).query)["state"][0]
        replayed = client.get(house.callback, params={"code": code, "state": state})
        assert_problem(replayed, 401, "oidc_refused")


@NEEDS
def test_a_login_is_renewed_by_the_provider_and_ends_when_it_vouches_no_more(house: House) -> None:
    with browser(house) as client:
        logged_in(client, house, "ada")
        house.clock.advance(seconds=20 * 60)
        renew = f"{house.gateway.url}/api/oidc/refresh"
        # The provider's clock stands where it stood: what it says now is of the past, and within its hour.
        assert client.post(renew).json() == {"ok": True}
        house.clock.advance(seconds=20 * 60)
        assert who(client, house).status_code == 200
        house.clock.advance(seconds=11 * 60)
        assert_problem(who(client, house), 401, "login_ended")
    house.clock.set(Millis(int(time.time() * 1000)))


@NEEDS
def test_a_logout_ends_it_here_and_says_where_it_ends_there(house: House) -> None:
    with browser(house) as client:
        logged_in(client, house, "ada")
        out = client.post(f"{house.gateway.url}/api/oidc/logout").json()
        assert out["url"].startswith(f"{house.issuer}/session/end?client_id=holdfast")
        assert client.get(out["url"]).status_code == 200
        assert_problem(who(client, house), 401, "no_token")


@NEEDS
def test_a_token_for_somebody_else_or_with_another_signature_is_not_believed(house: House) -> None:
    with browser(house) as client:
        pair = "verifier-of-the-tests-that-is-long-enough-for-pkce"
        asked = {"client_id": "other", "response_type": "code", "scope": "openid", "nonce": "n", "state": "s"}
        asked |= {"redirect_uri": house.callback, "code_challenge": challenge(pair)}
        url = str(httpx.URL(f"{house.issuer}/auth", params=asked | {"code_challenge_method": "S256"}))
        code = parse_qs(urlsplit(let_in(client, house, url, "swapper")).query)["code"][0]
        sent = {"grant_type": "authorization_code", "code": code, "redirect_uri": house.callback}
        sent |= {"code_verifier": pair}
        own = ("other", "secret-of-other")
        of_other = httpx.post(f"{house.issuer}/token", data=sent, auth=own, timeout=PATIENCE, trust_env=False)
        assert of_other.status_code == 200, of_other.text
        told = assert_problem(client.get(begun(client, house, "swapper")), 401, "oidc_not_believed")
        assert "for somebody else" in told["detail"]
    with browser(house) as client:
        told = assert_problem(client.get(begun(client, house, "forger")), 401, "oidc_not_believed")
        assert "signature" in told["detail"]
        assert_problem(who(client, house), 401, "no_token")


@NEEDS
@pytest.mark.parametrize(("minutes", "why"), [(90, "it is over"), (-90, "of a time to come")])
def test_clocks_that_are_far_apart_are_named(house: House, minutes: int, why: str) -> None:
    with browser(house) as client, shifted(house, minutes):
        told = assert_problem(client.get(begun(client, house, "ada")), 401, "oidc_not_believed")
        assert why in told["detail"]
        assert "clocks" in told["hint"]


@NEEDS
def test_clocks_that_are_a_little_apart_do_not_matter(house: House) -> None:
    for minutes in (-1.5, 1.5):
        with browser(house) as client, shifted(house, minutes):
            assert logged_in(client, house, "ada")["name"] == "ada@example.org"


@NEEDS
def test_nobody_takes_over_a_login_that_is_somebodys(house: House) -> None:
    with house.gateway.client(Authorization=f"Bearer {house.gateway.admin}") as owner:
        body = {"login": "eve@example.org", "password": "a long enough password"}
        assert owner.post("/api/users", json=body).status_code == 201
    with browser(house) as client:
        assert_problem(client.get(begun(client, house, "eve")), 403, "oidc_taken")
    with browser(house) as client:
        assert_problem(client.get(begun(client, house, "unsure")), 403, "oidc_no_login")


def test_logins_and_groups_are_read_from_the_claims_that_the_config_names(sqlite_store: Store) -> None:
    given = {
        "loginClaim": "upn",
        "groupsClaim": "memberOf",
        "roles": {"bosses": "admin"},
        "teams": {"lab": "lab"},
        "defaultRole": "member",
        "create": True,
    }
    settings = Config.model_validate({"teams": {"oidc": given}}).teams.oidc
    claims = {"iss": "i", "sub": "1", "upn": "ada", "memberOf": ["bosses", "lab"], "groups": []}
    with sqlite_store.write(SYSTEM) as tx:
        teams.add(tx, "lab")
        ada = person_of(tx, settings, claims)
        assert (ada.login, ada.role.value, ada.subject) == ("ada", "admin", "1")
        assert teams.get(tx, "lab").members == (ada.id,)
        plain = person_of(tx, settings, claims | {"memberOf": "others"})
        assert (plain.id, plain.role.value) == (ada.id, "member")
        assert teams.get(tx, "lab").members == ()
        closed = settings.model_copy(update={"create": False})
        with pytest.raises(Forbidden, match="nobody here does"):
            person_of(tx, closed, claims | {"sub": "2", "upn": "bob"})
        added = users.add(tx, "bob", role=Role.VIEWER)
        met = person_of(tx, closed, claims | {"sub": "2", "upn": "bob"})
        assert (met.id, met.subject) == (added.id, "2")


GOOD: dict[str, Any] = {"iss": "i", "aud": "c", "sub": "s", "exp": 1_000, "iat": 900, "nonce": "n"}


@pytest.mark.parametrize(
    "spoiled",
    [
        {"iss": "j"},
        {"aud": "d"},
        {"aud": ["c", "d"]},
        {"aud": None},
        {"azp": "d"},
        {"sub": ""},
        {"exp": None},
        {"exp": "1000"},
        {"nonce": "m"},
        {"nonce": None},
        {"exp": 880},
        {"iat": 1_020},
        {"nbf": 1_020},
    ],
)
def test_every_claim_that_does_not_hold_is_reason_enough(spoiled: dict[str, Any]) -> None:
    known: dict[str, Any] = {"issuer": "i", "client_id": "c", "nonce": "n", "now": 950, "leeway": 60}
    check_claims(GOOD, **known)
    check_claims(GOOD | {"aud": ["c", "d"], "azp": "c"}, **known)
    check_claims(GOOD | {"exp": 891, "iat": 1_010}, **known)
    with pytest.raises(Unauthorized):
        check_claims(GOOD | spoiled, **known)


def test_without_a_provider_there_is_no_such_login(gateway: Running) -> None:
    with gateway.client() as client:
        assert_problem(client.get("/api/oidc/login"), 404, "no_provider")
