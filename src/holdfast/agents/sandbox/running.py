"""Running a job to its end: bounded in time, output, processes and memory, and nothing left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.agents.sandbox.backend import Backend, End, Job, Limits, Outcome, Start
from holdfast.agents.sandbox.census import Census, census
from holdfast.errors import Unavailable

log = logging.getLogger(__name__)

_READ: Final = 65_536
_LOOK_SECONDS: Final = 0.02
_REST: Final = 5  # looking at many processes takes its time, most of which is for others
_FAR_PAST: Final = 64
_KILL_SECONDS: Final = 10


def run(
    backend: Backend,
    job: Job,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    heard: Callable[[bytes], None] = lambda _: None,
) -> Outcome:
    """Run a job and wait for it. Blocks; call it in a thread.

    `cancelled` is looked at while it runs, `heard` is handed all output as it comes, past what is kept too.
    """
    start = backend.start(job)
    began = time.monotonic()
    with _begun(start) as process:
        watch = _Watch(process, job.limits, began, cancelled, heard)
        try:
            end = watch.until_over()
        finally:
            _end(process, start)
    code = process.returncode if end == "exited" else None
    return Outcome(end, code, bytes(watch.kept), watch.seen - len(watch.kept), time.monotonic() - began)


@contextlib.contextmanager
def _begun(start: Start) -> Iterator[subprocess.Popen[bytes]]:
    try:
        process = subprocess.Popen(
            start.argv,
            env=dict(start.env),
            cwd=start.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(
            f"the command cannot be started: {error.strerror}: {error.filename or start.argv[0]}",
            code="exec_failed",
            hint="Check that the program is installed and the folder is there.",
        ) from error
    try:
        yield process
    finally:
        assert process.stdout is not None
        process.stdout.close()


class _Watch:
    """Reads what a process says and looks after it, in one thread."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        limits: Limits,
        began: float,
        cancelled: Callable[[], bool],
        heard: Callable[[bytes], None],
    ) -> None:
        self._process = process
        self._limits = limits
        self._deadline = began + limits.seconds
        self._cancelled = cancelled
        self._heard = heard
        self._next_look = began + _LOOK_SECONDS
        self.kept = bytearray()
        self.seen = 0

    def until_over(self) -> End:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                for _ in selector.select(_LOOK_SECONDS):
                    if not self._take(os.read(self._process.stdout.fileno(), _READ)):
                        return self._after_output()
                over = self._past_limit()
                if over is not None:
                    return over
                if self._process.poll() is not None and not selector.select(0):
                    return "exited"

    def _after_output(self) -> End:
        """The streams are closed; the process itself may go on for a while."""
        while self._process.poll() is None:
            over = self._past_limit()
            if over is not None:
                return over
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_SECONDS)
        return "exited"

    def _take(self, data: bytes) -> bool:
        self.seen += len(data)
        room = self._limits.output_bytes - len(self.kept)
        if room > 0:
            self.kept += data[:room]
        if data:
            self._heard(data)
        return bool(data)

    def _past_limit(self) -> End | None:
        now = time.monotonic()
        if now >= self._deadline or self._cancelled():
            return "timeout"
        if self.seen > self._limits.output_bytes * _FAR_PAST:
            return "output"
        if now < self._next_look:
            return None
        over = self._too_many(census(self._process.pid, self._limits.processes))
        looked = time.monotonic()
        self._next_look = looked + max(_LOOK_SECONDS, _REST * (looked - now))
        return over

    def _too_many(self, found: Census) -> End | None:
        most = self._limits.memory_bytes
        if found.processes > self._limits.processes:
            return "processes"
        return "memory" if found.memory_bytes > most and found.shared_once() > most else None


def _end(process: subprocess.Popen[bytes], start: Start) -> None:
    """Whatever is left of the job goes: its process group, and with it the sandbox's own processes."""
    running = process.poll() is None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if running and start.kill is not None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(start.kill, capture_output=True, timeout=_KILL_SECONDS, check=False)
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("process %d cannot be ended: it may run as another user", process.pid)
