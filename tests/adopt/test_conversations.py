"""Sessions and exports of other programs, taken over: whose words are whose, in order, and once."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.adopt import Report
from holdfast.adopt.coding_agents import claude_session, codex_session, sessions_of, spoken
from holdfast.adopt.conversations import take_over
from holdfast.adopt.exports import conversations_in, take_vault
from holdfast.cli.root import cli
from holdfast.coding_agents import hook
from holdfast.errors import HoldfastError
from holdfast.log import OWNER, Entry, EntryDraft, EntryFilter, EntryType, entries, entry_model
from holdfast.runtime import Holdfast, open_home

AT = "2026-01-31T09:30:00.000Z"
CWD = "/work/boat"
KEY = "claude-code:boat|thread:s1"


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home") as opened:
        yield opened


def line(uuid: str, parent: str | None, type_: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": type_, "content": content}
    if type_ == "assistant":
        message["id"] = more.pop("reply", f"msg-{uuid}")
    return {
        "type": type_,
        "uuid": uuid,
        "parentUuid": parent,
        "timestamp": AT,
        "cwd": CWD,
        "sessionId": "s1",
        "message": message,
        **more,
    }


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


SESSION = [
    {"type": "queue-operation", "operation": "enqueue"},
    line("u1", None, "user", "Caulk the seams<system-reminder>be brief</system-reminder>"),
    {
        "type": "attachment",
        "uuid": "x1",
        "parentUuid": "u1",
        "attachment": {"type": "hook_additional_context"},
    },
    line("a1", "x1", "assistant", text("I look first."), reply="m1"),
    line(
        "a2",
        "a1",
        "assistant",
        [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}],
        reply="m1",
    ),
    line("r1", "a2", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "seams"}]),
    line("dead", "u1", "assistant", text("A branch that was rewound.")),
    line("side", "a2", "assistant", text("A subagent thinks."), isSidechain=True),
    line("a3", "r1", "assistant", text("All caulked.")),
    {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "c1",
        "parentUuid": None,
        "logicalParentUuid": "a3",
    },
    line("sum", "c1", "user", "This session is being continued from…", isCompactSummary=True),
    line("cmd", "sum", "user", "<command-name>/cost</command-name><command-args></command-args>"),
    line("meta", "cmd", "user", "Caveat: The messages below were generated", isMeta=True),
    line("u2", "meta", "user", text("And the hull?")),
    line("a4", "u2", "assistant", [{"type": "thinking", "thinking": "hm"}, *text("Tarred.")]),
]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"cut off')
    return path


def under(hold: Holdfast, key: str) -> list[Entry]:
    with hold.store.read(OWNER) as tx:
        return entries.listing(tx, EntryFilter(session_key=key), limit=500).entries[::-1]


def taken(hold: Holdfast, host: str, folder: Path) -> Report:
    report = Report(str(folder), False)
    return take_over(hold, sessions_of(host, folder), report, dry_run=False)


def test_the_branch_that_a_session_ended_on_is_read_and_only_the_person_is_the_person() -> None:
    found = claude_session(SESSION, "file")
    assert found is not None
    assert found.key == KEY
    assert [(one.kind, one.text) for one in found.messages] == [
        ("user", "Caulk the seams"),
        ("assistant", "I look first."),
        ("action", "Bash: ls"),
        ("assistant", "All caulked."),
        ("user", "And the hull?"),
        ("assistant", "Tarred."),
    ]
    assert "seams" in str(found.messages[2].raw)


def test_a_session_file_is_taken_over_once_and_grows_with_the_session(hold: Holdfast, tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    jsonl(folder / "-work-boat" / "s1.jsonl", SESSION[:4])
    assert taken(hold, "claude-code", folder).entries_added == 2
    jsonl(folder / "-work-boat" / "s1.jsonl", SESSION)
    assert taken(hold, "claude-code", folder).entries_added == 4
    assert taken(hold, "claude-code", folder).entries_added == 0
    assert [one.content for one in under(hold, KEY)] == [
        "Caulk the seams",
        "I look first.",
        "Bash: ls",
        "All caulked.",
        "And the hull?",
        "Tarred.",
    ]


def test_what_hooks_have_logged_is_not_taken_over_again(hold: Holdfast, tmp_path: Path) -> None:
    event = {"session_id": "s1", "cwd": CWD}
    said = [
        {**event, "hook_event_name": "UserPromptSubmit", "prompt": "Caulk the seams", "prompt_id": "p1"},
        {**event, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}},
        {**event, "hook_event_name": "Stop", "last_assistant_message": "All caulked.", "prompt_id": "p1"},
    ]
    for one in said:
        (made,) = hook.entries_of("claude-code", KEY, one)
        draft = EntryDraft(
            content=made["content"],
            session_key=KEY,
            agent_id=made["agentId"],
            type=entry_model.EntryType(made["type"]),
            idempotency_key=made["idempotencyKey"],
        )
        with hold.store.write(OWNER) as tx:
            entries.append(tx, draft)
    folder = tmp_path / "projects"
    jsonl(folder / "s1.jsonl", SESSION)
    assert taken(hold, "claude-code", folder).entries_added == 3
    assert sorted(one.content for one in under(hold, KEY)) == [
        "All caulked.",
        "And the hull?",
        "Bash: ls",
        "Caulk the seams",
        "I look first.",
        "Tarred.",
    ]


def test_a_rollout_of_codex_has_what_was_said_and_done_once() -> None:
    def item(**payload: Any) -> dict[str, Any]:
        return {"timestamp": AT, "type": "response_item", "payload": payload}

    def said(role: str, words: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return item(type="message", role=role, content=[{"type": kind, "text": words}])

    rows = [
        {"timestamp": AT, "type": "session_meta", "payload": {"id": "c1", "cwd": CWD}},
        said("developer", "You are Codex."),
        said("user", "<environment_context>\n<cwd>/work</cwd>\n</environment_context>"),
        said("user", "# AGENTS.md instructions for /work"),
        said("user", "Tar the hull"),
        {
            "timestamp": AT,
            "type": "event_msg",
            "payload": {"type": "user_message", "message": "Tar the hull"},
        },
        item(type="reasoning", summary=[]),
        item(type="function_call", name="shell", arguments='{"command": ["tar"]}', call_id="1"),
        item(type="function_call_output", call_id="1", output="ok"),
        said("assistant", "Tarred."),
        {"timestamp": AT, "type": "compacted", "payload": {"message": "a summary"}},
    ]
    found = codex_session(rows, "rollout")
    assert found is not None
    assert found.key == "codex:boat|thread:c1"
    assert [(one.kind, one.text) for one in found.messages] == [
        ("user", "Tar the hull"),
        ("action", 'shell: ["tar"]'),
        ("assistant", "Tarred."),
    ]


def rollout(*items: dict[str, Any]) -> list[dict[str, Any]]:
    meta = {"timestamp": AT, "type": "session_meta", "payload": {"id": "c1", "cwd": CWD}}
    return [meta, *({"timestamp": AT, "type": "response_item", "payload": one} for one in items)]


def test_messages_of_a_model_that_repeats_its_ids_are_all_taken_over(hold: Holdfast, tmp_path: Path) -> None:
    said = [
        {
            "type": "message",
            "id": "msg_0",
            "role": "assistant",
            "content": [{"type": "output_text", "text": one}],
        }
        for one in ("First.", "Second.", "Third.")
    ]
    jsonl(tmp_path / "sessions" / "rollout.jsonl", rollout(*said))
    found = take_over(hold, sessions_of("codex", tmp_path / "sessions"), Report("", False), dry_run=False)
    assert found.entries_added == 3
    assert [one.content for one in under(hold, "codex:boat|thread:c1")] == ["First.", "Second.", "Third."]


def test_a_tool_call_that_a_hook_logged_in_other_words_is_not_taken_over_again(
    hold: Holdfast, tmp_path: Path
) -> None:
    ran = {"type": "function_call", "name": "exec_command", "call_id": "7", "arguments": '{"cmd": "ls"}'}
    own = ran | {"name": "recall", "namespace": "mcp__holdfast", "call_id": "8"}
    patched = {"type": "custom_tool_call", "name": "apply_patch", "call_id": "9", "input": "*** Begin Patch"}
    logged = {"hook_event_name": "PostToolUse", "session_id": "c1", "cwd": CWD, "tool_use_id": "7"}
    event = {**logged, "tool_name": "Bash", "tool_input": {"command": "ls"}}
    (entry,) = hook.entries_of("codex", "codex:boat|thread:c1", event)
    draft = EntryDraft(
        content=entry["content"],
        type=EntryType.ACTION,
        session_key="codex:boat|thread:c1",
        agent_id="codex",
        idempotency_key=entry["idempotencyKey"],
    )
    hold.store.run(OWNER, lambda tx: entries.append(tx, draft))
    jsonl(tmp_path / "sessions" / "rollout.jsonl", rollout(ran, own, patched))
    take_over(hold, sessions_of("codex", tmp_path / "sessions"), Report("", False), dry_run=False)
    told = {one.content for one in under(hold, "codex:boat|thread:c1")}
    assert told == {"Bash: ls", "apply_patch: *** Begin Patch"}


def test_what_our_own_tools_read_is_not_taken_over(hold: Holdfast) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "mcp__holdfast__recall", "input": {"query": "boat"}}
    rows = [line("u1", None, "user", "Where?"), line("a1", "u1", "assistant", [call])]
    found = claude_session(rows, "s1")
    assert found is not None
    assert [one.text for one in found.messages] == ["Where?"]


@pytest.mark.parametrize("host", ["claude-code", "codex"])
def test_a_damaged_session_file_costs_what_is_damaged_and_no_more(
    host: str, hold: Holdfast, tmp_path: Path
) -> None:
    if host == "codex":
        good = rollout({"type": "message", "role": "assistant", "content": [{"text": "Whole."}]})
    else:
        good = [line("u1", None, "assistant", text("Whole."))]
    broken = [
        b"[" * 100_000,
        b"\x00\xff\xfe not text",
        b'{"type": "response_item", "payload": {"type": "message", "role": "user", "content": 7}}',
        b'{"type": "response_item", "payload": {"type": "function_call", "name": [], "arguments": 3}}',
        b'{"type": "response_item", "payload": {"type": "message", "role": [], "content": [null, 3]}}',
        b'{"type": "user", "uuid": "u0", "parentUuid": 5, "message": {"content": [null, {"type": 1}]}}',
        b'{"type": "assistant", "uuid": "x", "isSidechain": false, "message": []}',
        b'{"type": "user", "uuid": "l1", "parentUuid": "l1", "message": {"content": "\\ud800 lone"}}',
        b'{"payload": [], "type": {}}',
        b"null",
    ]
    file = tmp_path / "sessions" / "one.jsonl"
    file.parent.mkdir()
    rows = [json.dumps(row).encode() for row in good]
    file.write_bytes(b"\n".join([*broken, *rows]) + b'\n{"cut')
    report = take_over(hold, sessions_of(host, file.parent), Report("", False), dry_run=False)
    assert report.notes == []
    with hold.store.read(OWNER) as tx:
        found = [one.content for one in entries.listing(tx, EntryFilter()).entries]
    assert "Whole." in found


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ("<system-reminder>x</system-reminder>Hello", "Hello"),
        ("[Request interrupted by user]", ""),
        ("<user_instructions>\nbe kind\n</user_instructions>", ""),
        ("<div>html that I ask about</div>", "<div>html that I ask about</div>"),
    ],
)
def test_only_what_the_person_typed_is_kept_of_a_message(given: str, own: str) -> None:
    assert spoken(given) == own


def chatgpt() -> list[dict[str, Any]]:
    def node(id_: str, parent: str | None, role: str, *parts: Any, **meta: Any) -> dict[str, Any]:
        content = {"content_type": "multimodal_text" if len(parts) > 1 else "text", "parts": list(parts)}
        message = {
            "id": id_,
            "author": {"role": role},
            "create_time": 1769851800.5,
            "content": content,
            "metadata": meta,
        }
        return {"id": id_, "parent": parent, "children": [], "message": message}

    nodes = {
        "root": {"id": "root", "parent": None, "children": ["s"], "message": None},
        "s": node("s", "root", "system", "hidden", is_visually_hidden_from_conversation=True),
        "q": node("q", "s", "user", "Where do herons nest?"),
        "a0": node("a0", "q", "assistant", "A first try that was done again."),
        "a1": node("a1", "q", "assistant", "In reeds."),
        "p": node("p", "a1", "user", {"content_type": "image_asset_pointer"}, "And these?"),
    }
    return [{"id": "c1", "title": "Herons", "mapping": nodes, "current_node": "p"}]


def test_an_export_of_chatgpt_is_read_from_its_archive_along_the_branch_that_is_shown(
    hold: Holdfast, tmp_path: Path
) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps(chatgpt()))
        archive.writestr("user.json", "{}")
    report = Report(str(path), False)
    take_over(hold, conversations_in("chatgpt", path), report, dry_run=False)
    found = under(hold, "chatgpt:c1")
    assert [(one.agent_id, one.content) for one in found] == [
        ("user", "Where do herons nest?"),
        ("chatgpt", "In reeds."),
        ("user", "[image]\nAnd these?"),
    ]
    assert found[0].created_at == 1769851800500
    assert (found[0].source or {})["title"] == "Herons"


def test_an_export_of_claude_has_its_attachments(hold: Holdfast, tmp_path: Path) -> None:
    said = [
        {
            "uuid": "1",
            "sender": "human",
            "text": "",
            "created_at": AT,
            "content": text("Read this"),
            "attachments": [{"file_name": "log.txt", "extracted_content": "a heron"}],
        },
        {"uuid": "2", "sender": "assistant", "text": "I see a heron.", "created_at": AT},
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"uuid": "c", "name": "Birds", "chat_messages": said}]))
    take_over(hold, conversations_in("claude", path), Report("", False), dry_run=False)
    assert [one.content for one in under(hold, "claude:c")] == [
        "Read this\n\n[log.txt]\na heron",
        "I see a heron.",
    ]


def test_memories_of_mem0_and_letta_become_notes(hold: Holdfast, tmp_path: Path) -> None:
    memories = {"results": [{"id": "m", "memory": "Ann likes herons", "user_id": "ann", "created_at": AT}]}
    (tmp_path / "mem0.json").write_text(json.dumps(memories))
    said = json.dumps({"type": "user_message", "message": "Ahoy"})
    beat = json.dumps({"type": "heartbeat", "reason": "x"})
    agent = {
        "agents": [
            {
                "id": "agent-0",
                "name": "Skipper",
                "messages": [
                    {"role": "user", "id": "1", "content": text(said)},
                    {"role": "user", "id": "2", "content": text(beat)},
                    {"role": "assistant", "id": "3", "content": text("Ahoy yourself")},
                ],
            }
        ],
        "blocks": [{"id": "b", "label": "human", "value": "Sails on Sundays"}],
    }
    (tmp_path / "agent.af").write_text(json.dumps(agent))
    for origin, name in (("mem0", "mem0.json"), ("letta", "agent.af")):
        for _ in range(2):
            found = conversations_in(origin, tmp_path / name)
            take_over(hold, found, Report("", False), dry_run=False)
    assert [(one.type, one.content) for one in under(hold, "mem0:ann")] == [("note", "Ann likes herons")]
    assert [(one.type, one.content) for one in under(hold, "letta:agent-0")] == [
        ("note", "human: Sails on Sundays"),
        ("conversation", "Ahoy"),
        ("conversation", "Ahoy yourself"),
    ]


def test_a_vault_is_copied_into_memory_and_what_was_changed_here_stays(
    hold: Holdfast, tmp_path: Path
) -> None:
    vault = tmp_path / "My Notes"
    for name, words in {
        "a.md": "[[b]]",
        "deep/b.md": "herons",
        ".obsidian/x.md": "no",
        "pic.png": "no",
    }.items():
        (vault / name).parent.mkdir(parents=True, exist_ok=True)
        (vault / name).write_text(words)
    (vault / "out.md").symlink_to("/etc/hostname")
    report = Report("", False)
    take_vault(hold, vault, report, name="my-notes", dry_run=False)
    target = hold.workspace("main") / "memory" / "my-notes"
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*.md")) == ["a.md", "deep/b.md"]
    (target / "a.md").write_text("changed here")
    again = take_vault(hold, vault, Report("", False), name="my-notes", dry_run=False)
    assert again.counts == {("workspace", "unchanged"): 1, ("workspace", "differs"): 1}
    assert (target / "a.md").read_text() == "changed here"


def test_a_dry_run_says_what_would_come_and_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    jsonl(folder / "s1.jsonl", SESSION)
    run, home = CliRunner(), ["--home", str(tmp_path / "home")]
    done = run.invoke(cli, ["import", "claude-code", str(folder), "--dry-run", "--json", *home])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["entriesAdded"] == 6
    assert not (tmp_path / "home").exists()
    for _ in range(2):
        done = run.invoke(cli, ["import", "claude-code", str(folder), "--json", *home])
    assert json.loads(done.output)["changed"] is False


@pytest.mark.parametrize("name", ["chatgpt", "claude", "mem0", "letta"])
def test_what_is_no_export_is_one_line_and_exit_two(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{ no")
    home = ["--home", str(tmp_path / "home")]
    for path in ("bad.json", "nowhere"):
        done = CliRunner().invoke(cli, ["import", name, str(tmp_path / path), *home])
        assert done.exit_code == 2, done.output
        assert done.output.count("\n") == 1


GOOD: dict[str, Any] = {
    "chatgpt": [
        {
            "id": "k",
            "title": "t",
            "current_node": "b",
            "mapping": {
                "a": {"id": "a", "children": ["b"]},
                "b": {
                    "id": "b",
                    "parent": "a",
                    "message": {
                        "id": "m",
                        "author": {"role": "user"},
                        "create_time": 1.5,
                        "metadata": {},
                        "content": {"content_type": "text", "parts": ["hello"]},
                    },
                },
            },
        }
    ],
    "claude": [
        {
            "uuid": "k",
            "name": "t",
            "chat_messages": [
                {
                    "uuid": "m",
                    "sender": "human",
                    "created_at": AT,
                    "content": [{"type": "text", "text": "hello"}],
                    "attachments": [{"file_name": "f", "extracted_content": "x"}],
                }
            ],
        }
    ],
    "mem0": {"results": [{"id": "1", "memory": "hello", "user_id": "u", "metadata": {"a": 1}}]},
    "letta": {
        "agents": [
            {
                "id": "a",
                "core_memory": [{"id": "b", "label": "human", "value": "hello"}],
                "passages": [{"id": "p", "text": "hello", "created_at": AT}],
                "messages": [{"id": "m", "role": "user", "content": [{"type": "text", "text": "hello"}]}],
            }
        ]
    },
}
JUNK: list[Any] = [None, 7, 1e400, "x", [], [None, 3, []], {}, {"x": [1]}, True, "\ud800"]


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield here
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from places(one, (*here, name))


def put(value: Any, place: tuple[Any, ...], junk: Any) -> Any:
    if not place:
        return junk
    copied = value.copy()
    copied[place[0]] = put(value[place[0]], place[1:], junk)
    return copied


@pytest.mark.parametrize("name", list(GOOD))
def test_an_export_that_is_damaged_anywhere_gives_what_is_whole_or_one_line(
    name: str, hold: Holdfast, tmp_path: Path
) -> None:
    """Whatever stands wherever in it: nothing else than our own errors, and the rest is taken over."""
    file = tmp_path / "conversations.json"
    for place in places(GOOD[name]):
        for junk in JUNK:
            file.write_text(json.dumps(put(GOOD[name], place, junk)))
            try:
                found = list(conversations_in(name, file))
            except HoldfastError:
                continue
            assert all(isinstance(message.text, str) for one in found for message in one.messages)
    whole = GOOD[name]["results" if name == "mem0" else "agents"] if name in ("mem0", "letta") else GOOD[name]
    report = Report("", False)
    for junk in JUNK:
        damaged = [put(whole[0], place, junk) for place in places(whole[0]) if place]
        kept = (
            {**GOOD[name], next(iter(GOOD[name])): [*damaged, *whole]} if isinstance(GOOD[name], dict) else 0
        )
        file.write_text(json.dumps(kept or [*damaged, *whole]))
        take_over(hold, conversations_in(name, file), report, dry_run=True)
    assert report.notes == []
    file.write_text("[" * 100_000)
    with pytest.raises(HoldfastError):
        list(conversations_in(name, file))


def test_conversations_and_messages_without_ids_are_all_taken_over(hold: Holdfast, tmp_path: Path) -> None:
    said = [{"sender": "human", "text": text} for text in ("one", "two", "two")]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([{"name": "a", "chat_messages": said}, {"name": "b", "chat_messages": said}]))
    for added in (6, 0):
        report = take_over(hold, conversations_in("claude", file), Report("", False), dry_run=False)
        assert report.entries_added == added
