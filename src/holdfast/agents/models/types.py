"""What is asked of a model and what it answers, whoever serves it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, Protocol, TypeAlias

from holdfast.config.agents import Thinking
from holdfast.context import Message, ToolCall, ToolSpec
from holdfast.errors import HoldfastError, InvalidInput

FailureReason = Literal[
    "auth",
    "billing",
    "rate_limit",
    "overloaded",
    "timeout",
    "network",
    "cut_off",
    "bad_response",
    "context_overflow",
    "refused",
    "bad_request",
    "not_found",
    "not_configured",
]
Finish = Literal["stop", "tool_calls", "length", "refusal"]

INVALID_ARGUMENTS: Final = "__invalid__"
"""The one argument of a call whose arguments are no JSON object: it holds what the model wrote instead."""


@dataclass(frozen=True, slots=True, order=True)
class ModelRef:
    """`provider/model`; the model's own name may contain slashes."""

    provider: str
    model: str

    @classmethod
    def parse(cls, text: str) -> ModelRef:
        provider, slash, model = text.strip().partition("/")
        if not (provider and slash and model):
            raise InvalidInput(
                f"not a model: {text[:80]!r}", hint="Write it as provider/model, for example openai/gpt-5."
            )
        return cls(provider, model)

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them. `input` is all of the prompt, cached parts included."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        costs = [c for c in (self.cost, other.cost) if c is not None]
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            sum(costs) if costs else None,
        )

    def json(self) -> dict[str, float]:
        """As it stands with a turn; a price that is not known is left out."""
        counted: dict[str, float] = {
            "inputTokens": self.input,
            "outputTokens": self.output,
            "cacheReadTokens": self.cache_read,
            "cacheWriteTokens": self.cache_write,
        }
        return counted if self.cost is None else counted | {"cost": self.cost}


ANY_OBJECT: Final[Mapping[str, object]] = {"type": "object"}
"""The schema of an answer that has to be a JSON object, whichever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call. `stable` counts the leading messages that stay the same next time: caches end there.

    `output_schema` and `must_call`, the tools of which one has to be called, hold where the server can.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    stable: int = 0
    thinking: Thinking | None = None
    max_tokens: int | None = None
    output_schema: Mapping[str, object] | None = None
    output_name: str = "answer"
    output_strict: bool | None = None
    must_call: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A whole answer. `model` is the one that gave it."""

    model: ModelRef
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A tool call being written; its arguments are whole only in the reply."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """What was shown of this answer does not count: it failed midway, and another begins now."""

    reason: FailureReason


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | CallDelta | Restarted | ModelReply


class ModelFailure(HoldfastError):
    """A call that brought no whole answer, and why, in words that decide what to try next.

    `partial` are the words that came before it broke; `detail` is all that the server said of its reason.
    """

    status: ClassVar[int] = 502
    code = "model_failed"

    def __init__(
        self,
        message: str,
        reason: FailureReason,
        *,
        hint: str = "",
        retry_after_ms: int | None = None,
        partial: str = "",
        ref: ModelRef | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message, hint=hint, code=f"model_{reason}")
        self.reason = reason
        self.detail = detail
        self.retry_after_ms = retry_after_ms
        self.partial = partial
        self.ref = ref


ToolMode = Literal["native", "prompt", "none"]
LimitField = Literal["max_tokens", "max_completion_tokens", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFit:
    """What a model's server takes; `fit.py` makes a request fit for it.

    With `alternates`, words of a user and of the model must take turns; without `system` there is no such
    role. `tools` in the `prompt` are described in words, and calls are read out of the answer. `limit` is
    the field in which the length of an answer is bounded; None: as the protocol has it.
    """

    alternates: bool = False
    system: bool = True
    tools: ToolMode = "native"
    limit: LimitField | None = None
    thinking: bool = True
    stop: tuple[str, ...] = ()

    @property
    def sent_as(self) -> tuple[str, ...]:
        """What is changed of a request on its way, in words for the manifest."""
        tools = {"prompt": "tools described in the prompt", "none": "no tools"}.get(self.tools, "")
        told = (
            "roles by turns" if self.alternates else "",
            "" if self.system else "no system role",
            tools,
        )
        return tuple(filter(None, told))


@dataclass(frozen=True, slots=True)
class ModelAbout:
    """What is known of a model without asking it."""

    ref: ModelRef
    window: int
    max_tokens: int
    images: bool = False
    thinks: bool = False
    fit: ModelFit = field(default_factory=ModelFit)


class Model(Protocol):
    """One model with one credential."""

    @property
    def about(self) -> ModelAbout: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Deltas as they come, then exactly one `ModelReply`; `ModelFailure` if there is none."""
        ...
