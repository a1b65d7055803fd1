"""One life for every engine: what it is told, when, how often; and what becomes of one that fails."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from context_builders import Stage, texts, used_tool

sys.path.insert(0, str(Path(__file__).with_name("outside")))

from margin_engine import BatchEngine, MarginEngine, SingleEngine, calls

import forks
from builders import PATIENCE, rows
from holdfast.clock import ManualClock
from holdfast.context import (
    AssembleParams,
    AssembleResult,
    AssistantMessage,
    CarrierMessage,
    CommitParams,
    CommitResult,
    CompactOutcome,
    CompactParams,
    CompactResult,
    EngineFailed,
    SubagentEndedParams,
    SystemMessage,
    UserMessage,
    engines,
)
from holdfast.errors import TooLarge
from holdfast.home import Home
from holdfast.log import OWNER, EntryDraft, Store, Threads, Turn, agenda, entries, sessions, turns
from holdfast.runtime import open_home
from holdfast.testing import Asked, Call, Say, ScriptedOpenAI
from holdfast.testing.script import text_of

Result = Callable[[AssembleParams], Any]
WORKER = Path(__file__).with_name("engine_worker.py")
OUTSIDE = Path(__file__).with_name("outside")


class Shaky(MarginEngine):
    """Fails where it is told to, and answers what it is told to."""

    failing: frozenset[str] = frozenset()
    answer: Result | None = None
    compacted: Any = None

    async def commit_turn(self, params: CommitParams) -> CommitResult:
        if "commit_turn" in type(self).failing:
            raise RuntimeError("the disk is full")
        return await super().commit_turn(params)

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        given = type(self).answer
        made: AssembleResult = await super().assemble(params) if given is None else given(params)
        return made

    async def compact(self, params: CompactParams) -> CompactResult:
        if callable(type(self).compacted):
            found: CompactResult = await type(self).compacted(self, params)
            return found
        return await super().compact(params)

    async def dispose(self) -> None:
        if "dispose" in type(self).failing:
            await asyncio.sleep(3600)


@pytest.fixture(autouse=True)
def margin() -> Iterator[None]:
    Shaky.failing, Shaky.answer, Shaky.compacted = frozenset(), None, None
    engines.register("margin", Shaky, replace=True)
    yield
    engines.unregister("margin")


class Told(Stage):
    """A session with the engine from outside, whose turns end as the loop ends them."""

    def __init__(self, store: Store, threads: Threads, home: Path, **more: Any) -> None:
        config = {"plugins": {"slots": {"contextEngine": "margin"}}, **more.pop("config", {})}
        super().__init__(store, threads, home, config=config, **more)
        self.home = home

    async def play(self, text: str, *messages: Any, **fields: Any) -> Turn:
        turn = self.accept(text)
        built = await self.build(turn)
        self.end(turn, *messages, **fields)
        await self.room.after_turn(self.fresh(), built)
        return turn

    def end(self, turn: Turn, *messages: Any, **fields: Any) -> None:
        self.commit(turn, *(messages or (AssistantMessage(text=f"Answer to {turn.number}"),)))
        with self.store.write(OWNER) as tx:
            self.room.turn_ended(tx, turns.get(tx, turn.id), prompt_tokens=1_000, **fields)

    def again(self) -> Told:
        """The same home in another process."""
        room = Told(self.store, self.room._threads, self.home)
        room.count = self.count
        return room

    @property
    def calls(self) -> list[dict[str, Any]]:
        return calls(Home(self.home).agent_dir("main") / "calls.jsonl")

    def called(self, name: str) -> list[dict[str, Any]]:
        return [one for one in self.calls if one["call"] == name]

    def waiting(self) -> list[Any]:
        return rows(self.store, "SELECT key, attempts, error FROM engine_outbox")


@pytest.fixture
def told(store: Store, threads: Threads, tmp_path: Path) -> Told:
    return Told(store, threads, tmp_path)


def test_an_engine_meets_a_session_once_and_then_hears_every_turn_by_its_key(told: Told) -> None:
    told.past([("long ago", ())])

    async def run() -> list[Turn]:
        return [await told.play("first", *used_tool(1)), await told.play("second", is_heartbeat=True)]

    first, second = asyncio.run(run())
    [met] = told.called("bootstrap")
    assert met["messages"] == ["user: long ago", "assistant: Answer to: long ago"]
    heard = told.called("commit_turn")
    assert [one["key"] for one in heard] == [first.id, second.id]
    assert heard[0]["messages"] == ["user: first", "assistant: ", "tool_result: ok", "assistant: Done 1."]
    assert [one["heartbeat"] for one in heard] == [False, True]
    after = told.called("after_turn")
    assert [one["key"] for one in after] == [first.id, second.id]
    assert after[0]["messages"] == heard[0]["messages"]
    assert after[0]["tokens"] == 1_000
    assert told.waiting() == []


def test_after_a_restart_it_is_not_introduced_again_but_a_new_version_is(
    told: Told, store: Store, threads: Threads, tmp_path: Path
) -> None:
    asyncio.run(told.play("first"))
    asyncio.run(told.again().play("second"))
    assert len(told.called("bootstrap")) == 1
    entry = {
        "plugins": {"slots": {"contextEngine": "margin"}, "entries": {"margin": {"config": {"version": "2"}}}}
    }
    newer = Told(store, threads, tmp_path, config=entry)
    newer.count = 10
    asyncio.run(newer.play("third"))
    met = told.called("bootstrap")
    assert len(met) == 2
    assert "user: second" in met[1]["messages"]
    assert "user: third" not in met[1]["messages"]


def test_a_turn_that_an_engine_fails_to_take_is_told_again_and_holds_up_nothing(
    told: Told, store: Store, threads: Threads, clock: ManualClock
) -> None:
    Shaky.failing = frozenset({"commit_turn"})
    first = asyncio.run(told.play("first"))
    second = asyncio.run(told.play("second"))
    [[key, attempts, error], [later, none, _]] = told.waiting()
    assert (key, later) == (first.id, second.id)
    assert attempts >= 1
    assert "the disk is full" in error
    assert none == 0
    [health] = [one for one in told.room.engine_health() if one["engine"] == "margin"]
    assert health["failures"] >= 1
    assert "the disk is full" in health["lastError"]
    assert health["queue"]["waiting"] == 2
    Shaky.failing = frozenset()

    async def retry() -> None:
        runner = agenda.Runner(store, threads, idle_seconds=0.01)
        runner.register("engine.deliver", told.room.delivery_kind())
        clock.advance(minutes=10)
        await runner.drain()

    asyncio.run(retry())
    assert [one["key"] for one in told.called("commit_turn")] == [first.id, second.id]
    assert told.waiting() == []


def test_what_a_dead_process_had_not_told_is_taken_up_by_the_next(
    told: Told, store: Store, threads: Threads
) -> None:
    asyncio.run(told.play("first"))
    turn = told.accept("second")
    asyncio.run(told.build(turn))
    told.end(turn)
    fresh = told.again()
    assert fresh.room.recover() == 1

    async def serve() -> None:
        runner = agenda.Runner(store, threads)
        runner.register("engine.deliver", fresh.room.delivery_kind())
        await runner.drain()

    asyncio.run(serve())
    assert told.called("commit_turn")[-1]["key"] == turn.id


def test_failed_turns_messages_outside_turns_and_turns_of_another_engine_are_told_too(
    told: Told, store: Store
) -> None:
    asyncio.run(told.play("first"))
    lost = told.accept("it broke")
    with store.write(OWNER) as tx:
        running = turns.start(tx, turns.get(tx, lost.id))
        told.room.turn_ended(tx, turns.end(tx, running, turns.TurnStatus.FAILED, "no model"))
        draft = EntryDraft(
            content="from the side", role="user", session_key=told.session.key, session_id=told.session.id
        )
        side = entries.append(tx, draft).entry
    unheard = told.say("while legacy was in the slot")
    last = asyncio.run(told.play("last"))
    heard = told.called("commit_turn")
    assert [one["key"] for one in heard][1:] == [lost.id, unheard.id, last.id]
    assert heard[1]["messages"] == ["user: it broke"]
    [loose] = told.called("ingest")
    assert (loose["key"], loose["messages"]) == (side.id, ["user: from the side"])


def test_an_engine_is_told_only_what_all_may_read_who_hear_the_session(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    group = Told(store, threads, tmp_path, key="agent:main:discord:group:42")
    heard, old = group.accept("for all of us"), group.accept("for the owner alone")
    for turn in (heard, old):
        with store.write(OWNER) as tx:
            running = turns.start(tx, turns.get(tx, turn.id))
            if turn is old:
                tx.conn.exec_driver_sql(f"UPDATE entries SET audience = 'owner' WHERE turn_id = '{turn.id}'")
            group.room.turn_ended(tx, turns.end(tx, running, turns.TurnStatus.FAILED, "no model"))
    last = group.accept("last")
    asyncio.run(group.build(last, instructions=()))
    group.end(last)
    asyncio.run(group.room.tell_engine(group.session))
    told = [message for one in group.calls for message in one.get("messages", ())]
    assert "user: for all of us" in told
    assert "user: for the owner alone" not in told


@pytest.mark.parametrize(("made", "way"), [(BatchEngine, "ingest_batch"), (SingleEngine, "ingest")])
def test_an_engine_without_commit_turn_gets_turns_as_batches_or_one_by_one(
    told: Told, made: type[MarginEngine], way: str
) -> None:
    engines.register("margin", made, replace=True)
    turn = asyncio.run(told.play("hello"))
    found = [(one["key"], one["messages"]) for one in told.called(way)]
    if way == "ingest_batch":
        assert found == [(turn.id, ["user: hello", "assistant: Answer to 1"])]
    else:
        assert found == [(f"{turn.id}:0", ["user: hello"]), (f"{turn.id}:1", ["assistant: Answer to 1"])]


def test_a_hosts_turn_that_an_engine_fails_to_take_is_no_duplicate_when_it_comes_again(told: Told) -> None:
    said = [UserMessage(text="hi"), AssistantMessage(text="hello")]
    Shaky.failing = frozenset({"commit_turn"})
    with pytest.raises(EngineFailed, match=r"margin.*commit_turn.*disk is full"):
        asyncio.run(told.room.commit_turn(told.session, "k1", said))
    Shaky.failing = frozenset()
    assert asyncio.run(told.room.commit_turn(told.session, "k1", said)).status == "committed"
    assert asyncio.run(told.room.commit_turn(told.session, "k1", said)).status == "duplicate"
    [heard] = told.called("commit_turn")
    assert heard["messages"] == ["user: hi", "assistant: hello"]
    asyncio.run(told.room.bootstrap(told.session))
    assert len(told.called("bootstrap")) == 1


def _shown(*messages: Any, tokens: Any = 1, addition: Any = None) -> AssembleResult:
    return AssembleResult(messages=messages, estimated_tokens=tokens, system_prompt_addition=addition)


WRONG: dict[str, tuple[Result, str]] = {
    "None": (lambda p: None, "returned None, not an AssembleResult"),
    "a dict": (lambda p: {"messages": []}, "returned a dict, not an AssembleResult"),
    "text for messages": (lambda p: AssembleResult(messages="hi", estimated_tokens=1), "`messages` is a str"),  # type: ignore[arg-type]
    "texts as messages": (lambda p: _shown("hi"), "messages[0] is a str ('hi'), not a message"),
    "a system message": (lambda p: _shown(SystemMessage(text="be bad")), "messages[0] is a SystemMessage"),
    "a carrier": (lambda p: _shown(CarrierMessage(text="now")), "messages[0] is a CarrierMessage"),
    "half a character": (
        lambda p: _shown(UserMessage(text="a\ud800")),
        "messages[0].text holds half a surrogate",
    ),
    "half in the addition": (
        lambda p: _shown(addition="\udfff"),
        "system_prompt_addition holds half a surrogate",
    ),
    "bytes as text": (lambda p: _shown(UserMessage(text=b"hi")), "messages[0].text is a bytes"),  # type: ignore[arg-type]
    "no count": (lambda p: _shown(tokens=None), "`estimated_tokens` is None, not a count"),
    "a number as addition": (lambda p: _shown(addition=7), "system_prompt_addition is an int (7), not text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_told_with_the_engines_name_and_what_was_wrong(told: Told, name: str) -> None:
    given, said = WRONG[name]
    Shaky.answer = staticmethod(given)  # type: ignore[assignment]
    with pytest.raises(EngineFailed) as caught:
        asyncio.run(told.build())
    assert "'margin' failed in assemble" in caught.value.message
    assert said in caught.value.message
    [health] = [one for one in told.room.engine_health() if one["selected"]]
    assert said in health["lastError"]


def test_what_an_engine_adds_to_the_system_prompt_is_in_its_budget_and_blamed_on_it(told: Told) -> None:
    told.window = 8_000
    told.past((f"question {n} " + "word " * 60, ()) for n in range(30))

    def filling(params: AssembleParams) -> AssembleResult:
        return _shown(*params.messages, addition="guide " * 2_000)

    Shaky.answer = staticmethod(filling)  # type: ignore[assignment]
    built = asyncio.run(told.build())
    assert built.manifest.used <= built.manifest.budget
    own = [s for s in built.manifest.sections if s.source == "engine/margin"]
    assert own[0].chars >= len("guide " * 2_000)
    Shaky.answer = staticmethod(lambda p: _shown(addition="guide " * 40_000))  # type: ignore[assignment]
    with pytest.raises(TooLarge, match=r"'margin' adds .* tokens to the system prompt") as caught:
        asyncio.run(told.build())
    assert "system_prompt_addition" in caught.value.hint


def test_an_engines_count_of_tokens_decides_or_is_told_as_wrong(told: Told) -> None:
    told.window = 40_000
    Shaky.answer = staticmethod(lambda p: _shown(*p.messages, tokens=1_000_000))  # type: ignore[assignment]
    built = asyncio.run(told.build())
    assert "says 1,000,000 tokens" in " ".join(built.manifest.warnings)
    assert not built.needs_compaction
    Shaky.answer = staticmethod(  # type: ignore[assignment]
        lambda p: _shown(*p.messages, tokens=sum(map(p.estimate, p.messages)))
    )
    while built.manifest.used < built.manifest.budget * 0.8:
        told.past((f"q{n} " + "word " * 250, ()) for n in range(2))
        built = asyncio.run(told.build())
    assert (built.manifest.warnings, built.needs_compaction) == ((), False)
    most = built.manifest.budget
    Shaky.answer = staticmethod(lambda p: _shown(*p.messages, tokens=most))  # type: ignore[assignment]
    fuller = asyncio.run(told.build())
    assert (fuller.manifest.warnings, fuller.needs_compaction) == ((), True)


def test_a_successor_that_an_engine_names_is_followed_with_the_turns_that_wait(
    told: Told, store: Store
) -> None:
    async def rotated(engine: Shaky, params: CompactParams) -> CompactResult:
        new = await engine._context.runtime.rotate(params.session_id)
        return CompactResult(outcome=CompactOutcome.COMPACTED, successor_session_id=new)

    told.past([("before", ())])
    waiting = told.accept("waiting")
    Shaky.compacted = rotated
    result = asyncio.run(told.room.compact(told.session, window=8_000))
    with store.read(OWNER) as tx:
        now = sessions.active(tx, told.session.key)
        turn = turns.get(tx, waiting.id)
    assert now is not None
    assert result.successor_session_id == now.id
    assert (turn.session_id, turn.number) == (now.id, 1)
    told.session = now
    assert texts(asyncio.run(told.build(turn)).messages)[-1] == "waiting"

    async def invented(engine: Shaky, params: CompactParams) -> CompactResult:
        return CompactResult(outcome=CompactOutcome.COMPACTED, successor_session_id="next")

    Shaky.compacted = invented
    with pytest.raises(EngineFailed, match=r"'margin' failed in compact: it names 'next'"):
        asyncio.run(told.room.compact(now, window=8_000))


def test_an_engine_that_hangs_is_left_behind(store: Store, threads: Threads, tmp_path: Path) -> None:
    slots, limits = {"contextEngine": "margin"}, {"engine": {"assembleMs": 50, "disposeMs": 50}}
    told = Told(store, threads, tmp_path, config={"plugins": {"slots": slots, "limits": limits}})

    async def never(engine: Shaky, params: CompactParams) -> CompactResult:
        raise asyncio.CancelledError

    async def forever() -> None:
        await asyncio.Event().wait()

    Shaky.failing = frozenset({"dispose"})
    Shaky.compacted = never

    async def run() -> None:
        await told.build()
        with pytest.raises(EngineFailed, match="cancelled from within"):
            await told.room.compact(told.session, window=8_000)
        told.room.engine("main").assemble = lambda params: forever()  # type: ignore[method-assign, assignment, return-value]
        with pytest.raises(
            EngineFailed, match=r"'margin' failed in assemble: it took longer than 0.05 seconds"
        ):
            await told.build()
        async with asyncio.timeout(PATIENCE):
            await told.room.dispose()

    asyncio.run(run())


class Asleep(MarginEngine):
    """Never ends a call once it is told to sleep."""

    asleep: bool = False

    async def _sleep(self, *_: Any) -> Any:
        if type(self).asleep:
            await asyncio.Event().wait()

    async def bootstrap(self, params: Any) -> None:
        await self._sleep()

    async def commit_turn(self, params: Any) -> CommitResult:
        await self._sleep()
        return CommitResult("committed")

    async def after_turn(self, params: Any) -> None:
        await self._sleep()

    async def compact(self, params: Any) -> CompactResult:
        await self._sleep()
        return CompactResult(outcome=CompactOutcome.NOTHING_TO_DO)

    async def on_subagent_ended(self, params: Any) -> None:
        await self._sleep()


LIMITED: dict[str, tuple[str, Callable[[Told], Any]]] = {
    "bootstrapMs": ("bootstrap", lambda told: told.room.bootstrap(told.session)),
    "tellMs": (
        "commit_turn",
        lambda told: told.room.commit_turn(told.session, "k", [UserMessage(text="hi")]),
    ),
    "compactMs": ("compact", lambda told: told.room.compact(told.session, window=8_000)),
    "subagentMs": (
        "on_subagent_ended",
        lambda told: told.room.on_subagent_ended(
            SubagentEndedParams(child_session_id="x", child_session_key="agent:main:subagent:x")
        ),
    ),
}


@pytest.mark.parametrize("setting", LIMITED)
def test_how_long_each_call_of_an_engine_may_take_is_what_the_config_says(
    store: Store, threads: Threads, tmp_path: Path, setting: str
) -> None:
    engines.register("margin", Asleep, replace=True)
    call, begin = LIMITED[setting]
    slots, limits = {"contextEngine": "margin"}, {"engine": {setting: 70}}
    told = Told(store, threads, tmp_path, config={"plugins": {"slots": slots, "limits": limits}})

    async def run() -> None:
        if setting != "bootstrapMs":
            await told.room.bootstrap(told.session)
        Asleep.asleep = True
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(EngineFailed, match=rf"failed in {call}: it took longer than 0.07 seconds"):
                await begin(told)

    try:
        asyncio.run(run())
    finally:
        Asleep.asleep = False


def test_an_engine_that_is_switched_off_is_not_used(store: Store, threads: Threads, tmp_path: Path) -> None:
    plugins = {"slots": {"contextEngine": "margin"}, "entries": {"margin": {"enabled": False}}}
    told = Told(store, threads, tmp_path, config={"plugins": plugins})
    assert asyncio.run(told.build()).manifest.engine == "legacy"
    assert told.calls == []


def _play(asked: Asked) -> Say | Call:
    said = json.dumps(asked.messages)
    last = asked.messages[-1]
    if "You are a subagent" in said:
        return Say("Found it.")
    if last["role"] == "tool" or "Found it." in said:
        return Say("Done.")
    if "list the files" in str(last["content"]):
        return Call("file_read", {"path": "AGENTS.md"})
    if "delegate this" in str(last["content"]):
        return Call("sessions_spawn", {"task": "Look."})
    return Say(f"Heard {len(asked.messages)}.")


def _home(path: Path, url: str) -> None:
    provider = {"baseUrl": url, "apiKey": "none", "models": [{"id": "scripted"}]}
    body = {
        "models": {"mode": "replace", "providers": {"scripted": provider}},
        "agents": {"defaults": {"model": "scripted/scripted", "skipBootstrap": True, "skills": []}},
        "board": {"enabled": False, "classifier": {"enabled": False}},
        "memory": {"search": {"embedding": {"providers": []}}},
        "plugins": {"slots": {"contextEngine": "margin"}},
    }
    (path / "workspace").mkdir(parents=True)
    (path / "workspace" / "HEARTBEAT.md").write_text("Look whether the tide has turned.\n")
    Home(path).config.write_text(json.dumps(body))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine from outside as its authors ship it: a wheel, and a folder that it is installed in."""
    place = tmp_path_factory.mktemp("margin")
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(built, cwd=OUTSIDE, check=True, capture_output=True, timeout=120)
    [wheel] = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site")
    return place / "site"


def _gateway(home: Path, installed: Path, **plan: Any) -> int:
    done = forks.run(
        [sys.executable, str(WORKER), str(home), json.dumps(plan)],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def test_real_turns_of_gateways_that_are_killed_reach_an_engine_that_is_a_package_once_each(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with ScriptedOpenAI(_play) as server:
        _home(home, server.url)
        assert _gateway(home, installed, say=["hello", "list the files"]) == 0
        assert _gateway(home, installed, say=["and then it was killed"], kill=True) == -9
        lines = calls(Home(home).agent_dir("main") / "calls.jsonl")
        assert not any("and then it was killed" in str(one.get("messages")) for one in lines)
        assert _gateway(home, installed, say=["delegate this"], heartbeat=True, compact=True) == 0
    lines = calls(Home(home).agent_dir("main") / "calls.jsonl")
    names = {one["call"] for one in lines}
    assert names == {
        "bootstrap", "commit_turn", "after_turn", "assemble", "compact", "dispose",
        "prepare_subagent_spawn", "on_subagent_ended",
    }  # fmt: skip
    assert [one["ttl"] for one in lines if one["call"] == "prepare_subagent_spawn"] == [3_600_000]
    keys = [one["key"] for one in lines if one["call"] == "commit_turn"]
    assert len(keys) == len(set(keys))
    main = [one for one in lines if one["session"] == "agent:main:main"]
    assert [one["call"] for one in main].count("bootstrap") == 1
    told = [message for one in main if one["call"] == "commit_turn" for message in one["messages"]]
    for said in ("hello", "list the files", "and then it was killed", "delegate this"):
        assert told.count(f"user: {said}") == 1
    assert any(one["call"] == "commit_turn" and "subagent" in one["session"] for one in lines)
    assert any(one["call"] == "after_turn" and one["heartbeat"] for one in lines)
    sent = sorted(text for asked in server.requests if (text := _wire(asked)).startswith("Margin:"))
    engines.unregister("margin")
    monkeypatch.syspath_prepend(str(installed))
    assert _rebuilt(home) == [text for text in sent if "You are a subagent" not in text]


def _wire(asked: Asked) -> str:
    """All text of a request as it arrived, in order."""
    return "".join(text_of(message.get("content")) for message in asked.messages)


def _rebuilt(home: Path) -> list[str]:
    """Every call of the main session, built anew by its engine in another process than the one that sent
    it."""
    with open_home(home) as hold:
        with hold.store.read(OWNER) as tx:
            session = sessions.find(tx, "agent:main:main")
            made = tx.conn.exec_driver_sql(
                "SELECT number, call FROM context_manifests WHERE number > 0 AND session_id = "
                f"'{session.id}' ORDER BY number, call"
            ).all()
        found = [asyncio.run(hold.context.hindsight.rebuild(session, *one)) for one in made]
    assert [one.difference for one in found] == [None] * len(made)
    return sorted("".join(message.text for message in one.messages) for one in found)
