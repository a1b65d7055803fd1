"""Model providers, their models and prices, and the credentials to use with them."""

from __future__ import annotations

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

from holdfast.config.section import Section, key, part, table
from holdfast.config.values import Flag, Hours, Int, Minutes, Names, Num, Positive, Seconds, Secret

Api = Literal[
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "google-generative-ai",
    "ollama",
    "recall",
]


class Cost(Section):
    """Price per million tokens, in US dollars."""

    input: Num = key(0.0, "Input.", ge=0)
    output: Num = key(0.0, "Output.", ge=0)
    cache_read: Num = key(0.0, "Input read from the cache.", ge=0)
    cache_write: Num = key(0.0, "Input written to the cache.", ge=0)


class Compat(Section):
    """What its server takes; unset: as it says of itself, or as was learned when it refused a request."""

    alternate_roles: Flag | None = key(None, "Whether user and assistant must take turns.")
    system_role: Flag | None = key(None, "Whether there is a system role; else its text goes to the user's.")
    tools: Literal["native", "prompt", "none"] | None = key(
        None, "How it is told of tools: by the protocol, in words, or not at all."
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens", "none"] | None = key(
        None, "The field for the length of an answer."
    )
    thinking: Flag | None = key(None, "Whether it is told how much to think.")
    stop: Names = key((), "Words at which an answer ends.")


class ModelEntry(Section):
    """One model of a provider."""

    id: str = key(..., "Its id at the provider.", min_length=1)
    api: Api | None = key(None, "Protocol; unset: the provider's.")
    reasoning: Flag = key(False, "Whether it thinks.")
    input: tuple[Literal["text", "image", "audio", "video"], ...] = key(("text",), "What it reads.")
    context_window: Positive = key(128000, "Tokens of its window.")
    max_tokens: Positive = key(8192, "Tokens of one reply.")
    compat: Compat = part("What its server takes.")
    cost: Cost = part("Prices.")


class OAuth(Section):
    """How one logs in to a provider: `holdfast login <provider>`."""

    authorization_url: str | None = key(None, "Page where the person agrees.")
    token_url: str = key(..., "Where codes and refresh tokens become tokens.")
    device_url: str | None = key(
        None, "Where a code to be typed elsewhere is got, for machines without a browser."
    )
    revocation_url: str | None = key(None, "Where `holdfast logout` gives the token back.")
    client_id: str = key(..., "This program's name at the provider.", min_length=1)
    client_secret: Secret | None = key(None, "Its secret, where the provider insists on one.")
    scopes: Names = key((), "What is asked for.")
    redirect_port: Int = key(
        0, "Port on loopback that the page comes back to; 0: any free one.", ge=0, le=65535
    )
    redirect_path: str = key("/callback", "Path of that address, as it is registered.", pattern=r"^/")

    @field_validator("authorization_url", "token_url", "device_url", "revocation_url")
    @classmethod
    def _safe(cls, value: str | None) -> str | None:
        where = urlsplit(value or "")
        local = where.scheme == "http" and where.hostname in ("127.0.0.1", "localhost", "::1")
        if value is not None and not (local or (where.scheme == "https" and where.hostname)):
            raise ValueError("expected an https address, or http on this machine")
        return value

    @model_validator(mode="after")
    def _has_a_way(self) -> Self:
        if self.authorization_url is None and self.device_url is None:
            raise ValueError("expected authorizationUrl or deviceUrl")
        return self


class Provider(Section):
    """An endpoint that serves models."""

    base_url: str | None = key(None, "Address; unset: the provider's own.")
    api_key: Secret | None = key(None, "Key; `${NAME}` is taken from the environment.")
    api: Api = key("openai-completions", "Protocol.")
    auth_header: Flag = key(False, "Send the key as a bearer token where the protocol does not.")
    oauth: OAuth | None = key(None, "How one logs in, where that is possible.")
    headers: dict[str, Secret] = table({}, "Further headers.")
    timeout_seconds: Seconds = key(120, "Longest silence of a request.", ge=1)
    max_concurrent: Positive | None = key(None, "Requests at once; unset: no limit.", le=1000)
    models: tuple[ModelEntry, ...] = key((), "Its models.")


class ModelsConfig(Section):
    """Models."""

    mode: Literal["merge", "replace"] = key(
        "merge", "Whether `providers` adds to the built-in catalogue or replaces it."
    )
    providers: dict[str, Provider] = table({}, "Providers by name.")


class Cooldowns(Section):
    """How long a failing credential rests."""

    base_minutes: Minutes = key(1, "First rest.", ge=1)
    factor: Num = key(5.0, "Growth of the rest.", gt=1, le=100)
    max_minutes: Minutes = key(60, "Longest rest.", ge=1)
    billing_backoff_hours: Hours = key(5, "First rest after a billing failure.", ge=1)
    billing_max_hours: Hours = key(24, "Longest rest after billing failures.", ge=1)
    failure_window_hours: Hours = key(24, "Failures older than this are forgotten.", ge=1)


class AuthConfig(Section):
    """Credentials for providers."""

    order: dict[str, Names] = table({}, "Profiles in the order of use, by provider.")
    cooldowns: Cooldowns = part("How long a failing credential rests.")
