"""A process to be killed: it takes in entries from several threads and runs turns, until it is no more.

Every line on its output is an acknowledgement: `e KEY` for an entry, `t KEY` for an accepted turn.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

from holdfast.errors import Busy
from holdfast.log import OWNER, EntryDraft, Outcome, Store, Threads, entries, open_store, sessions, turns
from holdfast.log.agenda import Job, Kind, Retry, Runner

LANES = 4


def acknowledge(kind: str, key: str) -> None:
    os.write(1, f"{kind} {key}\n".encode())


def take_in(store: Store, run: str, thread: int) -> None:
    """Entries, each sent twice as a client does that saw no answer, and messages that want a turn."""
    number = 0
    while True:
        number += 1
        key = f"{run}-{thread}-{number}"
        for _ in range(2):
            with store.write(OWNER) as tx:
                entries.append(tx, EntryDraft(content=key, idempotency_key=key))
        acknowledge("e", key)
        if number % 5 == 0:
            accept(store, key)


def accept(store: Store, key: str) -> None:
    try:
        with store.write(OWNER) as tx:
            session = sessions.ensure(tx, f"agent:main:web:dm:{hash(key) % LANES}")
            turns.accept(tx, session, EntryDraft(content=key, role="user"), key=key)
    except Busy:
        return
    acknowledge("t", key)


async def serve(store: Store) -> None:
    threads = Threads(4)

    def commit(job: Job, key: str) -> None:
        with store.write(OWNER) as tx:
            turns.commit(tx, key, Outcome(entries=[EntryDraft(content=f"re {key}", role="assistant")]), job)

    def begin(job: Job) -> str:
        with store.write(OWNER) as tx:
            return turns.start(tx, turns.get(tx, job.item.payload["turnId"])).key

    async def handler(job: Job) -> None:
        key = await threads(begin, job)
        await asyncio.sleep(0.002)
        await threads(commit, job, key)

    runner = Runner(store, threads)
    runner.register(turns.KIND, Kind(handler, retry=Retry(base_ms=0), on_interrupt=turns.interrupted))
    if sys.argv[2] == "drain":
        await runner.drain()
    else:
        await runner.run()


def main() -> None:
    store = open_store(sys.argv[1])
    if sys.argv[2] != "drain":
        for number in range(3):
            threading.Thread(target=take_in, args=(store, sys.argv[2], number), daemon=True).start()
    asyncio.run(serve(store))


if __name__ == "__main__":
    main()
