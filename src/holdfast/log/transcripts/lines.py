"""The lines of a transcript, read and written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar, Literal, TypeAlias

from holdfast.clock import Millis, parse_iso
from holdfast.errors import InvalidInput
from holdfast.log.transcripts.record import Json, Record, decode, encode, key, record
from holdfast.text import clip

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
