from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from builders import KEY
from holdfast.context import AssistantMessage, BuildRequest, ContextRoom, ModelFacts, Text, Trust, draft_of
from holdfast.log import OWNER, EntryDraft, Outcome, sessions, turns
from holdfast.runtime import open_home

Run = Callable[..., Result]


@pytest.fixture
def two_turns(home: Path) -> None:
    """A home in which a model was called twice, with an edit in between."""
    with open_home(home) as hold:
        room = ContextRoom(hold.store, hold.threads, hold.home, lambda: hold.settings)
        folder = hold.workspace("main")
        folder.mkdir(parents=True)
        (folder / "TOOLS.md").write_text("tools")
        for number in (1, 2):
            (folder / "AGENTS.md").write_text(f"edition {number}\x1b[31m")
            with hold.store.write(OWNER) as tx:
                session = sessions.ensure(tx, KEY)
                said = EntryDraft(content=f"question {number}", role="user")
                turn = turns.accept(tx, session, said, key=f"t{number}").turn
                turns.start(tx, turn)
            request = BuildRequest(
                session=session,
                turn_id=turn.id,
                number=turn.number,
                model=ModelFacts("test-model", 50_000),
                settings=hold.settings.agents.defaults,
                workspace=folder,
                volatile=[Text("recall", "an old note", Trust.MODEL)],
                input_id=turn.input_id,
            )
            asyncio.run(room.build(request))
            with hold.store.write(OWNER) as tx:
                outcome = Outcome(entries=[draft_of(AssistantMessage(text=f"answer {number}"))])
                turns.commit(tx, turn.key, outcome)


@pytest.mark.usefixtures("two_turns")
def test_show_has_a_bar_for_each_section(run: Run) -> None:
    result = run("context", "show")
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.output.splitlines() if line}
    assert "test-model" in result.output
    assert "in the stable prefix" in result.output
    for name in ("AGENTS.md", "history", "now", "recall", "input"):
        assert "█" in lines[name] or "░" in lines[name] or "#" in lines[name] or "-" in lines[name]


@pytest.mark.usefixtures("two_turns")
def test_show_gives_json_and_the_words_themselves(run: Run) -> None:
    body = json.loads(run("context", "show", "--turn", 1, "--json").output)
    assert body["number"] == 1
    assert {s["name"] for s in body["sections"]} >= {"AGENTS.md", "now", "input"}
    raw = run("context", "show", "--raw")
    assert "question 2" in raw.output
    assert "edition 2" in raw.output
    assert "\x1b" not in raw.output


@pytest.mark.usefixtures("two_turns")
def test_diff_names_what_changed(run: Run) -> None:
    result = run("context", "diff", 1, 2)
    assert result.exit_code == 0, result.output
    assert "AGENTS.md" in result.output
    assert "1 kept" in result.output
    body = json.loads(run("context", "diff", 1, 2, "--json").output)
    assert "AGENTS.md" in {new["name"] for _, new in body["changed"]}


@pytest.mark.usefixtures("two_turns")
def test_replay_proves_that_every_byte_is_the_same(run: Run) -> None:
    for number in (1, 2):
        result = run("context", "replay", number)
        assert result.exit_code == 0, result.output
        assert "identical" in result.output
    missing = run("context", "replay", 3)
    assert missing.exit_code != 0


@pytest.mark.usefixtures("two_turns")
def test_whatif_shows_a_diff_and_a_table_without_a_model(run: Run) -> None:
    shown = run("context", "whatif", "--turn", "2", "--window", "3k", "--engine", "lossless")
    assert shown.exit_code == 0, shown.output
    assert "engine legacy → lossless" in shown.output
    assert "window 50,000 → 3,000" in shown.output
    table = run("context", "whatif", "--turn", "1", "--to", "2", "--window", "8k", "--json")
    rows = json.loads(table.output)
    assert [row["turn"] for row in rows] == [1, 2]
    assert rows[1]["reuse"] is not None
    assert run("context", "whatif", "--turn", "1", "--window", "huge").exit_code == 2
    assert run("context", "whatif", "--turn", "1", "--engine", "nowhere").exit_code == 2


@pytest.mark.usefixtures("two_turns")
def test_replay_has_the_engine_build_the_turn_again(run: Run) -> None:
    found = json.loads(run("context", "replay", "1", "--json").output)
    assert (found["built"], found["identical"], found["difference"]) == (True, True, None)
