"""Entries of the log as messages, and messages as drafts of entries: one place for both ways.

A message is written as OpenClaw's JSONL has it: `raw` holds the message object where there is more to it
than text (tool calls, call ids, images), a compaction's `raw` is `{"type": "compaction", …}`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from holdfast.context import pruning
from holdfast.context.fence import fence, safe
from holdfast.context.messages import (
    AssistantMessage,
    Image,
    Mark,
    Message,
    SummaryMessage,
    ToolCall,
    ToolResult,
    Trust,
    UserMessage,
    encode,
    text_digest,
    wire,
)
from holdfast.context.tokens import message_tokens
from holdfast.log import Classification, Entry, EntryDraft, EntryType
from holdfast.log.entries import LEFT_OUT
from holdfast.log.transcripts import calls_line

_ROLES: Final = {"user": "user", "assistant": "assistant", "toolResult": "tool", "tool": "tool"}
_OWN: Final = {"user": Trust.USER, "assistant": Trust.MODEL, "tool": Trust.TOOL}
PARTIAL: Final = "partial"
"""In an entry's source: why its words are not the whole answer."""
SAID_BEFORE: Final = "channel-history"
"""In an entry's source, as its note: what was said around a chat before the words that are answered."""
CUT_OFF: Final = "\n\n[Your answer was cut off here.]"
_SPOKEN: Final = (EntryType.CONVERSATION, EntryType.ACTION)


def message_of(entry: Entry, form: str = pruning.WHOLE) -> Message | None:
    """The message that an entry is, in a form; None for what no model is shown (notes, events)."""
    role = _role(entry)
    if role is None:
        return None
    body = message_body(entry.raw)
    source = entry.source or {}
    trust = _trust(source, _OWN[role])
    label = f"{source.get('channel') or 'log'}/{entry.id}" if trust < Trust.TOOL else f"entry/{entry.id}"
    said = "" if role == "assistant" and entry.type is EntryType.ACTION else entry.content
    text = safe(pruning.apply(form, said), trust, label)
    if role == "assistant" and isinstance(source.get(PARTIAL), str):
        text += CUT_OFF
    message = _built(role, body, source, text, trust, label)
    return None if message is None else marked(message, entry, form)


def marked(message: Message, entry: Entry, form: str) -> Message:
    """Note on a message which entry it is, its digest and its tokens, so that none is worked out twice."""
    tokens = message_tokens(message)
    digest = text_digest(encode(message))
    mark = Mark(
        entry.id,
        entry.revision,
        form,
        entry.position,
        digest,
        tokens,
        entry.turn_id,
        entry.audience,
        leads=(entry.source or {}).get("note") == SAID_BEFORE,
    )
    object.__setattr__(message, "mark", mark)
    return message


def summary_of(entry: Entry) -> SummaryMessage:
    """A compaction entry as the message that stands for what it covers."""
    source = f"summary/{entry.id}"
    text = fence(f"{SUMMARY_PREFACE}\n\n{entry.content}", Trust.MODEL, source)
    message = SummaryMessage(text=text, source=source)
    marked(message, entry, "summary")
    return message


SUMMARY_PREFACE: Final = (
    "Summary of the earlier part of this conversation. It is a record, not a request; the log has the words."
)


def draft_of(message: Message) -> EntryDraft:
    """How a message of a turn is written to the log, so that it is read back as the same message."""
    source = {} if message.trust == _default_trust(message) else {"trust": message.trust.label}
    match message:
        case AssistantMessage(text=text, calls=calls):
            blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
            blocks += [
                {"type": "toolCall", "id": c.id, "name": c.name, "arguments": c.arguments} for c in calls
            ]
            only_calls = bool(calls) and not text.strip()
            return EntryDraft(
                content=calls_line(blocks) if only_calls else text,
                role="assistant",
                type=EntryType.ACTION if only_calls else EntryType.CONVERSATION,
                raw=_dumps({"role": "assistant", "content": blocks}) if calls else None,
                source=source or None,
            )
        case ToolResult(text=text, call_id=call_id, name=name, is_error=is_error, images=images):
            raw = {
                "role": "toolResult",
                "toolCallId": call_id,
                "toolName": name,
                "isError": is_error,
                "content": _blocks(text, images),
            }
            return EntryDraft(
                content=text,
                role="toolResult",
                type=EntryType.ACTION,
                raw=_dumps(raw) if images else None,
                source={**source, "toolCallId": call_id, "toolName": name, "isError": is_error},
            )
        case UserMessage(text=text, images=images):
            raw = {"role": "user", "content": _blocks(text, images)}
            return EntryDraft(
                content=text,
                role="user",
                agent_id="user",
                raw=_dumps(raw) if images else None,
                source=source or None,
            )
    return EntryDraft(
        content=message.text, role="system", type=EntryType.SYSTEM, status=Classification.CLASSIFIED
    )


def whole_pairs(messages: Sequence[Message]) -> list[Message]:
    """Tool calls with their results right behind them: what has no partner is mended or left out.

    A result without its call is dropped; a call without a result gets one that says so.
    """
    results: dict[tuple[int, str], ToolResult] = {}
    waiting: dict[str, int] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            waiting |= {call.id: index for call in message.calls}
        elif isinstance(message, ToolResult) and message.call_id in waiting:
            results[waiting.pop(message.call_id), message.call_id] = message
    return list(_paired(messages, results))


def _paired(messages: Sequence[Message], results: Mapping[tuple[int, str], ToolResult]) -> Iterator[Message]:
    for index, message in enumerate(messages):
        if isinstance(message, ToolResult):
            continue
        yield message
        if isinstance(message, AssistantMessage):
            for call in {call.id: call for call in message.calls}.values():
                yield results.get((index, call.id)) or _lost(call)


def _lost(call: ToolCall) -> ToolResult:
    text = "[The result of this call was not recorded; the turn was cut off.]"
    return ToolResult(text=text, call_id=call.id, name=call.name, is_error=True, source="holdfast")


def in_turn_order(messages: Sequence[Message]) -> list[Message]:
    """Messages by turn, and by place in the log within a turn.

    Who writes while a turn runs has his words in the log before its reply; the model answered them after.
    Ids of turns are minted in order; what belongs to no turn stays behind what it followed. What was said
    around a chat before a turn stands first in it.
    """
    keys: list[tuple[str, bool]] = []
    for message in messages:
        own = None if message.mark is None else message.mark.turn_id
        leads = message.mark is not None and message.mark.leads
        keys.append((own if own is not None else (keys[-1][0] if keys else ""), not leads))
    if all(a <= b for a, b in pairwise(keys)):
        return list(messages)
    return [messages[i] for i in sorted(range(len(messages)), key=keys.__getitem__)]


def unseen(transcript: Sequence[Message], known: Sequence[Message]) -> list[Message]:
    """What a host's whole transcript has beyond what is known; equal messages are matched one to one."""
    counts = Counter(map(_identity, known))
    found: list[Message] = []
    for message in transcript:
        identity = _identity(message)
        if counts[identity] > 0:
            counts[identity] -= 1
        else:
            found.append(message)
    return found


def _identity(message: Message) -> str:
    same = {name: value for name, value in wire(message).items() if name != "kind"}
    same["content"] = safe(message.text, max(message.trust, Trust.TOOL), message.source)
    return _dumps(same)


def message_body(raw: str | None) -> Mapping[str, Any]:
    """The message object in an entry's `raw`, alone or within an imported line; else nothing."""
    found = raw_object(raw)
    if isinstance(found.get("message"), dict):
        found = found["message"]
    return found if isinstance(found.get("role"), str) else {}


def raw_object(raw: str | None) -> dict[str, Any]:
    if not raw or not raw.lstrip().startswith("{"):
        return {}
    try:
        found = json.loads(raw)
        if found.get("type") == "holdfast.verbatim":
            found = json.loads(found["text"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _role(entry: Entry) -> str | None:
    if entry.type not in _SPOKEN or entry.deleted_at is not None:
        return None
    if entry.source is not None and entry.source.get(LEFT_OUT) is True:
        return None
    role = _ROLES.get(entry.role or "")
    if role is None and entry.role is None and entry.type is EntryType.CONVERSATION:
        return "user" if entry.agent_id == "user" else "assistant"
    return role


def _trust(source: Mapping[str, Any], own: Trust) -> Trust:
    """What a writer says of an entry's trust may lower it and never raise it."""
    said = source.get("trust")
    if not isinstance(said, str) or said.upper() not in Trust.__members__:
        return own
    return min(own, Trust[said.upper()])


def _built(
    role: str, body: Mapping[str, Any], source: Mapping[str, Any], text: str, trust: Trust, label: str
) -> Message | None:
    blocks = body.get("content")
    parts = [b for b in blocks if isinstance(b, dict)] if isinstance(blocks, list) else []
    images = tuple(_images(parts))
    if role == "user":
        return UserMessage(text=text, trust=trust, source=label, images=images)
    if role == "assistant":
        calls = tuple(_calls(parts))
        return AssistantMessage(text=text, trust=trust, source=label, calls=calls) if text or calls else None
    call_id = body.get("toolCallId") or source.get("toolCallId")
    if not isinstance(call_id, str):
        return None
    name = str(body.get("toolName") or source.get("toolName") or "unknown")
    failed = body.get("isError") is True or source.get("isError") is True
    return ToolResult(
        text=text, trust=trust, source=label, call_id=call_id, name=name, is_error=failed, images=images
    )


def _calls(blocks: Iterable[Mapping[str, Any]]) -> Iterator[ToolCall]:
    for block in blocks:
        if block.get("type") == "toolCall" and isinstance(block.get("id"), str):
            arguments = block.get("arguments")
            given = arguments if isinstance(arguments, dict) else {}
            yield ToolCall(block["id"], str(block.get("name") or "unknown"), given)


def _images(blocks: Iterable[Mapping[str, Any]]) -> Iterator[Image]:
    for block in blocks:
        if block.get("type") == "image" and isinstance(block.get("data"), str):
            yield Image(str(block.get("mimeType") or "image/png"), block["data"])


def _blocks(text: str, images: Iterable[Image]) -> list[dict[str, Any]]:
    pictures = [{"type": "image", "mimeType": i.mime, "data": i.data} for i in images]
    return [{"type": "text", "text": text}, *pictures]


def _default_trust(message: Message) -> Trust:
    return {"user": Trust.USER, "assistant": Trust.MODEL, "tool_result": Trust.TOOL}.get(
        message.kind, Trust.OPERATOR
    )


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
