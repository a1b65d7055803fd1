"""Secrets are never shown: not by repr, not in a dump, not in a message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import Config, InvalidConfig, Secret, parse_config, public_dump, reveal_all
from holdfast.config.values import is_secret_name
from holdfast.errors import ConfigError

CANARY = "sk-canary-0123456789abcdef"
EVERYWHERE = """{
  gateway: { auth: { token: "%(s)s" } },
  store: { url: "postgresql://user:%(s)s@host/db" },
  models: { providers: { o: { apiKey: "%(s)s", headers: { "X-Auth": "%(s)s" } } } },
  memory: { search: { embedding: { openai: { apiKey: "%(s)s" } } } },
  skills: { entries: { gh: { apiKey: "%(s)s", env: { GH: "%(s)s" }, config: { token: "%(s)s" } } } },
  plugins: { slots: { contextEngine: "p" }, entries: { p: { config: { nested: [{ api_key: "%(s)s" }],
                                       peer: "amqp://u:%(s)s@h/" } } } },
  channels: { pier: { url: "https://%(s)s.example", signingSecret: "%(s)s",
                      accounts: { two: { signingSecret: "%(s)s" } } } },
  hooks: { token: "%(s)s", webhooks: { ci: { secret: "%(s)s" } } },
  tools: { exec: { env: { KEY: "%(s)s" } }, web: { search: { apiKey: "%(s)s" } } },
  agents: { defaults: { sandbox: { docker: { env: { K: "%(s)s" } } } } },
}""".replace("%(s)s", CANARY)


def test_no_secret_is_shown_anywhere() -> None:
    config = parse_config(EVERYWHERE)
    shown = [
        repr(config),
        str(config),
        repr(config.model_dump()),
        config.model_dump_json(),
        json.dumps(public_dump(config)),
    ]
    assert not [text for text in shown if CANARY in text]


def test_the_owner_of_free_form_settings_gets_them_whole() -> None:
    config = parse_config(EVERYWHERE)
    settings = reveal_all(config.plugins.entries["p"].config, {})
    assert settings == {"nested": [{"api_key": CANARY}], "peer": f"amqp://u:{CANARY}@h/"}


def test_an_address_shows_all_but_its_password() -> None:
    assert public_dump(parse_config(EVERYWHERE))["store"]["url"] == "postgresql://user:***@host/db"


def test_a_reference_is_resolved_where_it_is_used() -> None:
    secret = Secret("Bearer ${TOKEN}")
    assert secret.reveal({"TOKEN": "abc"}) == "Bearer abc"
    assert str(secret) == "***"


def test_a_bare_reference_may_be_shown() -> None:
    config = parse_config('{gateway: {auth: {token: "${MY_TOKEN}"}}}')
    assert public_dump(config)["gateway"]["auth"]["token"] == "${MY_TOKEN}"


def test_a_reference_to_nothing_says_which_name_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"\$\{TOKEN\}") as caught:
        Secret("${TOKEN}").reveal({})
    assert "TOKEN" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        '{gateway: {auth: {token: ["%s"]}}}',
        '{gateway: {auth: {token: {a: "%s"}}}}',
        '{gateway: {auth: "%s"}}',
        '{gateway: {port: "%s"}}',
        '{gateway: {apiTokn: "%s"}}',
        '{models: {providers: {o: {headers: "%s"}}}}',
        '{models: {providers: {o: {api: "%s"}}}}',
        '{logging: {level: "%s"}}',
        '{heartbeat: {every: "%s"}}',
        '{channels: {discord: {streaming: "%s"}}}',
        '{channels: {discord: "%s"}}',
        '{agents: {list: [{id: "%s!"}]}}',
        '{gateway: {auth: {token: "%s" x}}}',
    ],
)
def test_a_message_never_holds_what_looks_like_a_secret(text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text % CANARY)
    assert CANARY not in str(caught.value)
    assert not [problem for problem in caught.value.problems if CANARY in str(problem)]
    assert CANARY not in repr(caught.value.__cause__)


@given(st.text(min_size=1))
def test_a_secret_without_references_is_revealed_as_it_was(text: str) -> None:
    if "${" not in text:
        assert Secret(text).reveal({}) == text


@pytest.mark.parametrize("name", ["apiKey", "api_key", "botToken", "clientSecret", "PASSWORD"])
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["maxTokens", "reserveTokens", "keepRecentTokens", "keyPrefix"])
def test_names_of_counts_are_not_taken_for_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_a_default_config_shows_nothing_masked() -> None:
    assert "***" not in json.dumps(public_dump(Config()))
