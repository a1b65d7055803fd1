"""How elected turns fare in number, as ratios to the least that could do the same on the same machine.

    python bench/continuation.py [--pending 10000] [--sessions 1000] [--rate 100] [--seconds 5] [--elected N]

Recovery after a restart against reading the rows; how fast due elections become committed turns; how late a
turn begins when so many fall due each second, and where that time goes; what a look at a session costs when
ever more wait in others; and what many elections in one turn cost, through the tools and as a whole turn of a
home with a scripted model. Else there is no model: a turn is begun, told its notes and committed.

On a busy machine much of the lateness is the machine's: compare the bare timer. To see the rest alone, run
under `chrt -r 10`, once with `TMPDIR=/dev/shm`: what lies between the two is the disk. There every
transaction of more than 20 ms was one whose commit did SQLite's checkpoint, or one that waited behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import sqlalchemy as sa
from common import table, timed

from holdfast.agents.loop import Ask
from holdfast.agents.loop.asks import Terms
from holdfast.agents.loop.parts import TurnEnd
from holdfast.agents.tools.types import Caller
from holdfast.clock import Millis, SystemClock
from holdfast.config import Config
from holdfast.continuation import Continuation, records, wakes
from holdfast.continuation.records import record_table as rows
from holdfast.continuation.state import Election, Kind, Phase, Record
from holdfast.log import (
    OWNER,
    EntryDraft,
    Outcome,
    Session,
    Store,
    Threads,
    Turn,
    Tx,
    agenda,
    chains,
    notes,
    open_store,
    sessions,
    sqlite_url,
    turns,
)
from holdfast.log.agenda import Job, Runner
from holdfast.log.agenda import Kind as AgendaKind
from holdfast.log.tables import turns as turns_table
from holdfast.memory.scope import Chat
from holdfast.runtime import open_home
from holdfast.services import Services
from holdfast.testing import Asked, Call, Calls, Say, ScriptedOpenAI
from holdfast.testing import Turn as Answer

MANY = {"enabled": True, "maxChainLength": 10_000, "maxPendingWork": 10_000, "costCapTokens": 0}
CONFIG = Config.model_validate({"agents": {"defaults": {"continuation": MANY}}})
TERMS = Terms(agent_id="main")


class Stage:
    """A store with a room, and turns that are committed as soon as they begin."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(sqlite_url(folder / "bench.db"), clock=SystemClock())
        self.threads = Threads(4)
        self.room = Continuation(
            self.store, self.threads, lambda: CONFIG, self.accept, payloads=folder / "files"
        )
        self.looked: dict[str, float] = {}
        self.granted: dict[str, float] = {}
        self.begun: dict[str, float] = {}

    def accept(self, tx: Tx, ask: Ask) -> Any:
        session = sessions.ensure(tx, str(ask.session_key))
        message = EntryDraft(content=ask.text, role="user", source=dict(ask.source))
        given = {"key": str(ask.key), "trigger": ask.trigger, "chain_id": ask.chain_id}
        made = turns.accept(tx, session, message, **given)
        tx.on_commit(lambda: self.granted.setdefault(session.key, time.time() * 1000))
        return type("Run", (), {"run_id": made.turn.id})()

    def runner(self) -> Runner:
        runner = Runner(self.store, self.threads)
        runner.register(turns.KIND, AgendaKind(self.turn, limit=8))
        runner.register(wakes.KIND, replace(self.room.dispatch.kind(), handler=self.look))
        return runner

    async def look(self, job: Job) -> None:
        self.looked.setdefault(str(job.item.payload["sessionKey"]), time.time() * 1000)
        await self.room.dispatch.run(job)

    async def turn(self, job: Job) -> None:
        self.begun.setdefault(job.item.lane, time.time() * 1000)
        await self.threads(self.store.run, OWNER, lambda tx: self.played(tx, job))

    def played(self, tx: Tx, job: Job) -> None:
        turn = turns.start(tx, turns.get(tx, str(job.item.payload["turnId"])))
        session = sessions.get(tx, turn.session_id)
        self.room.hook.begun(tx, turn, session, TERMS)
        notes.take(tx, [note.id for note in notes.waiting(tx, session.key)], turn.id)
        done = turns.commit(tx, turn.key, Outcome(entries=[EntryDraft(content="ok", role="assistant")]), job)
        self.room.hook.committed(tx, TurnEnd(turn=done.turn, session=session, terms=TERMS, said="ok"))

    def close(self) -> None:
        self.threads.close()
        self.store.close()


def seed(stage: Stage, pending: int, over: int, due: list[int], prefix: str = "s") -> None:
    """So many elections over so many sessions, waiting until their time."""
    with stage.store.write(OWNER) as tx:
        made = [sessions.ensure(tx, f"agent:main:bench:group:{prefix}{n}") for n in range(over)]
        kept = [a_chain(tx, session) for session in made]
        values = []
        for n in range(pending):
            session = made[n % over]
            election = Election(
                text=f"look at {n}", turn_id="turn-0", elected_at=due[n] - 15_000, delay_ms=15_000
            )
            record = Record(
                id=records.new_id(),
                kind=Kind.WORK,
                owner=session.key,
                session_id=session.id,
                agent_id="main",
                election=election,
                created_at=Millis(due[n] - 15_000),
                updated_at=tx.now,
                phase=Phase.WAITING,
                due_at=due[n],
                hop=1,
                chain_id=kept[n % over],
            )
            values.append(records._values(record))
        tx.conn.execute(sa.insert(rows), values)
        for n, session in enumerate(made):
            wakes.arm(tx, session.key, due[n])


def a_chain(tx: Tx, session: Session) -> str:
    """The chain of a message that is answered, of which more is to follow."""
    key, message = f"asked:{session.key}", EntryDraft(content="begin", role="user")
    turn = turns.accept(tx, session, message, key=key).turn
    agenda.cancel(tx, str(turn.agenda_id))
    turns.commit(tx, turns.start(tx, turn), Outcome(entries=[]))
    return chains.opened(tx, turn).id


def read_rows(store: Store) -> int:
    with store.read(OWNER) as tx:
        live = sa.select(rows).where(rows.c.status.in_(["queued", "running"]))
        return len(tx.conn.execute(live).mappings().all())


async def recovery(stage: Stage) -> tuple[float, float, float]:
    """Reading the rows, recovering with the agenda as it is, and with every look on it lost."""
    reading, whole, bare = [], [], []
    for _ in range(5):
        reading.append(timed(lambda: read_rows(stage.store)))
        began = time.perf_counter()
        await stage.room.recover()
        whole.append(time.perf_counter() - began)
        with stage.store.write(OWNER) as tx:
            tx.conn.exec_driver_sql(f"DELETE FROM agenda WHERE kind = '{wakes.KIND}'")
        began = time.perf_counter()
        await stage.room.recover()
        bare.append(time.perf_counter() - began)
    return median(reading), median(whole), median(bare)


def look_ms(stage: Stage, over: int) -> float:
    """One look at a session with nothing due yet, whatever waits elsewhere."""
    taken = []
    for n in range(min(over, 50)):
        key = f"agent:main:bench:group:s{n}"
        began = time.perf_counter()
        with stage.store.write(OWNER) as tx:
            stage.room.dispatch.look(tx, key)
        taken.append(time.perf_counter() - began)
    return median(taken) * 1e3


async def rate(stage: Stage, pending: int) -> tuple[float, int]:
    began = time.perf_counter()
    await stage.runner().drain()
    took = time.perf_counter() - began
    with stage.store.read(OWNER) as tx:
        done = tx.conn.execute(sa.select(sa.func.count()).where(rows.c.status == "succeeded")).scalar_one()
        granted = turns_table.c.trigger == "continuation"
        count = tx.conn.execute(sa.select(sa.func.count()).where(granted)).scalar_one()
    assert done == pending, (done, pending)
    return pending / took, count


BARE = """
import sys, time
start, count, per_second = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
late = []
for due in (start + n * 1000 // per_second for n in range(count)):
    time.sleep(max(0.0, due / 1000 - time.time()))
    late.append(time.time() * 1000 - due)
print(*late)
"""


@dataclass(frozen=True, slots=True)
class Late:
    """How late turns began, by the stages of their way: until the look at their session began, until the turn
    was written, until that began. `bare` is how late a process was meanwhile that only slept until then."""

    stages: list[tuple[float, float, float]]
    bare: list[float]


async def lateness(stage: Stage, per_second: int, seconds: int) -> Late:
    """From the moment an election is due to the first line of its turn's handler."""
    count = per_second * seconds
    start = int(time.time() * 1000) + 3_000 + 10 * count
    due = [start + n * 1000 // per_second for n in range(count)]
    seed(stage, count, count, due, prefix="late")
    assert time.time() * 1000 < start, "the machine is too busy to measure lateness"
    asked = [sys.executable, "-c", BARE, str(start), str(count), str(per_second)]
    bare = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True)
    runner = stage.runner()
    serve = asyncio.create_task(runner.run())
    checkpointer = stage.store.checkpointer()
    checkpoints = asyncio.create_task(checkpointer.run()) if checkpointer is not None else None
    while len(stage.begun) < count and time.time() * 1000 < due[-1] + 30_000:
        await asyncio.sleep(0.1)
    await runner.stop()
    await serve
    if checkpoints is not None:
        checkpoints.cancel()
    assert len(stage.begun) == count
    stages = [_stages(stage, f"agent:main:bench:group:late{n}", at) for n, at in enumerate(due)]
    return Late(stages, [float(word) for word in bare.communicate()[0].split()])


def _stages(stage: Stage, key: str, due: int) -> tuple[float, float, float]:
    looked, granted, begun = stage.looked[key], stage.granted[key], stage.begun[key]
    return looked - due, granted - looked, begun - granted


async def elections(stage: Stage, count: int) -> float:
    """CPU seconds of so many elections in one turn, through the tool, and of the turn's commit."""
    with stage.store.write(OWNER) as tx:
        session = sessions.ensure(tx, "agent:main:bench:group:many", agent_id="main")
        asked = EntryDraft(content="go", role="user")
        turn = turns.start(tx, turns.accept(tx, session, asked, key="many").turn)
    caller = _caller(session, turn)
    tool = stage.room.tools()[0]
    given = [tool.input(reason=f"look at {n}") for n in range(count)]
    began = time.process_time()
    for n in range(count):
        await tool.run(caller, given[n], f"call-{n}")
    with stage.store.write(OWNER) as tx:
        done = turns.commit(tx, turn, Outcome(entries=[EntryDraft(content="ok", role="assistant")]))
        stage.room.hook.committed(tx, TurnEnd(turn=done.turn, session=session, terms=TERMS, said="ok"))
    took = time.process_time() - began
    with stage.store.read(OWNER) as tx:
        assert chains.get(tx, turn.id).steps == count
    return took


def _caller(session: Session, turn: Turn) -> Caller:
    return Caller(
        config=CONFIG,
        settings=CONFIG.agent("main"),
        agent_id="main",
        session=session,
        turn_id=turn.id,
        chat=Chat.of(session.key),
        workspace=Path(),
    )


async def whole_turn(folder: Path, count: int, tool: str, given: str) -> float:
    """CPU seconds of a home's turn in which the model calls a tool so often at once, its server included.

    Each call differs in what it is `given`, as a model that goes round in circles is stopped.
    """

    def answer(asked: Asked) -> Answer:
        if asked.messages[-1]["role"] == "tool":
            return Say("Elected.")
        most = count if "go" in json.dumps(asked.messages[-1]) else 2
        return Calls(*(Call(tool, {given: f"number-{n}"}, id=f"call-{n}") for n in range(most)))

    with ScriptedOpenAI(answer, models=["scripted"]) as server:
        (folder / "holdfast.json").write_text(json.dumps(_home(server.url)))
        with open_home(folder) as hold:
            async with Services(hold).running():
                first = await hold.runs.accept(Ask(text="warm up", session_key="agent:main:web:dm:warm"))
                await hold.runs.wait(first.run_id, 300)
                began = time.process_time()
                run = await hold.runs.accept(Ask(text="go", session_key="agent:main:web:dm:many"))
                done = await hold.runs.wait(run.run_id, 300)
                took = time.process_time() - began
            with hold.store.read(OWNER) as tx:
                assert chains.get(tx, run.run_id).steps == (count if tool == "continue_work" else 0)
    assert done.ok, done
    return took


def _home(url: str) -> dict[str, Any]:
    model = {"id": "scripted", "contextWindow": 1_000_000, "maxTokens": 1_000}
    provider = {"baseUrl": url, "apiKey": "none", "models": [model]}
    slow = {**MANY, "minDelayMs": 600_000, "defaultDelayMs": 600_000, "maxDelayMs": 900_000}
    defaults = {"model": "scripted/scripted", "skipBootstrap": True, "skills": [], "continuation": slow}
    return {
        "models": {"mode": "replace", "providers": {"scripted": provider}},
        "agents": {"defaults": {**defaults, "heartbeat": {"every": "0m"}}},
        "board": {"enabled": False, "classifier": {"enabled": False}},
        "memory": {"search": {"embedding": {"providers": []}}},
    }


async def measure(options: argparse.Namespace) -> None:
    far = int(time.time() * 1000) + 3_600_000
    looks: dict[int, float] = {}
    for pending in (max(1, options.pending // 100), options.pending):
        with tempfile.TemporaryDirectory() as folder:
            stage = Stage(Path(folder))
            over = max(1, pending * options.sessions // options.pending)
            seed(stage, pending, over, [far] * pending)
            looks[pending] = look_ms(stage, over)
            if pending == options.pending:
                reading, whole, bare = await recovery(stage)
            stage.close()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        seed(stage, options.pending, options.sessions, [int(time.time() * 1000) - 1] * options.pending)
        fast, turns_run = await rate(stage, options.pending)
        stage.close()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        # What is loaded by now stays, as in a gateway: see gateway/settling.py.
        gc.collect()
        gc.freeze()
        late = await lateness(stage, options.rate, options.seconds)
        stage.close()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        elected = await elections(stage, options.elected)
        stage.close()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        whole_turns = await whole_turn(Path(folder), options.elected, "continue_work", "reason")
        plain = await whole_turn(Path(other), options.elected, "memory_get", "path")
    small, large = looks.values()
    whole_way = [sum(one) for one in late.stages]
    p99, bare99 = quantiles(whole_way, n=100)[98], quantiles(late.bare, n=100)[98]
    table(
        f"{options.pending:,} pending over {options.sessions:,} sessions",
        [
            ("reading the rows", f"{reading * 1e3:.1f} ms", "1.00", ""),
            ("recovery", f"{whole * 1e3:.1f} ms", f"{whole / reading:.2f}", "at most 2"),
            ("recovery, nothing left on the agenda", f"{bare * 1e3:.1f} ms", f"{bare / reading:.2f}", ""),
            ("elections to committed turns", f"{fast:,.0f}/s", "", f"in {turns_run:,} turns"),
            ("a look at one session, 1/100 pending", f"{small:.2f} ms", "1.00", ""),
            ("a look at one session", f"{large:.2f} ms", f"{large / small:.2f}", "about 1"),
            (f"lateness p50 at {options.rate}/s", f"{median(whole_way):.1f} ms", "", ""),
            (f"lateness p99 at {options.rate}/s", f"{p99:.1f} ms", f"{p99 / 50:.2f}", "of 50 ms: below 1"),
            *_tail(late.stages),
            ("  a bare timer meanwhile, p99", f"{bare99:.1f} ms", "", "what the machine adds by itself"),
        ],
    )
    table(
        f"{options.elected:,} elections in one turn",
        [
            ("through the tool, and its commit", f"{elected:.2f} CPU s", f"{elected / 3:.2f}", "of 3 s"),
            ("as a whole turn of a home", f"{whole_turns:.2f} CPU s", f"{whole_turns / plain:.2f}", ""),
            ("as many calls of another tool there", f"{plain:.2f} CPU s", "1.00", ""),
        ],
    )


def _tail(stages: list[tuple[float, float, float]]) -> list[tuple[str, str, str, str]]:
    """Where the time goes: of the usual election, and of the latest hundredth."""
    latest = sorted(stages, key=sum)[-max(1, len(stages) // 100) :]
    names = ("until the look begins", "until its turn is written", "until that begins")
    rows = []
    for at, name in enumerate(names):
        usual, late = median(s[at] for s in stages), median(s[at] for s in latest)
        rows.append((f"  {name}", f"{usual:.1f} ms", "", f"{late:.1f} ms of the latest 1 %"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--elected", type=int, default=1_000)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
