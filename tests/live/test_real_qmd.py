"""The real `qmd`, where it is installed: words only, which needs no model and no network."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from builders import KEY, append, session
from holdfast.log import OWNER
from holdfast.memory import Ask
from holdfast.runtime import open_home


def _missing() -> str:
    """Why the program cannot be used here; it needs Node 22 or newer."""
    if shutil.which("qmd") is None:
        return "the program qmd (npm @tobilu/qmd) is not on PATH"
    try:
        subprocess.run(["qmd", "--version"], capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"qmd is there but does not run: {error}"
    return ""


MISSING = _missing()


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "it is there")
def test_the_real_program_indexes_finds_and_follows_changes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    wiki = tmp_path / "Wiki of Ours"
    (wiki / "Deep dir").mkdir(parents=True)
    (wiki / "Deep dir/Über uns.md").write_text("# Who\n\nfiller\n\nThe glazier is called Anselm.\n")
    paths = [{"path": str(wiki), "name": "wiki", "mask": "**/*.md"}]
    # Ten times the usual time: this machine may be busy, and the limit is tested elsewhere.
    qmd = {"paths": paths, "limits": {"timeoutMs": 40_000}}
    (home / "holdfast.json").write_text(json.dumps({"memory": {"backend": "qmd", "qmd": qmd}}))
    with open_home(home) as hold:
        workspace = hold.workspace("main")
        (workspace / "memory").mkdir(parents=True)
        (workspace / "MEMORY.md").write_text("# Access\n\nThe staging deploy needs the VPN.\n")
        made = session(hold.store, KEY)
        append(hold.store, "The ladder is at Ines's.", session_key=KEY, session_id=made.id, role="user")
        assert hold.memory.update("main").problems == []

        def first(question: str) -> tuple[str, int | None]:
            found = hold.memory.search(Ask(question, "main", OWNER))
            assert (found.diagnostics.backend, found.fallback) == ("qmd", None)
            return (found.hits[0].path, found.hits[0].start) if found.hits else ("", None)

        assert first("What does one need for a deploy to staging, by the way?")[0] == "MEMORY.md"
        path, line = first("how is the glazier called?")
        assert path == "qmd/wiki/Deep dir/Über uns.md"
        assert (
            hold.memory.read("main", path, OWNER, start=5, lines=1)["text"] == "The glazier is called Anselm."
        )
        assert line is not None
        assert line <= 5
        assert first("where did the ladder go?")[0].startswith("qmd/sessions/")
        (workspace / "MEMORY.md").write_text("The walrus sleeps.\n")
        assert hold.memory.update("main").problems == []
        assert first("walrus") == ("MEMORY.md", 1)
        assert first("staging deploy")[0] == ""
        assert hold.memory.status("main")["backend"] == "qmd"
