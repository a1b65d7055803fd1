"""How each provider is spoken to: its API, its client, and the connections that these share.

The client library makes objects of every message and maps each back to a mapping of two fields. With a long
history that was a third of a call's processor time. So the run of plain messages after the system prompt goes
around it, and only what is more than text, and what is new, goes through.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ssl
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from holdfast.agents.models.catalogue import Endpoint, Resolved
from holdfast.agents.models.credentials import Credential
from holdfast.agents.models.types import ModelFailure
from holdfast.agents.models.wire import BEGINS, EMPTY
from holdfast.context import AssistantMessage, Message, SystemMessage, UserMessage
from holdfast.context.request import Remembered

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI
    from pydantic_ai.models import Model as Their
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition


CONNECT_SECONDS: Final = 10.0
_MOST_CLIENTS: Final = 128


class Pool:
    """One HTTP client for each address, one gate for each provider. A client belongs to the loop it was made
    in; in another loop there are others."""

    def __init__(self) -> None:
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()

    def http(self, endpoint: Endpoint) -> httpx2.AsyncClient:
        kept = self._here().http
        name = (endpoint.base_url, endpoint.timeout_seconds)
        if name not in kept:
            kept[name] = _client(endpoint)
        return kept[name]

    def built(self, name: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """What `make` gave for this name before; the least used are forgotten."""
        kept = self._here().built
        if name not in kept:
            kept[name] = make()
            while len(kept) > _MOST_CLIENTS:
                kept.popitem(last=False)
        kept.move_to_end(name)
        return kept[name]

    def gate(self, endpoint: Endpoint) -> AbstractAsyncContextManager[Any]:
        """Waits while the provider has as many calls as it may have."""
        most = endpoint.max_concurrent
        if most is None:
            return nullcontext()
        return self._here().gates.setdefault((endpoint.provider, most), asyncio.Semaphore(most))

    async def aclose(self) -> None:
        here = self._loops.pop(asyncio.get_running_loop(), None)
        for client in here.http.values() if here is not None else ():
            await client.aclose()

    def _here(self) -> _Loop:
        return self._loops.setdefault(asyncio.get_running_loop(), _Loop())


class _Loop:
    def __init__(self) -> None:
        self.http: dict[tuple[str, float], httpx2.AsyncClient] = {}
        self.gates: dict[tuple[str, int], asyncio.Semaphore] = {}
        self.built: OrderedDict[tuple[object, ...], Any] = OrderedDict()


def timeout(endpoint: Endpoint) -> httpx2.Timeout:
    """The longest silence between two pieces of an answer, however long the whole takes."""
    import httpx2

    silence = endpoint.timeout_seconds
    return httpx2.Timeout(connect=min(CONNECT_SECONDS, silence), read=silence, write=silence, pool=None)


@cache
def trusted() -> ssl.SSLContext:
    """The authorities that are trusted, read once: it takes a tenth of a second."""
    import httpx2

    return httpx2.create_ssl_context()


@cache
def nobody() -> ssl.SSLContext:
    """For plain HTTP, where there is nothing to check: TLS with this trusts no one."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def authorities(url: str) -> ssl.SSLContext:
    return nobody() if url.startswith("http://") else trusted()


def _client(endpoint: Endpoint) -> httpx2.AsyncClient:
    """Proxies from the environment are for the world outside: loopback is always reached directly."""
    import httpx2

    return httpx2.AsyncClient(
        verify=authorities(endpoint.base_url),
        timeout=timeout(endpoint),
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=50, keepalive_expiry=60.0),
        trust_env=not endpoint.loopback,
        follow_redirects=False,
    )


def revealed(headers: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    return {name: secret.reveal(env) for name, secret in headers.items()}


# Under this name the run travels through the library, among what it hands on unread.
TALK: Final = "holdfast_talk"
_ENOUGH: Final = 4


@dataclass(frozen=True, slots=True)
class Talk:
    """Messages as the API takes them, and how many of the system prompt's stand before them."""

    after: int
    said: Sequence[Mapping[str, str]]


def without_talk(messages: Sequence[Message]) -> tuple[Talk | None, Sequence[Message]]:
    """The plain run after the system prompt, and all the rest in order; None if it is not worth it."""
    start = next((at for at, one in enumerate(messages) if not isinstance(one, SystemMessage)), 0)
    end = start
    while end < len(messages) - 1 and _is_plain(messages[end]):
        end += 1
    said = [one for message in messages[start:end] if (one := _said(message)) is not None]
    if len(said) < _ENOUGH:
        return None, messages
    if said[0]["role"] == "assistant":
        said.insert(0, {"role": "user", "content": BEGINS})
    before = sum(isinstance(one, SystemMessage) and bool(one.text) for one in messages[:start])
    return Talk(before, said), [*messages[:start], *messages[end:]]


def joined(messages: Sequence[Any], talk: Talk | None) -> list[Any]:
    """The whole conversation, from what the library made of the rest."""
    if talk is None:
        return list(messages)
    return [*messages[: talk.after], *talk.said, *messages[talk.after :]]


def _is_plain(message: Message) -> bool:
    if isinstance(message, AssistantMessage):
        return not message.calls
    return isinstance(message, UserMessage) and not message.images


def _said(message: Message) -> dict[str, str] | None:
    """None for an answer with nothing in it, which no provider takes."""
    blank = not message.text.strip()
    if isinstance(message, AssistantMessage):
        return None if blank else {"role": "assistant", "content": message.text}
    return {"role": "user", "content": EMPTY if blank else message.text}


OAUTH_BETA: Final = "oauth-2025-04-20"
CHAT: Final = frozenset(("openai-completions", "ollama"))
_NO_KEY: Final = "none"


_MODULES: Final[dict[str, str]] = {
    "anthropic-messages": "pydantic_ai.models.anthropic",
    "google-generative-ai": "pydantic_ai.models.google",
}
_loaded: set[str] = set()
_importing = threading.Lock()


async def load(resolved: Resolved) -> None:
    """Import what a protocol needs in a thread: it takes a second, for which no other session should wait."""
    name = _MODULES.get(resolved.api, "pydantic_ai.models.openai")
    if name not in _loaded:
        await asyncio.to_thread(_import, name)
        _loaded.add(name)


def _import(name: str) -> None:
    """One at a time: of two threads that import modules which import each other, one finds half of them."""
    with _importing:
        with contextlib.suppress(ImportError):  # told where the model is built, with the name of the extra
            importlib.import_module(name)
        trusted()


def their_model(
    resolved: Resolved, credential: Credential | None, pool: Pool, env: Mapping[str, str]
) -> Their:
    """The model behind one credential, built once and kept with its connections."""
    endpoint = resolved.endpoint
    name = (
        endpoint.base_url,
        endpoint.timeout_seconds,
        resolved.api,
        resolved.about,
        credential,
        tuple(endpoint.headers.items()),
        endpoint.bearer,
    )
    found: Their = pool.built(name, lambda: _spare_the_schemas(_build(resolved, credential, pool, env)))
    return found


def _spare_the_schemas(model: Their) -> Their:
    """Have each tool's schema made fit for the model once. The library copies and walks all of them for
    every call, which with two dozen tools took longer than the call itself."""
    from pydantic_ai.models import ModelRequestParameters

    customise = model.customize_request_parameters

    def fitted(tools: Sequence[ToolDefinition]) -> ToolDefinition:
        return customise(ModelRequestParameters(function_tools=list(tools))).function_tools[0]

    known: Remembered[ToolDefinition, ToolDefinition] = Remembered(fitted)

    def customised(model_request_parameters: ModelRequestParameters) -> ModelRequestParameters:
        tools = model_request_parameters.function_tools
        rest = customise(replace(model_request_parameters, function_tools=[]))
        return replace(rest, function_tools=[known((tool,)) for tool in tools])

    model.customize_request_parameters = customised  # type: ignore[method-assign]
    return model


def _build(resolved: Resolved, credential: Credential | None, pool: Pool, env: Mapping[str, str]) -> Their:
    match resolved.api:
        case "anthropic-messages":
            return _anthropic(resolved, credential, pool, env)
        case "google-generative-ai":
            return _google(resolved, credential, pool, env)
        case "recall":
            raise ModelFailure("the recall model has no endpoint", "not_configured")
        case _:
            return _openai(resolved, credential, pool, env)


def _openai(resolved: Resolved, credential: Credential | None, pool: Pool, env: Mapping[str, str]) -> Their:
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    endpoint, about = resolved.endpoint, resolved.about
    client = _openai_client(resolved, credential, pool, env)
    if endpoint.provider == "openai":
        theirs: OpenAIProvider | OpenAICompatibleProvider = OpenAIProvider(openai_client=client)
        profile = OpenAIModelProfile()
    else:
        theirs = OpenAICompatibleProvider(endpoint.provider, openai_client=client)
        # Other servers know the older name of the limit alone; whether the model thinks is our own knowledge.
        profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
        if about.thinks:
            profile["supports_thinking"] = True
    if about.fit.limit in ("max_tokens", "max_completion_tokens"):
        profile["openai_chat_supports_max_completion_tokens"] = about.fit.limit == "max_completion_tokens"
    if resolved.api == "openai-responses":
        return OpenAIResponsesModel(about.ref.model, provider=theirs, profile=profile)
    return OpenAIChatModel(about.ref.model, provider=theirs, profile=profile)


def _openai_client(
    resolved: Resolved, credential: Credential | None, pool: Pool, env: Mapping[str, str]
) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    endpoint = resolved.endpoint
    client = AsyncOpenAI(
        base_url=_versioned(endpoint.base_url) if resolved.api == "ollama" else endpoint.base_url,
        api_key=credential.secret if credential is not None else _NO_KEY,
        http_client=pool.http(endpoint),
        default_headers=revealed(endpoint.headers, env),
        timeout=timeout(endpoint),
        max_retries=0,
    )
    if endpoint.provider != "openai":
        client.organization = client.project = None  # from the environment, and nobody else's business
    _spare_the_walk(client)
    return client


def _spare_the_walk(client: AsyncOpenAI) -> None:
    """Hand messages and tools on as they are. The client walks them by their types to rename fields that no
    chat message has; with a hundred messages that was two thirds of a call's processor time. Plain talk that
    went around the library takes its place again here."""
    completions: Any = client.chat.completions
    create = completions.create

    async def created(*, messages: Any, tools: Any, extra_body: Any = None, **rest: Any) -> Any:
        more = dict(extra_body or {})
        whole = {"messages": joined(messages, more.pop(TALK, None))}
        if isinstance(tools, list):
            whole["tools"] = tools
        return await create(messages=(), extra_body={**whole, **more}, **rest)

    completions.create = created


def _anthropic(
    resolved: Resolved, credential: Credential | None, pool: Pool, env: Mapping[str, str]
) -> Their:
    from anthropic import AsyncAnthropic, omit
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.profiles import ModelProfile
    from pydantic_ai.providers.anthropic import AnthropicProvider

    endpoint, about = resolved.endpoint, resolved.about
    secret = credential.secret if credential is not None else _NO_KEY
    bearer = endpoint.bearer or (credential is not None and credential.mode != "api_key")
    # Their client sends keys as bearers too, which not every server of this protocol takes.
    as_key: dict[str, Any] = {} if bearer else {"X-Api-Key": secret, "Authorization": omit}
    client = AsyncAnthropic(
        base_url=endpoint.base_url.removesuffix("/v1"),
        api_key=None if bearer else secret,
        auth_token=secret if bearer else None,
        http_client=pool.http(endpoint),
        default_headers=as_key | revealed(endpoint.headers, env),
        timeout=timeout(endpoint),
        max_retries=0,
    )
    profile = ModelProfile(supports_thinking=True) if about.thinks else ModelProfile()
    return AnthropicModel(
        about.ref.model, provider=AnthropicProvider(anthropic_client=client), profile=profile
    )


def _google(resolved: Resolved, credential: Credential | None, pool: Pool, env: Mapping[str, str]) -> Their:
    try:
        from google.genai import Client
        from google.genai.types import HttpOptions
    except ImportError:
        raise ModelFailure(
            "Google's models need their client, which is not installed",
            "not_configured",
            hint='Install it with: pip install "holdfast[google]"',
        ) from None
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    endpoint = resolved.endpoint
    secret = credential.secret if credential is not None else _NO_KEY
    headers = revealed(endpoint.headers, env)
    if endpoint.bearer or (credential is not None and credential.mode != "api_key"):
        headers["Authorization"] = f"Bearer {secret}"
    options: dict[str, Any] = {
        "base_url": endpoint.base_url,
        "headers": headers,
        "timeout": int(endpoint.timeout_seconds * 1000),
        "httpx_async_client": pool.http(endpoint),
    }
    client = Client(vertexai=False, api_key=secret, http_options=HttpOptions(**options))
    return GoogleModel(resolved.about.ref.model, provider=GoogleProvider(client=client))


def _versioned(url: str) -> str:
    return url if url.endswith("/v1") else f"{url}/v1"
