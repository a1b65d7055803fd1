"""What a person approved is what runs: nothing that a command would run may change behind their back."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tool_world import World

from builders import soon, until
from holdfast.agents.approvals import allow_always, audit, requests
from holdfast.agents.approvals.requests import Approval, ApprovalStatus
from holdfast.context import ToolCall, ToolResult
from holdfast.log import OWNER

Decide = Callable[[Any, str], Any]
SIDE = "ran"
TOUCH = f"touch {SIDE}\n"


def once(tx: Any, id_: str) -> None:
    requests.approve(tx, id_, by="ann")


def always(tx: Any, id_: str) -> None:
    allow_always(tx, id_, by="ann")


def denied(tx: Any, id_: str) -> None:
    requests.deny(tx, id_, by="ann")


def configure(here: World, **exec_: Any) -> None:
    here.configure(tools={"exec": exec_})


def put(here: World, path: str, text: str) -> Path:
    file = here.workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def waiting(here: World) -> list[Approval]:
    with here.hold.store.read(OWNER) as tx:
        return requests.listing(tx, status=ApprovalStatus.PENDING)


def answered(
    here: World,
    name: str,
    arguments: dict[str, Any],
    decide: Decide = once,
    meanwhile: Callable[[], Any] = lambda: None,
) -> ToolResult:
    """Make a call that must ask; something happens while it waits; then a person decides."""

    async def both() -> ToolResult:
        call = ToolCall("c1", name, arguments)
        running = asyncio.create_task(here.toolbox.run_all(here.caller(), [call], here.events.append))
        await until(lambda: bool(waiting(here)) or running.done())
        assert not running.done(), f"it did not ask: {running.result()[0].text}"
        meanwhile()
        with here.hold.store.write(OWNER) as tx:
            decide(tx, requests.listing(tx, status=ApprovalStatus.PENDING)[0].id)
        return (await soon(running))[0]

    return here.run(both())


def exec_(here: World, command: str, decide: Decide = once, **more: Any) -> ToolResult:
    return answered(here, "exec", {"command": command}, decide, **more)


def ran(here: World) -> bool:
    found = list(here.workspace.rglob(SIDE))
    for file in found:
        file.unlink()
    return bool(found)


def repository(here: World) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=here.workspace, check=True, capture_output=True)


FORMS = [
    ("make test", "Makefile", "test:\n\t@echo fine\n", "test:\n\t@touch ran\n"),
    ("make test", "rules.mk", "test:\n\t@echo fine\n", "test:\n\t@touch ran\n"),
    ("make -C sub test", "sub/Makefile", "test:\n\t@echo fine\n", "test:\n\t@touch ran\n"),
    ("cd sub && sh x.sh", "sub/x.sh", "echo fine\n", TOUCH),
    ("(cd sub; . ./x)", "sub/x", "echo fine\n", TOUCH),
    ("python3 -m mod", "mod.py", "print('fine')\n", "open('ran', 'w')\n"),
    ("python3 -m pack.mod", "pack/mod.py", "print('fine')\n", "open('ran', 'w')\n"),
    ("python3 -c 'import helper'", "helper.py", "print('fine')\n", "open('ran', 'w')\n"),
    ("python3 job.py", "helper.py", "print('fine')\n", "open('ran', 'w')\n"),
    ('sh -c "sh sub/x.sh"', "sub/x.sh", "echo fine\n", TOUCH),
    ("bash -lc 'cd sub && ./x.sh'", "sub/x.sh", "#!/bin/sh\necho fine\n", f"#!/bin/sh\n{TOUCH}"),
    ("env X=y sh sub/x.sh", "sub/x.sh", "echo fine\n", TOUCH),
    ("nice -n 5 sh sub/x.sh", "sub/x.sh", "echo fine\n", TOUCH),
    ("timeout 5 sh sub/x.sh", "sub/x.sh", "echo fine\n", TOUCH),
    ("echo $(sh sub/x.sh)", "sub/x.sh", "echo fine\n", TOUCH),
    ("echo sub/x.sh | xargs sh", "sub/x.sh", "echo fine\n", TOUCH),
    ("cat sub/x.txt | sh", "sub/x.txt", "echo fine\n", TOUCH),
    ("sh < sub/notes.md", "sub/notes.md", "echo fine\n", TOUCH),
    ("find sub -name '*.sh' -exec sh {} \\;", "sub/x.sh", "echo fine\n", TOUCH),
    ("true; sh sub/x.sh", "sub/x.sh", "echo fine\n", TOUCH),
    ("for f in sub/*.sh; do sh $f; done", "sub/x.sh", "echo fine\n", TOUCH),
]


@pytest.mark.parametrize(("command", "file", "shown", "changed"), FORMS)
def test_a_file_that_changes_while_its_approval_waits_is_not_run(
    here: World, command: str, file: str, shown: str, changed: str
) -> None:
    put(here, "job.py", "import helper\n")
    put(here, "Makefile", "include rules.mk\n")
    path = put(here, file, shown)
    path.chmod(0o755)
    assert not exec_(here, command).is_error
    assert not ran(here)
    said = exec_(here, command, meanwhile=lambda: path.write_text(changed))
    assert not ran(here)
    assert said.is_error
    assert file in said.text
    assert any(file in event.text for event in here.events if event.kind == "progress")
    with here.hold.store.read(OWNER) as tx:
        (newest, *_) = audit.listing(tx)
    assert newest.event == "block"
    assert file in newest.reason


def test_a_file_that_appears_while_its_approval_waits_is_not_run(here: World) -> None:
    for command, file in (("make test", "GNUmakefile"), ("python3 -m mod", "mod.py"), ("./x", "x")):
        made = exec_(here, command, meanwhile=lambda file=file: put(here, file, "test:\n\ttouch ran\n"))  # type: ignore[misc]
        assert made.is_error
        assert file in made.text
        assert not ran(here)


def test_always_holds_as_long_as_what_it_runs_is_what_was_shown(here: World) -> None:
    makefile = put(here, "Makefile", "test:\n\t@echo fine\n")
    assert exec_(here, "make test", always).text == "fine\n"
    assert here.ok("exec", {"command": "make test"}) == "fine\n"
    here.ok("file_write", {"path": "Makefile", "content": "test:\n\t@touch ran\n"})
    said = exec_(here, "make test", denied)
    assert said.is_error
    assert not ran(here)
    configure(here, ask="off")
    assert "Makefile" in here.refused("exec", {"command": "make test"})
    makefile.write_text("test:\n\t@echo fine\n")
    assert here.ok("exec", {"command": "make test"}) == "fine\n"


def test_a_pattern_allows_no_script_that_nobody_was_shown(here: World) -> None:
    put(here, "a.sh", "echo a\n")
    put(here, "b.sh", TOUCH)

    def by_pattern(tx: Any, id_: str) -> None:
        allow_always(tx, id_, by="ann", pattern="sh *")

    assert exec_(here, "sh a.sh", by_pattern).text == "a\n"
    assert here.ok("exec", {"command": "sh a.sh"}) == "a\n"
    assert exec_(here, "sh b.sh", denied).is_error
    assert not ran(here)


def test_a_pattern_of_the_config_allows_changed_files_only_where_that_is_said(here: World) -> None:
    put(here, "Makefile", "test:\n\t@touch ran\n")
    configure(here, ask="off", allowlist=["make *"])
    assert "refused" in here.refused("exec", {"command": "make test"})
    assert not ran(here)
    configure(here, ask="off", allowlist=["make *"], allowChangedFiles=True)
    here.ok("exec", {"command": "make test"})
    assert ran(here)


def test_what_cannot_be_told_from_a_command_is_never_allowed_for_good(here: World) -> None:
    from holdfast.errors import InvalidInput

    put(here, "x.sh", "echo fine\n")
    for command in ("sh $SCRIPT", "sh -c 'sh *.sh'", "cat x.sh | sh", "npx something", "git -c alias.x=y x"):

        def refused(tx: Any, id_: str) -> None:
            assert requests.get(tx, id_).why_not_always
            with pytest.raises(InvalidInput) as error:
                allow_always(tx, id_, by="ann", pattern="sh *")
            assert error.value.code == "not_always"
            requests.deny(tx, id_, by="ann")

        exec_(here, command, refused)
        told = [event.approval for event in here.events if event.approval is not None]
        assert told[-1].why_not_always


def test_a_workspace_too_large_to_look_at_is_never_allowed_for_good(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.agents.approvals import bound_files

    monkeypatch.setattr(bound_files, "MOST_FILES", 3)
    for number in range(5):
        put(here, f"deep/{number}.py", "")
    reasons: list[str] = []

    def look(tx: Any, id_: str) -> None:
        reasons.append(requests.get(tx, id_).why_not_always)
        requests.deny(tx, id_, by="ann")

    exec_(here, "pytest", look)
    assert "more than 3" in reasons[0]


GIT_SETTINGS = [
    "[core]\n\tfsmonitor = touch ran; true\n",
    '[core] fsmonitor = "touch ran; true"\n',
    "[core]\n\tfsmon\\\n",
    "[include]\n\tpath = ../evil\n",
    "[core]\n\tpager = touch ran\n",
    "[alias]\n\tst = !touch ran\n",
    "[core]\n\thooksPath = hooks\n",
    '[filter "x"]\n\tclean = touch ran\n',
    "[diff]\n\texternal = touch ran\n",
]


@pytest.mark.parametrize("settings", GIT_SETTINGS)
def test_allowed_git_does_not_run_what_the_repository_tells_it_to(here: World, settings: str) -> None:
    repository(here)
    put(here, "evil", "[core]\n\tfsmonitor = touch ran; true\n")
    configure(here, ask="off", allowlist=["git *"])
    assert "branch" in here.ok("exec", {"command": "git status"})
    config = here.workspace / ".git" / "config"
    config.write_text(config.read_text() + settings)
    assert ".git/config" in here.refused("exec", {"command": "git status"})
    assert not ran(here)


def test_allowed_git_minds_hooks_and_repositories_in_disguise(here: World) -> None:
    repository(here)
    configure(here, ask="off", allowlist=["git *"])
    here.ok("exec", {"command": "git status"})
    put(here, ".git/hooks/post-checkout", f"#!/bin/sh\n{TOUCH}").chmod(0o755)
    here.refused("exec", {"command": "git status"})
    (here.workspace / ".git/hooks/post-checkout").unlink()
    here.ok("exec", {"command": "git status"})
    for path, text in (
        ("bare/HEAD", "ref: refs/heads/main\n"),
        ("bare/config", "[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch ran; true\n"),
        ("bare/objects/x", ""),
        ("bare/refs/x", ""),
    ):
        here.ok("file_write", {"path": path, "content": text})
    here.refused("exec", {"command": "git -C bare status"})
    here.refused("exec", {"command": "git status", "cwd": "bare"})
    here.refused("exec", {"command": "git -c core.fsmonitor=x status"})
    here.refused("exec", {"command": "git fetch --upload-pack=./x ."})
    assert not ran(here)


def test_settings_of_git_that_change_while_an_approval_waits_stop_it(here: World) -> None:
    repository(here)
    config = here.workspace / ".git" / "config"

    def change() -> None:
        config.write_text(config.read_text() + GIT_SETTINGS[0])

    said = exec_(here, "git status", meanwhile=change)
    assert said.is_error
    assert ".git/config" in said.text
    assert not ran(here)


PROTECTED = [
    ".git/config",
    ".GIT/config",
    ".git/hooks/pre-commit",
    "sub/.git/config",
    ".husky/pre-commit",
    ".githooks/pre-commit",
    ".envrc",
    ".npmrc",
    ".pre-commit-config.yaml",
    ".vscode/tasks.json",
    "sub/pip.conf",
    ".cargo/config.toml",
    ".gitattributes",
    ".gitmodules",
    ".gitconfig",
]


@pytest.mark.parametrize("path", PROTECTED)
def test_files_that_tell_programs_what_to_run_are_written_only_once_approved(here: World, path: str) -> None:
    configure(here, ask="off")
    said = here.refused("file_write", {"path": path, "content": "x"})
    assert "protected" in said
    assert not (here.workspace / path).exists()
    configure(here)
    assert answered(here, "file_write", {"path": path, "content": "x"}, denied).is_error
    assert not (here.workspace / path).exists()
    assert not answered(here, "file_write", {"path": path, "content": "x"}).is_error
    assert (here.workspace / path).read_text() == "x"
    edit = {"path": path, "oldText": "x", "newText": "y"}
    changed = answered(here, "file_edit", edit, meanwhile=lambda: put(here, path, "xx"))
    assert changed.is_error
    assert (here.workspace / path).read_text() == "xx"
    assert not answered(here, "file_delete", {"path": path}).is_error
    assert not (here.workspace / path).exists()


def test_a_person_reads_what_would_be_written(here: World) -> None:
    shown: list[Approval] = []

    def look(tx: Any, id_: str) -> None:
        shown.append(requests.get(tx, id_))
        requests.deny(tx, id_, by="ann")

    answered(here, "file_write", {"path": ".envrc", "content": "export A=1"}, look)
    assert ".envrc" in shown[0].command
    assert "export A=1" in shown[0].command
    assert shown[0].tool == "file_write"


def test_more_than_a_person_can_read_is_not_asked_for(here: World) -> None:
    assert "too many" in here.refused("file_write", {"path": ".envrc", "content": "x" * 70_000})


def test_where_every_command_may_run_a_protected_file_may_be_written(here: World) -> None:
    configure(here, security="full")
    here.ok("file_write", {"path": ".envrc", "content": "x"})
    configure(here, security="deny")
    here.refused("file_write", {"path": ".envrc", "content": "y"})
    here.ok("file_write", {"path": "notes/env.md", "content": "y"})
