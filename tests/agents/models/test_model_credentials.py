"""Credentials: where they are found, in what order they are used, and how long a failing one rests."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.models import Credential, Credentials, FailureReason, Models
from holdfast.agents.models.catalogue import BUILT_IN, Catalogue, Endpoint
from holdfast.agents.models.credentials import FRESH, HOUR_MS, MINUTE_MS, Rest, after_failure
from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.config.models import AuthConfig, Cooldowns, ModelsConfig
from holdfast.errors import Conflict, InvalidInput
from holdfast.home import Home
from holdfast.logs import JsonLines, redactor

RULES = AuthConfig()
rules = st.builds(
    Cooldowns,
    base_minutes=st.integers(1, 10),
    factor=st.floats(1.1, 10),
    max_minutes=st.integers(10, 200),
    billing_backoff_hours=st.integers(1, 10),
    billing_max_hours=st.integers(10, 72),
    failure_window_hours=st.integers(1, 48),
)
reasons: st.SearchStrategy[FailureReason] = st.sampled_from(("auth", "billing", "rate_limit"))


def test_the_rests_grow_as_the_config_says() -> None:
    now, rest, waits = 0, FRESH, []
    for _ in range(5):
        rest = after_failure(rest, "auth", now, Cooldowns())
        waits.append((rest.until - now) // MINUTE_MS)
        now = rest.until
    assert waits == [1, 5, 25, 60, 60]
    billing, hours = FRESH, []
    for _ in range(4):
        billing = after_failure(billing, "billing", 0, Cooldowns())
        hours.append(billing.until // HOUR_MS)
    assert hours == [5, 10, 20, 24]


@given(rules, st.lists(st.tuples(reasons, st.integers(0, 80 * HOUR_MS), st.none() | st.integers(0, 10**9))))
def test_a_rest_is_never_shorter_than_asked_nor_longer_than_allowed(
    given_rules: Cooldowns, failures: list[tuple[FailureReason, int, int | None]]
) -> None:
    now, rest = 1_000_000, FRESH
    for reason, later, asked in failures:
        now += later
        before = rest
        rest = after_failure(rest, reason, now, given_rules, asked)
        most = (
            given_rules.billing_max_hours * HOUR_MS
            if reason == "billing"
            else given_rules.max_minutes * MINUTE_MS
        )
        first = (
            min(given_rules.billing_backoff_hours * HOUR_MS, most)
            if reason == "billing"
            else min(given_rules.base_minutes * MINUTE_MS, most)
        )
        assert rest.until >= max(before.until, now + first, now + (asked or 0))
        assert rest.until <= max(before.until, now + most, now + (asked or 0))
        assert rest.resting(now)
        assert not rest.resting(rest.until)


@given(rules, st.integers(1, 20), reasons)
def test_failures_older_than_the_window_do_not_count(
    given_rules: Cooldowns, count: int, reason: FailureReason
) -> None:
    rest = FRESH
    for _ in range(count):
        rest = after_failure(rest, reason, 1, given_rules)
    later = max(rest.until, 1 + given_rules.failure_window_hours * HOUR_MS)
    again = after_failure(rest, reason, later, given_rules)
    assert again.until - later == after_failure(Rest(), reason, later, given_rules).until - later


def kept(path: Path, body: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body))
    path.chmod(0o600)


def found(
    credentials: Credentials, endpoint: Endpoint, agent: str = "work", auth: AuthConfig = RULES
) -> list[str]:
    return [one.id for one in credentials.usable(endpoint, agent, "main", auth)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.prepare()
    return made


def test_an_agents_profiles_lie_where_its_settings_say(
    home: Home, clock: ManualClock, tmp_path: Path
) -> None:
    kept(tmp_path / "mine" / "auth-profiles.json", {"openai": {"x": {"key": "sk-elsewhere-1"}}})
    agents = [{"id": "main", "agentDir": str(tmp_path / "mine")}]
    config = Config.model_validate({"agents": {"list": agents}})
    models = Models(home, lambda: config, clock, env={})
    assert found(models.credentials, BUILT_IN["openai"]) == ["openai:x"]


def test_the_agents_own_come_first_then_the_main_agents_then_the_rest(home: Home, clock: ManualClock) -> None:
    kept(
        home.agent_dir("work") / "auth-profiles.json",
        {
            "profiles": {
                "anthropic:work": {"type": "api_key", "provider": "anthropic", "key": "sk-work-111111"}
            }
        },
    )
    kept(
        home.agent_dir("main") / "auth-profiles.json",
        {
            "anthropic": {
                "personal": {"token": "tok-personal-1"},
                "same": {"token": "sk-work-111111"},
            },
            "discord": {"default": {"token": "tok-discord-1"}},
        },
    )
    kept(home.credentials / "anthropic.json", {"access": "oat-folder-11", "expires": 5, "refresh": "r"})
    given = ModelsConfig.model_validate({"providers": {"anthropic": {"apiKey": "${MY_KEY}"}}})
    endpoint = Catalogue(given).endpoint("anthropic")
    env = {"MY_KEY": "sk-config-1111", "ANTHROPIC_API_KEY": "sk-env-11111111"}
    credentials = Credentials(home, clock, env)
    listed = ["anthropic:work", "anthropic:personal", "anthropic:config", "anthropic:env:ANTHROPIC_API_KEY"]
    assert found(credentials, endpoint) == [*listed, "anthropic:default"], "an expired one is the last resort"
    assert found(credentials, endpoint, agent="main")[0] == "anthropic:personal"
    order = AuthConfig.model_validate({"order": {"anthropic": ["anthropic:config"]}})
    assert found(credentials, endpoint, auth=order)[0] == "anthropic:config"
    modes = {one.id: one.mode for one in credentials.usable(endpoint, "work", "main", RULES)}
    assert (modes["anthropic:personal"], modes["anthropic:default"]) == ("token", "oauth")


def test_a_failing_one_rests_and_a_restart_remembers_until_it_succeeds(
    home: Home, clock: ManualClock
) -> None:
    endpoint = BUILT_IN["google"]
    env = {"GEMINI_API_KEY": "sk-first-11111", "GOOGLE_API_KEY": "sk-second-1111"}
    credentials = Credentials(home, clock, env)
    first, second = credentials.usable(endpoint, "main", "main", RULES)
    credentials.failed(first, "auth", RULES)
    again = Credentials(home, clock, env)
    assert found(again, endpoint) == [second.id, first.id]
    assert again.rest(first.id).reason == "auth"
    assert (home.credentials / "auth-state.json").stat().st_mode & 0o777 == 0o600
    assert "sk-first" not in (home.credentials / "auth-state.json").read_text()
    clock.advance(minutes=1)
    assert found(again, endpoint) == [first.id, second.id]
    again.succeeded(first)
    assert Credentials(home, clock, env).rest(first.id) == FRESH


def test_a_profile_is_written_for_its_owner_only_and_used_at_once(home: Home, clock: ManualClock) -> None:
    credentials = Credentials(home, clock, {})
    credentials.put("work", "openai:one", "openai", "sk-one-1111111")
    path = credentials.put("work", "openai:two", "openai", "tok-two-111111", "oauth")
    assert path.stat().st_mode & 0o777 == 0o600
    assert found(credentials, BUILT_IN["openai"]) == ["openai:one", "openai:two"]
    kept(path, {"openai": {"old": {"token": "tok-old-111111"}}})
    credentials.put("work", "openai:three", "openai", "sk-three-11111")
    assert found(credentials, BUILT_IN["openai"]) == ["openai:three", "openai:old"]
    with pytest.raises(InvalidInput):
        credentials.put("work", "openai:three", "openai", " ")


def test_a_file_that_is_broken_or_open_to_others_is_told_of_without_its_words(
    home: Home, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = home.agent_dir("main") / "auth-profiles.json"
    kept(path, {"openai": "sk-open-1111111"})
    path.chmod(0o644)
    assert found(Credentials(home, clock, {}), BUILT_IN["openai"]) == ["openai:default"]
    path.write_text('{"openai": "sk-broken-11111"')
    assert found(Credentials(home, clock, {}), BUILT_IN["openai"]) == []
    assert "chmod 600" in caplog.text
    assert "is not JSON" in caplog.text
    with pytest.raises(Conflict):
        Credentials(home, clock, {}).put("main", "openai:new", "openai", "sk-new-1111111")
    assert "sk-broken" in path.read_text(), "what cannot be read is not written over"
    assert "sk-open" not in caplog.text
    assert "sk-broken" not in caplog.text


def test_a_secret_that_was_read_is_masked_in_every_log_from_then_on(home: Home, clock: ManualClock) -> None:
    secret = "correct horse battery staple"
    redact = redactor()
    assert secret in redact(f"said {secret}")
    kept(home.agent_dir("main") / "auth-profiles.json", {"openai": {"x": {"key": secret}}})
    [credential] = Credentials(home, clock, {}).usable(BUILT_IN["openai"], "main", "main", RULES)
    line = JsonLines(redact).format(
        logging.LogRecord("x", logging.INFO, "f", 1, "it said %s", (f"key {secret}!",), None)
    )
    assert secret not in line
    assert secret not in repr(credential)
    assert isinstance(credential, Credential)
