"""The lines of a transcript, the record of one, the index of a folder of them, and their Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import IO, Any, ClassVar, Final, Literal, NoReturn, TypeAlias, TypeVar

from holdfast.clock import Millis, iso, parse_iso
from holdfast.errors import InvalidInput
from holdfast.text import clip

Json: TypeAlias = Mapping[str, Any]


def key(name: str, *types: type) -> Any:
    """A field that may be missing, under its JSON name, with the types it is taken for."""
    return field(default=None, metadata={"key": name, "types": types})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
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


R = TypeVar("R", bound=Record)


def record(kind: type[R], found: dict[str, Any]) -> R:
    """Take an object for a record: known fields of the right type in their places, the rest as extra."""
    known = _known(kind)
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in found.items():
        part = known.get(name)
        if part is not None and _fits(value, part.metadata["types"]):
            values[part.name] = value
        elif name not in kind.fixed:
            extra[name] = value
    return kind(**values, extra=extra, order=tuple(found))


def decode(text: str) -> Any:
    """JSON as JavaScript writes it: no NaN, no Infinity, no number that only Python could hold."""
    return json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant, parse_float=_finite)


def encode(value: Any, indent: int | None = None) -> str:
    """Compact JSON in UTF-8, or all in ASCII if a lone surrogate leaves no other way."""
    separators = None if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    if text.isascii() or not has_surrogates(text):
        return text
    return json.dumps(value, separators=separators, indent=indent)


def has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def storable(text: str) -> str:
    """Text that every store takes: no lone surrogates and no NUL."""
    clean = text.replace("\0", "\ufffd")
    if clean.isascii() or not has_surrogates(clean):
        return clean
    return clean.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _known(kind: type[Record]) -> dict[str, Field[Any]]:
    return {part.metadata["key"]: part for part in fields(kind) if "key" in part.metadata}


def _fits(value: object, types: tuple[type, ...]) -> bool:
    return value is None or (isinstance(value, types) and not isinstance(value, bool))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


Fault = Literal["blank", "torn", "junk"]

_MOST_ARGUMENTS = 300
_MOST_CALLS = 2_000
_LATEST = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line(Record):
    id: str | None = key("id", str)
    parent_id: str | None = key("parentId", str)
    timestamp: str | int | float | None = key("timestamp", str, int, float)
    # Set only by reading and not copied by `replace`: a changed line is not written as it was.
    text: str | None = field(default=None, init=False, compare=False, repr=False)
    ended: bool = field(default=True, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header(_Line):
    fixed: ClassVar[Json] = {"type": "session"}
    version: int | None = key("version", int)
    cwd: str | None = key("cwd", str)
    parent_session: str | None = key("parentSession", str)


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
    first_kept_entry_id: str | None = key("firstKeptEntryId", str)
    tokens_before: int | None = key("tokensBefore", int)


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


def parse_line(text: str, lineno: int = 1, *, ended: bool = True) -> Line:
    """Read one line, without its newline. Never raises: what cannot be read comes as a BadLine."""
    if not text.strip("\ufeff \t\r"):
        return BadLine(lineno, text, "nothing on it", "blank", ended)
    try:
        found = decode(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return BadLine(lineno, text, reason[:200], "junk" if ended else "torn", ended)
    if not isinstance(found, dict):
        return BadLine(lineno, text, "not a JSON object", ended=ended)
    line = typed_line(found)
    object.__setattr__(line, "text", text)
    object.__setattr__(line, "ended", ended)
    return line


def typed_line(found: dict[str, Any]) -> Header | MessageLine | CompactionLine | OtherLine:
    """The line that an object stands for."""
    match found:
        case {"type": "session"}:
            return record(Header, found)
        case {"type": "message", "message": dict()}:
            return record(MessageLine, found)
        case {"type": "compaction", "summary": str()}:
            return record(CompactionLine, found)
        case _:
            return record(OtherLine, found)


def dump_line(line: Line) -> str:
    """The line without its newline: as it was read, or else built from its fields."""
    if line.text is not None:
        return line.text
    return encode(line.as_json())


def read_transcript(file: IO[bytes]) -> Iterator[Line]:
    """Stream the lines; a last one that a crash tore off is a BadLine with fault `torn`."""
    for lineno, row in enumerate(file, 1):
        ended = row.endswith(b"\n")
        text = (row[:-1] if ended else row).decode("utf-8", "surrogateescape")
        yield parse_line(text, lineno, ended=ended)


def write_transcript(lines: Iterable[Line], file: IO[bytes]) -> int:
    """Write lines so that an untouched transcript comes out identical, to its very last byte; count them."""
    ended, count = True, 0
    for line in lines:
        if not ended:
            file.write(b"\n")
        ended = line.ended
        file.write(_bytes(dump_line(line)) + (b"\n" if ended else b""))
        count += 1
    return count


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


def calls_line(content: object) -> str:
    """What a row of tool calls alone shows to people: the tools, each with a line of its arguments."""
    calls = [block for block in _blocks(content) if block.get("type") == "toolCall"]
    lines = [f"Tool call: {one.get('name') or 'unknown'} {_arguments(one)}".rstrip() for one in calls]
    return clip("\n".join(lines), _MOST_CALLS)


def _arguments(call: dict[str, Any]) -> str:
    given = call.get("arguments")
    return clip(json.dumps(given, ensure_ascii=False, default=str), _MOST_ARGUMENTS) if given else ""


def text_of(content: object) -> str:
    """The text of a message's content, which is a string or a list of blocks."""
    if isinstance(content, str):
        return content
    texts = (block.get("text") for block in _blocks(content) if block.get("type") == "text")
    return "\n".join(text for text in texts if isinstance(text, str))


def line_time(line: Line) -> Millis | None:
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


def _blocks(content: object) -> list[dict[str, Any]]:
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict)]


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMeta(Record):
    """One session's record in `sessions.json`."""

    session_id: str | None = key("sessionId", str)
    updated_at: int | None = key("updatedAt", int)
    session_file: str | None = key("sessionFile", str)
    chat_type: str | None = key("chatType", str)
    input_tokens: int | None = key("inputTokens", int)
    output_tokens: int | None = key("outputTokens", int)
    total_tokens: int | None = key("totalTokens", int)
    context_tokens: int | None = key("contextTokens", int)
    compaction_count: int | None = key("compactionCount", int)
    memory_flush_at: int | None = key("memoryFlushAt", int)
    memory_flush_compaction_count: int | None = key("memoryFlushCompactionCount", int)


def parse_sessions_json(text: str) -> dict[str, SessionMeta]:
    """Read `sessions.json`: session keys, as they are written there, and what is known of each."""
    hint = "Give it the sessions.json of an agent: one object, with a session key for each record."
    try:
        found = decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"sessions.json is not JSON: {error}", hint=hint) from error
    if not isinstance(found, dict):
        raise InvalidInput("sessions.json holds no object", hint=hint)
    for name, value in found.items():
        if not isinstance(value, dict):
            raise InvalidInput(f"the record of {name[:80]!r} is no object", hint=hint)
    return {name: record(SessionMeta, value) for name, value in found.items()}


def dump_sessions_json(sessions: Mapping[str, SessionMeta]) -> str:
    return encode({name: meta.as_json() for name, meta in sessions.items()}, indent=2) + "\n"


_HEADINGS: Final = {"user": "### User", "assistant": "### Assistant"}


def to_markdown(lines: Iterable[Line]) -> str:
    """Who said what, under a heading for each message; tool traces and summaries are left out.

    Text that looks like one of our headings is escaped, so that nobody speaks for another.
    """
    return "\n".join(markdown_parts(lines))


def markdown_parts(lines: Iterable[Line]) -> Iterator[str]:
    """The same message by message, to be joined by newlines."""
    for line in lines:
        heading = _HEADINGS.get(line.role or "") if isinstance(line, MessageLine) else None
        text = storable(line_content(line)).strip() if heading else ""
        if heading and text:
            at = line_time(line)
            yield f"{heading}{'' if at is None else f' · {iso(at)}'}\n\n{_unheaded(text)}\n"


def _unheaded(text: str) -> str:
    headings = tuple(_HEADINGS.values())
    return "\n".join(f"\\{row}" if row.lstrip().startswith(headings) else row for row in text.split("\n"))
