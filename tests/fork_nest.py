"""The process that those of `forks.py` are forks of: it has loaded what gateways and commands are made of.

    fork_nest.py ADDRESS

Whoever connects sends what to run and three files, and hears the process's number and how it ended; when they
hang up it is killed. All end with the standard input.
"""

from __future__ import annotations

import array
import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import time
import types
from typing import Any, Final

PRELOADED: Final = (
    "alembic.command",
    "click.testing",
    "genai_prices.data",
    "holdfast.board.recall",
    "holdfast.cli.checks",
    "holdfast.cli.root",
    "holdfast.gateway.app",
    "holdfast.gateway.server",
    "holdfast.memory",
    "holdfast.plugins.backends",
    "holdfast.runtime.agency",
    "holdfast.runtime.rooms",
    "holdfast.services",
    "mcp.server.stdio",
    "numpy",
    "openai.resources.chat.completions",
    "openai.types.chat",
    "psycopg",
    "pydantic_ai.models.openai",
    "sqlalchemy.dialects.postgresql.psycopg",
    "watchfiles",
)
PLAIN_PATH: Final = sys.path[1:]


class Nest:
    def __init__(self, address: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen(64)
        self._awake, self._wake = socket.socketpair()
        self._awake.setblocking(False)
        self._wake.setblocking(False)
        self._lines: dict[int, socket.socket] = {}

    def next(self) -> dict[str, Any] | None:
        """What to run, in the process that is to run it; None in this one, when all is over."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())
        with selectors.DefaultSelector() as waiting:
            for one in (self._listening, self._awake, sys.stdin):
                waiting.register(one, selectors.EVENT_READ)
            while True:
                for key, _ in waiting.select():
                    if key.fileobj is sys.stdin:
                        return None
                    if key.fileobj is self._listening:
                        given = self._begin(waiting)
                        if given is not None:
                            return given
                    elif key.fileobj is self._awake:
                        self._awake.recv(4096)
                        self._bury(waiting)
                    elif key.data in self._lines:
                        os.kill(key.data, signal.SIGKILL)
                        waiting.unregister(key.fileobj)

    def _begin(self, waiting: selectors.BaseSelector) -> dict[str, Any] | None:
        line, _ = self._listening.accept()
        size, rights, _, _ = line.recvmsg(4, socket.CMSG_SPACE(3 * array.array("i").itemsize))
        given = marshal.loads(line.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        files = array.array("i", rights[0][2])
        pid = os.fork()
        if pid == 0:
            for number, file in enumerate(files):
                os.dup2(file, number)
            self._let_go(files)
            found: dict[str, Any] = given
            return found
        for file in files:
            os.close(file)
        line.sendall(pid.to_bytes(4, "big"))
        self._lines[pid] = line
        waiting.register(line, selectors.EVENT_READ, pid)
        return None

    def _let_go(self, files: array.array[int]) -> None:
        """In the new process: nothing of this one."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (self._listening, self._awake, self._wake, *self._lines.values()):
            one.close()
        for file in files:
            if file > 2:
                os.close(file)

    def _bury(self, waiting: selectors.BaseSelector) -> None:
        while self._lines:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            line = self._lines.pop(pid)
            if line in waiting.get_map():
                waiting.unregister(line)
                line.sendall(status.to_bytes(4, "big"))
            line.close()


def become(given: dict[str, Any]) -> None:
    """Run it, as if the interpreter had been called so."""
    if given.get("session"):
        os.setsid()
    os.chdir(given["cwd"])
    os.environ.clear()
    os.environ.update(given["env"])
    time.tzset()
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *PLAIN_PATH]
    _open_streams()
    args = given["args"]
    if args[0] == "-c":
        sys.argv = ["-c", *args[2:]]
        sys.path.insert(0, "")
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(args[1], "<string>", "exec"), main.__dict__)
    elif args[0] == "-m":
        sys.argv = args[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = args
        sys.path.insert(0, os.path.dirname(os.path.abspath(args[0])))
        runpy.run_path(args[0], run_name="__main__")


def _open_streams() -> None:
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = open(number, "w" if number else "r", encoding="utf-8")  # noqa: SIM115 - ends with the process
        if number:
            stream.reconfigure(line_buffering=number == 2 or os.isatty(1), write_through=at_once)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    nest = Nest(sys.argv[1])
    os.write(1, b"ready\n")
    given = nest.next()
    if given is not None:
        become(given)


if __name__ == "__main__":
    main()
