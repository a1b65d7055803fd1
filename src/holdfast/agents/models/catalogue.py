"""Providers and their models: where they are, what they speak, and what is known of each model.

The built-in providers are a table; `models.providers` of the config adds to it or replaces it. Windows and
prices of well-known models come from `genai-prices`, which the client library brings; a model that nobody
knows has a window of 128k and no price.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.agents.models.lessons import Lesson, applied, server_name
from holdfast.agents.models.types import ModelAbout, ModelFailure, ModelFit, ModelRef, Usage
from holdfast.config import Secret
from holdfast.config.models import Api, Compat, Cost, ModelEntry, ModelsConfig, OAuth, Provider

WINDOW: Final = 128_000
MAX_TOKENS: Final = 8_192
CLOUD_SECONDS: Final = 120.0
LOCAL_SECONDS: Final = 300.0
RECALL: Final = ModelRef("holdfast", "recall")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How a provider is reached. `keyless` ones answer without a credential."""

    provider: str
    api: Api
    base_url: str
    env_keys: tuple[str, ...] = ()
    keyless: bool = False
    prices: str | None = None
    default_model: str | None = None
    api_key: Secret | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict)
    bearer: bool = False
    timeout_seconds: float = CLOUD_SECONDS
    max_concurrent: int | None = None
    models: tuple[ModelEntry, ...] = ()
    oauth: OAuth | None = None

    @property
    def loopback(self) -> bool:
        return is_loopback(self.base_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a server tells of a model; None where it does not. `identity` changes when it serves another; one
    that is not `settled` tells more once the model is loaded."""

    window: int | None = None
    images: bool | None = None
    thinks: bool | None = None
    tools: bool | None = None
    system: bool | None = None
    alternates: bool | None = None
    identity: str = ""
    settled: bool = True


@dataclass(frozen=True, slots=True)
class Resolved:
    """A model with the endpoint that serves it; `cost` is what the config says of its price, `server` names
    what was learned of it."""

    about: ModelAbout
    endpoint: Endpoint
    api: Api
    cost: Cost | None = None
    server: str = ""
    settled: bool = True


@dataclass(frozen=True, slots=True)
class _Family:
    """What a model's name tells; the first that fits holds."""

    pattern: str
    max_tokens: int = MAX_TOKENS
    _: KW_ONLY
    images: bool = False
    thinks: bool = False
    window: int = WINDOW
    alternates: bool = False


def _cloud(
    name: str, url: str, key: str, *, prices: str | None = None, default: str | None = None
) -> Endpoint:
    return Endpoint(
        provider=name,
        api="openai-completions",
        base_url=url,
        env_keys=(key,),
        prices=prices or name,
        default_model=default,
    )


def _local(name: str, port: int) -> Endpoint:
    return Endpoint(
        provider=name,
        api="openai-completions",
        base_url=f"http://127.0.0.1:{port}/v1",
        keyless=True,
        timeout_seconds=LOCAL_SECONDS,
    )


BUILT_IN: Final[Mapping[str, Endpoint]] = {
    one.provider: one
    for one in (
        replace(
            _cloud(
                "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", default="claude-sonnet-5-5"
            ),
            api="anthropic-messages",
        ),
        _cloud("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", default="gpt-5.4"),
        replace(
            _cloud(
                "google",
                "https://generativelanguage.googleapis.com",
                "GEMINI_API_KEY",
                default="gemini-3.5-flash",
            ),
            api="google-generative-ai",
            env_keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ),
        _cloud("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", default="openrouter/auto"),
        _cloud("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        _cloud("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
        _cloud("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        _cloud("xai", "https://api.x.ai/v1", "XAI_API_KEY", prices="x-ai"),
        _local("ollama", 11434),
        _local("lmstudio", 1234),
        _local("llamacpp", 8080),
        _local("vllm", 8000),
    )
}

_FAMILIES: Final = (
    _Family(r"gpt-[56]", 128_000, images=True, thinks=True),
    _Family(r"gpt-oss", 32_000, thinks=True),
    _Family(r"o[134](-mini)?(-|$)", 100_000, images=True, thinks=True),
    _Family(r"gpt-4\.1", 32_768, images=True),
    _Family(r"(chat)?gpt-4o", 16_384, images=True),
    _Family(r"claude-3-7|claude-(opus|sonnet|haiku|fable|mythos)-[4-9]", 32_000, images=True, thinks=True),
    _Family(r"claude-3-5", 8_192, images=True),
    _Family(r"claude-3", 4_096, images=True),
    _Family(r"gemini-(2\.5|[3-9])", 65_536, images=True, thinks=True, window=1_048_576),
    _Family(r"gemini", 8_192, images=True),
    _Family(r"gemma-?3", images=True, alternates=True),
    _Family(r"gemma-?4|llava|pixtral|.*[-_.]vl\b|.*vision", images=True),
    _Family(r"gemma|mixtral|mistral-7b|(code)?llama-?2", alternates=True),
    _Family(r"deepseek-r|qwen-?3|magistral|qwq", 16_384, thinks=True),
    _Family(r""),
)


class Catalogue:
    """The providers as the config leaves them. `served` is what servers told of their models, `learned` what
    their refusals taught."""

    def __init__(
        self,
        config: ModelsConfig,
        served: Mapping[ModelRef, Served] | None = None,
        learned: Callable[[ModelRef, str], Sequence[Lesson]] = lambda ref, server: (),
    ) -> None:
        self._served = served or {}
        self._learned = learned
        built_in = BUILT_IN if config.mode == "merge" else {}
        self._endpoints = {
            **built_in,
            **{name: _merged(name, given) for name, given in config.providers.items()},
        }

    def endpoints(self) -> Sequence[Endpoint]:
        return tuple(self._endpoints.values())

    def endpoint(self, provider: str) -> Endpoint:
        try:
            return self._endpoints[provider]
        except KeyError:
            raise ModelFailure(
                f"there is no provider {provider!r}",
                "not_configured",
                hint=f"Add it under models.providers, or use one of {', '.join(sorted(self._endpoints))}.",
            ) from None

    def resolve(self, ref: ModelRef) -> Resolved:
        """All that is known of a model: what its name tells, over that what its server says of itself, what
        was learned from it, and what the config says. A window that was learned holds the config's too.
        `ModelFailure` (not_configured) for a provider that is not there."""
        if ref == RECALL:
            return _RECALL
        endpoint = self.endpoint(ref.provider)
        served = self._served.get(ref, Served())
        server = server_name(endpoint.base_url, served.identity)
        lessons = self._learned(ref, server)
        about = applied(_told(_known(ref, endpoint, served.window), served), lessons)
        entry = next((one for one in endpoint.models if one.id == ref.model), None)
        if entry is None:
            return Resolved(about, endpoint, endpoint.api, server=server, settled=served.settled)
        told = entry.model_fields_set
        about = applied(_configured(about, entry), [one for one in lessons if one.fact == "window"])
        cost = entry.cost if "cost" in told else None
        return Resolved(about, endpoint, entry.api or endpoint.api, cost, server, served.settled)


def plugged_in(about: ModelAbout) -> Resolved:
    """A model within this process: it is asked for without an address or a credential, as `recall` is."""
    endpoint = Endpoint(provider=about.ref.provider, api="recall", base_url="", keyless=True)
    return Resolved(about, endpoint, "recall")


def _told(about: ModelAbout, served: Served) -> ModelAbout:
    """With what a server says of itself. One that takes no tools has them described to its model."""
    fit = about.fit
    return replace(
        about,
        images=about.images if served.images is None else served.images,
        thinks=about.thinks if served.thinks is None else served.thinks,
        fit=replace(
            fit,
            alternates=fit.alternates if served.alternates is None else served.alternates,
            system=fit.system if served.system is None else served.system,
            tools=fit.tools if served.tools is None else ("native" if served.tools else "prompt"),
        ),
    )


def _configured(about: ModelAbout, entry: ModelEntry) -> ModelAbout:
    told = entry.model_fields_set
    return replace(
        about,
        window=entry.context_window if "context_window" in told else about.window,
        max_tokens=entry.max_tokens if "max_tokens" in told else about.max_tokens,
        images="image" in entry.input if "input" in told else about.images,
        thinks=entry.reasoning if "reasoning" in told else about.thinks,
        fit=_compatible(about.fit, entry.compat),
    )


def _compatible(fit: ModelFit, compat: Compat) -> ModelFit:
    given: dict[str, Any] = {
        "alternates": compat.alternate_roles,
        "system": compat.system_role,
        "tools": compat.tools,
        "limit": compat.max_tokens_field,
        "thinking": compat.thinking,
        "stop": compat.stop or None,
    }
    return replace(fit, **{name: value for name, value in given.items() if value is not None})


_RECALL: Final = Resolved(
    ModelAbout(RECALL, WINDOW, MAX_TOKENS),
    Endpoint(provider=RECALL.provider, api="recall", base_url="", keyless=True),
    "recall",
)


def priced(usage: Usage, resolved: Resolved) -> Usage:
    """The usage with its cost, if the model's price is known."""
    cost = resolved.cost
    if cost is not None:
        fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
        total = (
            fresh * cost.input
            + usage.cache_read * (cost.cache_read or cost.input)
            + usage.cache_write * (cost.cache_write or cost.input)
            + usage.output * cost.output
        )
        return replace(usage, cost=total / 1_000_000)
    return replace(usage, cost=_listed_cost(usage, resolved))


def _listed_cost(usage: Usage, resolved: Resolved) -> float | None:
    provider = resolved.endpoint.prices
    if provider is None:
        return None
    from genai_prices import Usage as Counted
    from genai_prices import calc_price

    counted = Counted(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
    )
    try:
        return float(
            calc_price(counted, model_ref=resolved.about.ref.model, provider_id=provider).total_price
        )
    except (LookupError, ValueError):
        return None


def _known(ref: ModelRef, endpoint: Endpoint, learned: int | None) -> ModelAbout:
    name = ref.model.rpartition("/")[2].lower()
    family = next(one for one in _FAMILIES if re.match(one.pattern, name))
    window = learned or _listed_window(ref.model, endpoint.prices) or family.window
    fit = ModelFit(alternates=family.alternates)
    return ModelAbout(ref, window, min(family.max_tokens, window), family.images, family.thinks, fit)


def _listed_window(model: str, provider: str | None) -> int | None:
    if provider is None:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, provider, None)[1].context_window
    except LookupError:
        return None


def _merged(name: str, given: Provider) -> Endpoint:
    """A provider of the config over the built-in one of that name; what it leaves out stays."""
    base = BUILT_IN.get(name) or Endpoint(provider=name, api=given.api, base_url="")
    url = (given.base_url or base.base_url).rstrip("/")
    told = given.model_fields_set
    silent = LOCAL_SECONDS if base.keyless or is_loopback(url) else base.timeout_seconds
    return replace(
        base,
        api=given.api if "api" in told else base.api,
        base_url=url,
        keyless=base.keyless or is_loopback(url),
        prices=base.prices if url == base.base_url else None,
        api_key=given.api_key,
        headers=given.headers,
        bearer=given.auth_header,
        timeout_seconds=float(given.timeout_seconds) if "timeout_seconds" in told else silent,
        max_concurrent=given.max_concurrent,
        models=given.models,
        oauth=given.oauth,
    )


def is_loopback(url: str) -> bool:
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
