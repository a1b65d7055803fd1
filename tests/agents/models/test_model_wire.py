"""Our messages as the client library's parts: nothing of a conversation is lost on the way."""

from __future__ import annotations

import base64
import re
import string
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.models import INVALID_ARGUMENTS
from holdfast.agents.models.wire import Echoes, arguments_in, call_id, calls_of, text_of, to_parts
from holdfast.context import (
    AssistantMessage,
    CarrierMessage,
    Image,
    Message,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)

words = st.text(min_size=1, max_size=30).filter(str.strip)
ids = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=40)
names = st.from_regex(r"[a-z][a-z_]{0,12}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
arguments = st.dictionaries(st.text(max_size=8), json_values, max_size=3)
pictures = st.lists(
    st.builds(
        lambda raw: Image("image/png", base64.b64encode(raw).decode()), st.binary(min_size=1, max_size=20)
    )
    | st.just(Image("image/png", "https://example.org/a.png")),
    max_size=2,
).map(tuple)
calls = st.lists(st.builds(ToolCall, ids, names, arguments), max_size=3, unique_by=lambda c: c.id).map(tuple)
spoken = st.one_of(
    st.builds(UserMessage, text=words, images=pictures),
    st.builds(AssistantMessage, text=st.just("") | words, calls=calls),
    st.builds(ToolResult, text=words, call_id=ids, name=names, is_error=st.booleans(), images=pictures),
    st.builds(SummaryMessage, text=words),
    st.builds(CarrierMessage, text=words),
)
conversations = st.builds(
    lambda system, first, rest: [*system, first, *rest],
    st.lists(st.builds(SystemMessage, text=words), max_size=1),
    st.builds(UserMessage, text=words),
    st.lists(spoken, max_size=8),
)


@settings(max_examples=40)
@given(conversations, st.integers(0, 9), st.booleans())
def test_every_word_call_result_and_picture_survives_in_its_order(
    messages: list[Message], stable: int, markers: bool
) -> None:
    parts = to_parts(messages, images=True, stable=stable, markers=markers)
    assert _back(parts) == [seen for message in messages if (seen := _said(message)) is not None]


@settings(max_examples=40)
@given(conversations, st.integers(0, 9))
def test_there_are_never_more_than_two_cache_markers_in_the_messages(
    messages: list[Message], stable: int
) -> None:
    parts = to_parts(messages, images=True, stable=stable, markers=True)
    items = [i for m in parts for p in m.parts if isinstance(c := getattr(p, "content", ""), list) for i in c]
    assert sum(getattr(item, "kind", "") == "cache-point" for item in items) <= 2


@settings(max_examples=40)
@given(st.dictionaries(st.text(), json_values) | st.text())
def test_arguments_are_an_object_whatever_the_model_wrote(raw: dict[str, Any] | str) -> None:
    found = arguments_in(raw)
    if isinstance(raw, dict):
        assert found == raw
    elif INVALID_ARGUMENTS in found:
        assert found == {INVALID_ARGUMENTS: raw}
    else:
        assert isinstance(found, dict)


def test_numbers_that_json_does_not_have_are_no_arguments() -> None:
    assert arguments_in('{"x": NaN}') == {INVALID_ARGUMENTS: '{"x": NaN}'}


@settings(max_examples=40)
@given(st.text())
def test_the_id_of_a_call_is_one_that_every_provider_takes(text: str) -> None:
    made = call_id(text)
    assert 1 <= len(made) <= 64
    assert set(made) <= set(string.ascii_letters + string.digits + "_-")
    assert call_id(made) == made


@settings(max_examples=40)
@given(st.text(max_size=100))
def test_a_name_that_a_model_made_up_spoils_no_later_call(name: str) -> None:
    from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart

    call = ToolCall("c1", name, {})
    messages: list[Message] = [
        UserMessage(text="do"),
        AssistantMessage(text="", calls=(call,)),
        ToolResult(text="no such tool", call_id="c1", name=name, is_error=True),
    ]
    echo = ModelResponse(parts=[ToolCallPart(name, {}, "c1")])
    sent = [
        part.tool_name
        for message in to_parts(messages, stable=0, images=False, echo=lambda _: echo)
        for part in message.parts
        if isinstance(part, (ToolCallPart, ToolReturnPart))
    ]
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", sent[0])


def test_a_conversation_that_begins_with_the_model_is_given_a_beginning() -> None:
    parts = to_parts([SystemMessage(text="s"), AssistantMessage(text="hello")], images=False)
    assert [part.part_kind for part in parts[0].parts] == ["system-prompt", "user-prompt"]


def test_echoes_are_bounded_and_only_for_what_was_not_changed() -> None:
    from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

    def response(n: int) -> ModelResponse:
        return ModelResponse(
            parts=[ThinkingPart("hm"), TextPart("said"), ToolCallPart("t", {"n": n}, f"c{n}")]
        )

    echoes = Echoes(most=2)
    for n in range(3):
        echoes.keep("a", response(n))
    kept = AssistantMessage(text="said", calls=calls_of(response(2)))
    assert echoes.find("a", kept) is not None
    assert echoes.find("b", kept) is None, "a signature means nothing to another provider"
    assert echoes.find("a", AssistantMessage(text="changed", calls=kept.calls)) is None
    assert echoes.find("a", AssistantMessage(text="said", calls=calls_of(response(0)))) is None


def _said(message: Message) -> tuple[object, ...] | None:
    match message:
        case SystemMessage():
            return ("system", message.text)
        case AssistantMessage():
            return (
                ("assistant", message.text if message.text.strip() else "", message.calls)
                if (message.text.strip() or message.calls)
                else None
            )
        case ToolResult():
            return ("result", message.call_id, message.name, message.is_error, message.text, message.images)
        case UserMessage():
            return ("user", message.text, message.images)
        case _:
            return ("user", message.text, ())


def _back(parts: list[Any]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for message in parts:
        if message.kind == "response":
            found.append(("assistant", text_of(message), calls_of(message)))
            continue
        for part in message.parts:
            text, images = _content(part.content)
            if part.part_kind == "system-prompt":
                found.append(("system", text))
            elif part.part_kind == "tool-return":
                failed = part.outcome == "failed"
                found.append(("result", part.tool_call_id, part.tool_name, failed, text, images))
            elif text or images:
                found.append(("user", text, images))
    return found


def _content(content: Any) -> tuple[str, tuple[Image, ...]]:
    items = [content] if isinstance(content, str) else list(content)
    images = [
        Image(i.media_type, i.url if i.kind == "image-url" else base64.b64encode(i.data).decode())
        for i in items
        if getattr(i, "kind", "") in ("image-url", "binary")
    ]
    return "".join(i for i in items if isinstance(i, str)), tuple(images)
