"""Our messages as the client library's parts, and its answers as ours."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from holdfast.agents.models.types import INVALID_ARGUMENTS, Finish, Usage
from holdfast.context import (
    AssistantMessage,
    Image,
    Message,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)

if TYPE_CHECKING:
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
        UserContent,
    )
    from pydantic_ai.usage import RequestUsage

EMPTY: Final = "(empty)"
BEGINS: Final = "(the conversation goes on)"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FINISHES: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "refusal",
    "tool_call": "tool_calls",
}


class Echoes:
    """The last answers with tool calls as they came: a thinking model must see its own thoughts again.

    Bounded, and lost at a restart; a message that is not here is sent without its thoughts.
    """

    def __init__(self, most: int = 512) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, ...], ModelResponse] = OrderedDict()

    def keep(self, provider: str, response: ModelResponse) -> None:
        ids = [call.id for call in calls_of(response)]
        if ids and all(call_id(one) == one for one in ids):
            self._kept[provider, *ids] = response
            self._kept.move_to_end((provider, *ids))
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def find(self, provider: str, message: AssistantMessage) -> ModelResponse | None:
        """The answer of this provider that a message was made from, if nothing of it was changed since."""
        found = self._kept.get((provider, *(call.id for call in message.calls)))
        same = found is not None and calls_of(found) == message.calls and text_of(found) == message.text
        return found if same else None


def to_parts(
    messages: Sequence[Message],
    *,
    images: bool,
    stable: int = 0,
    markers: bool = False,
    echo: Callable[[AssistantMessage], ModelResponse | None] = lambda message: None,
    begun: bool = False,
    marks_errors: bool = True,
) -> list[ModelMessage]:
    """The conversation for the library. With `markers`, a cache ends after the `stable` leading messages,
    and at the end too while tools are being called, since the next call repeats it all. `begun` says that
    these messages go on from others. Without `marks_errors` a failed call's result is its text alone: where
    the protocol has no mark for it, the library would wrap that in JSON."""
    theirs = _theirs()
    found: list[ModelMessage] = []
    asked: list[ModelRequestPart] = []
    for index, message in enumerate(messages):
        if not isinstance(message, AssistantMessage):
            asked += _asked(message, images, marks_errors)
        elif (said := _said(message, echo)) is not None:
            if not (begun or found or _spoken(asked)):
                asked.append(theirs.UserPromptPart(content=BEGINS))
            if asked:
                found.append(theirs.ModelRequest(parts=asked))
            asked = []
            found.append(said)
        if markers and (found or _spoken(asked)) and _ends_cache(messages, index, stable):
            asked.append(theirs.UserPromptPart(content=[theirs.CachePoint()]))
    return [*found, theirs.ModelRequest(parts=asked)] if asked else found


@cache
def _theirs() -> ModuleType:
    """The library's messages; to import them by name for each message takes longer than to make it."""
    from pydantic_ai import messages

    return messages


# When something was said: the library would look at the clock for each message, and sends it to nobody.
_THEN: Final = {"timestamp": datetime.fromtimestamp(0, UTC)}


@cache
def _unmeasured() -> dict[str, Any]:
    """What the library would make anew for each old answer, and sends to nobody."""
    from pydantic_ai.usage import RequestUsage

    return {"usage": RequestUsage(), **_THEN}


def _spoken(parts: Sequence[ModelRequestPart]) -> bool:
    return any(part.part_kind != "system-prompt" for part in parts)


def _ends_cache(messages: Sequence[Message], index: int, stable: int) -> bool:
    """Where a cache marker follows a message; the system prompt has a marker of its own."""
    last = index == len(messages) - 1
    if isinstance(messages[index], SystemMessage) or (last and isinstance(messages[index], AssistantMessage)):
        return False
    return index == stable - 1 or (last and isinstance(messages[index], ToolResult))


def _asked(message: Message, images: bool, marks_errors: bool) -> list[ModelRequestPart]:
    theirs = _theirs()
    match message:
        case UserMessage() if not message.images:
            return [theirs.UserPromptPart(content=message.text if message.text.strip() else EMPTY, **_THEN)]
        case SystemMessage():
            return [theirs.SystemPromptPart(content=message.text, **_THEN)] if message.text else []
        case ToolResult():
            pictures = list(_pictures(message.images, images))
            return [
                theirs.ToolReturnPart(
                    tool_name=tool_name(message.name),
                    content=[message.text or EMPTY, *pictures] if pictures else message.text or EMPTY,
                    tool_call_id=call_id(message.call_id),
                    outcome="failed" if message.is_error and marks_errors else "success",
                    **_THEN,
                )
            ]
        case UserMessage():
            said = [message.text] if message.text.strip() else []
            return [theirs.UserPromptPart(content=[*said, *_pictures(message.images, images)], **_THEN)]
        case _:
            return [theirs.UserPromptPart(content=message.text if message.text.strip() else EMPTY, **_THEN)]


def _said(
    message: AssistantMessage, echo: Callable[[AssistantMessage], ModelResponse | None]
) -> ModelResponse | None:
    """What the model said; None for a message with nothing in it, which no provider takes."""
    usual = all(_ID.fullmatch(call.name) for call in message.calls)
    if message.calls and usual and (kept := echo(message)) is not None:
        return kept
    theirs = _theirs()
    parts: list[ModelResponsePart] = [theirs.TextPart(content=message.text)] if message.text.strip() else []
    parts += [
        theirs.ToolCallPart(tool_name=tool_name(c.name), args=dict(c.arguments), tool_call_id=call_id(c.id))
        for c in message.calls
    ]
    return theirs.ModelResponse(parts=parts, **_unmeasured()) if parts else None


def _pictures(images: Sequence[Image], shown: bool) -> Iterator[UserContent]:
    from pydantic_ai.messages import BinaryContent, ImageUrl

    for image in images:
        if not shown:
            yield f"[a picture ({image.mime}) is not shown: this model reads text only]"
        elif image.data.startswith(("http://", "https://")):
            yield ImageUrl(url=image.data, media_type=image.mime)
        else:
            try:
                raw = base64.b64decode(re.sub(r"^data:[^,]*,", "", image.data), validate=True)
            except (binascii.Error, ValueError):
                yield f"[a picture ({image.mime}) cannot be read]"
            else:
                yield BinaryContent(data=raw, media_type=image.mime)


def call_id(text: str) -> str:
    """A call's id in the letters that every provider takes; most are so already."""
    return text if _ID.fullmatch(text) else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def tool_name(text: str) -> str:
    """A tool's name in the letters that every provider takes: models make some up, and history has them."""
    return text if _ID.fullmatch(text) else re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:64] or "unnamed"


def arguments_in(raw: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments as an object; whatever is none is handed on under `INVALID_ARGUMENTS`."""
    if raw is None or raw == "":
        return {}
    if not isinstance(raw, str):
        return dict(raw)
    try:
        found = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return {INVALID_ARGUMENTS: raw}
    return found if isinstance(found, dict) else {INVALID_ARGUMENTS: raw}


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def calls_of(response: ModelResponse) -> tuple[ToolCall, ...]:
    from pydantic_ai.messages import ToolCallPart

    return tuple(
        ToolCall(part.tool_call_id, part.tool_name, arguments_in(part.args))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )


def text_of(response: ModelResponse) -> str:
    from pydantic_ai.messages import TextPart

    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def thinking_of(response: ModelResponse) -> str:
    from pydantic_ai.messages import ThinkingPart

    return "\n\n".join(
        part.content for part in response.parts if isinstance(part, ThinkingPart) and part.content
    )


def finish_of(response: ModelResponse) -> Finish:
    """Calls are what matters, whatever word the server chose for its end."""
    if calls_of(response):
        return "tool_calls"
    said = _FINISHES.get(response.finish_reason or "stop", "stop")
    raw = str((response.provider_details or {}).get("finish_reason", ""))
    if raw in ("refusal", "content_filter"):
        return "refusal"
    return "stop" if said == "tool_calls" else said


def usage_of(counted: RequestUsage) -> Usage:
    return Usage(
        input=counted.input_tokens,
        output=counted.output_tokens,
        cache_read=counted.cache_read_tokens,
        cache_write=counted.cache_write_tokens,
    )
