"""A home whose agent asks a scripted model, a gateway over it, and a terminal to type into."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import forks
from holdfast.testing import ScriptedOpenAI
from holdfast.testing.script import Script

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY")
PATIENCE_SECONDS = 60.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][0-9A-B]|[\x01\x02\r]")

Scripted = Callable[..., ScriptedOpenAI]


def write_config(home: Path, url: str, **more: Any) -> None:
    config: Mapping[str, Any] = {
        "models": {"providers": {"scripted": {"baseUrl": url, "apiKey": "sk-not-a-real-key"}}},
        "agents": {"defaults": {"model": "scripted/m"}},
        "gateway": {"port": 1},
        "memory": {"search": {"embedding": {"providers": []}}},
    }
    (home / "holdfast.json").write_text(json.dumps({**config, **more}))


@pytest.fixture
def scripted(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    """Begins a model with a script, and a home that uses it."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    home.mkdir(mode=0o700)
    (home / "workspace").mkdir()
    with contextlib.ExitStack() as stack:

        def begin(script: Script, **config: Any) -> ScriptedOpenAI:
            server = stack.enter_context(ScriptedOpenAI(script))
            write_config(home, server.url, **config)
            return server

        yield begin


@contextlib.contextmanager
def gateway(home: Path) -> Iterator[str]:
    """The gateway of a home, in a thread of this process; gives its address."""
    from holdfast.cli.client import announced
    from holdfast.gateway import listen
    from holdfast.gateway.server import server_for
    from holdfast.runtime import open_home

    with open_home(home) as hold:
        sock = listen("127.0.0.1", 0)
        server = server_for(hold)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])))
        thread.start()
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        try:
            with announced(hold.home, url):
                yield url
        finally:
            server.should_exit = True
            thread.join(30)


class Pty:
    """The program at a terminal of its own. `expect` waits for words on it, and fails with what is there."""

    def __init__(self, *args: object, width: int = 80, height: int = 40) -> None:
        python = forks.python()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(python, [python, "-m", "holdfast.cli", *map(str, args)])
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen = ""
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def expect(self, words: str) -> str:
        """What came up to these words, which must come behind those that were expected before."""
        until = time.monotonic() + PATIENCE_SECONDS
        while (at := self.screen.find(words, self._read)) < 0:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"no {words!r} in {self.screen[self._read :]!r}"
            assert self._take(), f"it ended without {words!r}: {self.screen[self._read :]!r}"
        seen = self.screen[self._read : at + len(words)]
        self._read = at + len(words)
        return seen

    def end(self) -> int:
        """Its exit code, once all it wrote is read."""
        while self._take():
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)

    def _take(self) -> bool:
        try:
            came = os.read(self._fd, 65536)
        except OSError:
            return False
        self.screen = _CONTROL.sub("", self.screen + self._decoder.decode(came))
        return bool(came)
