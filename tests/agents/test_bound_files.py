"""Which files a command is bound to: the same ones however it is wrapped, and never none where one is run."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.agents.approvals import bound_files
from holdfast.agents.approvals.bound_files import BoundFiles, Place, changed, look
from holdfast.agents.policy import follow, runs_nothing
from holdfast.agents.policy.exec_policy import protected

PREFIXES = [
    "env X=y",
    "env -i A=b",
    "sudo -u bob",
    "time",
    "nice -n 5",
    "nohup",
    "timeout -k 5 10",
    "stdbuf -oL",
    "exec",
    "command",
    "X=y",
    "!",
    "xargs -n 1",
]
FORMS = [
    "env -S {quoted}",
    "bash -lc {quoted}",
    "eval {quoted}",
    "({plain})",
    "{{ {plain}; }}",
    "true && {plain}",
    "false || {plain}",
    "echo hi; {plain}",
    "{plain} &",
    "echo $({plain})",
    'echo "$({plain})"',
    "if true; then {plain}; fi",
    "while true; do {plain}; done",
    "# why\n{plain}",
    "cat <<'END'\nwords\nEND\n{plain}",
    "cd . && {plain}",
    "find . -exec sh -c {quoted} \\;",
    "echo hi | sh -c {quoted}",
    "sh -c {quoted} > out 2>&1 | tee out",
]
WRAPS = st.lists(st.sampled_from([*PREFIXES, *FORMS]), min_size=1, max_size=3)


def wrapped(command: str, wraps: list[str]) -> str:
    """A prefix stands before one program, so that whatever is more than that is first put into `sh -c`."""
    for wrap in wraps:
        if wrap in PREFIXES:
            command = f"{wrap} sh -c {shlex.quote(command)}"
        else:
            command = wrap.format(plain=command, quoted=shlex.quote(command))
    return command


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.md").write_text("echo hi\n")
    (tmp_path / "Makefile").write_text("all:\n")
    return Place(folder=tmp_path, workspace=tmp_path)


@given(WRAPS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_however_a_script_is_wrapped_it_is_bound(place: Place, wraps: list[str]) -> None:
    command = wrapped("sh sub/x.md", wraps)
    bound = look(command, place)
    assert "sub/x.md" in bound.digests, command
    assert bound.needs_a_person


@given(WRAPS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_however_a_command_that_only_reads_is_wrapped_no_file_drives_it(
    place: Place, wraps: list[str]
) -> None:
    command = wrapped("cat sub/x.md", wraps)
    bound = look(command, place)
    assert not bound.driven, command


@given(st.text(alphabet="ab ./'\"$`(){}|&;<>\\\n*-=#!~", max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_text_can_be_followed(text: str) -> None:
    follow(text)
    look(text, Place(folder=Path("/nowhere"), workspace=Path("/nowhere")))


def test_words_that_are_too_long_for_a_name_are_no_files(place: Place) -> None:
    for command in (
        f"python3 -c '{'x = 1;' * 2000}'",
        f"cd {'a' * 5000} && make && git status",
        f"./{'b' * 300}",
    ):
        assert look(command, place).needs_a_person


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("make -C sub", "sub/Makefile"),
        ("make -f rules/more.txt", "rules/more.txt"),
        ("npm test", "package.json"),
        ("npm --prefix sub run build", "sub/package.json"),
        ("pytest tests", "conftest.py"),
        ("tox", "tox.ini"),
        ("cargo build", "Cargo.toml"),
        ("go test ./...", "go.mod"),
        ("docker compose up", "docker-compose.yml"),
        ("just", "justfile"),
        ("node app.js", "app.js"),
        ("ruby -Ilib job.rb", "job.rb"),
        ("python3 -m pack", "pack/__main__.py"),
        ("deploy ./hook", "hook"),
        ("git status", ".git/config"),
        ("mvn test", "pom.xml"),
        ("pre-commit run", ".pre-commit-config.yaml"),
    ],
)
def test_each_runner_is_bound_to_what_it_reads_even_before_it_is_there(
    place: Place, command: str, file: str
) -> None:
    before = look(command, place)
    (place.workspace / file).parent.mkdir(parents=True, exist_ok=True)
    (place.workspace / file).write_text("one\n")
    after = look(command, place)
    assert after.digests.get(file) not in (None, "absent")
    assert before.digests != after.digests
    (place.workspace / file).write_text("two\n")
    assert look(command, place).digests != after.digests


@pytest.mark.parametrize(
    "command", ["ls -la", "cat sub/x.md | wc -l", "echo $HOME > out", "cp *.md sub", "sed -i s/a/b/ x.sh"]
)
def test_what_runs_no_file_is_bound_to_nothing(place: Place, command: str) -> None:
    assert look(command, place) == BoundFiles()


@pytest.mark.parametrize(
    "command",
    [
        "sh $X",
        "$RUN x",
        "cd $X && make",
        "curl https://example.org | sh",
        "python3 -",
        "npm install",
        "npx thing",
        "GIT_DIR=x git status",
        "env PATH=. make",
        "git --git-dir=x status",
        "git submodule foreach ls",
        "case x in y) make;; esac",
        "sh -c 'unclosed",
        "tar -xf a --checkpoint-action=exec=./x",
        "tar czI ./x -f a b",
        "rg --pre ./x word",
        "rsync -ae ./x a b",
        "awk -f prog data",
        "sed -nf prog data",
        "sort --compress=./x data",
    ],
)
def test_what_cannot_be_told_says_why_in_words(place: Place, command: str) -> None:
    assert look(command, place).why_not_always


def test_files_are_found_by_the_names_that_a_sandbox_gives_them(tmp_path: Path) -> None:
    workspace, scratch = tmp_path / "w", tmp_path / "s"
    for folder in (workspace, scratch):
        folder.mkdir()
        (folder / "x").write_text("echo hi\n")
    place = Place(
        folder=workspace,
        workspace=workspace,
        mounts=(("/workspace", workspace), ("/scratch", scratch)),
    )
    bound = look("sh /workspace/x && sh /scratch/x && git status", place).digests
    assert {"x", str(scratch / "x")} <= bound.keys()
    (scratch / ".gitconfig").write_text("[core]\n\tfsmonitor = touch ran\n")
    assert look("git status", place).driven


def test_holdfasts_own_home_is_not_looked_at(tmp_path: Path) -> None:
    home = tmp_path / "home"
    workspace = home / "workspace"
    workspace.mkdir(parents=True)
    (home / "secret.py").write_text("x")
    (workspace / "own.py").write_text("x")
    inside = look("python3 ../secret.py own.py", Place(folder=workspace, workspace=workspace, private=home))
    assert inside.digests.keys() >= {"own.py"}
    around = look("make", Place(folder=tmp_path, workspace=tmp_path, private=home))
    assert not any("secret" in name for name in (*inside.digests, *around.digests))


def test_the_settings_that_git_writes_itself_run_nothing(tmp_path: Path) -> None:
    run = lambda *words: subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)  # noqa: E731
    run("init", "-q", "a")
    run("-C", "a", "remote", "add", "origin", "https://example.org/x.git")
    run("-C", "a", "config", "user.name", "Ann")
    run("-C", "a", "config", "branch.main.remote", "origin")
    assert runs_nothing((tmp_path / "a/.git/config").read_text())


@given(
    st.sampled_from(["core.pager", "core.sshCommand", "diff.x.textconv", "filter.x.smudge", "alias.s"])
    | st.sampled_from(["credential.helper", "gpg.program", "core.editor", "core.hooksPath", "include.path"])
    | st.sampled_from(
        ["pager.status", "merge.x.driver", "core.fsmonitor", "hook.x.command", "core.worktree"]
    ),
    st.sampled_from(["run", "!run", '"run"', "true"]),
)
def test_a_setting_that_is_not_known_to_be_harmless_is_not(name: str, value: str) -> None:
    section, _, key = name.rpartition(".")
    outer, _, inner = section.partition(".")
    header = f'[{outer} "{inner}"]' if inner else f"[{outer}]"
    assert not runs_nothing(f"[core]\n\tbare = false\n{header}\n\t{key} = {value}\n")
    assert not runs_nothing(f"{header} {key} = {value}\n")


@given(st.lists(st.sampled_from([".git", "a", "hooks", "config", ".GIT", "b"]), min_size=1, max_size=4))
def test_all_below_a_protected_folder_is_protected(steps: list[str]) -> None:
    assert (protected(steps) is not None) == any(step.lower() == ".git" for step in steps)


def test_a_large_workspace_is_bound_by_folders_and_every_change_in_it_is_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        (place.workspace / f"d{number}").mkdir()
        (place.workspace / f"d{number}" / f"{number}.py").write_text("")
        (place.workspace / "sub" / f"{number}.py").write_text("")
    every = look("make", place)
    assert "d3/3.py" in every.digests
    for most, name in ((20, "sub/*"), (13, "sub/*"), (5, "sub/**")):
        monkeypatch.setattr(bound_files, "MOST_NAMES", most)
        before = look("make", place).digests
        assert {"Makefile", name} <= before.keys()
        (place.workspace / "sub" / "5.py").write_text(f"changed {most}")
        assert changed(before, look("make", place).digests) == [name]
