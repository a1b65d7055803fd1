"""Channels: messages a second in and out of one gateway, and the CPU of a message beyond its turn.

    python bench/channels.py [--service telegram] [--messages 300]

The service is the test's own server on this machine, behind the service's real library. *In* is how fast
messages are taken in that nobody answers (a group without a mention), *out* how fast messages by hand arrive,
*answered* a message with its turn by a scripted model. A turn's own CPU is that of the same messages asked
for over HTTP, without a channel; the difference is the channel's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "gateway"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "channels"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "channels" / "services"))

import httpx
from channel_stage import ended
from common import cpu_seconds
from service_stage import ServiceOnTrial, config, opened, script
from serving import wait_for

from holdfast.channels import ChannelAdmin
from holdfast.home import Home
from holdfast.runtime import open_home
from holdfast.testing import ScriptedOpenAI

MOST_WAITING = 8


def measured(pid: int, count: int, work: Callable[[], None]) -> tuple[float, float]:
    """Messages a second, and milliseconds of the gateway's CPU for each."""
    began, cpu = time.monotonic(), cpu_seconds(pid)
    work()
    passed = time.monotonic() - began
    return count / passed, (cpu_seconds(pid) - cpu) * 1000 / count


def run(service: ServiceOnTrial, home: Path, count: int) -> list[tuple[str, float, float]]:
    with ScriptedOpenAI(script) as model:
        (home / "holdfast.json").write_text(json.dumps(config(service, model.url)))
        arguments = [sys.executable, "-m", "holdfast.cli", "--home", str(home), "up", "--port", "0"]
        gateway = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            told = home / "gateway.json"
            wait_for(told.is_file)
            token = {"Authorization": f"Bearer {Home(home).admin_token()}"}
            with httpx.Client(base_url=json.loads(told.read_text())["url"], headers=token, timeout=60) as api:
                return measures(service, home, api, gateway.pid, count)
        finally:
            gateway.terminate()
            gateway.wait(60)


def measures(
    service: ServiceOnTrial, home: Path, api: httpx.Client, pid: int, count: int
) -> list[tuple[str, float, float]]:
    service.ready()
    service.say("a message to warm up with")
    service.answered(1)
    target = f"{service.name}:dm:{service.owner}"

    def come_in() -> None:
        for number in range(count):
            service.say(f"nobody asked {number}", sender="8", group=True)
        service.say("and now you", group=True, mention=True)
        service.answered(1, group=True)

    def go_out() -> None:
        before = len(service.shown())
        with open_home(home) as hold:
            office = ChannelAdmin(hold.store, lambda: hold.settings)
            for number in range(count):
                office.send(target, f"by hand {number}")
            wait_for(lambda: len(service.shown()) >= before + count)

    def answer() -> None:
        before = len(service.shown())
        for number in range(count):
            service.say(f"number {number}")
            wait_for(lambda far=before + number - MOST_WAITING: len(service.shown()) >= far)
        wait_for(lambda: len(service.shown()) >= before + count)

    def turns() -> None:
        for number in range(count):
            made = api.post("/api/agent", json={"message": f"number {number}"})
            ended(api, made.json()["runId"])

    rows = [("in, not answered", *measured(pid, count, come_in))] if service.groups else []
    rows.append(("in, answered, out", *measured(pid, count, answer)))
    rows.append(("turn alone, over HTTP", *measured(pid, count, turns)))
    rows.append(("out, by hand", *measured(pid, count, go_out)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--service", default="telegram")
    parser.add_argument("--messages", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        with opened(given.service, Path(folder) / "service") as service:
            rows = run(service, home, given.messages)
    print(
        f"{given.service}, {given.messages} messages, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    for name, pace, cpu in rows:
        print(f"  {name:24} {pace:8.1f} a second   {cpu:7.2f} ms of CPU each")


if __name__ == "__main__":
    main()
