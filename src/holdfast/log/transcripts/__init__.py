"""OpenClaw's session files: JSONL transcripts and `sessions.json`, in and out without loss.

A line that was read keeps its text and is written as it was, byte for byte; a line that was built
or changed with `dataclasses.replace` is written from its fields, unknown ones included, in the
order in which they were read. Bytes that are not UTF-8 and lone surrogates (`"\\ud800"`) are
carried through in the text; in `content`, which every store must take, they and NUL become U+FFFD.
"""

from holdfast.log.transcripts.lines import (
    BadLine,
    CompactionLine,
    Header,
    Line,
    MessageLine,
    OtherLine,
    SessionMeta,
    calls_line,
    dump_line,
    dump_sessions_json,
    line_content,
    line_time,
    markdown_parts,
    parse_line,
    parse_sessions_json,
    read_transcript,
    text_of,
    to_markdown,
    write_transcript,
)
from holdfast.log.transcripts.native import (
    NativeEntry,
    ToolCall,
    from_raw,
    header_for,
    line_for,
    line_of_entry,
    lines_for,
    to_drafts,
)

__all__ = [
    "BadLine",
    "CompactionLine",
    "Header",
    "Line",
    "MessageLine",
    "NativeEntry",
    "OtherLine",
    "SessionMeta",
    "ToolCall",
    "calls_line",
    "dump_line",
    "dump_sessions_json",
    "from_raw",
    "header_for",
    "line_content",
    "line_for",
    "line_of_entry",
    "line_time",
    "lines_for",
    "markdown_parts",
    "parse_line",
    "parse_sessions_json",
    "read_transcript",
    "text_of",
    "to_drafts",
    "to_markdown",
    "write_transcript",
]
