"""The channel against a real server: Debian's ngircd (`apt-get install ngircd`)."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from holdfast_irc import MOST_BYTES, Line, pieces

from holdfast.gateway import listen
from holdfast.gateway.server import server_for
from holdfast.runtime import open_home
from holdfast.testing import Say, ScriptedOpenAI

PLUGIN = Path(__file__).parents[1]
NGIRCD = shutil.which("ngircd") or ("/usr/sbin/ngircd" if Path("/usr/sbin/ngircd").exists() else None)


def test_lines_are_read_as_the_protocol_has_them() -> None:
    assert Line.read("PING :abc") == Line("PING", ("abc",))
    assert Line.read(":ada!a@host PRIVMSG #pier :hello : there") == Line(
        "PRIVMSG", ("#pier", "hello : there"), "ada"
    )
    assert Line.read(":server 001 holdfast") == Line("001", ("holdfast",), "server")


def test_long_words_are_cut_between_letters_and_nothing_is_lost() -> None:
    text = "ü" * 1000 + " and\n\nmore " + "word " * 200
    made = list(pieces(text))
    assert all(0 < len(piece.encode()) <= MOST_BYTES for piece in made)
    assert "".join(made).replace(" ", "") == text.replace(" ", "").replace("\n", "")


@contextmanager
def ngircd(folder: Path) -> Iterator[int]:
    assert NGIRCD is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    config = folder / "ngircd.conf"
    config.write_text(
        f"[Global]\nName = irc.example.net\nInfo = test\nListen = 127.0.0.1\nPorts = {port}\n"
        f"PidFile = {folder}/pid\nMotdPhrase = hello\n"
        "[Options]\nDNS = no\nIdent = no\nPAM = no\n[Limits]\nMaxConnectionsIP = 0\n"
    )
    config.chmod(0o644)
    folder.chmod(0o755)
    server = subprocess.Popen(
        [NGIRCD, "-n", "-f", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        server.terminate()
        server.wait(10)


class Person:
    """Somebody on IRC."""

    def __init__(self, port: int, nick: str) -> None:
        end = time.monotonic() + 20
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port), 20)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < end
                time.sleep(0.05)
        self._file = self._socket.makefile("r", encoding="utf-8", newline="\r\n")
        self.send(f"NICK {nick}")
        self.send(f"USER {nick} 0 * :{nick}")
        self.until(" 001 ")

    def send(self, text: str) -> None:
        self._socket.sendall(text.encode() + b"\r\n")

    def until(self, part: str) -> str:
        for line in self._file:
            if line.startswith("PING"):
                self.send(line.strip().replace("PING", "PONG"))
            if part in line:
                return line.strip()
        raise AssertionError(f"the server never said {part!r}")

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.mark.skipif(NGIRCD is None, reason="ngircd is not installed")
def test_people_are_answered_in_a_channel_and_strangers_are_asked_to_pair(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with ngircd(tmp_path) as port, ScriptedOpenAI(lambda asked: Say("At nine, from the pier.")) as model:
        provider = {"baseUrl": model.url, "apiKey": "k", "models": [{"id": "m"}]}
        irc = {"host": "127.0.0.1", "port": port, "tls": False, "nick": "kelp", "join": ["#pier"]}
        channel = {"adapter": "irc", "groups": ["#pier"], "groupPolicy": "allowlist"}
        config = {
            "plugins": {"load": {"paths": [str(PLUGIN)]}, "entries": {"irc": {"config": irc}}},
            "channels": {"harbour": channel},
            "models": {"providers": {"test": provider}},
            "agents": {"defaults": {"model": "test/m"}},
            "gateway": {"shutdownGraceSeconds": 1},
        }
        (home / "holdfast.json").write_text(json.dumps(config))
        ada = Person(port, "ada")
        ada.send("JOIN #pier")
        ada.until("JOIN")
        with open_home(home) as hold:
            server = server_for(hold)
            thread = threading.Thread(target=server.run, args=([listen("127.0.0.1", 0)],), daemon=True)
            thread.start()
            try:
                ada.until("kelp")
                ada.send("PRIVMSG #pier :kelp: when does the ferry leave?")
                assert ada.until("PRIVMSG #pier").endswith(":At nine, from the pier.")
                ada.send("PRIVMSG kelp :and for me alone?")
                assert "PRIVMSG ada :" in ada.until("PRIVMSG ada")
            finally:
                server.should_exit = True
                thread.join(30)
                ada.close()
        assert not thread.is_alive()
