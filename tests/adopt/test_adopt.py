from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.adopt import Report, adopt_openclaw_home
from holdfast.agents.approvals import allowlist
from holdfast.agents.cron import tasks
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import OWNER, Session, SessionStatus, entries, sessions
from holdfast.log.transfer import export_transcript
from holdfast.runtime import Holdfast, open_home
from holdfast.templates import write_workspace

AT = "2026-01-31T09:30:00.000Z"
SECRET = "sk-never-to-be-shown"


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Holdfast]:
    with open_home(tmp_path / "holdfast") as opened:
        yield opened


def jsonl(id_: str, *texts: str) -> bytes:
    rows: list[dict[str, Any]] = [{"type": "session", "version": 4, "id": id_, "timestamp": AT, "cwd": "/w"}]
    for n, text in enumerate(texts):
        role = "assistant" if n % 2 else "user"
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        rows.append({"type": "message", "id": f"{id_}-{n}", "timestamp": AT, "message": message})
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def claw(tmp_path: Path) -> Path:
    """An OpenClaw home as it looks after some weeks of use."""
    root = tmp_path / "openclaw"
    config = """{
      // comments are allowed
      agents: { defaults: { workspace: "~/.openclaw/workspace", model: "openai/gpt-5" },
                list: [{ id: "main", default: true }, { id: "work", workspace: "/nowhere/clients" }] },
      bindings: [{ agentId: "work", match: { channel: "slack", teamId: "T1" } }],
      gateway: { port: 18789 },
      update: { checkOnStart: false },
    }"""
    records = {
        "agent:main:main": {
            "sessionId": "s-main",
            "updatedAt": 1769851900000,
            "sessionFile": "/old/machine/agents/main/sessions/s-main.jsonl",
            "chatType": "direct",
            "inputTokens": 100,
            "outputTokens": 20,
            "totalTokens": 120,
            "contextTokens": 90,
            "compactionCount": 2,
            "memoryFlushAt": 1769851800000,
            "memoryFlushCompactionCount": 1,
            "origin": {"provider": "webchat"},
            "skillsSnapshot": {"prompt": "long"},
        },
        "discord:group:42": {"sessionId": "s-group", "chatType": "group"},
        "agent:main:gone": {"sessionId": "s-gone"},
        "agent:main": {"sessionId": "s-odd"},
    }
    files: dict[str, bytes] = {
        "openclaw.json": config.encode(),
        "workspace/AGENTS.md": b"# Mine\n",
        "workspace/memory/2026-01-31.md": b"- a note\n",
        "clients/AGENTS.md": b"# Work\n",
        "credentials/oauth.json": SECRET.encode(),
        "credentials/token": b"not yours",
        "skills/weather/SKILL.md": b"---\nname: weather\n---\n",
        "cron/jobs.json": b"[]",
        "agents/main/agent/auth-profiles.json": SECRET.encode(),
        "agents/main/sessions/sessions.json": json.dumps(records).encode(),
        "agents/main/sessions/s-main.jsonl": jsonl("s-main", "hello", "good day") + b"{junk\n",
        "agents/main/sessions/s-group.jsonl": jsonl("s-group", "all hands"),
        "agents/main/sessions/s-orphan.jsonl": jsonl("s-orphan", "forgotten"),
        "agents/main/sessions/s-old.jsonl.deleted.2026-01-15T10-20-30.000Z": jsonl("s-old", "long ago"),
        "agents/main/sessions/s-empty.jsonl": b"",
        "agents/work/sessions/sessions.json": json.dumps({"agent:work:main": {"sessionId": "w-1"}}).encode(),
        "agents/work/sessions/w-1.jsonl": jsonl("w-1", "to work"),
    }
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def session(hold: Holdfast, key: str) -> Session:
    with hold.store.read(OWNER) as tx:
        return sessions.find(tx, key)


def said(report: Report, outcome: str) -> set[str]:
    return {note.what for note in report.notes if note.outcome == outcome}


def test_a_whole_home_is_taken_over(hold: Holdfast, claw: Path) -> None:
    report = adopt_openclaw_home(hold, claw)
    home = hold.home
    assert (home.path / "workspace/AGENTS.md").read_text() == "# Mine\n"
    assert (home.path / "workspace/memory/2026-01-31.md").exists()
    assert (home.path / "workspace-work/AGENTS.md").read_text() == "# Work\n"
    assert (home.skills / "weather/SKILL.md").exists()
    assert [agent.id for agent in hold.settings.agent_list] == ["main", "work"]
    assert hold.settings.agent("main").model.primary == "openai/gpt-5"
    assert hold.settings.gateway.port == 8787
    assert "update" in " ".join(said(report, "left out"))
    assert not report.failed
    with hold.store.read(OWNER) as tx:
        assert len(sessions.listing(tx, status=None)) == 5
    assert report.counts["sessions", "added"] == 5


def test_what_was_known_of_a_session_comes_along(hold: Holdfast, claw: Path) -> None:
    adopt_openclaw_home(hold, claw)
    main = session(hold, "agent:main:main")
    assert (main.id, main.status, main.chat_type) == ("s-main", SessionStatus.ACTIVE, "direct")
    tokens = (main.input_tokens, main.output_tokens, main.total_tokens, main.context_tokens)
    assert tokens == (100, 20, 120, 90)
    flush = (main.compaction_count, main.memory_flush_at, main.memory_flush_compaction_count)
    assert flush == (2, 1769851800000, 1)
    assert main.updated_at == 1769851900000
    assert main.meta == {"openclaw": {"origin": {"provider": "webchat"}}}
    group = session(hold, "agent:main:discord:group:42")
    assert (group.id, group.chat_type, group.channel) == ("s-group", "group", "discord")


def test_transcripts_come_back_byte_for_byte(hold: Holdfast, claw: Path) -> None:
    adopt_openclaw_home(hold, claw)
    for path in (claw / "agents/main/sessions").glob("*.jsonl*"):
        if path.stat().st_size:
            out = io.BytesIO()
            export_transcript(hold.store, path.name.partition(".jsonl")[0], out)
            assert out.getvalue() == path.read_bytes()


def test_orphans_and_deleted_transcripts_become_archived_sessions(hold: Holdfast, claw: Path) -> None:
    adopt_openclaw_home(hold, claw)
    orphan = session(hold, "agent:main:openclaw:s-orphan")
    assert (orphan.id, orphan.status, orphan.archive_cause) == ("s-orphan", SessionStatus.ARCHIVED, "import")
    old = session(hold, "agent:main:openclaw:s-old")
    assert (old.status, old.archive_cause, old.archived_at) == ("archived", "deleted", 1768472430000)


def test_errors_name_the_file_and_the_line(hold: Holdfast, claw: Path) -> None:
    report = adopt_openclaw_home(hold, claw)
    assert "agents/main/sessions/s-main.jsonl, line 4" in said(report, "damaged")
    assert any("s-empty.jsonl" in what for what in said(report, "left out"))
    assert "agent:main:gone" in said(report, "left out")
    assert any("'agent:main'" in what for what in said(report, "refused"))


def test_running_it_again_changes_nothing(hold: Holdfast, claw: Path) -> None:
    adopt_openclaw_home(hold, claw)
    with hold.store.read(OWNER) as tx:
        before = entries.head(tx), sessions.listing(tx, status=None)
    config = hold.home.config.read_text()
    again = adopt_openclaw_home(hold, claw)
    assert not again.changed
    assert again.entries_added == 0
    assert again.counts["sessions", "unchanged"] == 5
    assert said(again, "differs") == set()
    assert hold.home.config.read_text() == config
    with hold.store.read(OWNER) as tx:
        assert (entries.head(tx), sessions.listing(tx, status=None)) == before


def test_a_file_that_grew_adds_its_tail_only(hold: Holdfast, claw: Path) -> None:
    adopt_openclaw_home(hold, claw)
    path = claw / "agents/work/sessions/w-1.jsonl"
    path.write_bytes(path.read_bytes() + jsonl("w-1", "a", "b", "c").splitlines(keepends=True)[-1])
    again = adopt_openclaw_home(hold, claw)
    assert again.entries_added == 1
    assert "agents/work/sessions/w-1.jsonl" in said(again, "grown")


def test_a_dry_run_says_the_same_and_touches_nothing(hold: Holdfast, claw: Path) -> None:
    before = sorted(str(path) for path in hold.home.path.rglob("*") if "db" not in path.name)
    dry = adopt_openclaw_home(hold, claw, dry_run=True)
    assert sorted(str(path) for path in hold.home.path.rglob("*") if "db" not in path.name) == before
    with hold.store.read(OWNER) as tx:
        assert entries.head(tx) == 0
    real = adopt_openclaw_home(hold, claw)
    assert dry.counts == real.counts
    assert dry.entries_added == real.entries_added


def test_what_is_there_is_never_overwritten_but_an_untouched_template_gives_way(
    hold: Holdfast, claw: Path
) -> None:
    workspace = hold.home.workspace("main", default=True)
    write_workspace(workspace)
    (workspace / "memory/2026-01-31.md").write_text("ours\n")
    report = adopt_openclaw_home(hold, claw)
    assert (workspace / "AGENTS.md").read_text() == "# Mine\n"
    assert (workspace / "memory/2026-01-31.md").read_text() == "ours\n"
    assert "workspace/memory/2026-01-31.md" in said(report, "differs")


def test_only_keys_that_are_not_set_are_taken_from_the_config(hold: Holdfast, claw: Path) -> None:
    hold.config.patch({"agents": {"defaults": {"model": {"primary": "ours/model"}}}})
    report = adopt_openclaw_home(hold, claw)
    assert hold.settings.agents.defaults.model.primary == "ours/model"
    assert [agent.id for agent in hold.settings.agent_list] == ["main", "work"]
    assert "agents.defaults.model" in said(report, "differs")


def test_secrets_are_for_their_owner_only_and_never_told(hold: Holdfast, claw: Path) -> None:
    own = hold.home.admin_token()
    report = adopt_openclaw_home(hold, claw)
    profiles = hold.home.agent_dir("main") / "auth-profiles.json"
    for path in (profiles, hold.home.credentials / "oauth.json"):
        assert path.read_text() == SECRET
        assert path.stat().st_mode & 0o777 == 0o600
    assert hold.home.admin_token() == own
    assert "token" in said(report, "refused")
    assert SECRET not in json.dumps(report.as_json())


def test_links_out_of_the_workspace_are_refused(hold: Holdfast, claw: Path, tmp_path: Path) -> None:
    (tmp_path / "private.txt").write_text("private")
    (claw / "workspace/leak.txt").symlink_to(tmp_path / "private.txt")
    (claw / "workspace/all").symlink_to(tmp_path)
    (claw / "workspace/also.md").symlink_to("AGENTS.md")
    report = adopt_openclaw_home(hold, claw)
    workspace = hold.home.workspace("main", default=True)
    assert not (workspace / "leak.txt").exists()
    assert not (workspace / "all").exists()
    assert (workspace / "also.md").read_text() == "# Mine\n"
    assert {"workspace/leak.txt", "all"} <= said(report, "refused")


def test_a_broken_config_or_index_does_not_stop_the_rest(hold: Holdfast, claw: Path) -> None:
    (claw / "openclaw.json").write_text("{ nonsense")
    (claw / "agents/main/sessions/sessions.json").write_text("[]")
    report = adopt_openclaw_home(hold, claw)
    assert report.failed
    assert {"openclaw.json", "agents/main/sessions/sessions.json"} <= said(report, "failed")
    assert session(hold, "s-main").status is SessionStatus.ARCHIVED
    assert (hold.home.path / "workspace/AGENTS.md").exists()


def database(path: Path, events: dict[str, list[tuple[str | None, bytes | None]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE session_nodes (session_key, current_session_id, entry_json)")
        conn.execute("CREATE TABLE transcript_events (session_id, seq INTEGER, event_json, event_zstd BLOB)")
        conn.execute(
            "INSERT INTO session_nodes VALUES (?, ?, ?)",
            ("agent:main:main", "s-main", json.dumps({"sessionId": "s-main", "totalTokens": 7})),
        )
        for id_, rows in events.items():
            for seq, (text, packed) in enumerate(rows):
                conn.execute("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", (id_, seq, text, packed))
    conn.close()


def rows_of(id_: str, *texts: str) -> list[tuple[str | None, bytes | None]]:
    return [(row.decode(), None) for row in jsonl(id_, *texts).splitlines()]


def test_the_newer_database_is_read_too(hold: Holdfast, claw: Path) -> None:
    events = {"s-main": rows_of("s-main", "from the database"), "s-past": rows_of("s-past", "before")}
    database(claw / "agents/main/agent/openclaw-agent.sqlite", events)
    report = adopt_openclaw_home(hold, claw)
    main = session(hold, "agent:main:main")
    assert (main.id, main.total_tokens) == ("s-main", 7)
    with hold.store.read(OWNER) as tx:
        assert [e.content for e in entries.transcript(tx, "s-main")] == ["", "from the database"]
        assert sessions.get(tx, "s-past").status is SessionStatus.ARCHIVED
    assert any("s-main.jsonl" in what for what in said(report, "left out"))
    assert not adopt_openclaw_home(hold, claw).changed


def test_events_that_came_in_as_a_file_before_are_not_doubled(hold: Holdfast, claw: Path) -> None:
    adopt_openclaw_home(hold, claw)
    again = [
        (json.dumps(json.loads(str(text)), indent=1), None) for text, _ in rows_of("s-main", "hello", "b")
    ]
    more = rows_of("s-main", "hello", "good day", "and more")[-1:]
    database(claw / "agents/main/agent/openclaw-agent.sqlite", {"s-main": [*again, *more]})
    assert adopt_openclaw_home(hold, claw).entries_added == 1


def test_compressed_events_are_reported_where_nothing_can_undo_them(
    hold: Holdfast, claw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adopt.sessions._unpacker", lambda: None)
    rows = [*rows_of("s-zip", "x"), (None, b"\x28\xb5\x2f\xfd")]
    database(claw / "agents/main/agent/openclaw-agent.sqlite", {"s-zip": rows})
    report = adopt_openclaw_home(hold, claw)
    (note,) = [note for note in report.notes if "s-zip" in note.what]
    assert (note.outcome, "zstandard" in note.detail) == ("left out", True)


def test_a_database_that_is_none_is_named(hold: Holdfast, claw: Path) -> None:
    path = claw / "agents/main/agent/openclaw-agent.sqlite"
    path.write_bytes(b"not a database at all" * 100)
    report = adopt_openclaw_home(hold, claw)
    assert "agents/main/agent/openclaw-agent.sqlite" in said(report, "failed")
    assert session(hold, "agent:main:main").id == "s-main"


def test_a_folder_that_is_no_openclaw_home_is_refused(hold: Holdfast, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        adopt_openclaw_home(hold, tmp_path / "none")
    (tmp_path / "bare").mkdir()
    for folder in (tmp_path / "bare", hold.home.path):
        with pytest.raises(InvalidInput) as refused:
            adopt_openclaw_home(hold, folder)
        assert "~/.openclaw" in refused.value.hint


JOBS: list[dict[str, Any]] = [
    {
        "id": "j1",
        "name": "weir",
        "enabled": True,
        "schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Oslo"},
        "sessionTarget": "main",
        "payload": {"kind": "systemEvent", "text": "Look at the weir."},
    },
    {
        "id": "j2",
        "name": "pond",
        "schedule": {"kind": "every", "everyMs": 7_200_000},
        "sessionTarget": "isolated",
        "payload": {"kind": "agentTurn", "message": "How is the pond?", "model": "openai/gpt-5"},
        "delivery": {"mode": "none"},
    },
    {
        "id": "j3",
        "name": "gone",
        "schedule": {"kind": "at", "atMs": 1},
        "payload": {"kind": "agentTurn", "message": "x"},
    },
    {
        "id": "j4",
        "name": "shell",
        "schedule": {"kind": "every", "everyMs": 1000},
        "payload": {"kind": "command"},
    },
]
APPROVALS = {
    "version": 1,
    "socket": {"token": SECRET},
    "defaults": {"security": "allowlist", "ask": "on-miss"},
    "agents": {
        "main": {
            "allowlist": [
                {"pattern": "/usr/bin/rg", "lastUsedAt": 1},
                {"pattern": "/opt/**/rg"},
                {"pattern": "/usr/bin/git", "argPattern": "sha256:argv:00"},
            ]
        },
        "nobody": {"allowlist": [{"pattern": "/bin/ls"}]},
    },
}


@pytest.mark.parametrize("newer", [False, True])
def test_cron_jobs_come_switched_off_and_what_was_allowed_stays_allowed(
    hold: Holdfast, claw: Path, newer: bool
) -> None:
    if newer:
        (claw / "state").mkdir()
        conn = sqlite3.connect(claw / "state/openclaw.sqlite")
        with conn:
            conn.execute("CREATE TABLE cron_jobs (job_id TEXT, sort_order INTEGER, job_json TEXT)")
            conn.execute("CREATE TABLE exec_approvals_config (raw_json TEXT)")
            conn.execute("INSERT INTO exec_approvals_config VALUES (?)", (json.dumps(APPROVALS),))
            for job in JOBS:
                conn.execute("INSERT INTO cron_jobs VALUES (?, 0, ?)", (job["id"], json.dumps(job)))
        conn.close()
    else:
        (claw / "cron/jobs.json").write_text(json.dumps({"version": 1, "jobs": JOBS}))
        (claw / "exec-approvals.json").write_text(json.dumps(APPROVALS))
    report = adopt_openclaw_home(hold, claw)
    with hold.store.read(OWNER) as tx:
        found = [(t.name, t.prompt, t.session, t.deliver, t.enabled) for t in tasks.listing(tx)]
        patterns = [one.pattern for one in allowlist.listing(tx, "main")]
    assert found == [
        ("weir", "Look at the weir.", "main", "last", False),
        ("pond", "How is the pond?", "isolated", "none", False),
    ]
    assert patterns == ["/usr/bin/rg", "/usr/bin/rg *"]
    assert {"cron: gone", "cron: shell"} <= said(report, "left out")
    assert {"main: /opt/**/rg", "main: /usr/bin/git", "nobody: /bin/ls"} <= said(report, "refused")
    assert hold.settings.tools.exec.security == "allowlist"
    assert SECRET not in json.dumps(report.as_json())
    assert not adopt_openclaw_home(hold, claw).changed


def test_agents_by_id_are_agents(hold: Holdfast, claw: Path) -> None:
    (claw / "openclaw.json").write_text('{"agents": {"entries": {"main": {"default": true}, "work": {}}}}')
    adopt_openclaw_home(hold, claw)
    assert [agent.id for agent in hold.settings.agents.list] == ["main", "work"]
