"""What the settings of tools change, shown by the tools themselves."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from test_web_tools import Answer, serving
from tool_world import World, world

from holdfast.agents.sandbox import Bubblewrap
from holdfast.agents.tools.fetching import Fetcher, address_refusal

FAKE_DOCKER = """#!/bin/sh
if [ "$1" = version ]; then echo 27; exit 0; fi
echo "docker $*"
echo "TIDE is $TIDE"
"""


def test_commands_get_the_environment_of_the_config(here: World) -> None:
    here.configure(tools={"exec": {"security": "full", "env": {"TIDE": "high"}}})
    assert "tide: high" in here.ok("exec", {"command": "echo tide: $TIDE"})


def test_a_command_is_ended_at_its_limit(here: World) -> None:
    here.configure(tools={"exec": {"security": "full", "timeoutSeconds": 1}})
    ended = here.call("exec", {"command": "sleep 600; echo whole"})
    assert "whole" not in ended.text
    assert ended.is_error


def test_a_container_is_what_the_config_says(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `docker` on the path that tells what it was asked for."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(FAKE_DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    docker = {
        "image": "harbour:1",
        "network": "pier",
        "memory": "64m",
        "cpus": 0.5,
        "env": {"TIDE": "high"},
    }
    sandbox = {"mode": "all", "backend": "docker", "docker": docker}
    here.configure(tools={"exec": {"security": "full"}}, agents={"defaults": {"sandbox": sandbox}})
    said = here.ok("exec", {"command": "ls"})
    for part in ("--network pier", "--memory 64m", "--cpus 0.5", " harbour:1 ", "TIDE is high"):
        assert part in said


@pytest.mark.skipif(Bubblewrap().missing() is not None, reason="bubblewrap is not installed")
def test_a_sandbox_has_a_network_where_the_config_says_so(here: World) -> None:
    sandbox = {"mode": "all", "backend": "bubblewrap", "network": True}
    here.configure(tools={"exec": {"security": "full"}}, agents={"defaults": {"sandbox": sandbox}})
    assert os.readlink("/proc/self/ns/net") in here.ok("exec", {"command": "readlink /proc/self/ns/net"})


def test_a_page_is_waited_for_and_followed_as_far_as_the_config_says(
    tmp_path: Path, sqlite_template: Path
) -> None:
    release = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> Answer:
        if handler.path == "/slow":
            release.wait()
        hops = {"/two": "/one", "/one": "/none"}
        if handler.path in hops:
            return 302, {"location": hops[handler.path]}, b""
        return 200, {"content-type": "text/plain"}, b"the tide table"

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.2"]

    fetcher = Fetcher(resolve, lambda ip: None if ip == "127.0.0.2" else address_refusal(ip))
    with serving(answer, "127.0.0.2") as port, world(tmp_path, sqlite_template, fetcher) as web:
        web.configure(tools={"web": {"fetch": {"maxRedirects": 1}}})
        assert "tide table" in web.ok("web_fetch", {"url": f"http://tides.example:{port}/one"})
        refused = web.refused("web_fetch", {"url": f"http://tides.example:{port}/two"})
        assert "more than 1 redirects" in refused
        web.configure(tools={"web": {"fetch": {"timeoutSeconds": 1}}})
        try:
            assert "within 1 s" in web.refused("web_fetch", {"url": f"http://tides.example:{port}/slow"})
        finally:
            release.set()


def test_a_search_is_waited_for_as_long_as_the_config_says(here: World) -> None:
    release = threading.Event()

    def answer(_handler: BaseHTTPRequestHandler) -> Answer:
        release.wait()
        return 200, {"content-type": "application/json"}, b'{"results": []}'

    with serving(answer) as port:
        search = {"enabled": True, "provider": f"http://127.0.0.1:{port}", "timeoutSeconds": 1}
        here.configure(tools={"web": {"search": search}})
        try:
            assert "within 1 s" in here.refused("web_search", {"query": "tides"})
        finally:
            release.set()
