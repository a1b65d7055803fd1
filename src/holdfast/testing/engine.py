"""Whether a context engine keeps its side of the contract: run it over your own before others do.

    python -m holdfast.testing.engine my_package:factory [--config '{"lines": 20}']

Each check plays real turns on a store of its own and says what was wrong in words that name the fault. Exit 0
if all hold, 1 if one does not, 2 for wrong use. From a test of your own:

    from holdfast.testing.engine import check_engine
    assert [found for found in check_engine(factory) if not found.ok] == []
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.context import (
    AssembleParams,
    AssembleResult,
    AssistantMessage,
    BuildRequest,
    Built,
    CommitParams,
    CompactOutcome,
    ContextRoom,
    EngineFactory,
    Estimator,
    IngestBatchParams,
    IngestParams,
    Message,
    ModelFacts,
    Registry,
    SpawnParams,
    SubagentEndedParams,
    SummaryMessage,
    ToolCall,
    ToolResult,
    UserMessage,
    draft_of,
    encode,
)
from holdfast.context.host import HostedEngine
from holdfast.context.transcript import whole_pairs
from holdfast.errors import HoldfastError
from holdfast.home import Home
from holdfast.ids import uuid7
from holdfast.log import OWNER, EntryDraft, Outcome, Session, Store, Threads, Turn, sessions, turns

BUDGET: Final = 6_000
WINDOW: Final = 12_000
_SLACK: Final = 1.1
_PATIENCE_MS: Final = 20_000
LIMITS: Final = {
    **dict.fromkeys(("bootstrapMs", "tellMs", "assembleMs", "compactMs", "subagentMs"), _PATIENCE_MS),
    "disposeMs": 2_000,
}


class Broken(AssertionError):
    """What an engine does that it must not, or does not that it must."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what an engine promises, and what was wrong, if it is not so."""

    promise: str
    fault: str | None = None

    @property
    def ok(self) -> bool:
        return self.fault is None


class Play:
    """A home with the engine in the slot, and sessions whose turns are told to it as the gateway tells
    them."""

    def __init__(
        self, store: Store, threads: Threads, home: Path, factory: EngineFactory, id_: str, own: Any
    ):
        entry = {id_: {"config": dict(own)}}
        plugins = {"slots": {"contextEngine": id_}, "entries": entry, "limits": {"engine": LIMITS}}
        self.config = Config.model_validate({"plugins": plugins})
        registry = Registry()
        registry.register(id_, factory)
        self.store = store
        self._again = (threads, Home(home), registry)
        (home / "workspace").mkdir(exist_ok=True)
        self.workspace = home / "workspace"
        self.room = self._room()

    def _room(self) -> ContextRoom:
        threads, home, registry = self._again
        return ContextRoom(self.store, threads, home, lambda: self.config, registry=registry)

    async def restart(self) -> None:
        """The engine goes, and another process makes it anew over the same store and folders."""
        await self.room.dispose()
        self.room = self._room()

    @property
    def engine(self) -> HostedEngine:
        return self.room.hosted("main")

    def session(self, name: str) -> Session:
        with self.store.write(OWNER) as tx:
            return sessions.ensure(tx, f"agent:main:web:dm:{name}")

    async def turn(self, session: Session, text: str, *messages: Message) -> Built:
        """One whole turn: built, committed, told."""
        turn, built = await self.build(session, text)
        replies = messages or (AssistantMessage(text=f"Answer to: {text}"),)
        with self.store.write(OWNER) as tx:
            turns.start(tx, turns.get(tx, turn.id))
            done = turns.commit(tx, turn.key, Outcome(entries=[draft_of(m) for m in replies]))
            used = built.manifest.used
            self.room.turn_ended(tx, done.turn, prompt_tokens=used, token_budget=built.manifest.budget)
        await self.room.after_turn(session, built)
        return built

    async def build(self, session: Session, text: str) -> tuple[Turn, Built]:
        with self.store.write(OWNER) as tx:
            draft = EntryDraft(content=text, role="user", agent_id="user")
            turn = turns.accept(tx, sessions.get(tx, session.id), draft, key=uuid7()).turn
            now = sessions.get(tx, session.id)
        request = BuildRequest(
            session=now,
            turn_id=turn.id,
            number=turn.number,
            model=ModelFacts("test-model", WINDOW),
            settings=self.config.agents.defaults,
            workspace=self.workspace,
            input_id=turn.input_id,
        )
        return turn, await self.room.build(request)

    async def assemble(self, session: Session, budget: int = BUDGET, **more: Any) -> AssembleResult:
        """What the engine itself gives for the history as the runtime projects it."""
        found, estimator = self.room._assembly.project(session, self.engine.info, budget=budget, model="")
        given = {"messages": found, "estimate": estimator.message, "token_budget": budget, **more}
        return await self.engine.assemble(
            AssembleParams(session_id=session.id, session_key=session.key, **given)
        )

    async def both(self, session: Session) -> list[str]:
        """A session's history as the runtime projects it, and what the engine makes of that."""
        found, _ = self.room._assembly.project(session, self.engine.info, budget=BUDGET * 2, model="")
        shown = (await self.assemble(session, BUDGET * 2)).messages
        return [encode(message) for message in (*found, *shown)]


Check = Callable[[Play], Awaitable[None]]
CHECKS: Final[list[tuple[str, Check]]] = []


def check(promise: str) -> Callable[[Check], Check]:
    def added(one: Check) -> Check:
        CHECKS.append((promise, one))
        return one

    return added


@check("it starts, and says who it is")
async def _starts(play: Play) -> None:
    info = play.engine.info
    if not info.name:
        raise Broken("`info.name` is empty: people see it")


@check("it assembles a session in which nothing was said yet")
async def _empty(play: Play) -> None:
    result = await play.assemble(play.session("empty"))
    said = [m for m in result.messages if isinstance(m, (UserMessage, AssistantMessage, ToolResult))]
    if said:
        raise Broken(f"it shows {len(said)} messages of a session that has none: {_shown(said[0])}")


@check("what was said last is shown")
async def _newest(play: Play) -> None:
    session = play.session("newest")
    for number in range(3):
        await play.turn(session, f"question {number}")
    result = await play.assemble(session)
    if not any("question 2" in m.text for m in result.messages):
        raise Broken("the user's last words are not in what it assembles, though there is room for them")


@check("the same state gives the same bytes, and nothing twice")
async def _same(play: Play) -> None:
    session = play.session("same")
    for number in range(4):
        await play.turn(session, f"question {number}", *_used_tool(number))
    first, again = await play.assemble(session), await play.assemble(session)
    _require_same(first, again, "two calls of `assemble` with the same parameters differ")
    ids = [m.mark.entry_id for m in first.messages if m.mark is not None]
    twice = next((id_ for id_ in ids if ids.count(id_) > 1), None)
    if twice is not None:
        raise Broken(f"entry {twice} is shown twice in one context")


@check("a long session stays within the budget")
async def _within(play: Play) -> None:
    session = play.session("long")
    for number in range(30):
        await play.turn(session, f"question {number} " + "word " * 150, *_used_tool(number, "line\n" * 100))
    for budget in (BUDGET, BUDGET // 4):
        result = await play.assemble(session, budget)
        used = _tokens(result)
        if used > budget * _SLACK:
            raise Broken(f"it gives {used:,} tokens where `token_budget` is {budget:,}")


@check("tool calls and their results stay together")
async def _pairs(play: Play) -> None:
    session = play.session("pairs")
    for number in range(12):
        await play.turn(session, f"question {number}", *_used_tool(number, "line\n" * 150))
    for budget in (BUDGET, BUDGET // 2, BUDGET // 4):
        given = list((await play.assemble(session, budget)).messages)
        mended = whole_pairs(given)
        if [encode(m) for m in mended] != [encode(m) for m in given]:
            raise Broken(
                f"a tool call without its result, or a result without its call, at budget {budget:,}"
            )


@check("its count of tokens is right within a half")
async def _counts(play: Play) -> None:
    session = play.session("counts")
    for number in range(8):
        await play.turn(session, f"question {number} " + "word " * 100)
    result = await play.assemble(session)
    used = _tokens(result)
    if abs(result.estimated_tokens - used) > max(200, used // 2):
        raise Broken(f"`estimated_tokens` is {result.estimated_tokens:,}, and {used:,} are counted")


@check("a turn that is told again under its key counts once")
async def _once(play: Play) -> None:
    session = play.session("once")
    await play.turn(session, "first question")
    before = await play.assemble(session)
    said: tuple[Message, ...] = (
        UserMessage(text="a repeated question"),
        AssistantMessage(text="a repeated answer"),
    )
    of: dict[str, Any] = {"session_id": session.id, "session_key": session.key}
    for _ in range(3):
        if "commit_turn" in play.engine.has:
            await play.engine.commit_turn(CommitParams(**of, advancement_key="twice", messages=said))
        elif "ingest_batch" in play.engine.has:
            await play.engine.ingest_batch(IngestBatchParams(**of, key="twice", messages=said))
        elif "ingest" in play.engine.has:
            for number, message in enumerate(said):
                await play.engine.ingest(IngestParams(**of, key=f"twice:{number}", message=message))
    result = await play.assemble(session)
    seen = sum("a repeated question" in m.text for m in result.messages)
    if seen > 1:
        raise Broken(f"a turn that came three times under one key is shown {seen} times")
    if not seen:
        _require_same(before, result, "a repeat under the same key changed what it assembles")


@check("one session shows nothing of another")
async def _apart(play: Play) -> None:
    mine, theirs = play.session("mine"), play.session("theirs")
    await play.turn(theirs, "the secret word is halyard")
    await play.turn(mine, "what is the secret word?")
    result = await play.assemble(mine)
    told = f"{result.system_prompt_addition or ''} " + " ".join(m.text for m in result.messages)
    if "halyard" in told:
        raise Broken("words of one session stand in the context of another")


@check("a compaction makes room, or says that it cannot")
async def _compacts(play: Play) -> None:
    session = play.session("compact")
    for number in range(24):
        await play.turn(session, f"question {number} " + "word " * 120)
    before = await play.both(session)
    result = await play.room.compact(session, window=WINDOW, reason="overflow", force=True)
    with play.store.read(OWNER) as tx:
        session = sessions.active(tx, session.key) or session
    if result.outcome is CompactOutcome.COMPACTED and before == await play.both(session):
        raise Broken("`compact` says that it compacted, and the same messages are shown as before")
    if result.outcome is CompactOutcome.NOTHING_TO_DO and not play.engine.info.owns_compaction:
        raise Broken(
            "`compact` does nothing and `owns_compaction` is False: overflows could never be mended; call "
            "`delegate_compaction_to_runtime`"
        )


@check("after a restart it shows the same")
async def _restarts(play: Play) -> None:
    session = play.session("restart")
    for number in range(4):
        await play.turn(session, f"question {number}")
    before = await play.assemble(session)
    await play.restart()
    await play.room._deliverer.meet(play.engine, session)
    _require_same(before, await play.assemble(session), "what it assembles is another after a restart")


@check("an old turn can be built again")
async def _again(play: Play) -> None:
    session = play.session("again")
    for number in range(6):
        await play.turn(session, f"question {number} " + "word " * 60)
    for number in (2, 4):
        found = await play.room.hindsight.rebuild(session, number)
        if not found.identical:
            raise Broken(
                f"turn {number} is built differently when it is built again: {found.difference}; put what "
                "`assemble` depends on, beside the log, into `AssembleResult.state`"
            )


@check("a child session begins, is taken back, and ends")
async def _children(play: Play) -> None:
    parent = play.session("parent")
    await play.turn(parent, "before the spawn")
    for number, mode in enumerate(("isolated", "fork")):
        with play.store.write(OWNER) as tx:
            child = sessions.ensure(tx, f"agent:main:subagent:0198-{number}")
        params: dict[str, Any] = {
            "parent_session_id": parent.id,
            "parent_session_key": parent.key,
            "child_session_id": child.id,
            "child_session_key": child.key,
            "context_mode": mode,
            "ttl_ms": 60_000,
        }
        rollback = await play.room.prepare_subagent_spawn(SpawnParams(**params))
        await rollback()
        await play.room.prepare_subagent_spawn(SpawnParams(**params))
        await play.turn(child, "the task")
        for reason in ("completed", "swept"):
            ended: dict[str, Any] = {"child_session_id": child.id, "child_session_key": child.key}
            await play.room.on_subagent_ended(SubagentEndedParams(**ended, reason=reason))


@check("it lets go in time, however often it is asked to")
async def _disposes(play: Play) -> None:
    await play.turn(play.session("dispose"), "hello")
    engine = play.engine
    await engine.dispose()
    await engine.dispose()


def check_engine(factory: EngineFactory, *, config: Mapping[str, Any] | None = None) -> list[Finding]:
    """Every promise, with what was wrong. Each check has a home of its own."""
    return list(findings(factory, config=config))


def findings(factory: EngineFactory, *, config: Mapping[str, Any] | None = None) -> Iterator[Finding]:
    """The same, one after another, for who looks for the first fault only."""
    with tempfile.TemporaryDirectory(prefix="holdfast-engine-") as folder:
        empty = Path(folder) / "empty.db"
        _migrated(empty)
        for promise, one in CHECKS:
            yield Finding(promise, _fault(factory, config or {}, one, empty))


def _migrated(path: Path) -> None:
    from holdfast.migrations import migrate

    store = Store(f"sqlite:///{path}", clock=ManualClock())
    try:
        migrate(store, copy=False)
    finally:
        store.close()


def _fault(factory: EngineFactory, config: Mapping[str, Any], one: Check, empty: Path) -> str | None:
    try:
        with _stage(factory, config, empty) as play:
            asyncio.run(asyncio.wait_for(one(play), 10 * _PATIENCE_MS / 1000))
    except (Broken, HoldfastError) as error:
        return str(error)
    except TimeoutError:
        return "it did not come to an end"
    return None


@contextmanager
def _stage(factory: EngineFactory, config: Mapping[str, Any], empty: Path) -> Iterator[Play]:
    with tempfile.TemporaryDirectory(prefix="holdfast-engine-") as folder:
        home = Path(folder)
        shutil.copyfile(empty, home / "holdfast.db")
        store = Store(f"sqlite:///{home / 'holdfast.db'}", clock=ManualClock())
        threads = Threads(2)
        try:
            yield Play(store, threads, home, factory, _id_of(factory, store, threads, home, config), config)
        finally:
            threads.close()
            store.close()


def _id_of(
    factory: EngineFactory, store: Store, threads: Threads, home: Path, config: Mapping[str, Any]
) -> str:
    """Under which id an engine registers, by its own account."""
    probe = Play(store, threads, home, factory, "probe", config)
    try:
        made = factory(probe.room._engine_context("main"))
    except Exception as error:
        raise Broken(f"the factory raised {type(error).__name__}: {error}") from error
    return str(getattr(getattr(made, "info", None), "id", "probe"))


def _used_tool(number: int, result: str = "ok") -> tuple[Message, ...]:
    call = ToolCall(f"call-{number}", "exec", {"command": f"run {number}"})
    return (
        AssistantMessage(text="", calls=(call,)),
        ToolResult(text=result, call_id=call.id, name="exec"),
        AssistantMessage(text=f"Done {number}."),
    )


def _tokens(result: AssembleResult) -> int:
    estimate = Estimator()
    return estimate.messages(result.messages) + estimate.text(result.system_prompt_addition or "")


def _require_same(first: AssembleResult, other: AssembleResult, words: str) -> None:
    if (first.system_prompt_addition or "") != (other.system_prompt_addition or ""):
        raise Broken(f"{words}, in `system_prompt_addition`")
    one, two = [encode(m) for m in first.messages], [encode(m) for m in other.messages]
    if one != two:
        pairs = zip(one, two, strict=False)
        place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two)))
        raise Broken(f"{words}, from messages[{place}] on")


def _shown(message: Message) -> str:
    kind = "a summary" if isinstance(message, SummaryMessage) else message.kind
    return f"{kind} ({message.text[:40]!r})"


def load(named: str) -> EngineFactory:
    """`package.module:factory`, from where the command is run or from what is installed."""
    module, _, attribute = named.partition(":")
    if not module or not attribute:
        raise ValueError(f"not a factory: {named!r} (use my_package:factory)")
    if "" not in sys.path:
        sys.path.insert(0, "")
    found: Any = importlib.import_module(module)
    for step in attribute.split("."):
        found = getattr(found, step)
    if not callable(found):
        raise ValueError(f"{named} is no function")
    made: EngineFactory = found
    return made


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.engine", description="Check a context engine against its contract."
    )
    parser.add_argument("factory", help="my_package:factory, which takes an EngineContext")
    parser.add_argument("--config", default="{}", help="the engine's own settings, as JSON")
    given = parser.parse_args(argv)
    try:
        factory, config = load(given.factory), json.loads(given.config)
    except (ImportError, AttributeError, ValueError) as error:
        print(f"cannot check {given.factory}: {error}", file=sys.stderr)
        return 2
    found = check_engine(factory, config=config)
    for one in found:
        print(f"{'ok  ' if one.ok else 'FAIL'}  {one.promise}" + ("" if one.ok else f"\n      {one.fault}"))
    failed = sum(not one.ok for one in found)
    print(f"{len(found) - failed} of {len(found)} promises are kept")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
