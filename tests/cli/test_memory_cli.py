"""`holdfast memory …`: by itself, and through a gateway that runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_stage import Run
from click.testing import Result

NOTE = "# Access\n\nThe staging deploy needs the VPN, and the VPN needs the blue key from the drawer.\n"


@pytest.fixture
def notes(run: Run, home: Path) -> Path:
    """A home whose agent has two files in memory."""
    run("init")
    folder = home / "workspace"
    (folder / "memory").mkdir(exist_ok=True)
    (folder / "MEMORY.md").write_text(NOTE)
    (folder / "memory/2026-01-01.md").write_text("Ines has the key to the boathouse.\n")
    return folder


@pytest.fixture
def indexed(run: Run, notes: Path) -> Path:
    assert run("memory", "index", "--no-embed").exit_code == 0
    return notes


def body(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_indexing_says_what_it_did_and_does_nothing_twice(run: Run, notes: Path) -> None:
    assert "2 indexed in 2 chunks" in run("memory", "index", "--no-embed").stdout
    again = body(run("memory", "index", "--no-embed", "--json"))
    assert (again["indexed"], again["removed"], again["problems"]) == (0, 0, [])
    assert body(run("memory", "index", "--no-embed", "--force", "--json"))["indexed"] == 2


def test_results_are_numbered_with_their_place_and_fit_a_terminal(run: Run, indexed: Path) -> None:
    result = run("memory", "search", "what does the staging deploy need?")
    assert result.exit_code == 0
    assert result.stdout.startswith("1. MEMORY.md:1-3  (")
    assert "   The staging deploy needs the VPN" in result.stdout
    assert "Source:" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_explain_shows_the_parts_of_each_score(run: Run, indexed: Path) -> None:
    lines = run("memory", "search", "staging deploy", "--explain").stdout.splitlines()
    assert lines[0].split()[:2] == ["path", "score"]
    assert any(line.startswith("MEMORY.md") for line in lines)
    assert "search of 2 documents" in lines[-1]


def test_programs_get_json(run: Run, indexed: Path) -> None:
    found = body(run("memory", "search", "boathouse", "-n", "1", "--json"))
    assert [hit["path"] for hit in found["results"]] == ["memory/2026-01-01.md"]


def test_an_empty_answer_says_why(run: Run, notes: Path) -> None:
    assert "nothing is indexed for this agent yet" in run("memory", "search", "anything").stdout


def test_lines_of_a_file_are_read(run: Run, indexed: Path) -> None:
    result = run("memory", "get", "MEMORY.md", "--from", "1", "--lines", "1")
    assert result.stdout == "# Access\n"
    assert "go on with --from 2" in result.stderr


@pytest.mark.parametrize("path", ["/etc/passwd", "../holdfast.json", "AGENTS.md"])
def test_other_files_are_not_read(run: Run, indexed: Path, path: str) -> None:
    result = run("memory", "get", path)
    assert (result.exit_code, result.stdout) == (2, "")


def test_status_tells_files_and_embedders(run: Run, indexed: Path) -> None:
    text = run("memory", "status").stdout
    assert "2 documents of agent main, backend builtin" in text
    assert "memory-root" in text
    assert "100%" in text


def test_adding_and_removing_a_collection_keeps_the_comments_of_the_config(
    run: Run, notes: Path, home: Path, tmp_path: Path
) -> None:
    before = (home / "holdfast.json").read_text()
    assert "/* Models." in before
    (tmp_path / "wiki").mkdir()
    assert run("memory", "collection", "add", tmp_path / "wiki", "--name", "wiki").exit_code == 0
    added = (home / "holdfast.json").read_text()
    assert all(line in added for line in before.splitlines())
    assert run("memory", "collection", "remove", "wiki").exit_code == 0
    assert all(line in (home / "holdfast.json").read_text() for line in before.splitlines())


def test_a_collection_is_added_searched_and_removed(run: Run, indexed: Path, tmp_path: Path) -> None:
    wiki = tmp_path / "wiki"
    wiki.mkdir()
    (wiki / "how.md").write_text("Deploy with the blue button.")
    assert run("memory", "collection", "add", wiki, "--name", "Team Wiki").exit_code == 0
    assert run("memory", "collection", "add", wiki, "--name", "team wiki").exit_code == 2
    assert "team-wiki" in run("memory", "collection", "list").stdout
    run("memory", "index", "--no-embed")
    hit = body(run("memory", "search", "blue button", "--json"))["results"][0]
    assert hit["path"] == "qmd/team-wiki/how.md"
    assert run("memory", "collection", "remove", "team-wiki").exit_code == 0
    run("memory", "index", "--no-embed")
    paths = [h["path"] for h in body(run("memory", "search", "blue button", "--json"))["results"]]
    assert "qmd/team-wiki/how.md" not in paths
    assert (wiki / "how.md").exists()


@pytest.mark.parametrize(
    "args",
    [
        ["search"],
        ["search", "x", "-n", "0"],
        ["search", "x", "--min-score", "7"],
        ["get", "MEMORY.md", "--from", "0"],
        ["collection", "add", "/no/such/folder", "--name", "x"],
    ],
)
def test_wrong_use_ends_with_two(run: Run, notes: Path, args: list[str]) -> None:
    assert run("memory", *args).exit_code == 2


def test_an_agent_that_is_not_there_is_named(run: Run, notes: Path) -> None:
    result = run("memory", "status", "--agent", "nobody")
    assert result.exit_code == 2
    assert "nobody" in result.stderr


class TestThroughAGateway:
    """While a gateway runs, it has the index open; commands ask it."""

    @pytest.fixture
    def served(self, indexed: Path, home: Path) -> Iterator[None]:
        import asyncio

        from holdfast.cli.client import announced
        from holdfast.gateway import listen
        from holdfast.gateway.server import server_for
        from holdfast.runtime import open_home

        with open_home(home) as hold:
            sock = listen("127.0.0.1", 0)
            server = server_for(hold)
            thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])))
            thread.start()
            try:
                with announced(hold.home, f"http://127.0.0.1:{sock.getsockname()[1]}"):
                    yield
            finally:
                server.should_exit = True
                thread.join(30)

    def test_every_command_that_reads_works(self, run: Run, served: None) -> None:
        hit = body(run("memory", "search", "boathouse", "--json"))["results"][0]
        assert hit["path"] == "memory/2026-01-01.md"
        assert run("memory", "get", "MEMORY.md", "--lines", "1").stdout == "# Access\n"
        assert "backend builtin" in run("memory", "status").stdout
        assert "MEMORY.md" in run("memory", "search", "staging", "--explain").stdout

    def test_indexing_by_hand_is_refused_with_the_reason(self, run: Run, served: None) -> None:
        result = run("memory", "index")
        assert result.exit_code == 2
        assert "keeps the index up to date by itself" in result.stderr

    def test_what_the_gateway_refuses_is_told_as_it_said_it(self, run: Run, served: None) -> None:
        result = run("memory", "get", "/etc/passwd")
        assert result.exit_code != 0
        assert "it is absolute" in result.stderr


@pytest.fixture
def held(indexed: Path, home: Path) -> Iterator[Any]:
    """Another process of this home has the index open, as one that indexes does."""
    from holdfast.runtime import open_home

    with open_home(home) as hold:
        assert hold.memory.index.count == 2
        yield hold


def test_a_search_reads_an_index_that_another_command_has_open(run: Run, held: Any) -> None:
    found = body(run("memory", "search", "boathouse", "--json"))
    assert [hit["path"] for hit in found["results"]] == ["memory/2026-01-01.md"]
    assert run("memory", "get", "MEMORY.md", "--lines", "1").stdout == "# Access\n"
    assert "2 documents of agent main" in run("memory", "status").stdout


def test_a_search_finds_what_the_other_has_indexed_meanwhile(run: Run, held: Any, indexed: Path) -> None:
    (indexed / "memory/new.md").write_text("The lighthouse keeper is called Osvaldo.\n")
    held.memory.update("main")
    found = body(run("memory", "search", "lighthouse keeper", "--json"))
    assert found["results"][0]["path"] == "memory/new.md"
    assert held.memory.status("main")["documents"] == 3


def test_indexing_while_another_has_the_index_open_is_refused(run: Run, held: Any) -> None:
    result = run("memory", "index", "--no-embed")
    assert result.exit_code == 2
    assert "another process has the search index" in result.stderr


def test_a_gateway_that_does_not_answer_is_not_waited_for(
    run: Run, held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    from holdfast.cli.client import announced
    from holdfast.cli.commands import memory as commands

    monkeypatch.setattr(commands, "_SIGHT_SECONDS", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        announced(held.home, f"http://127.0.0.1:{silent.getsockname()[1]}"),
    ):
        found = body(run("memory", "search", "boathouse", "--json"))
    assert [hit["path"] for hit in found["results"]] == ["memory/2026-01-01.md"]


def test_the_doctor_tries_memory_out_and_tells_how_old_it_is(run: Run, indexed: Path) -> None:
    told = {
        row["message"]: row["level"]
        for row in json.loads(run("doctor", "--json").stdout)
        if row["check"] == "memory"
    }
    assert told.pop("a probe was indexed and found (hybrid search)") == "ok"
    assert any(said.startswith("embedders: ") for said in told)
    assert told["the index can be read: 2 documents"] == "ok"
    assert told["the files of main were indexed 0 minutes ago"] == "ok"


def test_the_doctor_misses_a_qmd_that_is_configured(run: Run, notes: Path, home: Path) -> None:
    (home / "holdfast.json").write_text('{"memory": {"backend": "qmd", "qmd": {"command": "/no/qmd"}}}')
    rows = [row for row in json.loads(run("doctor", "--json").stdout) if row["check"] == "memory"]
    (missing,) = [row for row in rows if "/no/qmd" in row["message"]]
    assert missing["level"] == "warn"
    assert "@tobilu/qmd" in missing["mend"]


class TestBatch:
    """`memory index --batch`: the price is shown, and nothing is sent without a yes."""

    @pytest.fixture
    def batches(self, notes: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        import sys

        sys.path.insert(0, str(Path(__file__).parents[1] / "memory"))
        from test_batch import BatchServer

        from holdfast.memory.embedders import batch

        monkeypatch.setattr(batch, "WORTHWHILE", 2)
        made = BatchServer()
        openai = {"baseUrl": made.url, "apiKey": "secret", "model": "m", "dimensions": 3}
        chain = {"providers": ["openai"], "openai": openai}
        (home / "holdfast.json").write_text(json.dumps({"memory": {"search": {"embedding": chain}}}))
        yield made
        made.http.shutdown()
        made.http.server_close()

    def test_without_a_yes_nothing_is_sent_as_a_batch(self, run: Run, batches: Any) -> None:
        result = run("memory", "index", "--batch", input="n\n")
        assert "2 texts, about" in result.stderr
        assert "at a price that is not known here, within 24 hours" in result.stderr
        assert (batches.batches, batches.direct) == ({}, [])

    def test_a_batch_is_taken_in_by_the_next_call(self, run: Run, batches: Any) -> None:
        assert "2 texts were sent" in run("memory", "index", "--batch", "--yes").stderr
        batches.finish()
        assert body(run("memory", "index", "--json"))["embedded"] == 2
        assert batches.direct == []

    def test_it_needs_openai(self, run: Run, notes: Path, home: Path) -> None:
        (home / "holdfast.json").write_text("{memory: {search: {embedding: {providers: []}}}}")
        result = run("memory", "index", "--batch", "--yes")
        assert (result.exit_code, "needs OpenAI" in result.stderr) == (2, True)
