"""The client library's model for each protocol, and plain talk that needs no library.

The client library makes objects of every message and maps each back to a mapping of two fields. With a long
history that was a third of a call's processor time. So the run of plain messages after the system prompt goes
around it, and only what is more than text, and what is new, goes through.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.agents.models.catalogue import Resolved
from holdfast.agents.models.credentials import Credential
from holdfast.agents.models.pool import Pool, revealed, timeout, trusted
from holdfast.agents.models.types import ModelFailure
from holdfast.agents.models.wire import BEGINS, EMPTY
from holdfast.context import AssistantMessage, Message, SystemMessage, UserMessage
from holdfast.context.request import Kept

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from pydantic_ai.models import Model as Their
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition


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


async def load(resolved: Resolved) -> None:
    """Import what a protocol needs in a thread: it takes a second, for which no other session should wait."""
    name = _MODULES.get(resolved.api, "pydantic_ai.models.openai")
    if name not in _loaded:
        await asyncio.to_thread(_import, name)
        _loaded.add(name)


def _import(name: str) -> None:
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

    known: Kept[ToolDefinition, ToolDefinition] = Kept(fitted)

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
