"""A small HTTP server in a thread that answers from a script."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

from holdfast.testing.script import (
    Answerer,
    Asked,
    Call,
    Calls,
    CutOff,
    Fail,
    Malformed,
    Say,
    Script,
    Stall,
    Turn,
    calls_of,
)


class ScriptedServer:
    """What both protocols share: a port of its own, the script, and a record of what was asked."""

    api: ClassVar[str]

    def __init__(
        self, script: Script = (), *, models: Sequence[str] = ("scripted",), host: str = "127.0.0.1"
    ) -> None:
        self._script = script
        self._models = tuple(models)
        self._lock = threading.Lock()
        self._turn = 0
        self._closing = threading.Event()
        self._server = _Server((host, 0), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.requests: list[Asked] = []
        self.faults: list[Exception] = []

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The base address to configure for a provider."""
        return self.origin

    @property
    def connections(self) -> int:
        """How many connections were made so far."""
        return self._server.accepted

    @property
    def left(self) -> int:
        """How many turns of a list were not asked for yet."""
        return 0 if callable(self._script) else max(0, len(self._script) - self._turn)

    def add(self, *turns: Turn) -> None:
        """Go on with these turns after those that are left."""
        with self._lock:
            if callable(self._script):
                raise TypeError("a script that is a function cannot be added to")
            self._script = (*self._script, *turns)

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.cut_all()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        """Close; what a script that is a function raised comes out here, unless the test failed already."""
        self.close()
        if self.faults and exc[0] is None:
            raise self.faults[0]

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__(*exc)

    def next_turn(self, asked: Asked) -> Turn:
        with self._lock:
            self.requests.append(asked)
            turn: Turn | Answerer
            if callable(self._script):
                turn = self._script
            elif self._turn < len(self._script):
                turn = self._script[self._turn]
                self._turn += 1
            else:
                return Fail(400, f"the script ended after {self._turn} turns", trouble="bad_request")
        return turn(asked) if callable(turn) else turn

    def answers(self, path: str) -> bool:
        """Whether a POST to this path asks the model."""
        raise NotImplementedError

    def streams(self, asked: Asked) -> bool:
        """Whether the answer to this request is a stream."""
        return asked.stream

    def listing(self) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": m, "object": "model", "created": 0} for m in self._models]}

    def other(self, path: str) -> dict[str, Any] | None:
        """What is answered at a path that asks no model, such as what a server says of itself."""
        return None

    def failure(self, turn: Fail) -> tuple[int, dict[str, Any]]:
        """The status and body of an error in this protocol."""
        raise NotImplementedError

    def whole(self, asked: Asked, turn: Say | Calls) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        raise NotImplementedError

    def malformed(self, payload: str) -> str:
        """One event of a stream whose data are these, however broken."""
        return f"data: {payload}\n\n"

    def events(self, asked: Asked, turn: Say | Calls, *, ending: bool = True) -> Iterator[str]:
        """The lines of a stream; without its `ending` it stops after the last word."""
        raise NotImplementedError


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], scripted: ScriptedServer) -> None:
        super().__init__(address, _Handler)
        self.scripted = scripted
        self.accepted = 0
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, Any]:
        request, address = super().get_request()
        self.accepted += 1
        self._open.add(request)
        return request, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        for request in list(self._open):
            cut(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        path = self.path.split("?")[0].rstrip("/")
        if (told := self.server.scripted.other(path)) is not None:
            self._json(200, told)
        elif path.endswith("/models"):
            self._json(200, self.server.scripted.listing())
        else:
            self._json(404, {"error": {"message": f"no such path: {self.path}"}})

    def do_POST(self) -> None:
        scripted = self.server.scripted
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0]
        if (told := scripted.other(path)) is not None:
            self._json(200, told)
            return
        if not scripted.answers(path):
            self._json(404, {"error": {"message": f"no such path: {self.path}"}})
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked("POST", path, headers, json.loads(raw or b"{}"))
        try:
            turn = scripted.next_turn(asked)
        except Exception as error:  # noqa: BLE001 - a script that fails is told of when the server closes
            scripted.faults.append(error)
            turn = Fail(400, f"the script failed: {error!r}", trouble="bad_request")
        self._answer(asked, turn)

    def _answer(self, asked: Asked, turn: Turn) -> None:
        scripted = self.server.scripted
        match turn:
            case Fail():
                self._fail(turn)
            case Malformed() | CutOff() | Stall():
                self._break(asked, turn)
            case Say() | Call() | Calls():
                said = turn if isinstance(turn, Say) else calls_of(turn)
                if scripted.streams(asked):
                    self._stream(scripted.events(asked, said), turn.pause if isinstance(turn, Say) else 0)
                else:
                    self._json(200, scripted.whole(asked, said))

    def _fail(self, turn: Fail) -> None:
        status, body = self.server.scripted.failure(turn)
        extra = {} if turn.retry_after is None else {"retry-after": str(turn.retry_after)}
        self._send(status, turn.body.encode() if turn.body is not None else json.dumps(body).encode(), extra)

    def _break(self, asked: Asked, turn: Malformed | CutOff | Stall) -> None:
        """Begin an answer and spoil it."""
        if isinstance(turn, Malformed) and not self.server.scripted.streams(asked):
            self._send(200, turn.payload.encode(), {})
            return
        self._open_stream()
        if turn.text:
            for line in self.server.scripted.events(asked, Say(turn.text), ending=False):
                self._chunk(line)
        if isinstance(turn, Malformed):
            self._chunk(self.server.scripted.malformed(turn.payload))
        if isinstance(turn, Stall):
            self._wait_for_end(turn.ping)
        elif isinstance(turn, CutOff) and not turn.clean:
            self.close_connection = True
            cut(self.connection)
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _stream(self, events: Iterator[str], pause: float) -> None:
        self._open_stream()
        for line in events:
            self._chunk(line)
            if pause and self.server.scripted._closing.wait(pause):
                return
        self.wfile.write(b"0\r\n\r\n")

    def _open_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _wait_for_end(self, ping: float) -> None:
        """Until the client hangs up, or `close` cuts the connection."""
        self.close_connection = True
        self.connection.settimeout(ping or None)
        while True:
            try:
                self.connection.recv(1)
                return
            except TimeoutError:
                self._chunk(": ping\n\n")

    def _json(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, json.dumps(body).encode(), {})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Tests read `requests`, not a log."""


def cut(connection: socket.socket) -> None:
    """End a connection as a dying peer does."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
