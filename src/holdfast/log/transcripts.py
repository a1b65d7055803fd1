"""OpenClaw's session files: JSONL transcripts and `sessions.json`, in and out without loss.

A line that was read keeps its text and is written as it was, byte for byte; a line that was built
or changed with `dataclasses.replace` is written from its fields, unknown ones included, in the
order in which they were read. Bytes that are not UTF-8 and lone surrogates (`"\\ud800"`) are
carried through in the text; in `content`, which every store must take, they and NUL become U+FFFD.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from hashlib import sha256
from typing import IO, Any, ClassVar, Literal, NoReturn, TypeAlias, TypeVar

from holdfast.clock import Millis, iso, parse_iso
from holdfast.errors import InvalidInput
from holdfast.ids import AgentId, SessionId
from holdfast.keys import SessionKey

Json: TypeAlias = Mapping[str, Any]
Fault = Literal["blank", "torn", "junk"]
DraftType = Literal["conversation", "action", "system"]

VERSION = 4
USER = AgentId("user")
_EPOCH = Millis(0)
_NO_USAGE: Json = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0)
_LATEST = 253_402_300_799_999
_WRAPPED = '{"type":"holdfast.verbatim",'
_ATTRIBUTION = {"user": "### User", "assistant": "### Assistant"}


def _key(name: str, *types: type) -> Any:
    """A field that may be missing, under its JSON name, with the types it is taken for."""
    return field(default=None, metadata={"key": name, "types": types})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """A JSON object with known fields; one of a strange type is kept among the extra ones."""

    fixed: ClassVar[Json] = {}
    extra: Json = field(default_factory=dict)
    order: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        """The object again: keys in the order they were read, then those that were added."""
        present = {**self.fixed}
        for part in _known(type(self)).values():
            value = getattr(self, part.name)
            if value is not None or part.metadata["key"] in self.order:
                present[part.metadata["key"]] = value
        present.update(self.extra)
        return {key: present[key] for key in self.order if key in present} | present


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line(_Record):
    id: str | None = _key("id", str)
    parent_id: str | None = _key("parentId", str)
    timestamp: str | int | float | None = _key("timestamp", str, int, float)
    # Set only by reading and not copied by `replace`: a changed line is not written as it was.
    text: str | None = field(default=None, init=False, compare=False, repr=False)
    ended: bool = field(default=True, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header(_Line):
    fixed: ClassVar[Json] = {"type": "session"}
    version: int | None = _key("version", int)
    cwd: str | None = _key("cwd", str)
    parent_session: str | None = _key("parentSession", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLine(_Line):
    """One message; its object (role, content, usage, ...) is kept whole and must not be altered."""

    fixed: ClassVar[Json] = {"type": "message"}
    message: Json = field(metadata={"key": "message", "types": (dict,)})

    @property
    def role(self) -> str | None:
        role = self.message.get("role")
        return role if isinstance(role, str) else None

    @property
    def has_tool_calls(self) -> bool:
        blocks = _blocks(self.message.get("content"))
        return any(block.get("type") == "toolCall" for block in blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLine(_Line):
    fixed: ClassVar[Json] = {"type": "compaction"}
    summary: str = field(metadata={"key": "summary", "types": (str,)})
    first_kept_entry_id: str | None = _key("firstKeptEntryId", str)
    tokens_before: int | None = _key("tokensBefore", int)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLine(_Line):
    """Any other object: custom messages, resets, model changes, summaries of branches, ..."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no JSON object, kept as it stands: blank, torn off by a crash, or junk."""

    lineno: int
    text: str
    reason: str
    fault: Fault = "junk"
    ended: bool = True


Line: TypeAlias = Header | MessageLine | CompactionLine | OtherLine | BadLine
_R = TypeVar("_R", bound=_Record)


def parse_line(text: str, lineno: int = 1, *, ended: bool = True) -> Line:
    """Read one line, without its newline. Never raises: what cannot be read comes as a BadLine."""
    if not text.strip("\ufeff \t\r"):
        return BadLine(lineno, text, "nothing on it", "blank", ended)
    try:
        found = _decode(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return BadLine(lineno, text, reason[:200], "junk" if ended else "torn", ended)
    if not isinstance(found, dict):
        return BadLine(lineno, text, "not a JSON object", ended=ended)
    line = _typed(found)
    object.__setattr__(line, "text", text)
    object.__setattr__(line, "ended", ended)
    return line


def dump_line(line: Line) -> str:
    """The line without its newline: as it was read, or else built from its fields."""
    if line.text is not None:
        return line.text
    return _encode(line.as_json())


def read_transcript(file: IO[bytes]) -> Iterator[Line]:
    """Stream the lines; a last one that a crash tore off is a BadLine with fault `torn`."""
    for lineno, row in enumerate(file, 1):
        ended = row.endswith(b"\n")
        text = (row[:-1] if ended else row).decode("utf-8", "surrogateescape")
        yield parse_line(text, lineno, ended=ended)


def write_transcript(lines: Iterable[Line], file: IO[bytes]) -> None:
    """Write lines so that an untouched transcript comes out identical, to its very last byte."""
    ended = True
    for line in lines:
        if not ended:
            file.write(b"\n")
        ended = line.ended
        file.write(_bytes(dump_line(line)) + (b"\n" if ended else b""))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDraft:
    """What a transcript line becomes in the log; `raw` alone is enough to write it again."""

    type: DraftType
    role: str | None
    content: str
    raw: str
    source: Mapping[str, str]
    created_at: Millis
    agent_id: AgentId
    idempotency_key: str


def to_drafts(
    lines: Iterable[Line],
    session_key: SessionKey,
    session_id: SessionId,
    agent_id: AgentId,
    *,
    default_at: Millis = _EPOCH,
) -> Iterator[EntryDraft]:
    """One draft for each line. The same file gives the same keys, also after it has grown.

    A line without a usable time gets that of the line before it, the first ones `default_at`.
    """
    seen: dict[bytes, int] = {}
    at = default_at
    for line in lines:
        at = _time_of(line) or at
        line_id = None if isinstance(line, BadLine) else line.id
        source = {"channel": "import", "sessionKey": session_key}
        role = line.role if isinstance(line, MessageLine) else None
        yield EntryDraft(
            type=_draft_type(line),
            role=None if role is None else _storable(role),
            content=_storable(line_content(line)),
            raw=_to_raw(line),
            source=source if line_id is None else {**source, "messageId": _storable(line_id)},
            created_at=at,
            agent_id=USER if role == "user" else agent_id,
            idempotency_key=_idempotency_key(session_id, line_id, dump_line(line), seen),
        )


def from_raw(rows: Iterable[str]) -> Iterator[Line]:
    """The lines again from the `raw` of their entries, in order: the identical file."""
    for lineno, raw in enumerate(rows, 1):
        if raw.startswith(_WRAPPED):
            kept = json.loads(raw)
            yield parse_line(kept["text"], lineno, ended=kept["ended"])
        else:
            yield parse_line(raw, lineno)


def line_content(line: Line) -> str:
    """The plain text of a line: its text blocks, or the summary; no thinking and no tool calls."""
    match line:
        case MessageLine():
            return text_of(line.message.get("content"))
        case CompactionLine():
            return line.summary
        case OtherLine():
            summary = line.extra.get("summary")
            return summary if isinstance(summary, str) else text_of(line.extra.get("content"))
        case BadLine():
            return line.text.strip()
        case Header():
            return ""


def text_of(content: object) -> str:
    """The text of a message's content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    texts = (block.get("text") for block in _blocks(content) if block.get("type") == "text")
    return "\n".join(text for text in texts if isinstance(text, str))


def to_markdown(lines: Iterable[Line]) -> str:
    """Who said what, under a heading for each message; tool traces and summaries are left out.

    Text that looks like one of our headings is escaped, so that nobody speaks for another.
    """
    parts: list[str] = []
    for line in lines:
        heading = _ATTRIBUTION.get(line.role or "") if isinstance(line, MessageLine) else None
        text = _storable(line_content(line)).strip() if heading else ""
        if heading and text:
            at = _time_of(line)
            parts.append(f"{heading}{'' if at is None else f' · {iso(at)}'}\n\n{_unheaded(text)}\n")
    return "\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeEntry:
    """What is needed of an entry that was born here, to write it as a transcript line."""

    id: str
    role: Literal["user", "assistant", "toolResult", "system"]
    content: str
    created_at: Millis
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    provider: str = "holdfast"
    model: str = "unknown"
    usage: Json = field(default_factory=lambda: _NO_USAGE)


def header_for(session_id: SessionId, started_at: Millis, cwd: str = "") -> Header:
    order = ("type", "version", "id", "timestamp", "cwd")
    return Header(version=VERSION, id=session_id, timestamp=iso(started_at), cwd=cwd, order=order)


def line_for(entry: NativeEntry, parent_id: str | None) -> Line:
    """Build the line of an entry, hung under `parent_id` (None for the first)."""
    order = ("type", "id", "parentId", "timestamp")
    stamp = iso(entry.created_at)
    if entry.role == "system":
        extra = {
            "type": "custom_message",
            "customType": "holdfast.system",
            "content": entry.content,
            "display": False,
        }
        return OtherLine(id=entry.id, parent_id=parent_id, timestamp=stamp, extra=extra, order=order)
    message = _native_message(entry)
    return MessageLine(id=entry.id, parent_id=parent_id, timestamp=stamp, message=message, order=order)


def lines_for(header: Header, entries: Iterable[NativeEntry]) -> Iterator[Line]:
    """A whole native session: the header, then each entry under the one before it."""
    yield header
    parent: str | None = None
    for entry in entries:
        yield line_for(entry, parent)
        parent = entry.id


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMeta(_Record):
    """One session's record in `sessions.json`."""

    session_id: str | None = _key("sessionId", str)
    updated_at: int | None = _key("updatedAt", int)
    session_file: str | None = _key("sessionFile", str)
    chat_type: str | None = _key("chatType", str)
    input_tokens: int | None = _key("inputTokens", int)
    output_tokens: int | None = _key("outputTokens", int)
    total_tokens: int | None = _key("totalTokens", int)
    context_tokens: int | None = _key("contextTokens", int)
    compaction_count: int | None = _key("compactionCount", int)
    memory_flush_at: int | None = _key("memoryFlushAt", int)
    memory_flush_compaction_count: int | None = _key("memoryFlushCompactionCount", int)


def parse_sessions_json(text: str) -> dict[str, SessionMeta]:
    """Read `sessions.json`: session keys, as they are written there, and what is known of each."""
    hint = "Give it the sessions.json of an agent: one object, with a session key for each record."
    try:
        found = _decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"sessions.json is not JSON: {error}", hint=hint) from error
    if not isinstance(found, dict):
        raise InvalidInput("sessions.json holds no object", hint=hint)
    for key, value in found.items():
        if not isinstance(value, dict):
            raise InvalidInput(f"the record of {key[:80]!r} is no object", hint=hint)
    return {key: _record(SessionMeta, value) for key, value in found.items()}


def dump_sessions_json(sessions: Mapping[str, SessionMeta]) -> str:
    return _encode({key: meta.as_json() for key, meta in sessions.items()}, indent=2) + "\n"


def _typed(found: dict[str, Any]) -> Header | MessageLine | CompactionLine | OtherLine:
    match found:
        case {"type": "session"}:
            return _record(Header, found)
        case {"type": "message", "message": dict()}:
            return _record(MessageLine, found)
        case {"type": "compaction", "summary": str()}:
            return _record(CompactionLine, found)
        case _:
            return _record(OtherLine, found)


def _record(kind: type[_R], found: dict[str, Any]) -> _R:
    known = _known(kind)
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in found.items():
        part = known.get(key)
        if part is not None and _fits(value, part.metadata["types"]):
            values[part.name] = value
        elif key not in kind.fixed:
            extra[key] = value
    return kind(**values, extra=extra, order=tuple(found))


def _known(kind: type[_Record]) -> dict[str, Field[Any]]:
    return {part.metadata["key"]: part for part in fields(kind) if "key" in part.metadata}


def _fits(value: object, types: tuple[type, ...]) -> bool:
    return value is None or (isinstance(value, types) and not isinstance(value, bool))


def _decode(text: str) -> Any:
    """JSON as JavaScript writes it: no NaN, no Infinity, no number that only Python could hold."""
    return json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant, parse_float=_finite)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _encode(value: Any, indent: int | None = None) -> str:
    """Compact JSON in UTF-8, or all in ASCII if a lone surrogate leaves no other way."""
    separators = None if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    if text.isascii() or not _has_surrogates(text):
        return text
    return json.dumps(value, separators=separators, indent=indent)


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _storable(text: str) -> str:
    """Text that every store takes: no lone surrogates and no NUL."""
    clean = text.replace("\0", "\ufffd")
    if clean.isascii() or not _has_surrogates(clean):
        return clean
    return clean.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _to_raw(line: Line) -> str:
    """The line as text for the log, wrapped if plain text could not say it exactly."""
    text = dump_line(line)
    if line.ended and not text.startswith(_WRAPPED) and _storable(text) == text:
        return text
    return f'{_WRAPPED}"ended":{json.dumps(line.ended)},"text":{json.dumps(text)}}}'


def _blocks(content: object) -> list[dict[str, Any]]:
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict)]


def _draft_type(line: Line) -> DraftType:
    if not isinstance(line, MessageLine):
        return "system"
    if line.role == "toolResult":
        return "action"
    if line.role not in _ATTRIBUTION:
        return "system"
    return "action" if line.has_tool_calls and not line_content(line).strip() else "conversation"


def _time_of(line: Line) -> Millis | None:
    """The line's own time, or else the message's."""
    if isinstance(line, BadLine):
        return None
    inner = line.message.get("timestamp") if isinstance(line, MessageLine) else None
    return _millis(line.timestamp) or _millis(inner)


def _millis(stamp: object) -> Millis | None:
    if isinstance(stamp, str):
        try:
            stamp = parse_iso(stamp)
        except InvalidInput:
            return None
    if isinstance(stamp, bool) or not isinstance(stamp, int | float):
        return None
    return Millis(int(stamp)) if 1 <= stamp <= _LATEST else None


def _idempotency_key(session_id: str, line_id: str | None, text: str, seen: dict[bytes, int]) -> str:
    """A hash of session, line id and text; equal lines are told apart by which of them it is."""
    plain = sha256(json.dumps([session_id, line_id, text]).encode()).digest()
    nth = seen[plain] = seen.get(plain, -1) + 1
    return "import:" + sha256(plain + str(nth).encode()).hexdigest()[:40]


def _unheaded(text: str) -> str:
    headings = tuple(_ATTRIBUTION.values())
    return "\n".join(f"\\{row}" if row.lstrip().startswith(headings) else row for row in text.split("\n"))


def _native_message(entry: NativeEntry) -> dict[str, Any]:
    text = [{"type": "text", "text": entry.content}] if entry.content else []
    message: dict[str, Any] = {"role": entry.role, "content": text}
    if entry.role == "assistant":
        calls = [
            {"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments}
            for call in entry.tool_calls
        ]
        message |= {
            "content": [*text, *calls],
            "api": "holdfast",
            "provider": entry.provider,
            "model": entry.model,
            "usage": entry.usage,
            "stopReason": "toolUse" if calls else "stop",
        }
    elif entry.role == "toolResult":
        message |= {
            "toolCallId": entry.tool_call_id,
            "toolName": entry.tool_name,
            "isError": entry.is_error,
        }
    return {**message, "timestamp": entry.created_at}
