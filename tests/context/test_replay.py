from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from context_builders import Echo, Stage, used_tool

from builders import rows
from holdfast.clock import ManualClock
from holdfast.context import AssistantMessage, Built, Text, Trust, diff, encode
from holdfast.context.manifest import load, pack, unpack
from holdfast.errors import NotFound
from holdfast.log import OWNER, Store, Threads, entries


def test_every_turn_of_a_long_session_replays_to_the_byte(
    store: Store, threads: Threads, tmp_path: Path, clock: ManualClock
) -> None:
    """Tools, edits of workspace files, pauses that let the cache go cold, corrections and compactions."""
    stage = Stage(store, threads, tmp_path / "home", summariser=Echo(), window=16_000)
    chance = random.Random(7)
    sent: dict[int, list[str]] = {}
    revisions = []
    for number in range(1, 61):
        built = asyncio.run(_one_turn(stage, number, chance))
        sent[built.manifest.number] = [encode(m) for m in built.messages]
        revisions.append(built.manifest.revision)
        clock.advance(minutes=chance.choice([0, 1, 9]))
        if number % 9 == 0:
            (stage.workspace / "AGENTS.md").write_text(f"Rules, edition {number}. " * 40)
        if number % 13 == 0:
            _correct_something(stage, chance)
    assert stage.fresh().compaction_count >= 2
    assert revisions == sorted(revisions)
    for number, exact in sent.items():
        found = stage.room.replay(stage.session, number)
        assert found.identical
        assert [encode(m) for m in found.messages] == exact


async def _one_turn(stage: Stage, number: int, chance: random.Random) -> Built:
    turn = stage.accept(f"question {number} " + "word " * chance.randint(5, 150))
    volatile = [Text("recall", f"note {number} about 漢字 and \\ud800", Trust.MODEL, "memory")]
    built = await stage.build(turn, volatile=volatile)
    reply = AssistantMessage(text=f"reply {number} " * chance.randint(1, 40))
    worked = used_tool(number, "output " * chance.randint(10, 1200)) if chance.random() < 0.5 else ()
    stage.commit(turn, *worked, reply)
    verdict = await stage.room.after_turn(stage.session, built)
    if verdict.compaction_due:
        await stage.room.compact(stage.fresh(), window=stage.window, reason="threshold")
    return built


def _correct_something(stage: Stage, chance: random.Random) -> None:
    with stage.store.write(OWNER) as tx:
        found = [e for e in entries.transcript(tx, stage.session.id, limit=1000) if e.role == "user"]
        entry = chance.choice(found[-6:])
        entries.correct(tx, entry.id, entry.content + " (corrected)")


@pytest.fixture
def stage(store: Store, threads: Threads, tmp_path: Path) -> Stage:
    return Stage(store, threads, tmp_path / "home")


def test_a_large_workspace_is_stored_once(stage: Stage) -> None:
    for name in ("AGENTS.md", "SOUL.md", "TOOLS.md", "USER.md", "IDENTITY.md"):
        (stage.workspace / name).write_text(f"{name} " * 1500)
    turn = stage.accept()
    asyncio.run(stage.build(turn))
    before = rows(stage.store, "SELECT sum(length(content)) FROM blobs")[0][0]
    for call in range(1, 20):
        asyncio.run(stage.build(turn, call=call))
    after = rows(stage.store, "SELECT sum(length(content)) FROM blobs")[0][0]
    assert before > 50_000
    assert after - before < 10_000


def test_a_manifest_of_a_long_history_is_small(stage: Stage) -> None:
    stage.past((f"question {number}", ()) for number in range(600))
    asyncio.run(stage.build())
    [(size,)] = rows(stage.store, "SELECT length(CAST(body AS TEXT)) FROM context_manifests")
    assert size < 12_000


def test_references_are_packed_in_pieces_that_a_longer_list_shares(stage: Stage) -> None:
    refs = [f"e:{number}" for number in range(10_000)]
    pieces: dict[str, str] = {}
    packed = pack(refs, pieces)
    assert len(packed) < 200
    more: dict[str, str] = {}
    pack([*refs, "e:next"], more)
    assert len(more.keys() - pieces.keys()) <= 2
    with stage.store.write(OWNER) as tx:
        stage.room._assembly._blobs.put(tx, pieces)
    with stage.store.read(OWNER) as tx:
        assert unpack(tx, packed) == refs


def test_a_diff_says_what_changed(stage: Stage) -> None:
    first = stage.accept("one")
    asyncio.run(stage.build(first))
    stage.commit(first, AssistantMessage(text="answer"))
    (stage.workspace / "AGENTS.md").write_text("New rules.")
    (stage.workspace / "USER.md").write_text("A user.")
    (stage.workspace / "SOUL.md").unlink()
    second = stage.accept("two")
    asyncio.run(stage.build(second))
    with stage.store.read(OWNER) as tx:
        before, after = (load(tx, stage.session.id, n) for n in (first.number, second.number))
        found = diff(tx, before, after)
    assert {"USER.md", "history"} <= {s.name for s in found.added}
    assert [s.name for s in found.removed] == ["SOUL.md"]
    assert "AGENTS.md" in {new.name for _, new in found.changed}
    assert found.kept_messages == 1
    assert found.new_messages == 3


def test_a_turn_without_a_stored_context_is_not_found(stage: Stage) -> None:
    with pytest.raises(NotFound):
        stage.room.replay(stage.session, 7)


def test_what_retention_erased_is_said_and_not_invented(stage: Stage) -> None:
    turn = stage.accept("words")
    asyncio.run(stage.build(turn))
    with stage.store.write(OWNER) as tx:
        tx.conn.exec_driver_sql("DELETE FROM blobs")
    with pytest.raises(NotFound) as caught:
        stage.room.replay(stage.session, turn.number)
    assert caught.value.code == "erased_blob"
