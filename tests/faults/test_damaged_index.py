"""The index is derived: whatever happens to its files, it is searched around, set aside, and made again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from click.testing import CliRunner, Result
from fastapi.testclient import TestClient
from fault_stage import Gateway

from holdfast.board.search import SearchAsk
from holdfast.board.visibility import Sight
from holdfast.cli.root import cli
from holdfast.gateway.app import create_app
from holdfast.log import OWNER, EntryDraft, entries
from holdfast.runtime import open_home

WORDS = [f"heron{n}" for n in range(40)]
QUESTIONS = [*WORDS[::13], "boathouse", "wading birds at the dam of a river", "what opens the shed for boats"]
PARTS = {
    "the stored documents": "index.db",
    "a segment": "*.seg",
    "the vectors": "*.vec",
    "the catalogue of files": "catalogue.db",
}


def garbage(path: Path) -> None:
    """The same length, and nothing of it as it was."""
    path.write_bytes(bytes(n * 7919 % 251 for n in range(path.stat().st_size)))


def garbage_behind_the_head(path: Path) -> None:
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size // 2] + bytes(n * 31 % 251 for n in range(size - size // 2)))


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@contextmanager
def in_a_process(home: Path) -> Iterator[httpx.Client]:
    here = Gateway(home, None)
    try:
        yield here.api
    finally:
        here.stop()


@contextmanager
def in_here(home: Path) -> Iterator[httpx.Client]:
    with open_home(home) as hold, TestClient(create_app(hold), base_url="http://127.0.0.1") as client:
        client.headers["Authorization"] = f"Bearer {hold.home.admin_token()}"
        yield cast("httpx.Client", client)


Serve = Callable[[Path], AbstractContextManager[httpx.Client]]
BY_HAND: list[Callable[[Path], None]] = [garbage_behind_the_head, half]
SERVED: dict[str, tuple[Callable[[Path], None], Serve]] = {
    "garbage": (garbage, in_a_process),
    "garbage behind the head": (garbage_behind_the_head, in_here),
    "gone": (Path.unlink, in_here),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a file and forty entries, all of them indexed."""
    home = tmp_path_factory.mktemp("damaged") / "home"
    assert call(home, "init").exit_code == 0
    (home / "workspace" / "MEMORY.md").write_text("The boathouse key hangs behind the clock.\n")
    with open_home(home) as hold, hold.store.write(OWNER) as tx:
        key = "agent:main:main"
        drafts = [
            EntryDraft(content=f"the {w} stands by the weir", role="user", session_key=key) for w in WORDS
        ]
        entries.load(tx, drafts)
    assert call(home, "memory", "index", "--no-embed").exit_code == 0
    return home


@pytest.fixture(scope="module")
def whole(template: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What is answered where nothing is damaged."""
    copy = shutil.copytree(template, tmp_path_factory.mktemp("whole") / "home", symlinks=True)
    with in_here(copy) as client:
        return answers(client)


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home", symlinks=True)


def call(home: Path, *args: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), *args])


def hurt(home: Path, pattern: str, harm: Callable[[Path], None]) -> None:
    found = sorted((home / "index").glob(pattern))
    assert found
    harm(found[0])


def body(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def found(client: httpx.Client, words: str) -> list[str]:
    answer = client.get("/api/memory/search", params={"q": words})
    assert answer.status_code == 200, answer.text
    return [str(one["snippet"]) for one in answer.json()["results"]]


def answers(client: httpx.Client) -> list[list[str]]:
    return [found(client, words) for words in QUESTIONS]


def finds_all(search: Callable[[str], Any]) -> bool:
    return all(word in str(search(word)["results"]) for word in [*WORDS[::13], "boathouse"])


@pytest.mark.parametrize("harm", BY_HAND, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("part", PARTS)
def test_a_command_finds_all_again_after_damage(home: Path, part: str, harm: Callable[[Path], None]) -> None:
    hurt(home, PARTS[part], harm)
    body(call(home, "memory", "search", WORDS[0], "--json"))
    body(call(home, "memory", "index", "--force", "--no-embed", "--json"))
    assert finds_all(lambda word: body(call(home, "memory", "search", word, "--json")))
    told = body(call(home, "memory", "status", "--json"))
    assert [one["covered"] for one in told["embedders"]][-1] == 1.0


@pytest.mark.parametrize("how", SERVED)
@pytest.mark.parametrize("part", PARTS)
def test_a_gateway_answers_from_the_start_and_heals_by_itself(
    home: Path, part: str, how: str, whole: list[Any], eventually: Callable[[Callable[[], bool]], None]
) -> None:
    """In the end it answers as if nothing had been damaged, by meaning too, and has told of it."""
    harm, serve = SERVED[how]
    hurt(home, PARTS[part], harm)
    with serve(home) as client:

        def status() -> Any:
            return client.get("/api/memory/status").json()

        found(client, WORDS[0])
        eventually(lambda: not status()["health"]["healing"] and answers(client) == whole)
        eventually(lambda: status()["embedders"][-1]["covered"] == 1.0)
        if harm is not Path.unlink:
            assert status()["health"]["damaged"]
            assert status()["health"]["setAside"]


def test_the_boards_search_says_that_something_is_not_searched_yet_and_does_not_keep_the_answer(
    home: Path,
) -> None:
    hurt(home, "*.seg", garbage)
    with open_home(home) as hold:
        ask = SearchAsk(q=WORDS[7], sight=Sight(reader=OWNER))

        def found() -> tuple[bool, bool]:
            answer = hold.board.search.run(ask)
            return any(WORDS[7] in one.item.content for one in answer.logs), answer.behind > 0

        first = [found(), found()]
        assert hold.memory.health.healing
        assert "is made again" in hold.memory.find(WORDS[7]).diagnostics.note
        while hold.memory.mend(1.0):
            pass
        assert not hold.memory.health.healing
        assert (first, found()) == ([(False, True)] * 2, (True, False))


@pytest.mark.parametrize("part", PARTS)
def test_the_doctor_tells_of_damage_and_where_it_was_set_aside(home: Path, part: str) -> None:
    hurt(home, PARTS[part], garbage)
    said = call(home, "doctor").output
    assert "set aside" in said, said
    assert list((home / "index" / "damaged").iterdir())
    said = call(home, "doctor").output
    assert "the index can be read" in said
