"""Ingest: what an entry costs over HTTP, in batches, and when the log is long.

    python bench/ingest.py [--entries 2000] [--rows 1000000] [--only durability]

Compares, in one run: HTTP ingest from one client with a bare FastAPI endpoint that inserts one row and
commits, as durably as we do; a batch with raw `executemany` into the same table with the same indexes; the
cost of an entry at 1,000,000 rows with that at 10,000; writes that survive a power cut with others.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from common import Client, cpu_seconds, request, rounds, rss_mb, start, table, timed

from holdfast.ids import entry_id
from holdfast.log import OWNER, EntryDraft, Store, entries, open_store, sqlite_url
from holdfast.log import connections as log_durability
from holdfast.log.store import sqlite_module

OURS = """
import sys, logging
import holdfast
from holdfast.gateway import listen, serve
hold = holdfast.open(sys.argv[1])
sock = listen("127.0.0.1", 0)
print(sock.getsockname()[1], hold.home.admin_token(), flush=True)
serve(hold, sock)
"""
BARE = """
import socket, sys, threading, uvicorn
import pysqlite3.dbapi2 as sqlite3
from fastapi import FastAPI
from pydantic import BaseModel
class Entry(BaseModel):
    content: str
    type: str = "conversation"
    source: dict | None = None
db = sqlite3.connect(sys.argv[1], check_same_thread=False)
for pragma in ("journal_mode=WAL", "synchronous=FULL"):
    db.execute("PRAGMA " + pragma)
db.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, type TEXT, content TEXT)")
lock = threading.Lock()
app = FastAPI()
@app.post("/api/log")
def append(entry: Entry):
    with lock:
        row = db.execute("INSERT INTO entry (type, content) VALUES (?, ?)", (entry.type, entry.content))
        db.commit()
    return {"id": row.lastrowid}
sock = socket.socket(proto=socket.IPPROTO_TCP)
sock.bind(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[sock])
"""


def http(folder: Path, count: int) -> None:
    ours, (port, token) = start(OURS, str(folder / "home"))
    bare, (bare_port,) = start(BARE, str(folder / "bare.db"))
    time.sleep(2)
    clients = {"ours": Client(int(port)), "bare": Client(int(bare_port))}
    number = iter(range(10_000_000))

    def send(name: str, n: int) -> None:
        for _ in range(n):
            i = next(number)
            body = _body(i)
            key = {"X_Idempotency_Key": f"bench-{i}"} if name == "ours" else {}
            status, answer = clients[name].send(
                request("POST", "/api/log", token if name == "ours" else "", body, **key)
            )
            assert status in (200, 201), answer

    for name in clients:
        send(name, 200)
    before = {"ours": cpu_seconds(ours.pid), "bare": cpu_seconds(bare.pid)}
    part, turns = 100, max(8, count // 100)
    took = rounds({name: lambda name=name: timed(lambda: send(name, part)) for name in clients}, turns)
    cpu = {
        "ours": (cpu_seconds(ours.pid) - before["ours"]) / (turns * part) * 1000,
        "bare": (cpu_seconds(bare.pid) - before["bare"]) / (turns * part) * 1000,
    }
    memory = rss_mb(ours.pid)
    for process in (ours, bare):
        process.terminate()
        process.wait()
    table(
        "HTTP, one client, one entry a request",
        [
            ("bare FastAPI: one insert, one commit", f"{part / took['bare']:.0f}/s", "", ""),
            (
                "POST /api/log",
                f"{part / took['ours']:.0f}/s",
                f"{took['bare'] / took['ours']:.2f}",
                "of the bare rate (target >= 0.5)",
            ),
            ("bare, CPU ms a request", f"{cpu['bare']:.2f}", "", ""),
            ("ours, CPU ms a request", f"{cpu['ours']:.2f}", "", "(a peer: 25 to 75)"),
            ("ours, RSS", f"{memory:.0f} MB", "", ""),
        ],
    )


def batches(folder: Path, count: int) -> None:
    store = open_store(sqlite_url(folder / "batch.db"))
    raw = _twin(store, folder / "raw.db")
    number = iter(range(10_000_000))
    took = rounds(
        {
            "raw": lambda: timed(lambda: _executemany(raw, number, count)),
            "ours": lambda: timed(lambda: _append_many(store, number, count)),
        },
        7,
    )
    table(
        f"Batches of {count}",
        [
            ("executemany, same table, same indexes", f"{count / took['raw']:.0f}/s", "", ""),
            (
                "entries.load",
                f"{count / took['ours']:.0f}/s",
                f"{took['raw'] / took['ours']:.2f}",
                "of the raw rate (target >= 0.4)",
            ),
        ],
    )
    store.close()


def growth(folder: Path, rows: int) -> None:
    store = open_store(sqlite_url(folder / "growth.db"))
    number = iter(range(100_000_000))
    _append_many(store, number, 10_000)
    small = min(_single_cost(store, number) for _ in range(5))
    for _ in range((rows - 10_000) // 10_000):
        _append_many(store, number, 10_000)
    large = min(_single_cost(store, number) for _ in range(5))
    table(
        "Cost of one entry as the log grows (CPU of one transaction)",
        [
            ("at 10,000 rows", f"{small * 1000:.3f} ms", "", ""),
            (f"at {rows:,} rows", f"{large * 1000:.3f} ms", f"{large / small:.2f}", "(target <= 1.3)"),
        ],
    )
    store.close()


def durability(folder: Path, count: int) -> None:
    """The same appends, each a transaction, acknowledged before or after the disk has them."""
    kept = {
        name: open_store(sqlite_url(folder / f"{name}.db"), durability=name) for name in ("process", "power")
    }
    for writers in (1, 16):
        number = iter(range(10_000_000))
        flushes = _Flushes()
        each = partial(_append_at_once, number=number, writers=writers, each=count // writers)
        work = {name: partial(timed, partial(each, store)) for name, store in kept.items()}
        with flushes.counted():
            took = rounds(work, 7)
        rate = {name: count / seconds for name, seconds in took.items()}
        table(
            f"Durability, {writers} writer{'s' if writers > 1 else ''}",
            [
                ("survives the process", f"{rate['process']:.0f}/s", "", ""),
                (
                    "survives a power cut",
                    f"{rate['power']:.0f}/s",
                    f"{rate['power'] / rate['process']:.2f}",
                    f"of that; {flushes.number / (7 * count):.2f} flushes an entry",
                ),
            ],
        )
    for store in kept.values():
        store.close()


def _append_at_once(store: Store, number: Iterator[int], writers: int, each: int) -> None:
    drafts = [[_draft(next(number)) for _ in range(each)] for _ in range(writers)]

    def write(own: list[EntryDraft]) -> None:
        for draft in own:
            with store.write(OWNER) as tx:
                entries.append(tx, draft)

    threads = [threading.Thread(target=write, args=(own,)) for own in drafts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class _Flushes:
    """Counts how often the disk is waited for."""

    def __init__(self) -> None:
        self.number = 0
        self._flush = log_durability.flush

    @contextmanager
    def counted(self) -> Iterator[None]:
        log_durability.flush = self._counting
        try:
            yield
        finally:
            log_durability.flush = self._flush

    def _counting(self, file: int) -> None:
        self.number += 1
        self._flush(file)


def _single_cost(store: Store, number: object) -> float:
    begin = time.process_time()
    for _ in range(400):
        with store.write(OWNER) as tx:
            entries.append(tx, _draft(next(number)))  # type: ignore[call-overload]
    return (time.process_time() - begin) / 400


def _append_many(store: Store, number: object, count: int) -> None:
    drafts = [_draft(next(number)) for _ in range(count)]  # type: ignore[call-overload]
    with store.write(OWNER) as tx:
        entries.load(tx, drafts)


def _executemany(db: sqlite3.Connection, number: object, count: int) -> None:
    rows = []
    for _ in range(count):
        i = next(number)  # type: ignore[call-overload]
        key = f"agent:main:chat:{i % 200}"
        source = json.dumps({"sessionKey": key, "messageId": str(i)})
        now = time.time_ns() // 1_000_000
        rows.append((entry_id(), "conversation", key, _text(i), "pending", source, f"k-{i}", now, now))
    db.executemany(
        "INSERT INTO entries (id, type, session_key, content, status, source, idempotency_key, created_at,"
        " updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        rows,
    )
    db.commit()


def _twin(store: Store, path: Path) -> sqlite3.Connection:
    """An empty database with the very table and indexes of ours, written to without us."""
    with store.read(OWNER) as tx:
        query = "SELECT sql FROM sqlite_master WHERE tbl_name = 'entries' AND sql IS NOT NULL"
        schema = [row[0] for row in tx.conn.exec_driver_sql(query)]
    db: sqlite3.Connection = sqlite_module().connect(str(path))
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-32000"):
        db.execute(f"PRAGMA {pragma}")
    for statement in schema:
        db.execute(statement)
    return db


def _draft(i: int) -> EntryDraft:
    key = f"agent:main:chat:{i % 200}"
    source = {"sessionKey": key, "messageId": str(i)}
    return EntryDraft(content=_text(i), session_key=key, source=source, idempotency_key=f"k-{i}")


def _body(i: int) -> bytes:
    source = {"channel": "bench", "sessionKey": f"agent:main:chat:{i % 200}", "messageId": str(i)}
    return json.dumps(
        {"content": _text(i), "type": "conversation", "agentId": "main", "source": source}
    ).encode()


def _text(i: int) -> str:
    return f"Message {i}: deploying service {i % 37} worked at the third attempt, see note {i % 911}."


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=4_000, help="HTTP requests to each server")
    parser.add_argument("--rows", type=int, default=1_000_000, help="how long the log grows")
    parser.add_argument("--only", choices=["durability"], help="this part alone")
    parser.add_argument("--folder", help="where to write; else where temporary files are")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    try:
        if options.only is None:
            http(folder, options.entries)
            batches(folder, 5_000)
            growth(folder, options.rows)
        durability(folder, 1_600)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
