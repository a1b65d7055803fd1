"""The machine loses its power: what was acknowledged is on the disk, and who writes at once pays once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import forks
from builders import accept, append, claim, in_threads, outcome, rows
from holdfast.errors import Unavailable
from holdfast.log import OWNER, Store, agenda, check, connections, sqlite_url, turns
from holdfast.log.store import Durability

WRITER = """
import os, sys
from builders import accept, append, claim, outcome
from holdfast.log import OWNER, Store, agenda, turns
store = Store(sys.argv[1], durability=sys.argv[2])
for n in range(40):
    append(store, f"e{n}")
    os.write(1, f"e{n}\\n".encode())
    if n % 4 == 0:
        turn = accept(store, f"m{n}", key=f"k{n}", to=f"agent:main:web:dm:{n}")
        os.write(1, f"m{n}\\n".encode())
        (item,) = claim(store, {"turn": 1})
        with store.write(OWNER, durable=False) as tx:
            turns.start(tx, turn)
        with store.write(OWNER) as tx:
            turns.commit(tx, turn.key, outcome(f"re k{n}"), agenda.Job(item))
        os.write(1, f"re k{n}\\n".encode())
print("done", flush=True)
sys.stdin.read()
"""


def contents(path: Path) -> set[str]:
    store = Store(sqlite_url(path))
    try:
        assert check(store) == []
        return {text for (text,) in rows(store, "SELECT content FROM entries")}
    finally:
        store.close()


class Disk:
    """What the disk has of a database: the main file as it began, and the log as it was last flushed."""

    def __init__(self, database: Path, image: Path) -> None:
        self.database = database
        self.image = image
        self.flushes = 0
        self._flush = connections.flush
        shutil.copy(database, image)

    def flush(self, file: int) -> None:
        self._flush(file)
        self.flushes += 1
        shutil.copy(f"{self.database}-wal", f"{self.image}-wal")


@contextmanager
def opened(path: Path, how: Durability) -> Iterator[Store]:
    store = Store(sqlite_url(path), durability=how)
    try:
        yield store
    finally:
        store.close()


@pytest.mark.parametrize("how", ["power", "process"])
def test_what_was_acknowledged_is_what_the_disk_has(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Durability
) -> None:
    path = Path(shutil.copy(sqlite_template, tmp_path / "holdfast.db"))
    disk = Disk(path, tmp_path / "after.db")
    monkeypatch.setattr(connections, "flush", disk.flush)
    with opened(path, how) as store:
        turn = accept(store, "hello")
        (item,) = claim(store, {"turn": 1})
        with store.write(OWNER, durable=False) as tx:
            turns.start(tx, turn)
        with store.write(OWNER) as tx:
            turns.commit(tx, turn.key, outcome("hi"), agenda.Job(item))
        for n in range(10):
            append(store, f"e{n}")
        acknowledged = {"hello", "hi", *(f"e{n}" for n in range(10))}
        survived = contents(disk.image)
    if how == "power":
        assert survived == acknowledged
    else:
        assert survived == set()
        assert disk.flushes == 0


def test_who_writes_at_once_shares_a_flush(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(sqlite_template, tmp_path / "holdfast.db"))
    disk = Disk(path, tmp_path / "after.db")
    monkeypatch.setattr(connections, "flush", disk.flush)
    with opened(path, "power") as store:
        in_threads(8, lambda writer: [append(store, f"{writer}-{n}") for n in range(10)])
        survived = contents(disk.image)
    assert survived == {f"{writer}-{n}" for writer in range(8) for n in range(10)}
    assert disk.flushes < 80


def test_after_a_flush_that_failed_nothing_more_is_acknowledged(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(sqlite_template, tmp_path / "holdfast.db"))

    def failing(_: int) -> None:
        raise OSError(5, "Input/output error")

    with opened(path, "power") as store:
        monkeypatch.setattr(connections, "flush", failing)
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                append(store)
            monkeypatch.undo()
        assert caught.value.code == "store_unflushed"
        with pytest.raises(Unavailable):
            store.probe()
    with opened(path, "power") as store:
        append(store, "after")
        store.probe()


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    place.mkdir()
    made = subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"needs root and a loop device: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_power_cut_takes_nothing_that_was_acknowledged(sqlite_template: Path, tmp_path: Path) -> None:
    """The image of a mounted disk holds what was flushed to it, and nothing that was only written."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4 (e2fsprogs)")
    image, cut = tmp_path / "disk.img", tmp_path / "cut.img"
    with image.open("wb") as file:
        file.truncate(24 * 1024**2)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with mounted(image, tmp_path / "disk") as disk:
        path = shutil.copy(sqlite_template, disk / "holdfast.db")
        subprocess.run(["sync", "-f", str(path)], check=True)
        writer = forks.Popen(
            [sys.executable, "-c", WRITER, sqlite_url(path), "power"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        )
        assert writer.stdout is not None
        said = [line.strip() for line in iter(writer.stdout.readline, "done\n")]
        shutil.copy(image, cut)
        writer.kill()
        writer.communicate()
    with mounted(cut, tmp_path / "after") as disk:
        survived = contents(disk / "holdfast.db")
    assert len(said) == 60
    assert set(said) <= survived


def test_an_open_home_writes_as_its_config_says(tmp_path: Path) -> None:
    from holdfast.runtime import open_home

    (tmp_path / "holdfast.json").write_text('{store: {durability: "process"}}')
    with open_home(tmp_path) as hold:
        assert hold.store.durability == "process"
    (tmp_path / "holdfast.json").write_text("{}")
    with open_home(tmp_path) as hold:
        assert hold.store.durability == "power"
