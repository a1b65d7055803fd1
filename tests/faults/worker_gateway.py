"""Gateways to be killed and stopped: each is a fork of this process, which has loaded all modules.

Each line that it reads is JSON. With `home` and `url` it begins a gateway and tells its process and its port;
with `cli` it runs that command and tells what it printed.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any, Final

from holdfast.gateway import listen, serve
from holdfast.runtime import open_home

PRELOADED: Final = (
    "alembic.command",
    "holdfast.cli.checks",
    "holdfast.memory",
    "holdfast.board.recall",
    "holdfast.runtime.agency",
    "holdfast.runtime.rooms",
    "numpy",
    "openai.resources.chat.completions",
    "psycopg",
    "pydantic_ai.models.openai",
    "sqlalchemy.dialects.postgresql.psycopg",
    "watchfiles",
)


def gateway(home: str, url: str) -> None:
    """Serve on any free port until a signal."""
    sock = listen("127.0.0.1", 0)
    told = {"pid": os.getpid(), "port": sock.getsockname()[1]}
    with open_home(home, store_url=url) as hold:
        os.write(1, json.dumps(told).encode() + b"\n")
        serve(hold, sock)


def command(given: list[str]) -> None:
    from click.testing import CliRunner

    from holdfast.cli.root import cli

    os.write(1, json.dumps(CliRunner().invoke(cli, given).stdout).encode() + b"\n")


def child(given: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        if "cli" in given:
            command(given["cli"])
        else:
            gateway(given["home"], given["url"])
    except BaseException:  # noqa: BLE001 - whoever started it reads why
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are buried at once
    for line in sys.stdin:
        if os.fork() == 0:
            child(json.loads(line))


if __name__ == "__main__":
    main()
