"""A home with something of everything in it, and the program called on it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from builders import rows
from holdfast.cli.root import cli
from holdfast.log import OWNER, EntryDraft, entries
from holdfast.runtime import open_home


def call(*args: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, args)])


def told(*args: object) -> Any:
    """What a command says in JSON; it must have gone well."""
    done = call(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def furnish(home: Path, store: str | None = None) -> None:
    """Files of each kind, and entries in the store."""
    home.mkdir(mode=0o700)
    config: dict[str, Any] = {} if store is None else {"store": {"url": store}}
    write(home / "holdfast.json", json.dumps(config), 0o600)
    write(home / "credentials/token", "secret-token", 0o600)
    write(home / "workspace/memory/2026-01-31.md", "It rained.", 0o644)
    write(home / "workspace/run.sh", "#!/bin/sh\n", 0o755)
    write(home / "skills/x/SKILL.md", "---\nname: x\n---\n", 0o644)
    write(home / "attachments/ab/abcd", "\x00picture", 0o600)
    write(home / "index/segment", "derived", 0o600)
    write(home / "logs/gateway.jsonl", "{}", 0o600)
    (home / "workspace/empty").mkdir(mode=0o750)
    (home / "workspace/link").symlink_to("run.sh")
    with open_home(home, store_url=store) as hold:
        say(hold.store, *(f"entry {number}" for number in range(200)))


def say(store: Any, *contents: str) -> None:
    with store.write(OWNER) as tx:
        for content in contents:
            entries.append(tx, EntryDraft(content=content))


def said(home: Path, store: str | None = None) -> list[str]:
    """What the store of a home holds, in the order of writing."""
    with open_home(home, store_url=store) as hold:
        return [content for (content,) in rows(hold.store, "SELECT content FROM entries ORDER BY position")]


def write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def contents(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """Every file, folder and link beneath, with its mode and what is in it."""
    found = {}
    for folder, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(folder, name)
            about = path.lstat()
            if path.is_symlink():
                body = os.readlink(path).encode()
            else:
                body = path.read_bytes() if path.is_file() else b""
            mode = 0 if path.is_symlink() else stat.S_IMODE(about.st_mode)
            found[str(path.relative_to(root))] = (stat.filemode(about.st_mode)[0], mode, body)
    return found
