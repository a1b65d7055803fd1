"""Everything of a home in open forms, and back again without loss: JSON lines, Markdown, attachments.

`data/` has every row of the store, and is read back; `conversations/` and `board.md` are for people and other
programs. Attachments lie under their hashes, which `data/attachments.jsonl` has the names to. Tokens and
logins are credentials of this home, and stay in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from holdfast import migrations
from holdfast.backup.databases import revision_of
from holdfast.clock import iso
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.home import Home
from holdfast.log import SYSTEM, Store, sqlite_url
from holdfast.log.upkeep import batches, carry_sequence, reflected, require_empty
from holdfast.runtime import Holdfast

FORMAT: Final = "holdfast-export"
VERSION: Final = 1
CREDENTIALS: Final = frozenset({"tokens", "page_sessions"})
_SLUG: Final = re.compile(r"[^A-Za-z0-9._-]+")
_BATCH: Final = 500

Progress = Callable[[str], None]


def export(hold: Holdfast, folder: Path, progress: Progress) -> dict[str, int]:
    """Write all of a home into a new folder; how many rows of each table there are."""
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty", code="export_not_empty", hint="Name a new folder.")
    data = folder / "data"
    data.mkdir(parents=True)
    counts: dict[str, int] = {}
    with hold.store.read(SYSTEM) as tx:
        for table in reflected(tx.conn):
            if table.name not in CREDENTIALS:
                progress(table.name)
                counts[table.name] = _write_rows(tx.conn, table, data / f"{table.name}.jsonl")
    _write_attachments(hold, folder, counts)
    _write_conversations(folder, data)
    _write_board(folder, data)
    _copy_workspaces(hold, folder)
    digests = {path.name: _digest(path) for path in sorted(data.iterdir())}
    about = {"format": FORMAT, "version": VERSION, "revision": revision_of(hold.store), "counts": counts}
    (folder / "manifest.json").write_text(json.dumps({**about, "sha256": digests}, indent=1) + "\n")
    return counts


def load(folder: Path, home: Home, progress: Progress) -> dict[str, int]:
    """Make a home from an export: every row as it was, and the files with them. The home must be new."""
    manifest = _manifest(folder)
    if home.database.exists() or home.was_used():
        raise Conflict(f"there is a home at {home.path} already", hint="Choose a new one with --home.")
    home.prepare()
    store = Store(sqlite_url(home.database))
    try:
        migrations.migrate(store)
        if manifest["revision"] != revision_of(store):
            raise Conflict(
                f"the export is of another version of Holdfast ({manifest['revision']})",
                code="export_version",
                hint="Read it with the version that wrote it, bring that home up to date, and export anew.",
            )
        counts = _read_rows(store, folder / "data", progress)
    finally:
        store.close()
    for name in ("attachments", "workspaces"):
        _copy_back(folder / name, home, name)
    return counts


def _write_rows(conn: sa.Connection, table: sa.Table, path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as stream:
        for rows in batches(conn, table):
            for row in rows:
                stream.write(json.dumps(row, ensure_ascii=False, default=_plain) + "\n")
            count += len(rows)
    return count


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    raise TypeError(f"cannot be written as JSON: {type(value).__name__}")


def _back(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"$bytes"}:
        return base64.b64decode(value["$bytes"])
    if isinstance(value, dict) and value.keys() == {"$time"}:
        return datetime.fromisoformat(value["$time"])
    return value


def _read_rows(store: Store, data: Path, progress: Progress) -> dict[str, int]:
    counts: dict[str, int] = {}
    with store.write(SYSTEM) as tx:
        tables = [table for table in reflected(tx.conn) if table.name not in CREDENTIALS]
        for table in tables:
            require_empty(tx.conn, table)
        for table in tables:
            progress(table.name)
            counts[table.name] = 0
            for rows in _batched(data / f"{table.name}.jsonl"):
                tx.conn.execute(sa.insert(table), rows)
                counts[table.name] += len(rows)
            carry_sequence(tx, tx, table)
    return counts


def _batched(path: Path) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    for row in _rows(path):
        rows.append({name: _back(value) for name, value in row.items()})
        if len(rows) == _BATCH:
            yield rows
            rows = []
    if rows:
        yield rows


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def _manifest(folder: Path) -> dict[str, Any]:
    """What an export says of itself, once every file of it is as it was written."""
    try:
        found = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError as error:
        raise NotFound(f"{folder} holds no export", hint="Make one with `holdfast export DIR`.") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{folder / 'manifest.json'} cannot be read: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("version") != VERSION:
        raise InvalidInput(f"{folder} is no export that this version reads")
    for name, digest in dict(found["sha256"]).items():
        path = folder / "data" / Path(name).name
        if not path.is_file() or _digest(path) != digest:
            raise InvalidInput(f"{path} is not as it was written", code="export_damaged")
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _slug(text: str) -> str:
    """A file's name for people: safe on every system, and no two keys share it."""
    return f"{_SLUG.sub('-', text)[:80].strip('-.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _write_conversations(folder: Path, data: Path) -> None:
    """Who said what, a file for each session, in the order of the log."""
    place = folder / "conversations"
    place.mkdir()
    for row in _rows(data / "entries.jsonl"):
        if row["deleted_at"] is None and row["type"] in ("conversation", "note"):
            path = place / f"{_slug(row['session_key'] or 'log')}.md"
            who = row["agent_label"] or row["agent_id"] or row["role"] or "?"
            head = f"# {row['session_key'] or 'Without a session'}\n\n" if not path.exists() else ""
            with path.open("a", encoding="utf-8") as stream:
                stream.write(
                    f"{head}### {who} · {iso(row['created_at'])} · {row['id']}\n\n{row['content']}\n\n"
                )


def _write_board(folder: Path, data: Path) -> None:
    tasks: dict[str | None, list[dict[str, Any]]] = {}
    for row in _rows(data / "tasks.jsonl"):
        tasks.setdefault(row["topic_id"], []).append(row)
    lines = ["# Topics and tasks", ""]
    for topic in (*_rows(data / "topics.jsonl"), {"id": None, "name": "Without a topic", "status": ""}):
        own = tasks.get(topic["id"], [])
        if topic["id"] is None and not own:
            continue
        lines += [f"## {topic['name']} ({topic['status']})", ""]
        lines += [text for text in (topic.get("description"), topic.get("digest")) if text]
        lines += [f"- [{'x' if one['status'] == 'done' else ' '}] {one['title']}" for one in own]
        lines.append("")
    (folder / "board.md").write_text("\n".join(lines), encoding="utf-8")


def _write_attachments(hold: Holdfast, folder: Path, counts: dict[str, int]) -> None:
    source = hold.home.path / "attachments"
    if source.is_dir() and counts.get("attachments"):
        shutil.copytree(source, folder / "attachments", ignore=shutil.ignore_patterns(".*"))


def _copy_workspaces(hold: Holdfast, folder: Path) -> None:
    for agent in hold.settings.agent_list:
        place = hold.workspace(agent.id)
        if place.is_dir():
            target = folder / "workspaces" / agent.id
            shutil.copytree(place, target, symlinks=True, ignore=shutil.ignore_patterns(".git"))


def _copy_back(source: Path, home: Home, name: str) -> None:
    if not source.is_dir():
        return
    if name == "attachments":
        shutil.copytree(source, home.path / "attachments", dirs_exist_ok=True)
        return
    for place in sorted(source.iterdir()):
        target = home.workspace(place.name, default=place.name == "main")
        shutil.copytree(place, target, symlinks=True, dirs_exist_ok=True)
