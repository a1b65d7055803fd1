"""What the benchmarks share: a lean HTTP client, the CPU time of a process, and a table of ratios."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path


class Client:
    """One kept-alive connection; as little of its own as can be, so that the server is what is measured."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> tuple[int, bytes]:
        self._sock.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)[16:])
        while len(body) < length:
            body += self._receive()
        return int(head[9:12]), body

    def _receive(self) -> bytes:
        data = self._sock.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def close(self) -> None:
        self._sock.close()


def request(method: str, path: str, token: str = "", body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
    if body:
        lines.append("Content-Type: application/json")
    if token:
        lines.append(f"Authorization: Bearer {token}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used, to the nanosecond: its CPU clock is named by its number."""
    return time.clock_gettime((~pid << 3) | 2)


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def start(code: str, *args: str) -> tuple[subprocess.Popen[str], list[str]]:
    """Run Python code that prints one line when it is ready; returns it and that line's words."""
    process = subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()


def rounds(work: dict[str, Callable[[], float]], repeat: int) -> dict[str, float]:
    """Take turns, so that the machine's moods fall on all alike; the median of each."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeat):
        for name, run in work.items():
            taken[name].append(run())
    return {name: statistics.median(times) for name, times in taken.items()}


def timed(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def table(title: str, rows: Iterable[tuple[str, str, str, str]]) -> None:
    print(f"\n{title}")
    for name, value, ratio, target in rows:
        print(f"  {name:<46} {value:>16} {ratio:>10}   {target}")
