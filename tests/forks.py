"""Python processes that need not load what they are made of: forks of one that has loaded it.

To start a gateway takes more than a second of a core, nearly all of it for modules. `Popen` is
`subprocess.Popen` for commands that begin with `sys.executable`: its process has arguments, environment,
folder, files and end of its own, and can be killed. `python()` is an interpreter for others to start: it
stands for such a process, passes signals on to it and ends as it does. What is to be shown of the beginning
of a process itself is shown by `sys.executable`.

The workers of a run are such forks themselves, and share the process that all come of (`conftest.py`).
"""

from __future__ import annotations

import array
import atexit
import functools
import marshal
import os
import select
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

NEST: Final = Path(__file__).with_name("fork_nest.py")

SHARED: Final = "FORKS_NEST"
"""Names the address of one that was begun for several processes."""

# Of C alone, so that it is begun in ten milliseconds. Other flags than these a fork cannot be told.
STAND_IN: Final = """#!{python} -IS
import _signal, _socket, array, marshal, os, sys

args, env = sys.argv[1:], dict(os.environ)
if args[:1] == ["-u"]:
    env["PYTHONUNBUFFERED"] = "1"
    del args[0]
if args[:1] and args[0].startswith("-") and args[0] not in ("-c", "-m"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
said = marshal.dumps({{"args": args, "env": env, "cwd": os.getcwd()}})
line = _socket.socket(_socket.AF_UNIX)
line.connect({address!r})
rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
line.sendmsg([len(said).to_bytes(4, "big")], rights)
line.sendall(said)
pid = int.from_bytes(line.recv(4, _socket.MSG_WAITALL), "big")
for name in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGWINCH):
    _signal.signal(name, lambda given, _: os.kill(pid, given))
nothing = os.open(os.devnull, os.O_RDWR)
for end in (0, 1, 2):
    os.dup2(nothing, end)
code = os.waitstatus_to_exitcode(int.from_bytes(line.recv(4, _socket.MSG_WAITALL), "big"))
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@functools.cache
def _nest() -> str:
    """The address of the process that all are forks of; it ends with the one that began it."""
    if SHARED in os.environ:
        return os.environ[SHARED]
    folder = tempfile.TemporaryDirectory(prefix="hf-forks-")
    address = f"{folder.name}/asked"
    still = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))
    }
    nest = subprocess.Popen(
        [sys.executable, str(NEST), address],
        env=plain | still,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert nest.stdout is not None
    assert nest.stdout.readline() == b"ready\n"

    def end() -> None:
        nest.communicate()
        folder.cleanup()

    atexit.register(end)
    return address


def share() -> None:
    """All that this process begins, and what they begin, are forks of the same."""
    os.environ[SHARED] = _nest()


@functools.cache
def python() -> str:
    """The path of an interpreter whose processes are forks."""
    path = Path(_nest()).with_name(f"python-{os.getpid()}")
    path.write_text(STAND_IN.format(python=sys.executable, address=_nest()))
    path.chmod(0o755)
    return str(path)


class Popen(subprocess.Popen[Any]):
    """As `subprocess.Popen`, for `[sys.executable, …]`. It tells its number, and in the end how it ended."""

    def _execute_child(self, args: list[str], *rest: Any) -> None:
        cwd, env, ends, session = rest[4], rest[5], rest[9:15], rest[20]
        assert args[0] == sys.executable
        said = marshal.dumps(
            {
                "args": [os.fspath(one) for one in args[1:]],
                "env": dict(os.environ if env is None else env),
                "cwd": os.fspath(cwd or os.getcwd()),
                "session": session,
            }
        )
        own = [number if end == -1 else end for number, end in enumerate((ends[0], ends[3], ends[5]))]
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(_nest())
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", own))]
        self._line.sendmsg([len(said).to_bytes(4, "big")], rights)
        self._line.sendall(said)
        self.pid = self._told()
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    def _told(self) -> int:
        told = self._line.recv(4, socket.MSG_WAITALL)
        assert len(told) == 4, "the process that all are forks of is no more"
        return int.from_bytes(told, "big")

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if flags and not select.select([self._line], [], [], 0)[0]:
            return 0, 0
        with self._line:
            return self.pid, self._told()

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run(command: list[Any], *, timeout: float | None = None, check: bool = False, **options: Any) -> Any:
    """As `subprocess.run`."""
    given = options.pop("input", None)
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
