"""One model behind one credential, through the client library's direct API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from holdfast.agents.models.catalogue import Resolved, priced
from holdfast.agents.models.credentials import Credential
from holdfast.agents.models.dialects import (
    CHAT,
    OAUTH_BETA,
    TALK,
    Pool,
    Talk,
    load,
    their_model,
    without_talk,
)
from holdfast.agents.models.failures import failure, translated
from holdfast.agents.models.types import (
    ANY_OBJECT,
    CallDelta,
    ModelAbout,
    ModelEvent,
    ModelFailure,
    ModelReply,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from holdfast.agents.models.wire import (
    Echoes,
    calls_of,
    finish_of,
    text_of,
    thinking_of,
    to_parts,
    usage_of,
)
from holdfast.context import AssistantMessage, Message, SystemMessage, ToolSpec
from holdfast.context.request import Remembered
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model as Their
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition

T = TypeVar("T")
_FIRST: Final = 2  # the head of an answer, then its first piece
_MARKING_ERRORS: Final = frozenset(("anthropic-messages", "google-generative-ai"))
_ECHOING: Final = frozenset(("anthropic-messages", "google-generative-ai", "openai-responses"))


class Client:
    """A `Model` over HTTP. Deltas come as they are sent; a silence or a break is a `ModelFailure`."""

    def __init__(
        self,
        resolved: Resolved,
        credential: Credential | None,
        pool: Pool,
        *,
        env: Mapping[str, str],
        echoes: Echoes | None = None,
    ) -> None:
        self._resolved = resolved
        self._credential = credential
        self._pool = pool
        self._env = env
        self._echoes = echoes if resolved.api in _ECHOING else None

    @property
    def about(self) -> ModelAbout:
        return self._resolved.about

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Deltas, then the reply. What was said before a break is in the failure's `partial`."""
        heard: list[str] = []
        started = False
        try:
            async with self._pool.gate(self._resolved.endpoint), aclosing(self._events(request)) as events:
                async for event in events:
                    started = True
                    if isinstance(event, TextDelta):
                        heard.append(event.text)
                    yield event
        except ModelFailure as failed:
            failed.partial = failed.partial or "".join(heard)
            raise
        except ConfigError as error:
            raise failure("not_configured", error.message, self.about.ref) from error
        except Exception as error:
            secret = self._credential.secret if self._credential is not None else ""
            known = translated(error, self.about.ref, started=started, partial="".join(heard), secret=secret)
            if known is None:
                raise
            raise known from error

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        await load(self._resolved)
        from pydantic_ai.direct import model_request_stream

        theirs = their_model(self._resolved, self._credential, self._pool, self._env)
        talk, rest = (
            without_talk(request.messages) if self._resolved.api in CHAT else (None, request.messages)
        )
        asked = model_request_stream(
            theirs,
            self._messages(rest, request.stable, begun=talk is not None),
            model_settings=self._settings(request, talk),
            model_request_parameters=_parameters(request, theirs),
            instrument=False,
        )
        async with AsyncExitStack() as stack:
            stream = await self._spoken(stack.enter_async_context(asked), pieces=_FIRST)
            events = aiter(stream)
            while (event := await self._spoken(anext(events, None))) is not None:
                delta = _delta(event)
                if delta is not None:
                    yield delta
            response = stream.get()
        yield self._reply(response)

    async def _spoken(self, awaited: Awaitable[T], *, pieces: int = 1) -> T:
        """What the model sends next; a connection that only shows signs of life is silent too."""
        seconds = self._resolved.endpoint.timeout_seconds
        try:
            async with asyncio.timeout(seconds * pieces):
                return await awaited
        except TimeoutError as error:
            raise failure("timeout", f"nothing came for {seconds:g} seconds", self.about.ref) from error

    def _reply(self, response: ModelResponse) -> ModelReply:
        ref, text, calls = self.about.ref, text_of(response), calls_of(response)
        if not (response.provider_details or {}).get("finish_reason"):
            raise failure("cut_off", "the answer broke off before its end", ref, partial=text)
        finish = finish_of(response)
        if finish == "refusal" and not text:
            raise failure("refused", "the provider's filter refused an answer", ref)
        if self._echoes is not None:
            self._echoes.keep(ref.provider, response)
        return ModelReply(
            model=ref,
            text=text,
            thinking=thinking_of(response),
            calls=calls,
            finish=finish,
            usage=priced(usage_of(response.usage), self._resolved),
        )

    def _echo(self, message: AssistantMessage) -> ModelResponse | None:
        return self._echoes.find(self.about.ref.provider, message) if self._echoes is not None else None

    def _messages(self, messages: Sequence[Message], stable: int, *, begun: bool) -> list[ModelMessage]:
        return to_parts(
            messages,
            images=self.about.images,
            stable=stable,
            markers=self._resolved.api == "anthropic-messages",
            echo=self._echo,
            begun=begun,
            marks_errors=self._resolved.api in _MARKING_ERRORS,
        )

    def _settings(self, request: ModelRequest, talk: Talk | None) -> ModelSettings:
        settings: dict[str, Any] = {} if talk is None else {"extra_body": {TALK: talk}}
        fit = self.about.fit
        if request.max_tokens is not None and fit.limit != "none":
            settings["max_tokens"] = min(request.max_tokens, self.about.max_tokens)
        if fit.stop:
            settings["stop_sequences"] = list(fit.stop)
        if request.thinking is not None and fit.thinking:
            settings["thinking"] = False if request.thinking == "off" else request.thinking
        if request.must_call:
            settings["tool_choice"] = list(request.must_call)
        if self._resolved.api == "openai-responses":
            settings["openai_store"] = False  # the transcript is ours, and nobody else need keep it
        if self._resolved.api == "anthropic-messages":
            settings.setdefault("max_tokens", self.about.max_tokens)
            has_system = any(isinstance(message, SystemMessage) for message in request.messages)
            marked = "anthropic_cache_instructions" if has_system else "anthropic_cache_tool_definitions"
            settings[marked] = True
            if self._credential is not None and self._credential.is_anthropic_oauth:
                settings["anthropic_betas"] = [OAUTH_BETA]
        return settings  # type: ignore[return-value]


def _delta(event: Any) -> ModelEvent | None:
    """What a surface can show of an event, if anything."""
    from pydantic_ai import messages as theirs

    match event:
        case theirs.PartStartEvent(part=theirs.TextPart(content=text)) if text:
            return TextDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)) if text:
            return TextDelta(text)
        case theirs.PartStartEvent(part=theirs.ThinkingPart(content=text)) if text:
            return ThinkingDelta(text)
        case theirs.PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=text)) if text:
            return ThinkingDelta(text)
        case theirs.PartStartEvent(part=theirs.ToolCallPart() as call):
            return CallDelta(call.tool_call_id, call.tool_name)
        case _:
            return None


def _parameters(request: ModelRequest, theirs: Their) -> ModelRequestParameters:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition

    tools = [_definition((tool,)) for tool in request.tools]
    schema = request.output_schema
    loose = schema == ANY_OBJECT
    able = theirs.profile.get("supports_json_object_output" if loose else "supports_json_schema_output")
    if schema is None or not able:
        return ModelRequestParameters(function_tools=tools)
    wanted = OutputObjectDefinition(
        json_schema=dict(schema), name=request.output_name, strict=request.output_strict
    )
    mode: Literal["prompted", "native"] = "prompted" if loose else "native"
    return ModelRequestParameters(function_tools=tools, output_mode=mode, output_object=wanted)


def _defined(tools: Sequence[ToolSpec]) -> ToolDefinition:
    from pydantic_ai.tools import ToolDefinition

    (tool,) = tools
    return ToolDefinition(
        name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters)
    )


_definition: Remembered[ToolSpec, ToolDefinition] = Remembered(_defined)
