"""How elected turns fare in number, as ratios to the least that could do the same on the same machine.

    python bench/continuation.py [--pending 10000] [--sessions 1000] [--rate 100] [--seconds 5]

Recovery after a restart against reading the rows; how fast due elections become committed turns; how late a
turn begins when so many fall due each second; and what a look at a session costs when ever more wait in
others. No model: a turn is begun, told its notes and committed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import sqlalchemy as sa
from common import table, timed

from holdfast.agents.loop import Ask
from holdfast.agents.loop.asks import Terms
from holdfast.agents.loop.hooks import TurnEnd
from holdfast.clock import Millis, SystemClock
from holdfast.config import Config
from holdfast.continuation import Continuation, lookout, records
from holdfast.continuation.record import Election, Kind, Phase, Record
from holdfast.continuation.tables import records as rows
from holdfast.log import (
    OWNER,
    EntryDraft,
    Outcome,
    Store,
    Threads,
    Tx,
    notes,
    open_store,
    sessions,
    sqlite_url,
    turns,
)
from holdfast.log.agenda import Job, Runner
from holdfast.log.agenda import Kind as AgendaKind

CONFIG = Config.model_validate({"agents": {"defaults": {"continuation": {"enabled": True}}}})
TERMS = Terms(agent_id="main")


class Stage:
    """A store with a room, and turns that are committed as soon as they begin."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(sqlite_url(folder / "bench.db"), clock=SystemClock())
        self.threads = Threads(4)
        self.room = Continuation(
            self.store, self.threads, lambda: CONFIG, self.accept, payloads=folder / "files"
        )
        self.begun: list[tuple[str, float]] = []

    def accept(self, tx: Tx, ask: Ask) -> Any:
        session = sessions.ensure(tx, str(ask.session_key))
        message = EntryDraft(content=ask.text, role="user", source=dict(ask.source))
        made = turns.accept(tx, session, message, key=str(ask.key), trigger=ask.trigger)
        return type("Run", (), {"run_id": made.turn.id})()

    def runner(self) -> Runner:
        runner = Runner(self.store, self.threads)
        runner.register(turns.KIND, AgendaKind(self.turn, limit=8))
        self.room.register(runner)
        return runner

    async def turn(self, job: Job) -> None:
        self.begun.append((job.item.lane, time.time() * 1000))
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
            )
            values.append(records._values(record))
        tx.conn.execute(sa.insert(rows), values)
        for n, session in enumerate(made):
            lookout.arm(tx, session.key, due[n])


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
            tx.conn.exec_driver_sql(f"DELETE FROM agenda WHERE kind = '{lookout.KIND}'")
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
    assert done == pending, (done, pending)
    return pending / took, len(stage.begun)


async def lateness(stage: Stage, per_second: int, seconds: int) -> list[float]:
    """From the moment an election is due to the first line of its turn's handler."""
    count = per_second * seconds
    start = int(time.time() * 1000) + 3_000
    due = [start + n * 1000 // per_second for n in range(count)]
    seed(stage, count, count, due, prefix="late")
    runner = stage.runner()
    serve = asyncio.create_task(runner.run())
    while len(stage.begun) < count and time.time() * 1000 < due[-1] + 30_000:
        await asyncio.sleep(0.1)
    await runner.stop()
    await serve
    when = {f"agent:main:bench:group:late{n}": due[n] for n in range(count)}
    assert len(stage.begun) == count
    return [at - when[lane] for lane, at in stage.begun]


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
    small, large = looks.values()
    p99 = quantiles(late, n=100)[98]
    table(
        f"{options.pending:,} pending over {options.sessions:,} sessions",
        [
            ("reading the rows", f"{reading * 1e3:.1f} ms", "1.00", ""),
            ("recovery", f"{whole * 1e3:.1f} ms", f"{whole / reading:.2f}", "at most 2"),
            ("recovery, nothing left on the agenda", f"{bare * 1e3:.1f} ms", f"{bare / reading:.2f}", ""),
            ("elections to committed turns", f"{fast:,.0f}/s", "", f"in {turns_run:,} turns"),
            ("a look at one session, 1/100 pending", f"{small:.2f} ms", "1.00", ""),
            ("a look at one session", f"{large:.2f} ms", f"{large / small:.2f}", "about 1"),
            (f"lateness p50 at {options.rate}/s", f"{median(late):.1f} ms", "", ""),
            (f"lateness p99 at {options.rate}/s", f"{p99:.1f} ms", f"{p99 / 50:.2f}", "of 50 ms: below 1"),
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=5)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
