"""Backups: what the first costs, and what one costs after a little has changed, against the store itself.

    python bench/backup.py [--entries 50000]

A home of so many entries is backed up, then again untouched, after one more entry and after one in a hundred
more. Bytes are those written into the folder of backups, packed; CPU seconds are this process's.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from common import table

from holdfast.backup import Repository, restore, take
from holdfast.clock import SystemClock
from holdfast.home import Home
from holdfast.log import OWNER, EntryDraft, Store, entries, open_store, sqlite_url

WORDS = [f"word{number}" for number in range(5_000)]
BATCH = 1_000


def fill(store: Store, count: int, chance: random.Random) -> None:
    for start in range(0, count, BATCH):
        texts = [" ".join(chance.choices(WORDS, k=40)) for _ in range(min(BATCH, count - start))]
        with store.write(OWNER) as tx:
            entries.append_many(tx, [EntryDraft(content=text) for text in texts])


def saved(home: Home, place: Path, store: Store) -> tuple[int, float]:
    """Bytes written by one more backup, and its CPU seconds, verification among them."""
    begun = time.process_time()
    done = take(Repository.create(place), home, store, SystemClock(), workspaces={})
    return done.written_bytes, time.process_time() - begun


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--entries", type=int, default=50_000)
    count = options.parse_args().entries
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        home, place = Home(Path(folder, "home")), Path(folder, "backups")
        home.prepare()
        store = open_store(sqlite_url(home.database))
        fill(store, count, chance)
        rows = [("the first", *saved(home, place, store)), ("untouched", *saved(home, place, store))]
        fill(store, 1, chance)
        rows.append(("one entry more", *saved(home, place, store)))
        fill(store, count // 100, chance)
        rows.append(("1 % more", *saved(home, place, store)))
        store.close()
        size = home.database.stat().st_size
        begun = time.process_time()
        repository = Repository.open(place)
        restore(repository, repository.manifest(), Home(Path(folder, "back")), SystemClock())
        print(f"{count} entries, a store of {size / 2**20:.1f} MiB")
        told = [(name, f"{b / 2**20:.2f}", f"{b / size:.4f}", f"{cpu:.2f}") for name, b, cpu in rows]
        table("backup: MiB written, as a share of the store, CPU seconds", told)
        print(f"restoring: {time.process_time() - begun:.2f} CPU s")


if __name__ == "__main__":
    main()
