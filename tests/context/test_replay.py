from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from context_builders import Echo, Failing, Stage, used_tool

from builders import rows
from holdfast.agents.loop.calling import SummaryCosts
from holdfast.agents.models.types import ModelAbout, ModelRef
from holdfast.clock import ManualClock
from holdfast.context import (
    AssembleParams,
    AssembleResult,
    AssistantMessage,
    BaseEngine,
    Built,
    CompactOutcome,
    CompactParams,
    CompactResult,
    EngineContext,
    EngineInfo,
    SystemMessage,
    Text,
    Trust,
    UserMessage,
    diff,
    encode,
    engines,
    replay,
)
from holdfast.context.manifest import load, pack, summary_call, unpack
from holdfast.context.replay import Row
from holdfast.errors import NotFound
from holdfast.log import OWNER, Store, Threads, entries


@pytest.mark.parametrize("engine", ["legacy", "lossless"])
def test_every_turn_of_a_long_session_is_built_again_to_the_byte(
    store: Store, threads: Threads, tmp_path: Path, clock: ManualClock, engine: str
) -> None:
    """Tools, edits of workspace files, pauses that let the cache go cold, corrections and compactions."""
    plugins = {"plugins": {"slots": {"contextEngine": engine}}}
    home = tmp_path / "home"
    stage = Stage(store, threads, home, config=plugins, summariser=Echo(), window=14_000)
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
    assert engine == "lossless" or stage.fresh().compaction_count >= 2
    assert revisions == sorted(revisions)
    (stage.workspace / "AGENTS.md").write_text("Rules of another day.")
    later = Stage(store, threads, home, config=plugins, window=14_000)
    for number, exact in sent.items():
        found = stage.room.replay(stage.session, number)
        assert found.identical
        assert [encode(m) for m in found.messages] == exact
        anew = asyncio.run(later.room.hindsight.rebuild(stage.session, number))
        assert anew.difference is None
        assert [encode(m) for m in anew.messages] == exact


async def _one_turn(stage: Stage, number: int, chance: random.Random) -> Built:
    turn = stage.accept(f"question {number} " + "word " * chance.randint(5, 150))
    volatile = [Text("recall", f"note {number} about 漢字 and \\ud800", Trust.MODEL, "memory")]
    built = await stage.build(turn, volatile=volatile)
    reply = AssistantMessage(text=f"reply {number} " * chance.randint(1, 40))
    worked = used_tool(number, "output " * chance.randint(10, 1200)) if chance.random() < 0.5 else ()
    stage.commit(turn, *worked, reply)
    verdict = await stage.room.after_turn(stage.session, built)
    if verdict.compaction_due or number % 25 == 0:
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


class Fickle(BaseEngine):
    """One that tells the model how often it was asked: it cannot build the same again."""

    def __init__(self, context: EngineContext) -> None:
        self.count = 0

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(id="fickle", name="Fickle")

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        self.count += 1
        shown = [UserMessage(text=f"asked {self.count} times"), *params.messages]
        return AssembleResult(messages=shown, estimated_tokens=sum(map(params.estimate, shown)))

    async def compact(self, params: CompactParams) -> CompactResult:
        return CompactResult(outcome=CompactOutcome.NOTHING_TO_DO)


def test_an_engine_that_builds_something_else_says_where(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    engines.register("fickle", Fickle, replace=True)
    try:
        stage = Stage(store, threads, tmp_path, config={"plugins": {"slots": {"contextEngine": "fickle"}}})
        built = asyncio.run(stage.build(stage.accept("hello")))
        found = asyncio.run(stage.room.hindsight.rebuild(stage.session, built.manifest.number))
    finally:
        engines.unregister("fickle")
    assert not found.identical
    assert "engine fickle is not deterministic" in str(found.difference)
    assert "messages[1] (user) parts at character 6" in str(found.difference)


def test_what_if_shows_what_a_model_would_have_seen_and_asks_none(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    stage = Stage(
        store, threads, tmp_path, summariser=Failing(RuntimeError("no model is asked")), window=60_000
    )
    for number in range(1, 21):
        turn = stage.accept(f"Look at src/part{number}/main.py for ABC-{number}. " + "word " * 80)
        asyncio.run(stage.build(turn))
        stage.commit(turn, *used_tool(number, f"line {number} " * 200))
    look = stage.room.hindsight
    before = rows(store, "SELECT COUNT(*) FROM context_manifests")
    small = asyncio.run(look.what_if(stage.session, 20, window=8_000))
    assert small.after.used < small.before.used
    assert small.refused is None
    ops = [op for op, _ in small.steps()]
    assert {"-", "="} <= set(ops)
    kept, would = small.facts_kept
    assert kept > would
    other = asyncio.run(look.what_if(stage.session, 20, engine="lossless", model="other/model"))
    assert (other.after.engine, other.after.model) == ("lossless", "other/model")
    same = asyncio.run(look.what_if(stage.session, 20))
    assert {op for op, _ in same.steps()} == {"="}
    tiny = asyncio.run(look.what_if(stage.session, 20, window=200))
    assert tiny.refused is not None

    async def table() -> list[Row]:
        return [row async for row in look.what_ifs(stage.session, 16, 40, window=8_000)]

    found = asyncio.run(table())
    assert [row.turn for row in found] == [16, 17, 18, 19, 20]
    assert found[0].reuse is None
    assert all(row.reuse is not None and 0 <= row.reuse[1] <= 1 for row in found[1:])
    assert rows(store, "SELECT COUNT(*) FROM context_manifests") == before


def test_a_call_that_summarises_has_an_account(store: Store, threads: Threads, tmp_path: Path) -> None:
    stage = Stage(store, threads, tmp_path)
    about = ModelAbout(ref=ModelRef("scripted", "one"), window=8_000, max_tokens=1_000)
    said = [SystemMessage(text="Summarise."), UserMessage(text="What happened: much.")]
    asyncio.run(SummaryCosts(store, threads).asked(stage.session.id, about, said))
    with store.read(OWNER) as tx:
        stored = summary_call(tx, stage.session.id)
        found = replay(tx, stored)
    assert found.identical
    assert [s.name for s in stored.manifest.sections] == ["instructions", "history"]
    assert sum(s.chars for s in stored.manifest.sections) == sum(len(m.text) for m in said)
    with pytest.raises(NotFound):
        stage.room.stored(stage.session)
