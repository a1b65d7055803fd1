"""The workspace in a turn's prompt: who the agent is, and the further files that the config names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from loop_stage import MODEL, Stage, staged

from holdfast.log import Store, Threads
from holdfast.testing import Say

CHILD = "agent:main:subagent:00000000-0000-4000-8000-000000000001"


def system_of(stage: Stage) -> str:
    return str(stage.server.requests[-1].messages[0]["content"])


def agents(**own: Any) -> dict[str, Any]:
    return {"agents": {"defaults": {"model": MODEL, "userTimezone": "UTC"}, "list": [{"id": "main", **own}]}}


def test_who_the_config_says_that_an_agent_is_stands_in_the_prompt_and_at_its_words(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    config = agents(name="Clerk", identity={"name": "Logic", "vibe": "sharp,\nprecise"})

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("Hello.")], config=config) as stage:
            (stage.workspace / "IDENTITY.md").write_text("---\nname: Somebody\nemoji: x\n---\n")
            await stage.say("Hello")
            assert "You are: name Logic, vibe sharp, precise. This holds" in system_of(stage)
            assert [(e.role, e.agent_label) for e in stage.log()] == [("user", None), ("assistant", "Logic")]

    asyncio.run(main())


def test_the_name_in_identity_md_is_shown_to_the_owner_and_in_no_group(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    group = "agent:main:pier:group:g1"

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("One."), Say("Two.")]) as stage:
            (stage.workspace / "IDENTITY.md").write_text("- Name: Logic\n")
            await stage.say("Hello")
            assert stage.log()[-1].agent_label == "Logic"
            await stage.say("Hello all", session_key=group, owner=False)
            assert stage.log(group)[-1].agent_label is None

    asyncio.run(main())


def test_further_files_that_the_config_names_stand_in_the_prompt(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    paths = ["projects/*/AGENTS.md", "../outside/TOOLS.md", "gone/SOUL.md", "own/SOUL.md"]
    hooks = {"internal": {"entries": {"bootstrap-extra-files": {"paths": paths}}}}

    async def main() -> None:
        config, script = {"hooks": hooks}, [Say("Hello."), Say("Done.")]
        async with staged(sqlite_store, threads, tmp_path, script, config=config) as stage:
            for name, words in (("one", "Rules of the harbour."), ("two", "Rules of the pier.")):
                folder = stage.workspace / "projects" / name
                folder.mkdir(parents=True)
                (folder / "AGENTS.md").write_text(words)
                (folder / "notes.md").write_text("a secret note")
            (stage.workspace / "own").mkdir()
            (stage.workspace / "own" / "SOUL.md").write_text("A calm soul.")
            (tmp_path / "outside").mkdir()
            (tmp_path / "outside" / "TOOLS.md").write_text("from outside")
            await stage.say("Hello")
            shown = system_of(stage)
            assert "# projects/one/AGENTS.md" in shown
            assert "Rules of the harbour." in shown
            assert "Rules of the pier." in shown
            assert "A calm soul." in shown
            assert "from outside" not in shown
            assert "secret note" not in shown
            found = stage.context.stored(stage.session()).manifest
            assert any("outside the workspace" in warning for warning in found.warnings)
            child = await stage.say(
                "Work", session_key="agent:main:subagent:00000000-0000-4000-8000-000000000001"
            )
            assert child.reply == "Done."
            assert "Rules of the pier." in system_of(stage)
            assert "A calm soul." not in system_of(stage)

    asyncio.run(main())
