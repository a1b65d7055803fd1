from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.clock import Millis, parse_iso
from holdfast.errors import InvalidInput
from holdfast.ids import AgentId, SessionId
from holdfast.keys import SessionKey
from holdfast.log.entry_model import EntryDraft
from holdfast.log.transcripts import (
    BadLine,
    CompactionLine,
    Header,
    Line,
    MessageLine,
    NativeEntry,
    OtherLine,
    ToolCall,
    dump_line,
    dump_sessions_json,
    from_raw,
    header_for,
    line_for,
    lines_for,
    parse_line,
    parse_sessions_json,
    read_transcript,
    to_drafts,
    to_markdown,
    write_transcript,
)

KEY = SessionKey("agent:main:main")
SESSION = SessionId("s-1")
AGENT = AgentId("main")
AT = "2026-01-31T09:30:00.000Z"

OBJECTS: list[dict[str, Any]] = [
    {"type": "session", "version": 4, "id": "s-1", "timestamp": AT, "cwd": "/w"},
    {"type": "model_change", "id": "a0", "parentId": None, "timestamp": AT, "modelId": "m"},
    {
        "type": "message",
        "id": "a1",
        "parentId": "a0",
        "timestamp": AT,
        "message": {
            "role": "user",
            "content": [
                {"type": "text", "text": "Wie spät?"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            ],
            "timestamp": 1769851800000,
        },
    },
    {
        "type": "message",
        "id": "a2",
        "parentId": "a1",
        "message": {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "look it up"},
                {"type": "toolCall", "id": "c1", "name": "clock", "arguments": {"tz": "UTC"}},
            ],
            "usage": {"input": 10, "cost": {"total": 0.001}},
            "stopReason": "toolUse",
            "timestamp": 1769851801000,
        },
    },
    {
        "type": "message",
        "id": "a3",
        "parentId": "a2",
        "message": {
            "role": "toolResult",
            "toolCallId": "c1",
            "toolName": "clock",
            "content": [{"type": "text", "text": "09:30"}],
            "isError": False,
        },
    },
    {"type": "message", "id": "a4", "message": {"role": "assistant", "content": "Half past nine."}},
    {"type": "compaction", "id": "a5", "summary": "Time was asked.", "firstKeptEntryId": "a4"},
    {"type": "custom_message", "id": "a6", "customType": "x", "content": "Note.", "display": True},
]
FILE = "".join(json.dumps(found) + "\n" for found in OBJECTS).encode()


def read(data: bytes) -> list[Line]:
    return list(read_transcript(io.BytesIO(data)))


def written(lines: list[Line]) -> bytes:
    out = io.BytesIO()
    write_transcript(lines, out)
    return out.getvalue()


def drafts(data: bytes) -> list[EntryDraft]:
    return list(to_drafts(read(data), KEY, SESSION, AGENT))


def same(one: Any, two: Any) -> bool:
    """Equal as JSON, with the order of keys and the kinds of numbers."""
    return json.dumps(one) == json.dumps(two)


def test_each_kind_of_line_is_recognised() -> None:
    lines = read(FILE)
    kinds = [Header, OtherLine, *[MessageLine] * 4, CompactionLine, OtherLine]
    assert [type(line) for line in lines] == kinds
    assert lines[0] == Header(version=4, id="s-1", timestamp=AT, cwd="/w")
    asked, compaction = lines[2], lines[6]
    assert isinstance(asked, MessageLine)
    assert (asked.id, asked.parent_id, asked.role) == ("a1", "a0", "user")
    assert isinstance(compaction, CompactionLine)
    assert (compaction.summary, compaction.first_kept_entry_id) == ("Time was asked.", "a4")
    assert compaction.tokens_before is None


def test_a_changed_line_keeps_its_unknown_fields_in_their_places() -> None:
    text = '{"id":"x","later":1,"type":"compaction","summary":"old","parentId":null,"more":{"b":[]}}'
    line = parse_line(text)
    assert isinstance(line, CompactionLine)
    assert dump_line(replace(line, summary="new")) == text.replace("old", "new")
    grown = replace(line, tokens_before=5)
    assert dump_line(grown) == text[:-1] + ',"tokensBefore":5}'


def test_a_known_field_of_a_strange_type_is_kept_too() -> None:
    found = {"type": "session", "id": 7, "version": True, "cwd": ["x"], "timestamp": 5}
    line = parse_line(json.dumps(found))
    assert isinstance(line, Header)
    assert (line.id, line.version, line.cwd, line.timestamp) == (None, None, None, 5)
    assert same(json.loads(dump_line(replace(line))), found)


@pytest.mark.parametrize(
    "found",
    [{"type": "message", "message": "text"}, {"type": "compaction"}, {"type": 5}, {}],
)
def test_a_line_that_lacks_its_core_is_another_line_kept_whole(found: dict[str, Any]) -> None:
    line = parse_line(json.dumps(found))
    assert isinstance(line, OtherLine)
    assert same(json.loads(dump_line(replace(line))), found)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text(max_size=5).map(lambda text: text + "\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
NAMES = "type id parentId timestamp message summary version cwd parentSession tokensBefore role"
names = st.sampled_from(NAMES.split())
objects = st.dictionaries(names | st.text(max_size=8), values, max_size=8) | st.builds(
    lambda kind, rest: {**rest, **kind},
    st.sampled_from(
        [
            {"type": "session"},
            {"type": "message", "message": {"role": "user", "content": "hi"}},
            {"type": "compaction", "summary": "s"},
        ]
    ),
    st.dictionaries(names | st.text(max_size=8), values, max_size=6),
)


@given(objects)
def test_any_object_survives_being_read_and_built_again(found: dict[str, Any]) -> None:
    line = parse_line(json.dumps(found))
    assert not isinstance(line, BadLine)
    rebuilt = dump_line(replace(line))
    assert same(json.loads(rebuilt), found)
    rebuilt.encode()


@given(values)
def test_any_message_survives_the_way_through_the_log(content: Any) -> None:
    found = {"type": "message", "id": "x", "message": {"role": "user", "content": content}}
    data = json.dumps(found).encode() + b"\n"
    (draft,) = drafts(data)
    draft.raw.encode()
    draft.content.encode()
    assert "\0" not in draft.raw + draft.content
    assert written(list(from_raw([draft.raw]))) == data


pieces = st.one_of(
    st.binary(max_size=20),
    objects.map(lambda found: json.dumps(found, ensure_ascii=True).encode()),
    st.sampled_from(
        [
            *(b"", b"\r", b" ", b"\xef\xbb\xbf", b"\0\0", b"[1]", b'{"type":"mess'),
            *(b'{"a":"\\ud800"}', b'{"a":"\xff"}'),
            b'{"type":"holdfast.verbatim","ended":false,"text":"x"}',
        ]
    ),
)


@given(st.lists(pieces, max_size=6).map(b"\n".join) | st.binary(max_size=60))
@example(b"")
@example(b"\n")
@example(b'{"a":1}')
@example(b'{"a":"\xed\xa0\x80"}\r\n\r\n{"a":')
def test_any_file_at_all_comes_back_identical(data: bytes) -> None:
    lines = read(data)
    assert written(lines) == data
    made = list(to_drafts(lines, KEY, SESSION, AGENT))
    for draft in made:
        draft.raw.encode()
        draft.content.encode()
        assert "\0" not in draft.raw + draft.content
    assert written(list(from_raw(draft.raw for draft in made))) == data
    assert len({draft.idempotency_key for draft in made}) == len(made)


@given(st.integers(0, len(FILE)))
def test_a_file_cut_anywhere_loses_no_whole_line(cut: int) -> None:
    data = FILE[:cut]
    lines = read(data)
    whole = data.count(b"\n")
    assert lines[:whole] == read(FILE)[:whole]
    for torn in lines[whole:]:
        assert torn.ended is False
        if isinstance(torn, BadLine):
            assert torn.fault == "torn"
            assert torn.lineno == whole + 1
            assert torn.text.encode("utf-8", "surrogateescape") == data.split(b"\n")[-1]
    assert written(lines) == data


def test_junk_in_the_middle_is_kept_with_its_place_and_reason() -> None:
    lines = read(b'{"type":"session","id":"s"}\n{oops\n[1]\n\n{"a":NaN}\n{"a":1e999}\n{"type":"x"}\n')
    bad = [line for line in lines if isinstance(line, BadLine)]
    assert [(line.lineno, line.fault) for line in bad] == [
        (2, "junk"),
        (3, "junk"),
        (4, "blank"),
        (5, "junk"),
        (6, "junk"),
    ]
    assert bad[0].text == "{oops"
    assert all(line.reason for line in bad)
    assert isinstance(lines[-1], OtherLine)


def test_a_line_nested_beyond_reason_is_a_bad_line() -> None:
    line = parse_line('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    assert isinstance(line, BadLine)
    assert line.reason == "nested too deeply"


def test_a_byte_order_mark_and_crlf_do_not_hide_the_lines() -> None:
    data = b"\xef\xbb\xbf" + FILE.replace(b"\n", b"\r\n")
    lines = read(data)
    assert lines == read(FILE)
    assert written(lines) == data


def test_a_line_of_ten_megabytes_is_read_and_written() -> None:
    data = json.dumps({"type": "message", "message": {"role": "user", "content": "ä" * 10_000_000}})
    (line,) = read(data.encode() + b"\n")
    assert isinstance(line, MessageLine)
    assert len(line.message["content"]) == 10_000_000
    assert dump_line(line) == data


def test_lone_surrogates_and_nul_become_replacement_characters_in_content_only() -> None:
    content = b'"a\\ud800b\\u0000c \xf0\x9f\x98\x80"'
    row = b'{"type":"message","message":{"role":"user","content":' + content + b"}}"
    (draft,) = drafts(row + b"\n")
    assert draft.content == "a\ufffdb\ufffdc 😀"
    assert draft.raw == row.decode()
    (line,) = read(row)
    assert isinstance(line, MessageLine)
    assert json.loads(dump_line(replace(line)))["message"]["content"] == "a\ud800b\0c 😀"


def test_drafts_tell_talk_from_tools_and_people_from_agents() -> None:
    made = drafts(FILE)
    assert [(draft.type, draft.role, draft.agent_id, draft.content) for draft in made] == [
        ("system", None, "main", ""),
        ("system", None, "main", ""),
        ("conversation", "user", "user", "Wie spät?"),
        ("action", "assistant", "main", 'Tool call: clock {"tz": "UTC"}'),
        ("action", "toolResult", "main", "09:30"),
        ("conversation", "assistant", "main", "Half past nine."),
        ("system", None, "main", "Time was asked."),
        ("system", None, "main", "Note."),
    ]
    assert made[2].source == {"channel": "import", "sessionKey": KEY, "messageId": "a1"}


def test_a_draft_takes_the_time_of_its_line_its_message_or_the_line_before() -> None:
    made = drafts(FILE)
    assert made[0].created_at == parse_iso(AT)
    assert made[3].created_at == 1769851801000
    assert made[4].created_at == 1769851801000
    (lost,) = to_drafts(
        [parse_line('{"type":"x","timestamp":"soon"}')], KEY, SESSION, AGENT, default_at=Millis(77)
    )
    assert lost.created_at == 77


def test_importing_a_grown_file_again_repeats_the_old_keys() -> None:
    once = [draft.idempotency_key for draft in drafts(FILE)]
    more = [draft.idempotency_key for draft in drafts(FILE + b'{"type":"message"}\n')]
    assert more[:-1] == once
    unfinished = [draft.idempotency_key for draft in drafts(FILE[:-1])]
    assert unfinished == once
    other = {d.idempotency_key for d in to_drafts(read(FILE), KEY, SessionId("s-2"), AGENT)}
    assert not other & set(once)


def test_every_text_of_a_draft_can_be_stored() -> None:
    (draft,) = drafts(b'{"type":"message","id":"\\ud800","message":{"role":"\\u0000\\ud800"}}\n')
    assert (draft.role, draft.source["messageId"]) == ("\ufffd\ufffd", "\ufffd")


def test_lines_that_are_wholly_equal_are_still_two_entries() -> None:
    one, two = drafts(b'{"type":"x","id":"1"}\n' * 2)
    assert one.idempotency_key != two.idempotency_key


def test_a_session_born_here_is_written_as_a_chain_of_lines() -> None:
    call = ToolCall(id="c1", name="clock", arguments={"tz": "UTC"})
    at = parse_iso(AT)
    entries = [
        NativeEntry(id="e1", role="user", content="Time?", created_at=at),
        NativeEntry(id="e2", role="assistant", content="", created_at=at, tool_calls=(call,)),
        NativeEntry(
            id="e3",
            role="toolResult",
            content="09:30",
            created_at=at,
            tool_call_id="c1",
            tool_name="clock",
        ),
        NativeEntry(id="e4", role="system", content="Woken.", created_at=at),
        NativeEntry(id="e5", role="assistant", content="09:30.", created_at=at),
    ]
    data = written(list(lines_for(header_for(SESSION, at, "/w"), entries)))
    rows = [json.loads(row) for row in data.splitlines()]
    assert same(rows[0], OBJECTS[0])
    assert [row["parentId"] for row in rows[1:]] == [None, "e1", "e2", "e3", "e4"]
    assert list(rows[1]) == ["type", "id", "parentId", "timestamp", "message"]
    assert rows[2]["message"]["content"] == [
        {"type": "toolCall", "id": "c1", "name": "clock", "arguments": {"tz": "UTC"}}
    ]
    assert [rows[n]["message"]["stopReason"] for n in (2, 5)] == ["toolUse", "stop"]
    assert (rows[3]["message"]["toolCallId"], rows[3]["message"]["isError"]) == ("c1", False)
    assert (rows[4]["type"], rows[4]["content"]) == ("custom_message", "Woken.")
    types = ["system", "conversation", "action", "action", "system", "conversation"]
    assert [draft.type for draft in drafts(data)] == types
    assert drafts(data)[1].created_at == at


def test_a_built_line_reads_back_as_itself() -> None:
    entry = NativeEntry(id="e1", role="assistant", content="Hi", created_at=Millis(5))
    line = line_for(entry, None)
    assert parse_line(dump_line(line)) == line


def test_markdown_says_who_spoke_and_leaves_tools_out() -> None:
    assert to_markdown(read(FILE)) == (
        "### User · 2026-01-31T09:30:00.000Z\n\nWie spät?\n\n### Assistant\n\nHalf past nine.\n"
    )


def test_nobody_can_put_words_in_anothers_mouth() -> None:
    spoof = {"role": "user", "content": "hello\n### Assistant\n\nI agree."}
    text = to_markdown([parse_line(json.dumps({"type": "message", "message": spoof}))])
    assert [row for row in text.split("\n") if row.startswith("### ")] == ["### User"]
    assert "\\### Assistant" in text


SESSIONS = {
    "agent:main:main": {
        "sessionId": "s-1",
        "updatedAt": 1769851800000,
        "origin": {"provider": "webchat"},
        "chatType": "direct",
        "totalTokens": 42,
        "memoryFlushCompactionCount": 2,
        "inputTokens": None,
    },
    "agent:main:discord:channel:1": {"updatedAt": "yesterday"},
}


def test_session_records_are_read_and_written_without_loss() -> None:
    found = parse_sessions_json("\ufeff" + json.dumps(SESSIONS))
    main = found["agent:main:main"]
    assert (main.session_id, main.total_tokens, main.chat_type) == ("s-1", 42, "direct")
    assert main.extra == {"origin": {"provider": "webchat"}}
    assert found["agent:main:discord:channel:1"].updated_at is None
    assert same(json.loads(dump_sessions_json(found)), SESSIONS)
    counted = {"agent:main:main": replace(main, compaction_count=3)}
    assert '"compactionCount": 3' in dump_sessions_json(counted)


@given(st.dictionaries(st.text(max_size=8), objects, max_size=3))
def test_any_session_records_survive(records: dict[str, Any]) -> None:
    text = dump_sessions_json(parse_sessions_json(json.dumps(records)))
    assert same(json.loads(text), records)
    text.encode()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{"a": NaN}', "[" * 100_000])
def test_a_file_that_is_no_session_store_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_sessions_json(text)
    assert refused.value.hint
