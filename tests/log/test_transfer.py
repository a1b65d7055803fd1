from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.clock import parse_iso
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.ids import uuid7
from holdfast.log import (
    OWNER,
    EntryDraft,
    EntryType,
    Outcome,
    Store,
    entries,
    open_store,
    sessions,
    sqlite_url,
    turns,
)
from holdfast.log.transfer import export_markdown, export_transcript, import_transcript

KEY = "agent:main:main"
AT = "2026-01-31T09:30:00.000Z"


def message(id_: str, role: str, text: str, at: str = AT) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "message", "id": id_, "timestamp": at, "message": {"role": role, "content": content}}


def jsonl(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


HEADER = {"type": "session", "version": 4, "id": "s-1", "timestamp": AT, "cwd": "/w"}
FILE = jsonl(HEADER, message("a1", "user", "hello"), message("a2", "assistant", "good day"))


def exported(store: Store, session: str = KEY) -> bytes:
    out = io.BytesIO()
    export_transcript(store, session, out)
    return out.getvalue()


def put(tmp_path: Path, data: bytes, name: str = "s-1.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_an_imported_session_comes_back_byte_for_byte(store: Store, tmp_path: Path) -> None:
    data = FILE + b"junk {\n\n" + b'{"type":"custom","data":"\xff\\ud800"}\r\n' + b'{"torn'
    done = import_transcript(store, put(tmp_path, data), KEY)
    assert (done.created, done.lines, done.added, done.bad_lines) == (True, 7, 7, 2)
    assert [(fault.lineno, fault.fault) for fault in done.faults] == [(4, "junk"), (7, "torn")]
    assert exported(store) == data
    with store.read(OWNER) as tx:
        session = sessions.find(tx, KEY)
    assert (session.id, session.status, session.agent_id) == ("s-1", "active", "main")
    assert session.last_external_at == parse_iso(AT)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(min_size=1, max_size=80), cut=st.integers(0, 80))
def test_any_bytes_come_back_also_when_the_file_grew_between(
    store: Store, tmp_path: Path, data: bytes, cut: int
) -> None:
    id_ = uuid7()
    whole = f'{{"type":"session","id":"{id_}"}}\n'.encode()
    import_transcript(store, put(tmp_path, whole + data[:cut]), KEY)
    import_transcript(store, put(tmp_path, whole + data), KEY)
    assert exported(store, id_) == whole + data


def test_a_second_import_adds_nothing_and_a_grown_file_only_its_tail(store: Store, tmp_path: Path) -> None:
    import_transcript(store, put(tmp_path, FILE), KEY)
    again = import_transcript(store, put(tmp_path, FILE), KEY)
    assert (again.changed, again.added, again.created) == (False, 0, False)
    late = "2026-02-01T08:00:00.000Z"
    grown = FILE + jsonl(message("a3", "user", "and now?", late))
    assert import_transcript(store, put(tmp_path, grown), KEY, dry_run=True).added == 1
    assert import_transcript(store, put(tmp_path, grown), KEY).added == 1
    assert exported(store) == grown
    with store.read(OWNER) as tx:
        assert sessions.find(tx, KEY).last_external_at == parse_iso(late)


def test_a_torn_line_gives_way_to_the_whole_one(store: Store, tmp_path: Path) -> None:
    tail = jsonl(message("a3", "user", "a long thought"))
    import_transcript(store, put(tmp_path, FILE + tail[:25]), KEY)
    assert exported(store) == FILE + tail[:25]
    import_transcript(store, put(tmp_path, FILE + tail), KEY)
    assert exported(store) == FILE + tail


def test_a_dry_run_writes_nothing(store: Store, tmp_path: Path) -> None:
    done = import_transcript(store, put(tmp_path, FILE), KEY, dry_run=True)
    assert (done.created, done.added) == (True, 3)
    with store.read(OWNER) as tx:
        assert entries.head(tx) == 0
        assert sessions.listing(tx, status=None) == []


def test_a_large_file_goes_through_in_batches(store: Store, tmp_path: Path) -> None:
    rows = [HEADER] + [message(f"m{n}", "user" if n % 2 else "assistant", f"line {n}") for n in range(700)]
    assert import_transcript(store, put(tmp_path, jsonl(*rows)), KEY).added == 701
    assert exported(store) == jsonl(*rows)


def test_a_session_of_the_key_that_is_active_stays_the_active_one(store: Store, tmp_path: Path) -> None:
    with store.write(OWNER) as tx:
        ours = sessions.ensure(tx, KEY)
    import_transcript(store, put(tmp_path, FILE), KEY)
    with store.read(OWNER) as tx:
        active = sessions.active(tx, KEY)
        assert active is not None
        assert active.id == ours.id
        assert (sessions.get(tx, "s-1").status, sessions.get(tx, "s-1").archive_cause) == (
            "archived",
            "import",
        )
    assert exported(store, "s-1") == FILE


def test_a_session_cannot_be_imported_under_two_keys(store: Store, tmp_path: Path) -> None:
    import_transcript(store, put(tmp_path, FILE), KEY)
    with pytest.raises(Conflict) as refused:
        import_transcript(store, put(tmp_path, FILE), "agent:work:main")
    assert KEY in refused.value.hint


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "empty"), (b"not json\n", "line 1"), (b"[1]\n", "line 1"), (b"\0\xff", "line 1")]
)
def test_a_file_that_is_no_transcript_is_refused_by_name(
    store: Store, tmp_path: Path, data: bytes, said: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        import_transcript(store, put(tmp_path, data, "odd.jsonl"), KEY)
    assert "odd.jsonl" in refused.value.message
    assert said in refused.value.message
    assert refused.value.hint


def test_a_missing_file_and_a_bad_key_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        import_transcript(store, tmp_path / "none.jsonl", KEY)
    with pytest.raises(InvalidInput):
        import_transcript(store, put(tmp_path, FILE), "agent:main")


def native_session(store: Store) -> None:
    """A turn with a tool call, its result, a reply, and a compaction, as the turn loop leaves them."""
    call = {"type": "toolCall", "id": "c1", "name": "clock", "arguments": {"tz": "UTC"}}
    asks = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
    result = {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "clock",
        "content": "09:30",
        "isError": False,
    }
    drafts = [
        EntryDraft(content="", type=EntryType.ACTION, role="assistant", raw=json.dumps(asks)),
        EntryDraft(content="09:30", type=EntryType.ACTION, role="toolResult", raw=json.dumps(result)),
        EntryDraft(content="Half past nine.", role="assistant", agent_id="main"),
        EntryDraft(content="lost call", type=EntryType.ACTION, role="toolResult"),
        EntryDraft(
            content="They asked for the time.",
            type=EntryType.SYSTEM,
            raw=json.dumps({"type": "compaction", "firstKeptEntryId": "x", "tokensBefore": 9}),
        ),
    ]
    with store.write(OWNER) as tx:
        session = sessions.ensure(tx, KEY)
        message = EntryDraft(content="Time?", role="user", agent_id="user")
        turn = turns.accept(tx, session, message, key="k").turn
        turns.start(tx, turn)
    with store.write(OWNER) as tx:
        turns.commit(tx, "k", Outcome(entries=drafts))


def test_a_session_born_here_becomes_a_valid_transcript(store: Store, tmp_path: Path) -> None:
    native_session(store)
    rows = [json.loads(row) for row in exported(store).splitlines()]
    assert [row["type"] for row in rows] == ["session", *["message"] * 4, "custom_message", "compaction"]
    assert rows[0]["version"] == 4
    assert [row["parentId"] for row in rows[1:]] == [None, *[row["id"] for row in rows[1:-1]]]
    roles = [row["message"]["role"] for row in rows[1:5]]
    assert roles == ["user", "assistant", "toolResult", "assistant"]
    assert rows[2]["message"]["content"][0]["id"] == rows[3]["message"]["toolCallId"] == "c1"
    assert (rows[6]["summary"], rows[6]["tokensBefore"]) == ("They asked for the time.", 9)


def test_an_export_of_ours_can_be_imported_elsewhere_and_comes_out_the_same(
    store: Store, tmp_path: Path
) -> None:
    native_session(store)
    data = exported(store)
    other = open_store(sqlite_url(tmp_path / "other.db"))
    import_transcript(other, put(tmp_path, data, "x.jsonl"), KEY)
    assert exported(other) == data
    other.close()


def test_a_session_that_went_on_here_has_its_old_lines_first_and_ours_chained_on(
    store: Store, tmp_path: Path
) -> None:
    import_transcript(store, put(tmp_path, FILE), KEY)
    native_session(store)
    grown = FILE + jsonl(message("a3", "user", "late"))
    import_transcript(store, put(tmp_path, grown), KEY)
    data = exported(store)
    assert data.startswith(grown)
    rows = [json.loads(row) for row in data[len(grown) :].splitlines()]
    assert rows[0]["parentId"] == "a3"
    assert rows[1]["parentId"] == rows[0]["id"]


def test_a_deleted_entry_is_not_exported_and_a_corrected_one_says_the_new_text(
    store: Store, tmp_path: Path
) -> None:
    import_transcript(store, put(tmp_path, FILE), KEY)
    with store.write(OWNER) as tx:
        _, said, answer = entries.transcript(tx, "s-1")
        entries.correct(tx, said.id, "redacted")
        entries.delete(tx, answer.id)
    rows = [json.loads(row) for row in exported(store).splitlines()]
    assert [row["id"] for row in rows] == ["s-1", "a1"]
    assert rows[1]["message"]["content"] == "redacted"


def test_markdown_holds_both_imported_and_own_words(store: Store, tmp_path: Path) -> None:
    import_transcript(store, put(tmp_path, FILE), KEY)
    native_session(store)
    out = io.BytesIO()
    assert export_markdown(store, KEY, out) == 4
    text = out.getvalue().decode()
    assert text.index("hello") < text.index("good day") < text.index("Time?") < text.index("Half past nine.")
