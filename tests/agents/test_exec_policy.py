"""Which commands run, which are asked for, which never: nothing runs that was not understood."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.agents.policy import ExecPolicy, Pipeline, check_pattern, inside_folder, judge, matches, parse
from holdfast.agents.policy.safe_bins import RULES
from holdfast.config.tools import SAFE_BINS
from holdfast.errors import InvalidInput

LISTED = ("npm test", "git status", "git diff *", "ls -la *", "cat *.md")
STRICT = ExecPolicy(security="allowlist", ask="off", safe_bins=frozenset(SAFE_BINS), allowlist=LISTED)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "sub").mkdir(parents=True)
    (root / "notes.md").write_text("hello\n")
    (root / "data.json").write_text('{"a": 1}\n')
    (tmp_path / "secret.txt").write_text("secret\n")
    (root / "way-out").symlink_to(tmp_path)
    (root / "leak.md").symlink_to(tmp_path / "secret.txt")
    return root


def verdict(command: str, workspace: Path, policy: ExecPolicy = STRICT, cwd: str = ".") -> tuple[str, str]:
    found = judge(command, policy, inside_folder(str(workspace), str(workspace / cwd)))
    return found.verdict, found.rule


@pytest.mark.parametrize(
    ("security", "ask", "command", "expected"),
    [
        ("deny", "off", "cat notes.md", ("block", "deny")),
        ("deny", "always", "cat notes.md", ("block", "deny")),
        ("deny", "on-miss", "npm test", ("block", "deny")),
        ("full", "off", "rm -rf x; y", ("run", "full")),
        ("full", "on-miss", "rm -rf x; y", ("run", "full")),
        ("full", "always", "rm -rf x", ("ask", "always")),
        ("full", "off", "  ", ("block", "miss")),
        ("allowlist", "off", "cat notes.md", ("run", "safe-bins")),
        ("allowlist", "off", "npm test", ("run", "allowlist")),
        ("allowlist", "off", "npm install", ("block", "miss")),
        ("allowlist", "on-miss", "npm install", ("ask", "miss")),
        ("allowlist", "on-miss", "npm test", ("run", "allowlist")),
        ("allowlist", "on-miss", "cat notes.md > x", ("ask", "miss")),
        ("allowlist", "always", "npm test", ("ask", "always")),
        ("allowlist", "always", "cat notes.md", ("ask", "always")),
        ("allowlist", "always", "npm install", ("ask", "miss")),
    ],
)
def test_the_flow_of_a_command(
    workspace: Path, security: str, ask: str, command: str, expected: tuple[str, str]
) -> None:
    policy = ExecPolicy(security, ask, frozenset(SAFE_BINS), LISTED)  # type: ignore[arg-type]
    assert verdict(command, workspace, policy) == expected


@pytest.mark.parametrize(
    "command",
    [
        "cat notes.md",
        "cat -n -- notes.md",
        "ls -la sub",
        "pwd",
        "head -5 notes.md",
        "head -n -2 notes.md",
        "tail -n +3 notes.md",
        "grep -rn 'TODO|FIXME' .",
        "grep -A3 -e hello notes.md",
        'grep -E "a\\.b" notes.md',
        "grep hello notes.md | sort -u | head -3",
        "jq -r '.a | tostring' data.json",
        "sort -t, -k2,2n notes.md",
        "cut -d: -f1 notes.md",
        "wc -l notes.md sub/../notes.md",
        "tr a-z A-Z",
        "uniq -c notes.md",
    ],
)
def test_reading_within_the_workspace_needs_nobody(workspace: Path, command: str) -> None:
    assert verdict(command, workspace) == ("run", "safe-bins")


SMUGGLED = [
    "cat notes.md > out",
    "cat notes.md >> out",
    "cat < notes.md",
    "cat notes.md; rm -rf .",
    "cat notes.md && rm x",
    "cat notes.md || rm x",
    "cat notes.md & rm x",
    "cat notes.md |& sh",
    "cat notes.md\nrm x",
    "cat notes.md\r\nrm x",
    "cat notes.md\x00rm",
    "cat notes.md\u2028rm x",
    "cat $(rm x)",
    "cat `rm x`",
    'cat "$(rm x)"',
    'cat "`rm x`"',
    "cat $HOME/x",
    'cat "$HOME/x"',
    "cat ${IFS}x",
    "cat <(rm x)",
    "cat {a,b}",
    "cat *",
    "cat ?.md",
    "cat [a]",
    "cat ~/x",
    "cat ~root/x",
    "cat \\\nx",
    "cat no\\tes.md",
    'cat "a\\$(x)"',
    "PATH=. cat notes.md",
    "LD_PRELOAD=./x.so cat notes.md",
    "env cat notes.md",
    "sudo cat notes.md",
    "/bin/cat notes.md",
    "./cat notes.md",
    "cat /etc/passwd",
    "cat ../secret.txt",
    "cat sub/../../secret.txt",
    "cat way-out/secret.txt",
    "head leak.md",
    "cat 'way-out/secret.txt'",
    "head --bytes=9 /etc/shadow",
    "grep -f /etc/passwd notes.md",
    "grep -f/etc/passwd notes.md",
    "grep --file=/etc/passwd notes.md",
    "grep --fil=/etc/passwd notes.md",
    "grep -R x .",
    "grep --dereference-recursive x .",
    "grep x /etc/passwd",
    "grep -e x /etc/passwd",
    "sort -o notes.md notes.md",
    "sort -onotes.md notes.md",
    "sort -uo notes.md notes.md",
    "sort --output=notes.md notes.md",
    "sort --outp=notes.md notes.md",
    "sort --compress-program=./evil notes.md",
    "sort -T /tmp notes.md",
    "sort --files0-from=/etc/passwd",
    "uniq notes.md out.md",
    "tail -f notes.md",
    "tail --follow notes.md",
    "tail --pid=1 notes.md",
    "wc --files0-from=/etc/passwd",
    "jq env data.json",
    "jq '$ENV.HOME' data.json",
    "jq -f prog.jq data.json",
    "jq --from-file prog.jq",
    "jq --slurpfile a /etc/passwd . data.json",
    "jq --rawfile a /etc/passwd -n '$a'",
    "jq -L /x 'include \"m\"; f' data.json",
    "jq 'input_filename' data.json",
    "jq . /etc/passwd",
    "ls /",
    "ls ..",
    "ls -L way-out",
    "find . -exec rm {} +",
    "find . -delete",
    "awk 'BEGIN{system(\"x\")}'",
    "sed -i s/a/b/ notes.md",
    "xargs rm",
    "tee out",
    "cat notes.md | sh",
    "cat notes.md | tee out",
    "cat notes.md |",
    "| cat notes.md",
    "cat notes.md # x",
    "! cat notes.md",
    "cat 'notes.md",
    'cat "notes.md',
    "'' notes.md",
    "cat notes.md;",
    "(cat notes.md)",
    "{ cat notes.md; }",
    "function cat { rm x; }",
    "alias cat=rm",
    "cat\u00a0notes.md",
    "cаt notes.md",
    "git diff; rm x",
    "git diff a && rm x",
    "git diff $(rm x)",
    "git diff a | sh",
    "git diff a > x",
    "git  ",
    "gitdiff x",
    "npm test --x",
    "cat ../../etc/x.md",
    "cat -x.md",
]


@pytest.mark.parametrize("command", SMUGGLED)
def test_nothing_is_smuggled_past_the_safe_programs_or_the_allowlist(workspace: Path, command: str) -> None:
    assert verdict(command, workspace)[0] == "block"


def test_a_configured_program_without_a_rule_is_not_safe(workspace: Path) -> None:
    policy = ExecPolicy("allowlist", "off", frozenset(("cat", "python3")))
    assert verdict("python3 notes.md", workspace, policy)[0] == "block"
    assert verdict("head notes.md", workspace, policy)[0] == "block"
    assert set(SAFE_BINS) == set(RULES)


def test_nothing_runs_unasked_in_a_folder_outside_the_workspace(workspace: Path) -> None:
    assert verdict("ls", workspace, cwd="..")[0] == "block"
    assert verdict("grep -r x", workspace, cwd="way-out")[0] == "block"
    assert verdict("npm test", workspace, cwd="..")[0] == "block"
    assert verdict("cat ../notes.md", workspace, cwd="sub")[0] == "run"


def test_safe_programs_really_leave_the_workspace_as_it_is(workspace: Path) -> None:
    before = sorted(path.name for path in workspace.rglob("*"))
    for command in ("sort notes.md", "uniq notes.md", "grep -c hello notes.md | cat -n", "ls -R ."):
        found = judge(command, STRICT, inside_folder(str(workspace), str(workspace)))
        assert found.verdict == "run"
        assert found.pipeline is not None
        subprocess.run(["sh", "-c", found.pipeline.text()], cwd=workspace, check=True, capture_output=True)
    assert sorted(path.name for path in workspace.rglob("*")) == before


@pytest.mark.parametrize(
    ("pattern", "command", "fits"),
    [
        ("npm test", "npm test", True),
        ("npm test", "npm  'test'", True),
        ("npm test", "npm test x", False),
        ("git diff *", "git diff HEAD -- a b", True),
        ("git diff *", "git diff", False),
        ("git * HEAD", "git show HEAD", True),
        ("git * HEAD", "git a b HEAD", False),
        ("cat *.md", "cat a.md", True),
        ("cat *.md", "cat a/b.md", False),
        ("cat docs/**.md", "cat docs/a/b.md", True),
        ("cat docs/**.md", "cat docs/../../b.md", False),
        ("cat *.md", "cat -a.md", False),
        ("make test-?", "make test-1", True),
        ("make test-?", "make test-12", False),
        ("grep [ab]", "grep '[ab]'", True),
        ("grep [ab]", "grep a", False),
    ],
)
def test_patterns_fit_word_by_word(pattern: str, command: str, fits: bool) -> None:
    parsed = parse(command)
    assert isinstance(parsed, Pipeline)
    assert matches(parsed.commands[0], pattern) is fits


@pytest.mark.parametrize("pattern", ["", "*", "* x", "g*t diff", "?", "x" * 501, "git\ndiff"])
def test_a_pattern_for_any_program_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput):
        check_pattern(pattern)


WORDS = ["cat", "ls", "git", "rm", "-o", "--output=x", "notes.md", "/etc/passwd", "..", "A=b", "-n", "é"]
pieces = st.sampled_from(WORDS) | st.sampled_from(" \t\n|;&><$`(){}'\"\\*~#=!")
commands = st.lists(pieces, max_size=10).map("".join) | st.text(max_size=30)


@given(commands)
@example("cat 'a b'\"c\"d | sort")
@example("echo a\\ b")
@settings(max_examples=150)
def test_words_that_are_understood_are_the_words_of_the_shell(command: str) -> None:
    parsed = parse(command)
    if not isinstance(parsed, Pipeline):
        return
    again = parse(parsed.text())
    assert again == parsed or not isinstance(again, Pipeline)
    for words in parsed.commands:
        assert words[0]
    if len(parsed.commands) == 1:
        shell = ["sh", "-c", f"printf '%s\\0' {command}"]
        said = subprocess.run(shell, capture_output=True, check=True)
        assert said.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] == list(parsed.commands[0])


@given(commands, st.lists(st.sampled_from(LISTED), max_size=3).map(tuple))
def test_with_asking_off_only_what_is_listed_or_safe_runs(command: str, listed: tuple[str, ...]) -> None:
    policy = ExecPolicy("allowlist", "off", frozenset(SAFE_BINS), listed)
    found = judge(command, policy, lambda path: not path.startswith(("/", "..")))
    assert found.verdict in ("run", "block")
    if found.verdict == "run":
        assert found.pipeline is not None
        for words in found.pipeline.commands:
            assert words[0] in SAFE_BINS or any(matches(words, pattern) for pattern in listed)
        assert set(found.patterns) <= set(listed)


@given(commands)
def test_nothing_runs_when_commands_are_denied(command: str) -> None:
    for ask in ("off", "on-miss", "always"):
        policy = ExecPolicy("deny", ask, frozenset(SAFE_BINS), LISTED)  # type: ignore[arg-type]
        assert judge(command, policy, lambda _: True).verdict == "block"
