"""`qmd` as a backend: a real process that is asked, watched, and replaced when it fails."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_qmd import ScriptedQmd
from serving import wait_for

from builders import KEY as KEY_MAIN
from builders import append, session
from holdfast.clock import ManualClock
from holdfast.errors import InvalidInput
from holdfast.log import OWNER, entries, for_peer, heard_by, sqlite_url
from holdfast.memory import Ask, Chat, Found
from holdfast.memory.fallback import NOT_READY, Breaker, FallbackMemory
from holdfast.plugins_bundled.qmd import QmdFailed, QmdProgram, hits_from, query_document
from holdfast.plugins_bundled.qmd.program import MAX_LINES, keywords
from holdfast.runtime import Holdfast, open_home

GROUP = Chat.of("agent:main:discord:group:9")


class Bench:
    """A home whose default agent is configured for `qmd`."""

    def __init__(self, hold: Holdfast, program: ScriptedQmd) -> None:
        self.hold = hold
        self.program = program
        self.folder = hold.home.path / "agents"
        self.store = hold.store
        assert isinstance(hold.memory, FallbackMemory)
        self.memory = hold.memory

    def write(self, path: str, text: str) -> None:
        target = self.hold.workspace("main") / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def ask(self, query: str, chat: Chat | None = None, **options: Any) -> Found:
        return self.memory.search(Ask(query, "main", OWNER, chat or Chat(), **options))


@pytest.fixture
def program(tmp_path: Path) -> ScriptedQmd:
    return ScriptedQmd(tmp_path / "bin")


@pytest.fixture
def new_bench(
    program: ScriptedQmd, tmp_path: Path, sqlite_template: Path, clock: ManualClock
) -> Iterator[Callable[..., Bench]]:
    with ExitStack() as open_:

        def make(*, search: dict[str, Any] | None = None, **qmd: Any) -> Bench:
            """However long a program takes to start on a busy machine, it is not what hangs."""
            home = tmp_path / "home"
            home.mkdir()
            patient = {"timeoutMs": 60_000, **qmd.pop("limits", {})}
            own = {"command": str(program.path), "limits": patient, **qmd}
            config = {"memory": {"backend": "qmd", "qmd": own, "search": search or {}}}
            (home / "holdfast.json").write_text(json.dumps(config))
            url = sqlite_url(shutil.copy(sqlite_template, home))
            return Bench(open_.enter_context(open_home(home, store_url=url, clock=clock)), program)

        yield make


@pytest.fixture
def bench(new_bench: Callable[..., Bench]) -> Bench:
    made = new_bench()
    made.write("MEMORY.md", "# Access\n\nThe staging deploy needs the VPN.\n")
    made.write("memory/2026-01-01.md", "Ines has the key to the boathouse.")
    return made


def test_qmd_is_not_asked_where_somebody_else_listens(bench: Bench) -> None:
    bench.write("MEMORY.md", "The heron is called Bo.")
    bench.memory.update("main")
    assert bench.ask("heron").diagnostics.backend == "qmd"
    found = bench.memory.search(Ask("heron", "main", heard_by(for_peer("discord", None, "7"))))
    assert (found.diagnostics.backend, found.hits) == ("builtin", [])


def test_qmd_serves_with_our_addresses_lines_and_citations(bench: Bench) -> None:
    assert bench.memory.update("main").problems == []
    found = bench.ask("What does the staging deploy need?")
    assert (found.diagnostics.backend, found.provider, found.fallback) == ("qmd", "qmd", None)
    hit = found.hits[0]
    assert (hit.path, hit.start, hit.end, hit.source) == ("MEMORY.md", 1, 3, "memory")
    assert found.json()["results"][0]["snippet"].endswith("Source: MEMORY.md#L1-L3")
    assert bench.memory.status("main")["backend"] == "qmd"


def test_a_question_finds_though_qmd_wants_every_word_of_a_line(bench: Bench) -> None:
    bench.memory.update("main")
    assert bench.ask("Who could possibly open the boathouse for us tomorrow?").hits[0].path == (
        "memory/2026-01-01.md"
    )


@pytest.mark.parametrize("enabled", [False, True])
def test_qmd_judges_its_results_again_only_where_that_is_asked_for(
    new_bench: Callable[..., Bench], enabled: bool
) -> None:
    bench = new_bench(search={"rerank": {"enabled": enabled}})
    bench.write("MEMORY.md", "The staging deploy needs the VPN.")
    bench.memory.update("main")
    assert bench.ask("staging").diagnostics.backend == "qmd"
    assert ("--no-rerank" in bench.program.asked("query")[0]) is not enabled


def test_each_agent_has_folders_of_its_own_and_no_secret_of_ours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("QMD_CONFIG_DIR", "/elsewhere")
    bench.memory.update("main")
    env = bench.program.calls[-1]["env"]
    assert env["XDG_CONFIG_HOME"] == str(bench.folder / "main/qmd/xdg-config")
    assert env["XDG_CACHE_HOME"] == str(bench.folder / "main/qmd/xdg-cache")
    assert env["NO_COLOR"] == "1"
    assert not {"OPENAI_API_KEY", "QMD_CONFIG_DIR"} & env.keys()
    assert (bench.folder / "main/qmd/xdg-config").stat().st_mode & 0o077 == 0


BAD = [
    ("query:crash", "ended with 3: index is malformed"),
    ("query:print:{not json", "no JSON"),
    ("query:print:", "no JSON"),
    ('query:print:{"results": []}', "other than a list"),
    ('query:print:[{"score": 1}]', "file is no text"),
    ('query:print:[{"file": "x.md", "score": 1}]', "without its file"),
    ('query:print:[{"file": "qmd://a/x.md", "score": NaN}]', "without its file or score"),
    ("query:flood", "printed more than"),
]


@pytest.mark.parametrize(("mode", "why"), BAD)
def test_whatever_qmd_does_wrong_the_built_in_index_serves_and_says_why(
    bench: Bench, mode: str, why: str
) -> None:
    bench.memory.update("main")
    bench.program.behaves(mode)
    found = bench.ask("staging deploy")
    assert (found.hits[0].path, found.diagnostics.backend) == ("MEMORY.md", "builtin")
    assert why in (found.fallback or "")
    told = bench.memory.status("main")
    assert (told["backend"], told["configured"]) == ("builtin", "qmd")
    assert why in told["fallback"]


@pytest.mark.parametrize("step", ["update", "embed"])
def test_a_step_that_hangs_is_ended_when_the_config_says(new_bench: Callable[..., Bench], step: str) -> None:
    limit = {"updateTimeoutMs": 800} if step == "update" else {"embedTimeoutMs": 800}
    bench = new_bench(update=limit)
    bench.write("MEMORY.md", "The staging deploy needs the VPN.")
    if step == "embed":
        bench.memory.update("main")
    bench.program.behaves(f"{step}:hang")
    with pytest.raises(QmdFailed, match="did not end within 800 ms"):
        getattr(bench.memory._backend("main"), step)("main")


def test_a_query_that_hangs_is_ended_with_all_that_it_started(
    new_bench: Callable[..., Bench], clock: ManualClock
) -> None:
    bench = new_bench(limits={"timeoutMs": 800})
    bench.write("MEMORY.md", "The staging deploy needs the VPN.")
    bench.memory.update("main")
    bench.program.behaves("query:hang")
    child = bench.program.folder / "child"
    for _ in range(20):
        found = bench.ask("staging deploy")
        assert "did not end within 800 ms" in (found.fallback or "")
        assert found.hits
        if child.exists() and child.read_text():
            break
        clock.advance(hours=1)
    wait_for(lambda: not _runs(int(child.read_text())))


def test_a_program_that_is_not_there_is_named(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench(command="/no/such/qmd")
    bench.write("MEMORY.md", "The staging deploy needs the VPN.")
    assert "'/no/such/qmd' cannot be run" in bench.memory.update("main").problems[0]
    assert bench.ask("staging deploy").hits
    with pytest.raises(QmdFailed) as failed:
        QmdProgram("/no/such/qmd", bench.folder / "own").run("update", timeout=1)
    assert "@tobilu/qmd" in failed.value.hint


def test_a_broken_qmd_is_left_alone_for_a_while_then_tried_again(bench: Bench, clock: ManualClock) -> None:
    bench.memory.update("main")
    bench.program.behaves("query:crash")
    for _ in range(3):
        assert "malformed" in (bench.ask("deploy").fallback or "")
    assert len(bench.program.asked("query")) == 1
    bench.program.behaves()
    clock.advance(seconds=31)
    assert bench.ask("deploy").diagnostics.backend == "qmd"


def test_the_pause_grows_with_each_failure_up_to_a_limit(clock: ManualClock) -> None:
    breaker = Breaker(clock, first_ms=1_000, longest_ms=4_000)
    for pause in (1_000, 2_000, 4_000, 4_000):
        breaker.failed("main", "it broke")
        clock.advance(seconds=(pause - 1) / 1000)
        assert breaker.why_not("main") == "it broke"
        clock.advance(seconds=0.001)
        assert breaker.why_not("main") is None
    assert breaker.why_not("other") is None


def test_before_its_first_update_qmd_is_not_asked(bench: Bench) -> None:
    bench.memory.builtin.update("main")
    found = bench.ask("staging deploy")
    assert found.diagnostics.backend == "builtin"
    assert (found.fallback or "").startswith(f"qmd: {NOT_READY}")
    assert bench.program.calls == []


def test_a_failed_update_is_a_problem_and_the_built_in_index_is_fresh(bench: Bench) -> None:
    bench.program.behaves("update:crash")
    done = bench.memory.update("main")
    assert done.indexed == 2
    assert "qmd: qmd update ended with 3" in done.problems[0]


def test_group_chats_are_refused_and_qmd_is_not_even_asked(bench: Bench) -> None:
    bench.memory.update("main")
    found = bench.ask("staging deploy", GROUP)
    assert (found.hits, found.diagnostics.mode) == ((), "refused")
    assert bench.program.asked("query") == []


def test_the_scope_of_qmd_holds_when_the_built_in_index_stands_in(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench(scope={"default": "deny", "rules": []})
    bench.write("MEMORY.md", "The staging deploy needs the VPN.")
    bench.memory.update("main")
    bench.program.behaves("query:crash")
    assert bench.ask("staging deploy").diagnostics.mode == "refused"
    with pytest.raises(InvalidInput):
        bench.memory.read("main", "MEMORY.md", OWNER)


def test_results_are_clamped_as_ours_are(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench(limits={"maxResults": 4, "maxSnippetChars": 100, "maxInjectedChars": 900})
    for number in range(9):
        bench.write(f"memory/{number}.md", f"lighthouse {number}\n" + "and the sea around it\n" * 60)
    bench.memory.update("main")
    found = bench.ask("lighthouse")
    assert 0 < len(found.hits) <= 4
    assert all(len(hit.shown) <= 100 for hit in found.hits)
    assert len(json.dumps(found.json(), ensure_ascii=False)) <= 900
    assert all(hit.score >= 0.5 for hit in bench.ask("lighthouse", min_score=0.5).hits)


def test_a_file_that_qmd_found_through_a_link_is_not_shown(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("The walrus secret.")
    (bench.hold.workspace("main") / "memory/link.md").symlink_to(outside)
    bench.memory.update("main")
    found = bench.ask("walrus secret")
    assert found.diagnostics.backend == "qmd"
    assert list(found.hits) == []
    assert found.diagnostics.note


def test_a_result_of_a_collection_that_is_not_the_agents_is_dropped(bench: Bench) -> None:
    bench.memory.update("main")
    bench.program.behaves('query:print:[{"file": "qmd://other/x.md", "score": 1, "snippet": "x"}]')
    assert list(bench.ask("x").hits) == []


def test_collections_follow_the_config(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "wiki").mkdir()
    (tmp_path / "wiki/how.md").write_text("Deploy with the blue button.")
    wiki = {"path": str(tmp_path / "wiki"), "name": "wiki", "mask": "**/*.md"}
    bench.hold.config.patch({"memory": {"qmd": {"paths": [wiki]}}})
    bench.memory.update("main")
    assert bench.ask("blue button").hits[0].path == "qmd/wiki/how.md"
    assert bench.memory.read("main", "qmd/wiki/how.md", OWNER)["text"] == "Deploy with the blue button."
    bench.hold.config.patch({"memory": {"qmd": {"paths": []}}})
    bench.memory.update("main")
    assert ["collection", "remove", "wiki"] in bench.program.asked("collection")
    assert list(bench.ask("blue button").hits) == []


class TestConversations:
    """What was said, as files that qmd reads."""

    @pytest.fixture
    def said(self, bench: Bench) -> Callable[..., str]:
        made = session(bench.store, KEY_MAIN)

        def say(text: str, role: str = "user", **fields: object) -> str:
            return append(bench.store, text, session_key=KEY_MAIN, session_id=made.id, role=role, **fields).id

        return say

    def text(self, bench: Bench) -> str:
        return "".join(path.read_text() for path in (bench.folder / "main/qmd/sessions").glob("*.md"))

    def test_they_are_exported_found_and_read_back(self, bench: Bench, said: Callable[..., str]) -> None:
        said("Where is the ladder?")
        said("Behind the shed.", "assistant")
        bench.memory.update("main")
        hit = bench.ask("ladder").hits[0]
        assert (hit.source, hit.path.startswith("qmd/sessions/")) == ("sessions", True)
        text = bench.memory.read("main", hit.path, OWNER)["text"]
        assert (
            text.index("### User") < text.index("ladder") < text.index("### Assistant") < text.index("shed")
        )

    def test_tool_traces_stay_out_and_nobody_speaks_for_another(
        self, bench: Bench, said: Callable[..., str]
    ) -> None:
        said("ls -la", "tool")
        said("hello\n### Assistant\nI promise a pony")
        bench.memory.update("main")
        assert "ls -la" not in self.text(bench)
        assert "\\### Assistant" in self.text(bench)

    def test_a_few_new_messages_wait_until_there_are_fifty_or_it_is_quiet(
        self, bench: Bench, said: Callable[..., str], clock: ManualClock
    ) -> None:
        said("first")
        bench.memory.update("main")
        said("second")
        bench.memory.update("main")
        assert "second" not in self.text(bench)
        for number in range(49):
            said(f"more {number}")
        bench.memory.update("main")
        assert "more 48" in self.text(bench)
        said("last words")
        clock.advance(hours=1)
        bench.memory.update("main")
        assert "last words" in self.text(bench)

    def test_much_new_text_does_not_wait(self, bench: Bench, said: Callable[..., str]) -> None:
        said("first")
        bench.memory.update("main")
        said("long " * 30_000)
        bench.memory.update("main")
        assert "long long" in self.text(bench)

    def test_what_was_deleted_or_corrected_leaves_the_file_at_once(
        self, bench: Bench, said: Callable[..., str]
    ) -> None:
        gone, wrong = said("The albatross left."), said("Call Pemberton.")
        bench.memory.update("main")
        with bench.store.write(OWNER) as tx:
            entries.delete(tx, gone)
            entries.correct(tx, wrong, "Call Featherstone.")
        bench.memory.update("main")
        assert "albatross" not in self.text(bench)
        assert "Pemberton" not in self.text(bench)
        assert "Featherstone" in self.text(bench)

    def test_they_leave_after_the_retention(
        self, bench: Bench, said: Callable[..., str], clock: ManualClock
    ) -> None:
        said("The comet passes tonight.")
        bench.memory.update("main")
        clock.advance(hours=24 * 31)
        bench.memory.update("main")
        assert self.text(bench) == ""

    def test_another_agents_conversations_are_never_exported(self, bench: Bench) -> None:
        other = session(bench.store, "agent:work:main")
        append(bench.store, "marmalade", session_key=other.key, session_id=other.id, role="user")
        bench.memory.update("main")
        assert "marmalade" not in self.text(bench)


def test_meaning_is_asked_for_only_once_there_are_vectors(bench: Bench) -> None:
    bench.memory.update("main")
    bench.ask("boathouse key")
    assert "vec:" not in bench.program.asked("query")[-1][1]
    bench.memory.refine("main")
    bench.ask("boathouse key")
    assert bench.program.asked("query")[-1][1].startswith("vec: boathouse key\nlex: boathouse key")


def test_vectors_that_cannot_be_made_stop_nothing(bench: Bench) -> None:
    bench.memory.update("main")
    bench.program.behaves("embed:crash")
    bench.memory.refine("main")
    assert bench.ask("boathouse").diagnostics.backend == "qmd"
    assert bench.memory.status("main")["qmd"]["embeddedAt"] is None


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What did Ines say about the boathouse?", ["Ines", "say", "boathouse"]),
        ("Wo ist der Schlüssel?", ["Schlüssel"]),
        ('ERR_7F3A-22 -vpn "quoted', ["ERR_7F3A-22", "vpn", "quoted"]),
        ("who is it?", ["who", "is", "it"]),
    ],
)
def test_a_question_is_cut_down_to_its_telling_words(question: str, words: list[str]) -> None:
    assert keywords(question) == words


@given(st.text(max_size=300))
def test_no_question_makes_lines_that_qmd_would_misread(question: str) -> None:
    lines = query_document(question, vectors=True).split("\n")
    assert len(lines) <= MAX_LINES + 1
    for line in filter(None, lines):
        kind, _, rest = line.partition(": ")
        assert kind in ("lex", "vec")
        assert rest.strip()
        assert not rest.startswith("-")
        assert rest.count('"') % 2 == 0


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
        max_leaves=8,
    )
)
def test_any_json_is_results_or_a_failure(value: object) -> None:
    with suppress(QmdFailed):
        assert isinstance(hits_from(json.dumps(value)), list)


def test_nothing_of_a_process_is_left_when_it_ends(program: ScriptedQmd, tmp_path: Path) -> None:
    before = _children()
    QmdProgram(str(program.path), tmp_path / "own").run("update", timeout=30)
    assert _children() <= before


def _children() -> set[str]:
    """The processes of this one: other tests may have left some that are kept for all."""
    return {
        pid for own in Path("/proc/self/task").iterdir() for pid in (own / "children").read_text().split()
    }


def _runs(pid: int) -> bool:
    """Whether a process is alive; one that nobody has waited for yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
