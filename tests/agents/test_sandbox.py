"""The sandbox holds: commands that try to get out, to see more, or to use everything up."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.sandbox import (
    Bubblewrap,
    Docker,
    Host,
    Job,
    Limits,
    Outcome,
    is_sandboxed,
    place_of,
    run,
    running,
    scope_name,
)
from holdfast.agents.sandbox.backends import scrubbed, search_path
from holdfast.agents.sandbox.running import census
from holdfast.config.agents import Sandbox
from holdfast.errors import Unavailable

MISSING = Bubblewrap().missing()
needs_bubblewrap = pytest.mark.skipif(MISSING is not None, reason=f"bubblewrap: {MISSING}")
PATIENT = Limits(seconds=60)
SECRET = "the-operator's-secret"


@pytest.fixture
def base(tmp_path: Path) -> Job:
    """A sandbox over a workspace, beside which lies what it must not reach."""
    (tmp_path / "secret.txt").write_text(SECRET)
    workspace, scratch = tmp_path / "workspace", tmp_path / "scratch"
    workspace.mkdir()
    scratch.mkdir()
    (workspace / "notes.md").write_text("hello")
    (workspace / "way-out").symlink_to(tmp_path)
    (workspace / "leak").symlink_to(tmp_path / "secret.txt")
    return Job(argv=["true"], scratch=scratch, workspace=workspace, access="rw", limits=PATIENT)


def sh(base: Job, script: str, **fields: Any) -> Outcome:
    return run(Bubblewrap(), replace(base, argv=["sh", "-c", script], **fields))


def text(outcome: Outcome) -> str:
    return outcome.output.decode("utf-8", "replace")


@needs_bubblewrap
def test_the_workspace_is_shared_as_far_as_it_may_be(base: Job) -> None:
    assert text(sh(base, "pwd; cat notes.md")) == "/workspace\nhello"
    assert sh(base, "echo more > new.md").ok
    assert base.workspace is not None
    assert (base.workspace / "new.md").read_text() == "more\n"
    assert text(sh(base, "cat notes.md", access="ro")) == "hello"
    assert not sh(base, "echo x > notes.md", access="ro").ok
    assert not sh(base, "rm notes.md", access="ro").ok
    hidden = sh(base, "pwd; ls /workspace", access="none")
    assert (text(hidden).splitlines()[0], hidden.ok) == ("/scratch", False)
    assert (base.workspace / "notes.md").read_text() == "hello"


@needs_bubblewrap
def test_what_a_sandbox_writes_for_itself_stays_for_the_next_command(base: Job) -> None:
    assert sh(base, "echo kept > $HOME/file", access="none").ok
    assert text(sh(base, "cat /scratch/file", access="ro")) == "kept\n"
    assert sh(base, "echo gone > /tmp/file").ok
    assert not sh(base, "cat /tmp/file").ok


@needs_bubblewrap
@pytest.mark.parametrize(
    "script",
    [
        "cat leak",
        "cat way-out/secret.txt",
        "cat ../secret.txt",
        "cat {outside}/secret.txt",
        "cat /proc/1/root{outside}/secret.txt",
        "cat /proc/self/root{outside}/secret.txt",
        "cat /proc/1/cwd/../secret.txt",
        "ln -s {outside}/secret.txt l && cat l",
        "cat /root/.bashrc",
        "ls {outside}",
        "cat /etc/shadow",
        "cat /etc/passwd",
        "mount --bind / /tmp",
        "mount -t proc proc /tmp",
        "unshare -Ur true",
        "mknod /scratch/disk b 8 0",
        "chroot / true",
        "echo x > /usr/bin/evil",
        "echo x > /etc/evil",
        "cat /proc/sys/kernel/pid_max > /tmp/n && cat /tmp/n > /proc/sys/kernel/pid_max",
        ": >> /proc/sys/kernel/core_pattern",
        ": >> /proc/sys/vm/overcommit_memory",
        "cat /proc/keys | grep -q .",
        "ls /etc/ssl/private",
        "echo x > /dev/x",
        "for n in 1 2; do head -c 200M /dev/zero > /dev/shm/$n || exit 1; done",
        "echo x > /proc/self/fd/0 && readlink /proc/self/fd/0 | grep -v null",
        "echo x > /proc/sysrq-trigger",
        "cat /proc/kcore | head -c 1 | grep -q .",
        "dmesg | grep -q .",
        "kill -0 {pid}",
        "ls /sys/class | grep -q .",
        "ls /run | grep -q .",
    ],
)
def test_it_cannot_get_out(base: Job, tmp_path: Path, script: str) -> None:
    outcome = sh(base, script.format(outside=tmp_path, pid=os.getpid()))
    assert not outcome.ok
    assert SECRET not in text(outcome)


@needs_bubblewrap
def test_it_sees_its_own_processes_only(base: Job) -> None:
    seen = text(sh(base, "ls /proc | grep -c '^[0-9]'"))
    assert int(seen) < 10
    assert text(sh(base, "cat /proc/self/status | grep CapEff")).split()[-1].strip("0") == ""


@needs_bubblewrap
def test_nothing_of_our_environment_is_in_it(base: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("LD_PRELOAD", "")
    told = text(sh(base, "env; cat /proc/*/environ", env={"GIVEN": "yes", "LD_PRELOAD": "/scratch/x.so"}))
    assert "GIVEN=yes" in told
    assert SECRET not in told
    assert "LD_PRELOAD=" not in told
    assert "HOME=/scratch" in told


@needs_bubblewrap
def test_there_is_no_network_unless_it_is_allowed(base: Job) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
    python = replace(base, argv=["/usr/bin/python3", "-c", script])
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no system python3 to call from within the sandbox")
    with listener:
        assert not run(Bubblewrap(), python).ok
        assert run(Bubblewrap(), replace(python, network=True)).ok
    assert "lo" in text(sh(base, "cat /proc/net/dev"))
    assert "eth" not in text(sh(base, "cat /proc/net/dev"))


@needs_bubblewrap
def test_an_abstract_socket_of_ours_is_out_of_reach(base: Job) -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no system python3 to call from within the sandbox")
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"\0holdfast-{os.getpid()}"
        listener.bind(name)
        listener.listen()
        script = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert not run(Bubblewrap(), replace(base, argv=["/usr/bin/python3", "-c", script])).ok


@needs_bubblewrap
def test_a_fork_bomb_is_bounded_and_nothing_of_it_is_left(base: Job) -> None:
    """It doubles like a real one, but gives up at 512: a sandbox that fails must not take us along."""
    bomb = "f() { [ $1 -gt 8 ] && exec sleep 100; f $(($1 + 1)) & f $(($1 + 1)) & wait; }; f 0"
    before = census(os.getpid(), 5000).processes
    outcome = sh(base, bomb, limits=Limits(seconds=50, processes=32))
    assert outcome.end == "processes" or b"fork" in outcome.output
    assert outcome.seconds < 50
    assert census(os.getpid(), 5000).processes <= before


@needs_bubblewrap
def test_memory_is_bounded(base: Job) -> None:
    limits = Limits(seconds=30, memory_bytes=64 * 1024**2)
    alone = sh(base, "head -c 200000000 /dev/zero | tail | wc -c", limits=limits)
    assert text(alone).strip() != "200000000"
    together = "for i in 1 2 3 4; do (head -c 40000000 /dev/zero; sleep 20) | tail > /dev/null & done; wait"
    assert sh(base, together, limits=limits).end == "memory"


SHARED = """
import mmap, os, time
memory = mmap.mmap(-1, {mib} << 20)
for page in range(0, len(memory), 4096):
    memory[page] = 1
for _ in range({children}):
    os.fork() or (sum(memory[::4096]), time.sleep(1), os._exit(0))
time.sleep(1)
print("held", sum(memory[::4096]))
"""


@needs_bubblewrap
def test_memory_that_processes_share_counts_once(base: Job) -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no system python3 to call from within the sandbox")
    limits = Limits(seconds=30, memory_bytes=128 * 1024**2)

    def held(mib: int, children: int) -> Outcome:
        script = SHARED.format(mib=mib, children=children)
        return run(Bubblewrap(), replace(base, argv=["/usr/bin/python3", "-c", script], limits=limits))

    assert held(300, 0).end == "memory"
    assert "held" in text(held(48, 6))


@needs_bubblewrap
def test_a_file_cannot_grow_without_end(base: Job) -> None:
    outcome = sh(base, "head -c 3000000 /dev/zero > big", limits=replace(PATIENT, file_bytes=1_000_000))
    assert not outcome.ok
    assert base.workspace is not None
    assert (base.workspace / "big").stat().st_size <= 1_000_000


@pytest.mark.parametrize("backend", [Host(), pytest.param(Bubblewrap(), marks=needs_bubblewrap)])
def test_output_time_and_cancelling_are_bounded_everywhere(base: Job, backend: Any) -> None:
    small = Limits(seconds=20, output_bytes=1000)
    some = run(backend, replace(base, argv=["sh", "-c", "yes | head -c 5000; echo end >&2"], limits=small))
    assert (some.end, some.code, len(some.output), some.dropped) == ("exited", 0, 1000, 4004)
    flood = run(backend, replace(base, argv=["yes"], limits=small))
    assert (flood.end, flood.code, len(flood.output)) == ("output", None, 1000)
    late = run(backend, replace(base, argv=["sleep", "60"], limits=replace(small, seconds=0.2)))
    assert (late.end, late.code) == ("timeout", None)
    gone = run(backend, replace(base, argv=["sleep", "60"], limits=small), cancelled=lambda: True)
    assert gone.end == "timeout"
    quiet = run(
        backend,
        replace(base, argv=["sh", "-c", "exec >&- 2>&-; sleep 60"], limits=replace(small, seconds=0.2)),
    )
    assert quiet.end == "timeout"
    assert run(backend, replace(base, argv=["sh", "-c", "exit 7"])).code == 7


@pytest.mark.parametrize("backend", [Host(), pytest.param(Bubblewrap(), marks=needs_bubblewrap)])
def test_what_is_left_in_the_background_ends_with_the_command(base: Job, backend: Any) -> None:
    outcome = run(backend, replace(base, argv=["sh", "-c", "sleep 300 & echo done"]))
    assert (outcome.end, text(outcome)) == ("exited", "done\n")
    assert outcome.seconds < 30


def test_a_command_that_cannot_be_ended_holds_nobody_up(
    base: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that became another user's does."""
    really, left = os.killpg, []

    def refused(pid: int, _signal: int) -> None:
        left.append(pid)
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refused)
    monkeypatch.setattr(running, "_KILL_SECONDS", 0.1)
    late = run(Host(), replace(base, argv=["sleep", "60"], limits=replace(PATIENT, seconds=0.1)))
    assert (late.end, late.code) == ("timeout", None)
    assert late.seconds < 30
    assert "cannot be ended" in caplog.text
    really(left[0], signal.SIGKILL)
    os.waitpid(left[0], 0)


def test_a_command_has_nothing_to_read(base: Job) -> None:
    assert text(run(Host(), replace(base, argv=["wc", "-c"]))).strip() == "0"


def test_a_program_that_is_not_there_is_told(base: Job) -> None:
    outcome = run(Host(), replace(base, argv=["no-such-program"]))
    assert outcome.code != 0
    with pytest.raises(Unavailable):
        run(Host(), replace(base, workspace=Path("/no/such/folder")))


def test_jobs_of_many_threads_do_not_mix(base: Job) -> None:
    said: dict[int, str] = {}

    def one(number: int) -> None:
        said[number] = text(run(Host(), replace(base, argv=["echo", str(number)])))

    pool = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    assert said == {number: f"{number}\n" for number in range(4)}


def test_on_the_host_programs_are_not_found_in_the_workspace(
    base: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert base.workspace is not None
    bin_ = base.workspace / "bin"
    bin_.mkdir()
    monkeypatch.setenv("PATH", f"{bin_}:.:relative:/usr/bin:/bin")
    assert search_path(base.workspace) == "/usr/bin:/bin"
    assert scrubbed({"BASH_ENV": "x", "A": "b", "C=": "d"}, path="/bin", home="/").keys() >= {"A", "PATH"}
    assert not {"BASH_ENV", "C="} & scrubbed({"BASH_ENV": "x", "C=": "d"}, path="/bin", home="/").keys()


@pytest.mark.parametrize(
    ("mode", "key", "expected"),
    [
        ("off", "agent:main:subagent:x", False),
        ("non-main", "agent:main:main", False),
        ("non-main", "agent:main:subagent:x", True),
        ("non-main", "agent:main:discord:dm:1", True),
        ("non-main", "clawboard:topic:t", True),
        ("all", "agent:main:main", True),
    ],
)
def test_the_mode_says_which_sessions_are_sandboxed(mode: str, key: str, expected: bool) -> None:
    assert is_sandboxed(Sandbox.model_validate({"mode": mode}), key) is expected


def test_the_scope_says_what_shares_a_folder(tmp_path: Path) -> None:
    def name(scope: str, agent_id: str, key: str) -> str:
        settings = Sandbox.model_validate({"mode": "off", "scope": scope})
        place = place_of(settings, tmp_path, agent_id=agent_id, session_key=key)
        assert place.scratch.is_dir()
        assert place.scratch.parent == tmp_path
        assert place.scratch.stat().st_mode & 0o777 == 0o700
        assert scope_name(settings, agent_id=agent_id, session_key=key) == place.scratch.name
        return place.scratch.name

    assert name("shared", "a", "k1") == name("shared", "b", "k2")
    assert name("agent", "a", "k1") == name("agent", "a", "k2") != name("agent", "b", "k1")
    assert name("session", "a", "k1") != name("session", "a", "k2")
    assert name("session", "a", "../../x") != name("session", "a", "x")


def test_a_sandbox_that_cannot_be_had_is_an_error_and_not_the_open_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for backend in ("auto", "bubblewrap", "docker"):
        settings = Sandbox.model_validate({"mode": "all", "backend": backend})
        with pytest.raises(Unavailable, match="there is no sandbox"):
            place_of(settings, tmp_path, agent_id="a", session_key="agent:a:main")


def test_a_container_is_started_closed_and_can_be_ended(base: Job) -> None:
    docker = Docker("img", network="bridge", cpus=1.5, env={"TOKEN": SECRET})
    start = docker.start(replace(base, argv=["ls", "-la"], access="ro", limits=Limits(processes=9)))
    words = " ".join(start.argv)
    assert start.argv[:2] == ("docker", "run")
    assert start.argv[-3:] == ("img", "ls", "-la")
    for part in (
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--pids-limit 9",
        "--cpus 1.5",
        f"source={base.workspace},target=/workspace,readonly",
        "--workdir /workspace",
        "--env TOKEN",
    ):
        assert part in words
    assert SECRET not in words
    assert start.env["TOKEN"] == SECRET
    name = start.argv[start.argv.index("--name") + 1]
    assert start.kill == ("docker", "kill", name)
    assert "--network bridge" in " ".join(docker.start(replace(base, network=True)).argv)
    closed = " ".join(docker.start(replace(base, access="none")).argv)
    assert "/workspace" not in closed.replace(str(base.workspace), "")
    assert "--workdir /scratch" in closed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_a_census_counts_a_process_and_stops_at_its_bound() -> None:
    assert census(os.getpid(), 1000).processes >= 1
    assert census(os.getpid(), 1000).memory_bytes > 0
    assert census(2**22 + 1, 10).memory_bytes == 0


@needs_bubblewrap
def test_a_bubblewrap_that_lies_elsewhere_than_commands_look_is_found(
    base: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("bwrap")
    assert real is not None
    for folder in ("elsewhere", "workspace/bin"):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "bwrap"
        program.write_text(f'#!/bin/sh\necho {folder}\nexec {real} "$@"\n')
        program.chmod(0o755)
    path = f"{tmp_path / 'workspace/bin'}:{tmp_path / 'elsewhere'}"
    monkeypatch.setenv("PATH", path)
    assert Bubblewrap().missing() is None
    said = text(sh(base, "echo inside"))
    assert said.split() == ["elsewhere", "inside"]
